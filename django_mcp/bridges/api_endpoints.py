"""
``Endpoint``: one method of a REST framework view, and what it takes and returns.

``Endpoint`` makes an instance of the view with an anonymous request, and asks it for its
serializer, filters and pagination. This instance has ``swagger_fake_view = True``, which many
projects check in ``get_queryset``. It never handles a request.

REST framework has no attribute that says whether an action reads ``request.data``, or whether it
filters and paginates. So ``attribute_chains`` reads the bytecode of the action, and returns the
names that it uses. If an action passes the request to other code, that code may read the body, and
the project must name the serializer.
"""

from __future__ import annotations

import dis
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from io import BytesIO
from types import CodeType, FunctionType
from typing import Any

from django import forms
from django.contrib.admin.utils import get_fields_from_path
from django.contrib.auth.models import AnonymousUser
from django.core.handlers.wsgi import WSGIRequest
from rest_framework import filters, pagination, serializers, versioning
from rest_framework.generics import GenericAPIView
from rest_framework.settings import api_settings

from ..declarations.declaration import prose
from ..declarations.fields.columns import DECIMAL_ARGUMENT_PATTERN
from ..declarations.fields.search import MAX_QUERY_LENGTH
from ..declarations.form_values import form_choices, form_field_type, schema_of
from .api_tools import LINKS, QueryDenied, QueryParameter, page_schema
from .form_input import BARE_KEY
from .serializer_schemas import (
    SerializerInput,
    json_schema,
    model_key,
    openapi_type,
    output_schema,
)
from .views.urls import Route

JSON = dict[str, Any]
READ_ONLY_METHODS = ("get",)
# Versioning classes that read the version from a header or from the query string.
VERSIONINGS_OUTSIDE_URL = (versioning.AcceptHeaderVersioning, versioning.QueryParameterVersioning)
MULTIPART = "multipart/form-data"
# The beginning of the label that django-filter makes if a filter's name is no field of the model.
UNNAMED_FILTER = "[invalid name]"
BODY_ATTRIBUTES = ("data", "POST", "FILES", "body", "stream")  # of a request
# Methods of REST framework's views that return the view's serializer or its class.
SERIALIZER_METHODS = ("get_serializer", "get_serializer_class")
# Actions of REST framework's mixins: those that read the body with the view's serializer, those
# that return a list, those that return one row, and those that call ``get_object``.
WRITE_ACTIONS = ("create", "update", "partial_update")
LIST_ACTIONS = ("list",)
ROW_ACTIONS = ("retrieve", "create", "update", "partial_update")
LOOKUP_ACTIONS = ("retrieve", "update", "partial_update", "destroy")
ORDERING_DESCRIPTION = "The order, by the first name first. A minus sign means descending."

# Names in the chains of ``attribute_chains``.
WHOLE_REQUEST = "(request)"
DATA_KEYWORD = "data="
VIEW_CHAINS = (("self",), ("super",))  # the objects on which the code calls the view's own methods
# Bytecode instructions, by the beginning of the name: those that read an attribute of the value
# before them, and those that load a variable. The names of the latter are also parts of
# "LOAD_FAST_LOAD_FAST" and "STORE_FAST_LOAD_FAST", which Python 3.13 has.
ATTRIBUTE_INSTRUCTIONS = ("LOAD_ATTR", "LOAD_METHOD", "CACHE")
NAME_INSTRUCTIONS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
DEFAULT_DESCRIPTIONS = {
    "list": "List {many}.", "retrieve": "Show one {one}.", "create": "Create one new {one}.",
    "update": "Replace the fields of one {one}.",
    "partial_update": "Change one {one}: the fields that are given, and no others.",
    "destroy": "Delete one {one}.",
}  # fmt: skip


class UnknownBody(Exception):
    """The action may read the request's body, and its serializer is not known."""


def is_nested(schema: JSON) -> bool:
    """Whether the values are objects, or lists of objects or of lists."""
    kinds = schema.get("type")
    found = {*(kinds if isinstance(kinds, list) else [kinds])} - {"null"}
    items = schema.get("items", {})
    return found == {"object"} or "items" in items or (bool(items) and is_nested(items))


class Endpoint:
    """The method of a view that a tool calls. ``action`` is "" for a view that is not a viewset.

    ``stated`` contains the ``serializer`` and the ``query`` of the project's ``ViewSetTools`` or
    ``APIViewTools`` for this method, if it has any.
    """

    # Names of parameters that two filters read, or a filter and the pagination class. The property
    # ``query`` sets them.
    repeated_parameters: Sequence[str] = ()

    def __init__(
        self,
        view_class: Any,
        route: Route,
        method: str,
        action: str = "",
        *,
        stated: Mapping[str, Any],
    ) -> None:
        self.view_class, self.route, self.method, self.action = view_class, route, method, action
        self._stated = stated
        self.handler: Any = getattr(view_class, action or method)
        self.chains = {chain for chains in chains_of_functions(self.handler) for chain in chains}

    @property
    def reads_only(self) -> bool:
        return self.method in READ_ONLY_METHODS

    @cached_property
    def view(self) -> Any:
        """An instance of the view with an anonymous request, for the schemas only.

        The project's code may raise any exception.
        """
        callback: Any = self.route.callback
        options = getattr(callback, "initkwargs", None) or getattr(callback, "view_initkwargs", {})
        view = self.view_class(**options)
        view.swagger_fake_view = True
        http: Any = WSGIRequest(
            {
                "REQUEST_METHOD": self.method.upper(),
                "PATH_INFO": "/",
                "SERVER_NAME": "localhost",
                "SERVER_PORT": "443",
                "wsgi.url_scheme": "https",
                "wsgi.input": BytesIO(),
            }
        )
        http.user = http._force_auth_user = AnonymousUser()
        view.args, view.kwargs, view.format_kwarg = (), {}, None
        if self.action:
            view.action_map = callback.actions
        view.request = http  # as in a request: get_authenticators may read it
        view.request = view.initialize_request(http)
        view.request.version = view.request.versioning_scheme = None
        view.request.accepted_renderer, view.request.accepted_media_type = None, "application/json"
        return view

    @cached_property
    def callbacks(self) -> list[Any]:
        """The callbacks of the URL's patterns that run this action for this method."""
        found: list[Any] = [pattern.callback for pattern in self.route.patterns]
        if not self.action:
            return found
        return [one for one in found if one.actions.get(self.method) == self.action]

    def _calls(self, *names: str) -> bool:
        """Whether the code calls one of these methods of the view or of its base class."""
        return any(chain[:-1] in VIEW_CHAINS and chain[-1] in names for chain in self.chains)

    # The model.

    @cached_property
    def queryset(self) -> Any:
        """The queryset of the view for an anonymous user, or None if the view has none."""
        found = getattr(self.view, "queryset", None)
        if found is not None or not hasattr(self.view, "get_queryset"):
            return found
        try:
            return self.view.get_queryset()
        except Exception:  # it may need a user, or the kwargs of a URL
            model = getattr(getattr(self._serializer_class, "Meta", None), "model", None)
            return None if model is None else model._default_manager.none()

    @property
    def _serializer_class(self) -> Any:
        try:
            return self.view.get_serializer_class()
        except Exception:
            return None

    @cached_property
    def model(self) -> Any:
        return getattr(self.queryset, "model", None)

    # Input.

    def serializer(self) -> serializers.Serializer | None:
        """Return the serializer of the body, or None if the action reads no body.

        Raise ``UnknownBody``, or any exception of the project's code.
        """
        if self.reads_only:
            return None
        if "serializer" in self._stated:
            return _made_serializer(self._stated["serializer"])
        if (hint := self.hints.request) is not UNSTATED:
            return _made_serializer(hint)
        reads_body = any(
            chain[-2:-1] == ("request",) and chain[-1] in BODY_ATTRIBUTES for chain in self.chains
        )
        has_view_serializer = hasattr(self.view, "get_serializer")
        # A DELETE of REST framework has no body.
        may_have_body = reads_body or self.method != "delete"
        if has_view_serializer and may_have_body and self._reads_by_view_serializer(reads_body):
            return self.view.get_serializer()
        if reads_body:
            raise UnknownBody("it reads request.data, and names no serializer")
        if self._passes_request_on:
            raise UnknownBody("it passes the request to other code, which may read its body")
        return None

    def _reads_by_view_serializer(self, reads_body: bool) -> bool:
        """Whether the action reads the body with the serializer that ``get_serializer`` returns."""
        if "serializer_class" in getattr(self.handler, "kwargs", {}):  # an argument of @action
            return True
        if self.action in WRITE_ACTIONS or self._calls(*WRITE_ACTIONS):
            return True
        # An action may make a serializer only to write its result.
        takes_data = reads_body or (DATA_KEYWORD,) in self.chains or self._passes_request_on
        return self._calls(*SERIALIZER_METHODS) and takes_data

    @property
    def _passes_request_on(self) -> bool:
        """Whether the action passes the request to code that is not REST framework's."""
        return any(
            self._is_unknown_code(chain[1:])
            for chain in self.chains
            if chain[0] == WHOLE_REQUEST and chain != (WHOLE_REQUEST, "hasattr")
        )

    def _is_unknown_code(self, callee: tuple[str, ...]) -> bool:
        """Whether ``callee`` is anything but a method that the view has from REST framework."""
        if callee[:-1] not in VIEW_CHAINS:
            return True
        inherited = (vars(one).get(callee[-1]) for one in self.view_class.__mro__)
        found = [one for one in inherited if one is not None and one is not self.handler]
        packages = {str(one.__module__).partition(".")[0] for one in found}
        return packages != {"rest_framework"}

    def body(self) -> SerializerInput | None:
        """Return the fields of the body. Raise what ``serializer`` raises, or ``UnknownBody``."""
        found = self.serializer()
        if found is None:
            return None
        if not isinstance(found, serializers.Serializer):
            raise UnknownBody(f"{type(found).__name__} does not take the fields of one object")
        partial = self.method == "patch"
        return SerializerInput(found, partial=partial, takes_files=self.takes_files)

    @cached_property
    def takes_files(self) -> bool:
        """Whether the view parses uploads."""
        kinds = (str(one.media_type) for one in self.view.get_parsers())
        return MULTIPART in kinds

    # The URL.

    def path(self) -> JSON:
        """Return the schemas of the URL's arguments. A key has the type of the model's field."""
        names = {getattr(self.view, "lookup_url_kwarg", None), self._lookup} - {None}
        found = dict(self.route.properties)
        for name, schema in found.items():
            if name in names and self.model is not None:
                found[name] = model_key(self.model, self._lookup or "pk")
            elif schema == {"type": "string"}:  # a group of a regular expression
                found[name] = dict(BARE_KEY)
        return {name: schema for name, schema in found.items() if name not in self.fixed}

    @property
    def _lookup(self) -> str | None:
        return getattr(self.view, "lookup_field", None)

    @cached_property
    def lacks_lookup(self) -> str | None:
        """The name of the URL argument that ``get_object`` reads, if the URL does not have it."""
        own = getattr(self.view_class, "get_object", None)
        if own is not GenericAPIView.get_object:  # it may find its row by other means
            return None
        detail = getattr(self.view, "detail", None)
        if not detail and not self._calls("get_object", *LOOKUP_ACTIONS):
            return None
        name = self.view.lookup_url_kwarg or self._lookup
        return None if name in self.route.converters else str(name)

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """Arguments of the URL that have the same value in every call: the default version."""
        versioning = getattr(self.view_class, "versioning_class", None)
        name, version = (
            getattr(versioning, one, None) for one in ("version_param", "default_version")
        )
        return {name: version} if version and name in self.route.converters else {}

    @cached_property
    def needs_version(self) -> bool:
        """Whether the view rejects every request without a version in a header or parameter."""
        kind = getattr(self.view_class, "versioning_class", None)
        if kind is None or not issubclass(kind, VERSIONINGS_OUTSIDE_URL):
            return False
        return bool(kind.allowed_versions) and not kind.default_version

    # Query.

    def query(self, problems: list[str]) -> list[QueryParameter]:
        """Return the parameters of the query string.

        Add a text to ``problems`` for each filter backend that raises an exception. The parameters
        of this backend are left out.
        """
        found: list[QueryParameter] = []
        if self._is_list("filter_queryset"):
            for backend in getattr(self.view, "filter_backends", ()):
                try:
                    found += self._filters(backend())
                except Exception as error:  # filters run the project's code
                    problems.append(f"{backend.__name__}: {error}")
        found += self._pages()
        self.repeated_parameters = _repeated_names(one.name for one in found)
        if (stated := self._stated.get("query")) is not None:
            found += _parameters_of_serializer(_made_serializer(stated))
        named: dict[str, QueryParameter | None] = {one.name: one for one in found}
        # ``?format=csv`` would choose another renderer, whose output is not JSON.
        named |= {**self.hints.parameters, str(api_settings.URL_FORMAT_OVERRIDE): None}
        return [one for one in named.values() if one is not None]

    def _is_list(self, method: str) -> bool:
        """Whether this is a GET whose code calls ``method``, or the ``list`` of a mixin."""
        return self.reads_only and self._calls(method, "list")

    def _filters(self, backend: Any) -> Iterator[QueryParameter]:
        if hasattr(backend, "get_filterset_class"):
            yield from self._filterset(backend)
        elif isinstance(backend, filters.SearchFilter):
            if names := backend.get_search_fields(self.view, self.view.request):
                plain = ", ".join(str(name).lstrip("^=@$") for name in names)
                words = {"description": f"Text to search for in {plain}."}
                # Each word is a condition on all fields. A URL would limit their number.
                schema = {"type": "string", "maxLength": MAX_QUERY_LENGTH} | words
                yield QueryParameter(str(backend.search_param), schema)
        elif isinstance(backend, filters.OrderingFilter):
            context = {"request": self.view.request}
            valid = backend.get_valid_fields(self.queryset, self.view, context)
            names = [name for field, _ in valid for name in (str(field), f"-{field}")]
            if names:
                one = {"type": "string", "enum": names}
                schema = {"type": "array", "items": one, "description": ORDERING_DESCRIPTION}
                yield QueryParameter(str(backend.ordering_param), schema, separator=",")
        elif hasattr(backend, "get_schema_operation_parameters"):
            for shown in backend.get_schema_operation_parameters(self.view):
                yield _parameter_of_openapi(shown)

    def _filterset(self, backend: Any) -> Iterator[QueryParameter]:
        """Yield the filters of a filter set of django-filter."""
        kind = backend.get_filterset_class(self.view, self.queryset)
        if kind is not None:
            shown = kind(data=None, queryset=self.queryset, request=self.view.request)
            # An AllValuesFilter queries its choices, which is denied here. It becomes a parameter
            # for any text. The form makes the fields of the other filters.
            of_rows = [name for name, one in shown.filters.items() if _looks_up_choices(one)]
            others = {name: shown.filters.pop(name) for name in of_rows}
            for name, field in shown.form.fields.items():
                yield from _parameters_of_form_field(shown.form.add_prefix(name), field)
            for name, one in others.items():
                schema = _filter_of_rows(one)
                required = bool(one.extra.get("required"))
                yield QueryParameter(shown.form.add_prefix(name), schema, required)

    # Pages.

    @cached_property
    def paginator(self) -> Any:
        """The paginator of a list, or None."""
        found = getattr(self.view, "paginator", None)
        return found if found is not None and self._is_list("paginate_queryset") else None

    def _pages(self) -> Iterator[QueryParameter]:
        found = self.paginator
        number = {"type": "integer", "minimum": 1}
        if isinstance(found, pagination.LimitOffsetPagination):
            most = {"maximum": found.max_limit} if found.max_limit else {}
            words = {"description": "How many rows to return."}
            yield QueryParameter(found.limit_query_param, number | most | words)
            words = {"description": "How many rows to skip."}
            yield QueryParameter(
                found.offset_query_param, {"type": "integer", "minimum": 0} | words
            )
        elif isinstance(found, pagination.PageNumberPagination | pagination.CursorPagination):
            if isinstance(found, pagination.CursorPagination):
                words = {"description": "The cursor in next or previous of another page."}
                yield QueryParameter(found.cursor_query_param, {"type": "string"} | words)
            elif found.page_size or found.page_size_query_param:
                words = {"description": "Which page of the list."}
                yield QueryParameter(found.page_query_param, number | words)
            if found.page_size_query_param:
                most = {"maximum": found.max_page_size} if found.max_page_size else {}
                words = {"description": "How many rows a page has."}
                yield QueryParameter(found.page_size_query_param, number | most | words)
        elif found is not None:
            for shown in found.get_schema_operation_parameters(self.view):
                yield _parameter_of_openapi(shown)

    # Output.

    def output(self) -> JSON | None:
        """Return the schema of the response, or None if nothing says what it contains."""
        try:
            return self._output()
        except Exception:  # a serializer may need a user, and a schema is not necessary
            return None

    def _output(self) -> JSON | None:
        hint = self.hints.response
        if hint is not UNSTATED:
            found = _made_serializer(hint) if hint is not None else None
        elif self._returns_rows:
            found = self.view.get_serializer()
        else:
            return None
        if not isinstance(found, serializers.BaseSerializer):
            return None
        schema = output_schema(found)
        is_list = (
            self.reads_only
            and (self.action or "list") in LIST_ACTIONS
            and self._calls("get_serializer", "list")
        )
        if not is_list or self.paginator is None:
            if is_list and schema["type"] == "object":
                return {"type": "array", "items": schema}
            return schema
        return self._page_schema(schema)

    @property
    def _returns_rows(self) -> bool:
        """Whether this is an action of REST framework's mixins, or calls one.

        Such an action returns what the view's serializer writes.
        """
        if not hasattr(self.view, "get_serializer"):
            return False
        if not self.action:
            return self._calls(*LIST_ACTIONS, *ROW_ACTIONS)
        # An overridden action may return anything, unless it calls the original or the serializer.
        standard = self.action in (*LIST_ACTIONS, *ROW_ACTIONS)
        return standard and self._calls("get_serializer", *LIST_ACTIONS, *ROW_ACTIONS)

    def _page_schema(self, schema: JSON) -> JSON | None:
        """Return the schema of a page. None if the view may also return the whole list."""
        size = getattr(self.paginator, "page_size", None)
        if size is None and getattr(self.paginator, "default_limit", None) is None:
            return None
        items = schema if schema["type"] == "array" else {"type": "array", "items": schema}
        stated = self.paginator.get_paginated_response_schema({"type": "array"})
        found = json_schema(_with_arguments(stated))
        found.pop("required", None)
        for name, part in found.get("properties", {}).items():
            if part == {"type": "array"}:
                found["properties"][name] = items
            elif name in LINKS:
                found["properties"][name] = page_schema(name)
        return found

    # Texts.

    def description(self) -> str:
        """Return what the action does: from hints, its docstring, or the kind of the action."""
        own = self.hints.description or prose(_own_docstring(self.handler))
        if own:
            return own
        meta = getattr(self.model, "_meta", None)
        kind = self.action or next((one for one in DEFAULT_DESCRIPTIONS if self._calls(one)), "")
        view = prose(vars(self.view_class).get("__doc__")) or ""
        if kind in DEFAULT_DESCRIPTIONS and meta is not None:
            sentence = DEFAULT_DESCRIPTIONS[kind].format(
                one=meta.verbose_name, many=meta.verbose_name_plural
            )
            return f"{sentence} {view}".strip()
        if self.action:
            return f"{self.action.replace('_', ' ').capitalize()}. {view}".strip()
        return view or f"{self.method.upper()} {self.route.path}"

    # Hints of drf-spectacular.

    @cached_property
    def hints(self) -> Hints:
        """What ``@extend_schema`` on the method or the class says."""
        stated = getattr(self.handler, "kwargs", {}).get("schema")
        stated = stated or getattr(self.view_class, "schema", None)
        if stated is None or find_spec("drf_spectacular") is None:
            return Hints()
        return _spectacular_hints(stated, self.view, self.method)


def _with_arguments(schema: JSON, name: str = "") -> JSON:
    """Return the schema of a page, with arguments in place of URLs of other pages."""
    if schema.get("format") == "uri":
        return page_schema(name)
    if (properties := schema.get("properties")) is None:
        return schema
    return schema | {"properties": {k: _with_arguments(v, k) for k, v in properties.items()}}


def _made_serializer(serializer: Any) -> Any:
    return serializer() if isinstance(serializer, type) else serializer


def _own_docstring(handler: Any) -> str | None:
    """Return the docstring if the project wrote it. REST framework's describe its own code."""
    ours = not str(getattr(handler, "__module__", "")).startswith("rest_framework.")
    return handler.__doc__ if ours else None


# Query parameters.


def _repeated_names(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _parameters_of_serializer(serializer: serializers.Serializer) -> Iterator[QueryParameter]:
    found = SerializerInput(serializer).schema
    for name, schema in found["properties"].items():
        yield QueryParameter(name, schema, name in found.get("required", ()))


def _parameter_of_openapi(shown: Mapping[str, Any]) -> QueryParameter:
    """Return a parameter that is described as OpenAPI describes it."""
    schema = json_schema(shown.get("schema") or {"type": "string"})
    words = {"description": str(shown["description"])} if shown.get("description") else {}
    separator = "" if shown.get("explode", True) else ","
    return QueryParameter(shown["name"], schema | words, bool(shown.get("required")), separator)


def _parameters_of_form_field(name: str, field: forms.Field) -> Iterator[QueryParameter]:
    """Yield the parameters of a filter: one, or one for each part of a range."""
    widget: Any = field.widget
    if isinstance(field, forms.MultiValueField) and hasattr(widget, "suffixed"):
        parts = zip(field.fields, widget.suffixes, strict=True)
        for part, suffix in parts:
            yield QueryParameter(widget.suffixed(name, suffix), _filter_schema(part, field, suffix))
        return
    schema, separator = _filter_schema(field, field), ""
    if any(kind.__name__ == "BaseCSVField" for kind in type(field).__mro__):
        words = {"description": label} if (label := _label_sentence(field)) else {}
        schema.pop("description", None)
        schema, separator = {"type": "array", "items": schema} | words, ","
    yield QueryParameter(name, schema, field.required, separator)


def _looks_up_choices(shown: Any) -> bool:
    """Whether a filter of django-filter needs rows or a user to make its form field."""
    try:
        shown.field  # noqa: B018
    except QueryDenied:
        return True
    except Exception:
        # A function that returns the rows of the user has no user yet. The type of keys is known.
        if issubclass(shown.field_class, forms.ModelChoiceField):
            return True
        raise
    return False


def _filter_of_rows(shown: Any) -> JSON:
    """Return the schema of a filter whose form field cannot be made: of keys, or of any text."""
    kind = shown.field_class
    one: JSON = {"type": "string"}
    if issubclass(kind, forms.ModelChoiceField):
        one = dict(BARE_KEY)
        with suppress(Exception):  # of a filter with a method, the name may be any
            related: Any = get_fields_from_path(shown.model, shown.field_name)[-1].related_model
            one = model_key(related, shown.extra.get("to_field_name") or "pk")
    several = issubclass(kind, forms.MultipleChoiceField | forms.ModelMultipleChoiceField)
    return {"type": "array", "items": one} if several else one


def _filter_schema(field: forms.Field, labelled: forms.Field, suffix: str | None = "") -> JSON:
    found = _filter_type(field)
    labels = "; ".join(f"{value}: {label}" for value, label in form_choices(field))
    texts = [_label_sentence(labelled, suffix), str(labelled.help_text or ""), labels]
    words = " ".join(text for text in texts if text)
    return found | ({"description": words} if words else {})


def _label_sentence(field: forms.Field, suffix: str | None = "") -> str:
    """Return the label as a sentence, or "" if there is none."""
    label = str(field.label or "")
    if label.startswith(UNNAMED_FILTER):
        label = ""
    text = " ".join(one for one in (label, suffix) if one)
    return text if not text or text[-1] in ".?!" else f"{text}."


def _filter_type(field: forms.Field) -> JSON:
    if isinstance(field, forms.ModelMultipleChoiceField):
        return {"type": "array", "items": _filter_key(field)}
    if isinstance(field, forms.ModelChoiceField):
        return _filter_key(field)
    if isinstance(field, forms.BooleanField):
        return {"type": "boolean"}
    if isinstance(field, forms.DecimalField) and not isinstance(field, forms.FloatField):
        return {"type": ["number", "string"], "pattern": DECIMAL_ARGUMENT_PATTERN}
    kind = form_field_type(field)
    found = schema_of(field, kind, required=False)
    found = dict(found["anyOf"][0]) if "anyOf" in found else dict(found)
    return {"type": ["string", "number", "boolean"]} | found


def _filter_key(field: Any) -> JSON:
    """Return the type of the key of a row. The rows are not listed."""
    model = getattr(field.queryset, "model", None)
    return model_key(model, field.to_field_name or "pk") if model is not None else dict(BARE_KEY)


# Code.


def chains_of_functions(handler: Any) -> Iterator[set[tuple[str, ...]]]:
    """Yield the attribute chains of a function and of the functions that it decorates.

    A decorator passes the request to the function that it decorates, which is read too. So the
    chains of a decorator that begin with ``WHOLE_REQUEST`` are left out.
    """
    waiting, seen = [handler], set()
    while waiting:
        function = waiting.pop()
        function = getattr(function, "__func__", function)
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        inner = [getattr(function, "__wrapped__", None)]
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # the cell is not filled yet
                inner.append(cell.cell_contents)
        is_decorator = any(isinstance(found, FunctionType) for found in inner)
        chains = set(attribute_chains(function))
        yield {chain for chain in chains if not (is_decorator and chain[0] == WHOLE_REQUEST)}
        waiting += inner


def attribute_chains(function: FunctionType) -> Iterator[tuple[str, ...]]:
    """Yield chains of names in the code of a function, such as ``("self", "request", "data")``.

    The result of a call begins a new chain with "()", and that of ``super()`` with "super". An item
    is "[]". The first parameter after ``self`` is called "request", whatever its name is.

    If the code uses the request itself and not an attribute of it, the chain is ``WHOLE_REQUEST``
    and the chain before it. For ``self.check(request)`` this is ``("(request)", "self", "check")``.
    A call with the keyword ``data`` is the chain ``("data=",)``.
    """
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount]
    request = next((name for name in parameters if name != "self"), "request")
    waiting = [code]
    while waiting:
        code = waiting.pop()
        yield from _chains_in(code, request)
        if any(isinstance(names, tuple) and "data" in names for names in code.co_consts):
            yield (DATA_KEYWORD,)
        # Lambdas, comprehensions and functions inside of the function.
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def _chains_in(code: CodeType, request: str) -> Iterator[tuple[str, ...]]:
    whole = (("request",), ("self", "request"))
    chain: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    callee: tuple[str, ...] = ()  # the chain before the current one
    for instruction in dis.get_instructions(code):
        opname, argval = instruction.opname, instruction.argval
        if chain in whole and not opname.startswith(ATTRIBUTE_INSTRUCTIONS):
            yield (WHOLE_REQUEST, *callee)
        if opname.startswith("LOAD_SUPER_ATTR"):
            chain = ("super", argval)
        elif opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            chain = (*chain, argval)
        elif any(name in opname for name in NAME_INSTRUCTIONS):
            # One instruction may store or load two names. The last one is on top of the stack.
            loaded = argval if isinstance(argval, tuple) else (argval,)
            # Python 3.13 also loads the cell of a variable so, which a function inside uses.
            cells = code.co_cellvars if "LOAD_FAST" in opname else ()
            names = ["" if name in cells else name for name in loaded]
            names = ["request" if name == request else name for name in names]
            if len(names) > 1 and names[0] == "request" and not opname.startswith("STORE"):
                yield (WHOLE_REQUEST, *chain)
            callee, chain = chain, (str(names[-1]),)
        elif opname.startswith("LOAD_CONST"):
            chain, before = (), chain
            continue
        elif opname.startswith("BINARY_SUBSCR"):
            chain = (*before, "[]")
        elif opname.startswith("CALL"):
            chain = chain if chain == ("super",) else ("()",)
        elif opname not in ("PRECALL", "PUSH_NULL", "CACHE"):
            chain = ()
        before = ()
        if len(chain) > 1:
            yield chain


# Hints of drf-spectacular.

UNSTATED: Any = object()  # ``@extend_schema`` says nothing. None means that there is no body.


@dataclass(frozen=True)
class Hints:
    """What ``@extend_schema`` says. ``parameters`` has None for those that it excludes."""

    request: Any = UNSTATED
    response: Any = UNSTATED
    parameters: Mapping[str, QueryParameter | None] = field(default_factory=dict)
    description: str = ""


def _spectacular_hints(stated: Any, view: Any, method: str) -> Hints:
    """Return what a class or instance that ``@extend_schema`` made says about one method."""
    from drf_spectacular.openapi import AutoSchema

    class UnstatedSchema(AutoSchema):
        """The base of ``StatedSchema``, in place of drf-spectacular's guesses.

        It returns ``UNSTATED`` for what ``@extend_schema`` does not state. ``Endpoint`` then reads
        the view itself.
        """

        def get_request_serializer(self) -> Any:
            return UNSTATED

        def get_response_serializers(self) -> Any:
            return UNSTATED

        def get_override_parameters(self) -> Any:
            return []

        def get_description(self) -> Any:
            return ""

    kind = stated if isinstance(stated, type) else type(stated)
    if not issubclass(kind, AutoSchema) or kind is AutoSchema:
        return Hints()
    schema = type("StatedSchema", (kind, UnstatedSchema), {})()
    schema.view, schema.method, schema.path = view, method.upper(), "/"
    request, response = schema.get_request_serializer(), schema.get_response_serializers()
    return Hints(
        request=_serializer_in(request, response=False),
        response=_serializer_in(response, response=True),
        parameters=dict(_stated_parameters(schema)),
        description=str(schema.get_description() or ""),
    )


def _serializer_in(stated: Any, *, response: bool) -> Any:
    """Return the serializer in a hint, None if it says that there is none, or ``UNSTATED``."""
    if isinstance(stated, Mapping):
        keys = [key for key in stated if not response or str(_status(key)).startswith("2")]
        stated = stated[keys[0]] if keys else UNSTATED
    for attribute in ("request", "response"):  # OpenApiRequest, OpenApiResponse
        if type(stated).__module__.startswith("drf_spectacular."):
            stated = getattr(stated, attribute, stated)
    is_class = isinstance(stated, type) and issubclass(stated, serializers.BaseSerializer)
    known = stated is None or is_class or isinstance(stated, serializers.BaseSerializer)
    return stated if known else UNSTATED


def _status(key: Any) -> Any:
    return key[0] if isinstance(key, tuple) else key


def _stated_parameters(schema: Any) -> Iterator[tuple[str, Any]]:
    from drf_spectacular.utils import OpenApiParameter

    for one in schema.get_override_parameters():
        if isinstance(one, type | serializers.Serializer):
            if isinstance(made := _made_serializer(one), serializers.Serializer):
                yield from ((found.name, found) for found in _parameters_of_serializer(made))
        elif isinstance(one, OpenApiParameter) and one.location == OpenApiParameter.QUERY:
            yield one.name, None if one.exclude else _parameter_of_spectacular(one)


def _parameter_of_spectacular(one: Any) -> QueryParameter:
    schema = openapi_type(one.type)
    schema |= {"enum": list(one.enum)} if one.enum else {}
    if one.many:
        schema = {"type": "array", "items": schema}
    words = {"description": str(one.description)} if one.description else {}
    separator = "," if one.explode is False else ""
    return QueryParameter(one.name, schema | words, bool(one.required), separator)
