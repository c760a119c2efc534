"""
Operations of django-ninja: their URLs, and the schemas of their arguments and responses.

ninja makes one pydantic model for the parameters of each source: path, query, header, cookie,
body, form and file. It publishes and validates these models, and the tool's schemas come from them.
The operation validates the arguments again when it runs.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlencode

from django.utils.datastructures import MultiValueDict
from ninja import NinjaAPI, Router
from ninja.constants import NOT_SET
from ninja.operation import Operation, PathView
from ninja.pagination import CursorPagination
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from ..declarations.declaration import prose
from ..declarations.form_values import FILE_SCHEMA
from ..declarations.schemas import ClosedSchema, TerseSchema, all_of
from .api_tools import LINKS, METHODS, QueryParameter, arguments_in, page_schema, read_file
from .views.requests import FORM, Body, multipart, types_in
from .views.urls import Pattern, Route, patterns_to

JSON = dict[str, Any]
BODY_SOURCES = ("body", "form", "file")
DEFINITION = "#/$defs/"


def path_view_of(callback: Any) -> PathView | None:
    """Return ninja's ``PathView`` that a callback of the URLconf runs, also if it is decorated."""
    function = inspect.unwrap(callback)
    for cell in getattr(function, "__closure__", None) or ():
        if isinstance(cell.cell_contents, PathView):
            return cell.cell_contents
    return None


def mounted_operations(subject: NinjaAPI | Router) -> list[MountedOperation]:
    """Return the operations of an API or router that have a URL in the URLconf.

    Those of a router include the operations of routers that were added to it.
    """
    found: dict[PathView, list[tuple[str, Pattern]]] = {}
    for name, pattern in patterns_to(lambda one: path_view_of(one.callback) is not None):
        view = path_view_of(pattern.callback)
        assert view is not None
        found.setdefault(view, []).append((name, pattern))
    signatures = _signatures(subject) if isinstance(subject, Router) else []
    return [
        MountedOperation(operation, view, _route(patterns), [one.callback for _, one in patterns])
        for view, patterns in found.items()
        for operation in view.operations
        if operation.api is subject or operation.signature in signatures
    ]


def _route(patterns: list[tuple[str, Pattern]]) -> Route:
    # ninja adds a URL pattern of the same path for each operation, and Django uses the first.
    name, first = patterns[0]
    same = [one for named, one in patterns if (named, one.route) == (name, first.route)]
    return Route(name, same)


def _signatures(router: Router) -> list[Any]:
    """Return the signatures of a router's operations.

    An API that includes the router has copies of the operations, with the same signature objects.
    """
    templates = [mount.template for mount in router.build_routers("")]
    views = [view for one in templates for view in one.path_operations.values()]
    return [operation.signature for view in views for operation in view.operations]


@dataclass(frozen=True, eq=False)
class MountedOperation:
    """An operation of an API, and its URL."""

    operation: Operation
    view: PathView
    route: Route
    callbacks: list[Any]

    @property
    def function_name(self) -> str:
        return str(self.operation.signature.view_func.__name__)

    @property
    def operation_id(self) -> str:
        operation = self.operation
        return operation.operation_id or operation.api.get_openapi_operation_id(operation)

    @property
    def module(self) -> str:
        return str(self.operation.signature.view_func.__module__)

    def entry_among(self, names: list[str]) -> str:
        """Return the name of the function, or the operation id if ``names`` has the name twice."""
        own = self.function_name
        return own if names.count(own) == 1 else self.operation_id

    @property
    def methods(self) -> list[str]:
        """The methods that run this operation, and not another one of the same path."""
        found = [one for one in METHODS if one.upper() in self.operation.methods]
        return [one for one in found if self._runs_for(one.upper())]

    def _runs_for(self, method: str) -> bool:
        running = (one for one in self.view.operations if method in one.methods)
        return next(running) is self.operation

    @property
    def description(self) -> str:
        return prose(self.operation.description) or f"{self.operation.summary}."

    @property
    def has_cursor(self) -> bool:
        """Whether it returns pages that contain the URLs of the next and the previous page."""
        function = self.operation.signature.view_func
        contributed = getattr(function, "_ninja_contribute_to_operation", ())
        given = (one.args for one in contributed if isinstance(one, partial))
        return any(isinstance(one, CursorPagination) for args in given for one in args)


# Input.


class InputSchema(ClosedSchema):
    """pydantic's JSON Schema without defaults of null, which many types do not allow."""

    def default_schema(self, schema: Any) -> JSON:
        if "default" in schema and schema["default"] is None:
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)


@dataclass(frozen=True)
class Argument:
    """One argument, and where the operation takes it from."""

    name: str
    source: str
    schema: JSON
    required: bool


@dataclass
class OperationInput:
    """The arguments of an operation, and the body that is made of them.

    Fields of models in the path, the query string and forms are arguments of their own, as ninja
    reads them. So are the fields of the only model in a JSON body, unless the model is optional or
    accepts unknown keys. Everything else in a body is an argument with the name of the parameter.
    """

    operation: Operation
    arguments: list[Argument] = field(default_factory=list)
    definitions: JSON = field(default_factory=dict)
    # ninja reads the whole JSON body as one parameter if the operation has only one for it. Its
    # name is in one of these: its fields are arguments, or it is a single argument itself.
    flattened_body: str | None = None
    single_body: str | None = None

    def __post_init__(self) -> None:
        models: Any = self.operation.models
        self.definitions = definitions_of(models, "validation", InputSchema)
        schemas = [self.definitions.pop(f"{number}") for number in range(len(models))]
        for model, schema in zip(models, schemas, strict=True):
            source = model.__ninja_param_source__
            flat = getattr(model, "__ninja_flatten_map__", None)
            if flat is not None:
                self.arguments += [self._flat(source, schema, *one) for one in flat.items()]
            elif source == "body":
                self.arguments += self._body_arguments(model, schema)
            else:
                self.arguments += map(_file_argument, _properties(source, schema))

    def _flat(self, source: str, schema: JSON, name: str, path: tuple[str, ...]) -> Argument:
        """Return the argument for one field, which may be inside of models."""
        required = True
        for step in path:
            schema = self._object(schema)
            required = required and step in schema.get("required", ())
            schema = schema["properties"][step]
        return Argument(name, source, _without_null(schema), required)

    def _body_arguments(self, model: Any, schema: JSON) -> Iterator[Argument]:
        name = getattr(model, "__read_from_single_attr__", None)
        if name is None:
            yield from _properties("body", schema)
            return
        (found,) = schema["properties"].values()
        inner, required = self._resolved(found), name in schema.get("required", ())
        if required and inner.get("additionalProperties") is False and "properties" in inner:
            self.flattened_body = name
            yield from _properties("body", inner)
        else:
            self.single_body = name
            yield Argument(name, "body", found, required)

    def _resolved(self, schema: JSON) -> JSON:
        """Return the definition to which a schema refers, or the schema itself."""
        ref = schema.get("$ref")
        return self.definitions[ref.removeprefix(DEFINITION)] if ref else schema

    def _object(self, schema: JSON) -> JSON:
        """Return the schema with properties: of an optional model, that of the model."""
        schema = self._resolved(schema)
        choices = [self._resolved(one) for one in schema.get("anyOf", ())]
        return next((one for one in choices if "properties" in one), schema)

    def arguments_from(self, *sources: str) -> list[Argument]:
        """Return the arguments from these sources."""
        return [one for one in self.arguments if one.source in sources and _is_shown(one)]

    @property
    def unavailable(self) -> list[Argument]:
        """The required headers and cookies, which the request of a tool never has."""
        return [one for one in self.arguments_from("header", "cookie") if one.required]

    def check_flat(self) -> None:
        """Raise ``TypeError`` for an object in a URL or form, which contain only texts."""
        for one in self.arguments_from("path", "query", "form"):
            if "object" in types_in(one.schema, self.definitions):
                raise TypeError(f"the {one.source} parameter {one.name!r} is an object.")

    @property
    def query(self) -> list[QueryParameter]:
        found = self.arguments_from("query")
        return [QueryParameter(one.name, one.schema, one.required) for one in found]

    @property
    def body_schema(self) -> JSON:
        found = self.arguments_from(*BODY_SOURCES)
        required = [one.name for one in found if one.required]
        return {"properties": {one.name: one.schema for one in found}, "required": required}

    def schema_with_definitions(self, schema: JSON) -> JSON:
        """Return the schema of all arguments with the definitions to which it refers."""
        return with_definitions(schema, self.definitions)

    def body(self, given: Mapping[str, Any], method: str) -> Body | None:
        """Return the body for the arguments of a request. None for a GET without one."""
        given = arguments_in(self.body_schema, dict(given))
        if self.arguments_from("form", "file"):
            return self._form(given, method)
        if not self.arguments_from("body"):
            return None if method == "GET" else Body(type="application/json", method=method)
        if (name := self.single_body) is not None:
            data = json.dumps(given[name]).encode() if name in given else b""
        else:
            data = json.dumps(given).encode()
        return Body(data, "application/json", method)

    def _form(self, given: Mapping[str, Any], method: str) -> Body:
        data: dict[str, list[str]] = {}
        files: MultiValueDict[str, Any] = MultiValueDict()
        for one in self.arguments_from(*BODY_SOURCES):
            if given.get(one.name) is None:
                continue
            value = given[one.name]
            if one.source == "file":
                uploads = value if isinstance(value, list) else [value]
                files.setlist(one.name, [read_file(upload, one.name) for upload in uploads])
            elif one.source == "body":  # ninja reads the parameters of a body in a form as JSON
                data[one.name] = [json.dumps(value)]
            else:
                data[one.name] = QueryParameter(one.name, {}).encode(value)
        if files:
            return Body(*multipart(data, files), method)
        return Body(urlencode(data, doseq=True).encode(), FORM, method)

    def argument_path(self, location: list[Any]) -> str:
        """Return the path of an argument for ninja's ``loc`` of an error: ``lines.0.price``."""
        source, *path = map(str, location) if location else ("",)
        if source == "body" and path[:1] == [self.flattened_body]:
            path = path[1:]
        return ".".join(path)


def _properties(source: str, schema: JSON) -> Iterator[Argument]:
    for name, prop in schema.get("properties", {}).items():
        yield Argument(name, source, prop, name in schema.get("required", ()))


def _file_argument(argument: Argument) -> Argument:
    """Return the argument for an uploaded file or a list of them: objects with base64."""
    schema = _without_null(argument.schema)
    several = schema.get("type") == "array"
    schema = {"type": "array", "items": FILE_SCHEMA} if several else FILE_SCHEMA
    return replace(argument, schema=schema)


def _is_shown(argument: Argument) -> bool:
    """Whether the API publishes a parameter: one with ``include_in_schema=False`` is not."""
    return argument.required or argument.schema.get("include_in_schema") is not False


def _without_null(schema: JSON) -> JSON:
    """Return the schema without null, which only JSON can contain."""
    choices = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    if not choices or len(choices) == len(schema["anyOf"]):
        return schema
    rest = {key: value for key, value in schema.items() if key != "anyOf"}
    return choices[0] | rest if len(choices) == 1 else rest | {"anyOf": choices}


# Output.


class OutputSchema(TerseSchema):
    """pydantic's JSON Schema in which a field that is None by default may be null."""

    def default_schema(self, schema: Any) -> JSON:
        found = super().default_schema(schema)
        if found.pop("default", ...) is None:
            return {"anyOf": [found, {"type": "null"}]}
        return found


class OperationOutput:
    """The schema of the data of a successful response."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        found = operation.response_models.items()
        self._models = [model for code, model in found if code is ... or 200 <= code < 300]

    @property
    def is_declared(self) -> bool:
        return NOT_SET not in self._models

    @cached_property
    def schema(self) -> JSON | None:
        """The schema, or None if the response has no data or the operation declares none."""
        models = [one for one in self._models if one is not None]
        if not self.is_declared or not models:
            return None
        operation = self._operation
        definitions = definitions_of(
            models, "serialization", OutputSchema, by_alias=operation.by_alias
        )
        if operation.exclude_unset or operation.exclude_defaults or operation.exclude_none:
            for part in definitions.values():
                _drop_required(part)
        wrapped = [definitions.pop(f"{number}") for number in range(len(models))]
        choices = [one["properties"]["response"] for one in wrapped]
        if len(models) < len(self._models):  # another success has no data, which becomes {}
            choices.append({"type": "object", "maxProperties": 0})
        if len(choices) > 1:
            return with_definitions({"anyOf": choices}, definitions)
        (found,) = choices
        name = found.get("$ref", "").removeprefix(DEFINITION)
        return with_definitions(definitions.get(name, found), definitions)


def _drop_required(schema: Any) -> None:
    """Remove ``required`` everywhere, because the operation may leave fields out of its data."""
    if isinstance(schema, dict):
        if isinstance(schema.get("required"), list):
            del schema["required"]
        for part in schema.values():
            _drop_required(part)
    elif isinstance(schema, list):
        for part in schema:
            _drop_required(part)


def with_links(schema: JSON) -> JSON:
    """Return the schema of a page whose links are arguments of the tool."""
    found = schema.get("properties", {})
    links = {name: page_schema(name) for name in LINKS if name in found}
    return schema | {"properties": found | links}


# JSON Schema.


def definitions_of(
    models: list[Any],
    mode: JsonSchemaMode,
    generator: type[TerseSchema],
    *,
    by_alias: bool = True,
) -> JSON:
    """Return definitions for models and all models in them, by name.

    The names of ``models`` are replaced by their indexes, because two may have the same name.
    """
    pairs = [(model, mode) for model in models]
    refs, found = models_json_schema(pairs, by_alias=by_alias, schema_generator=generator)
    definitions: JSON = dict(found.get("$defs", {}))
    for name, schema in definitions.items():
        if schema.get("title") == name or name.endswith(f"__{schema.get('title')}"):
            del schema["title"]
    named = [refs[pair]["$ref"].removeprefix(DEFINITION) for pair in pairs]
    numbered = {str(number): definitions[name] for number, name in enumerate(named)}
    return {name: one for name, one in definitions.items() if name not in named} | numbered


def with_definitions(schema: JSON, definitions: JSON) -> JSON:
    """Return the schema with the definitions to which it refers, and no others."""
    found: JSON = {}
    waiting = [*all_of("$ref", schema)]
    while waiting:
        name = str(waiting.pop()).removeprefix(DEFINITION)
        if name not in found and name in definitions:
            found[name] = definitions[name]
            waiting += all_of("$ref", found[name])
    return schema | ({"$defs": dict(sorted(found.items()))} if found else {})
