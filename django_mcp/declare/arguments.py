"""
The arguments of the project's functions: their schema, their validation, their binding.

Rule: validation never touches the database. It yields plain values, and keys
where a model is asked for; one binding step then fetches what the keys name,
through the queryset its caller may see. Unknown arguments are refused, and
what is said of a wrong one is something a model can act on.

pydantic writes the schemas and validates, strictly: what does not fit the
published schema is not bent until it does.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ..exceptions import InvalidArguments
from . import schemas
from .bindings import Find
from .completions import completer_problem
from .declarations import argument_descriptions
from .headers import SAFE_INTEGER, at, mark, marked
from .meta import json_problem
from .parameters import Parameter, parameters_of, takes_anything

if TYPE_CHECKING:
    from django.core.checks import CheckMessage

    from .declarations import Declaration
    from .model_resources import ModelResource
    from .requests import Request

PREFIX = "argument_"  # a field called "schema" or "copy" would shadow pydantic's own
MAX_ECHO, MAX_ERRORS, MAX_STEPS = 80, 8, 8
MOST_ERRORS = 1000  # that are written out, to tell the first of them


class TerseSchema(GenerateJsonSchema):
    """pydantic's schema without the titles it makes up."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


@dataclass
class Arguments:
    """What a function takes after the request.

    ``schema`` is the JSON Schema of the arguments, an object.
    """

    parameters: dict[str, Parameter] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    model: type[BaseModel] | None = None
    handwritten: bool = False
    anything: bool = True  # whether the function takes what the hand-written schema lets through

    # From the wire.

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The values of JSON arguments. Raises ``InvalidArguments``."""
        self._check_headers(given)
        if self.handwritten:
            return self._read_by_schema(given)
        assert self.model is not None
        text = json.dumps(given)
        return self._validated(lambda validator: validator.validate_json(text, strict=True))

    def _check_headers(self, given: Mapping[str, Any]) -> None:
        """An integer in a header is within what every client can represent (server/tools)."""
        for path in self.headers:
            value = at(path, given)
            if isinstance(value, int) and abs(value) > SAFE_INTEGER:
                limits = f"an integer from -{SAFE_INTEGER} to {SAFE_INTEGER}"
                raise InvalidArguments(f"Invalid arguments. {'.'.join(path)}: {limits}.")

    def read_text(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The values of arguments that arrive as strings, of prompts and URIs."""
        named: dict[str, Any] = {PREFIX + name: value for name, value in given.items()}
        return self._validated(lambda validator: validator.validate_strings(named, by_name=True))

    def _validated(self, validate: Callable[[Any], BaseModel]) -> dict[str, Any]:
        assert self.model is not None
        try:
            found = validate(self.model.__pydantic_validator__)
        except ValidationError as error:
            raise InvalidArguments(self._explain(error)) from None
        given, values = found.model_fields_set, vars(found)
        return {name: values[field] for name, field in self._fields if field in given}

    @cached_property
    def _fields(self) -> list[tuple[str, str]]:
        """The parameters, and what each is called in the model."""
        return [(name, PREFIX + name) for name in self.parameters]

    def _read_by_schema(self, given: Mapping[str, Any]) -> dict[str, Any]:
        problems = [f"{one}." for one in schemas.violations(self.schema, dict(given))]
        if not self.anything:
            unknown = [name for name in given if name not in self.parameters][:MAX_ERRORS]
            problems += [_unknown(name[:MAX_ECHO], self.parameters) for name in unknown]
        if problems:
            raise InvalidArguments("Invalid arguments. " + " ".join(problems))
        return dict(given)

    def _explain(self, error: ValidationError) -> str:
        if error.error_count() > MOST_ERRORS:
            names = ", ".join(self.parameters)
            return f"Invalid arguments. Much is wrong in them; there are: {names}."
        errors = error.errors(include_url=False)[:MAX_ERRORS]
        return "Invalid arguments. " + " ".join(_line(one, self.parameters) for one in errors)

    # To the project.

    @property
    def binds(self) -> bool:
        return any(parameter.binding for parameter in self.parameters.values())

    @property
    def resources(self) -> list[ModelResource]:
        """Whose rows the arguments name."""
        return [one.binding.resource for one in self.parameters.values() if one.binding]

    def bind(self, values: dict[str, Any], request: Request, *, write: bool) -> dict[str, Any]:
        """``values`` with every key replaced by the object it names.

        Raises ``InvalidArguments`` for what is not there or not for this user,
        in the same words.
        """
        bindings = {n: p.binding for n, p in self.parameters.items() if p.binding and n in values}
        fetched = {n: b.fetch(values[n], request, write=write) for n, b in bindings.items()}
        return values | fetched

    @cached_property
    def headers(self) -> dict[tuple[str, ...], str]:
        """Header names by the path of the argument, or of the property of one, they mirror."""
        return {path: prop["x-mcp-header"] for path, prop in marked(self.schema)}


def arguments_of(
    function: Callable[..., Any], find: Find, *, schema: Mapping[str, Any] | None = None
) -> Arguments:
    """The arguments of ``function`` after its first, the request.

    ``find`` gives the resource through which a model is bound; ``schema`` is a
    hand-written schema, published as it is. Raises ``ImproperlyConfigured``.
    """
    parameters = parameters_of(function, find, handwritten=schema is not None)
    if schema is not None:
        anything = takes_anything(function)
        return Arguments(parameters, dict(schema), handwritten=True, anything=anything)
    try:
        model = _model(parameters)
        return Arguments(parameters, _schema(model, parameters, _descriptions(function)), model)
    except Exception as error:  # whatever a type does when pydantic asks for its schema
        words = str(error).partition("\n")[0]
        raise ImproperlyConfigured(f"No schema can be made of the arguments: {words}") from error


def _descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """What is said of the arguments: by the class of a method, and by the function itself."""
    owner = type(function.__self__).__doc__ if inspect.ismethod(function) else None
    return argument_descriptions(owner) | argument_descriptions(inspect.getdoc(function))


def _model(parameters: Mapping[str, Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        PREFIX + name: (parameter.annotation, _field(name, parameter))
        for name, parameter in parameters.items()
    }
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    model: type[BaseModel] = create_model("Arguments", __config__=config, **fields)
    for name, parameter in parameters.items():
        if model.model_fields[PREFIX + name].is_required() != parameter.required:
            raise ValueError(f"{name}: write its default as the function's, not in a Field.")
    return model


def _field(name: str, parameter: Parameter) -> Any:
    return Field(alias=name) if parameter.required else Field(default=None, alias=name)


def _schema(
    model: type[BaseModel], parameters: Mapping[str, Parameter], described: Mapping[str, str]
) -> dict[str, Any]:
    schema = model.model_json_schema(schema_generator=TerseSchema)
    schema.pop("title", None)
    for name, prop in schema.get("properties", {}).items():
        if name in described:
            _describe(prop, described[name], bound=parameters[name].binding is not None)
        _show_default(prop, parameters[name].default)
        if header := parameters[name].header:
            mark(prop, header)
    if not schema.get("properties"):
        schema.pop("properties", None)
    return schema


def _describe(prop: dict[str, Any], words: str, *, bound: bool) -> None:
    """The docstring's words, unless the annotation has its own; a key says what it is as well."""
    own = prop.get("description", "")
    prop["description"] = f"{words} {own}".strip() if bound else own or words


def _show_default(prop: dict[str, Any], default: Any) -> None:
    """Replace pydantic's stand-in by the function's own default, where JSON has it."""
    prop.pop("default", None)
    if default is None or default is inspect.Parameter.empty:
        return
    try:
        value = to_jsonable_python(default)
    except PydanticSerializationError:
        return
    if json_problem(value) is None:
        prop["default"] = value


def fit_problems(arguments: Arguments) -> list[str]:
    """Where a hand-written schema and the function it is written for do not meet."""
    lists = [one for one in schemas.all_of("required", arguments.schema) if isinstance(one, list)]
    demanded = set(chain.from_iterable(lists))
    required = [one.name for one in arguments.parameters.values() if one.required]
    problems = [
        f"{n}: the function needs it, the schema does not." for n in required if n not in demanded
    ]
    offered = [] if arguments.anything else arguments.schema.get("properties", {})
    return problems + [
        f"{n}: the function does not take it." for n in offered if n not in arguments.parameters
    ]


def text_problems(thing: Declaration, arguments: Arguments) -> Iterator[CheckMessage]:
    """What keeps arguments from arriving as strings, and from being completed."""
    properties, definitions = arguments.schema.get("properties", {}), arguments.schema.get("$defs")
    for name, parameter in arguments.parameters.items():
        one_key = parameter.binding is not None and not parameter.binding.many
        if not one_key and _is_structured(properties[name], definitions or {}):
            words = f"The argument {name} of a {thing.kind} arrives as a string."
            hint = "Use a plain type, a Literal, an enum or a registered model."
            yield thing.error(words, 18, hint)
        if parameter.complete and (wrong := completer_problem(parameter.complete)):
            hint = "Annotated[str, mcp.Complete(function)], or a list of values."
            yield thing.error(f"{name}: {wrong}", 17, hint)


def _is_structured(prop: Mapping[str, Any], definitions: Mapping[str, Any]) -> bool:
    if "$ref" in prop:
        prop = definitions[prop["$ref"].rpartition("/")[2]]
    if "anyOf" in prop:
        branches = [one for one in prop["anyOf"] if one.get("type") != "null"]
        return all(_is_structured(one, definitions) for one in branches)
    return prop.get("type") in ("array", "object")


# What is wrong with an argument, in words.


def _line(error: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    place = _place(error["loc"], known)
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return _unknown(place, known)
    if error["type"].startswith("missing"):
        return f"{place}: this argument is required."
    return f"{place}: {error['msg']}{_echo(error.get('input'))}."


def _place(steps: Sequence[Any], known: Mapping[str, Any]) -> str:
    names = [str(step)[:MAX_ECHO] for step in steps[:MAX_STEPS]] or ["arguments"]
    first = names[0] if names[0] in known else names[0].removeprefix(PREFIX)
    return ".".join([first, *names[1:]])


def _unknown(place: str, known: Mapping[str, Any]) -> str:
    return f"{place}: there is no such argument; there are: {', '.join(known) or 'none'}."


def _echo(value: Any) -> str:
    if isinstance(value, dict | list) or value is None:
        return ""
    text = repr(value)
    return f" (got {text if len(text) <= MAX_ECHO else text[:MAX_ECHO] + '…'})"
