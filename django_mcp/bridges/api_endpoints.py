"""
``Endpoint``: one method of a REST framework view, and what it takes and returns.

An instance of the view with an anonymous request shows its serializer, filters and pagination,
without a call. That instance has ``swagger_fake_view = True``, which many projects check in
``get_queryset``. It never handles a request.

REST framework does not say whether an action reads ``request.data``, or whether it filters and
paginates. The names that the code of the action uses answer that (``attribute_chains``). Code that
passes the request on may read its body elsewhere, so the project has to state the serializer.
"""

from __future__ import annotations

import dis
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from io import BytesIO
from types import CodeType, FunctionType
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib.auth.models import AnonymousUser
from django.core.handlers.wsgi import WSGIRequest
from rest_framework import filters, pagination, serializers
from rest_framework.generics import GenericAPIView
from rest_framework.settings import api_settings

from ..declarations.declaration import prose
from ..declarations.fields.columns import DECIMAL_ARGUMENT_PATTERN
from ..declarations.form_values import choices_of, form_field_type, schema_of
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
READS = ("get",)
# Methods of REST framework's views that read the body with the view's serializer.
SERIALIZING = ("get_serializer", "get_serializer_class", "create", "update", "partial_update")
BODIES = ("data", "POST", "FILES", "body", "stream")  # attributes of a request
# What the actions of REST framework's mixins return.
LISTS, OBJECTS = ("list",), ("retrieve", "create", "update", "partial_update")
DETAILS = ("retrieve", "update", "partial_update", "destroy")
SENTENCES = {
    "list": "List {many}.", "retrieve": "Show one {one}.", "create": "Create one new {one}.",
    "update": "Replace the fields of one {one}.",
    "partial_update": "Change one {one}: the fields that are given, and no others.",
    "destroy": "Delete one {one}.",
}  # fmt: skip


class UnknownBody(Exception):
    """The action reads the request's body, and nothing says with which serializer."""


class QueryDenied(Exception):
    """Code of the project queried the database while the schema of a tool was made.

    It is no ``DatabaseError``: projects catch that, and go on without their tables.
    """


def deny_queries(*args: Any) -> Any:
    """Raise ``QueryDenied``: a wrapper of queries, as ``connection.execute_wrapper`` takes."""
    raise QueryDenied("it queries the database, and rows must not be part of a schema")


@dataclass(frozen=True)
class QueryParameter:
    """One parameter of the query string. A list is joined by ``separator``, or repeated."""

    name: str
    schema: JSON
    required: bool = False
    separator: str = ""

    def texts(self, value: Any) -> list[str]:
        """Return the texts that the query string contains for ``value``."""
        texts = [_text(one) for one in (value if isinstance(value, list) else [value])]
        return [self.separator.join(texts)] if self.separator else texts


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)


def is_nested(schema: JSON) -> bool:
    """Whether the values are objects, or lists of objects or of lists."""
    kinds = schema.get("type")
    found = {*(kinds if isinstance(kinds, list) else [kinds])} - {"null"}
    items = schema.get("items", {})
    return found == {"object"} or "items" in items or (bool(items) and is_nested(items))


class Endpoint:
    """The method of a view that a tool calls. ``action`` is "" for a view that is no viewset.

    ``stated`` has the ``serializer`` and the ``query`` that the project's class states for it.
    """

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
        self.chains = {chain for one in functions_in(self.handler) for chain in one}

    @property
    def reads_only(self) -> bool:
        return self.method in READS

    @cached_property
    def view(self) -> Any:
        """An instance of the view that handles no request. The project's code may raise."""
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
        return any(chain[:-1] in OWN and chain[-1] in names for chain in self.chains)

    # The model.

    @cached_property
    def queryset(self) -> Any:
        """The queryset of the view, unfiltered by a user, or None if there is none to look at."""
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
        if "serializer" in self._stated:
            return _instance(self._stated["serializer"])
        if self.reads_only:
            return None
        if (hint := self.hints.request) is not UNSTATED:
            return _instance(hint)
        reads = any(chain[-2:-1] == ("request",) and chain[-1] in BODIES for chain in self.chains)
        own = "serializer_class" in getattr(self.handler, "kwargs", {})
        own = own or self.action in SERIALIZING or self._calls(*SERIALIZING)
        own = own and (reads or self.method != "delete")
        if own and hasattr(self.view, "get_serializer"):
            return self.view.get_serializer()
        if reads:
            raise UnknownBody("it reads request.data, and names no serializer")
        if any(self._is_passed_on(chain) for chain in self.chains):
            raise UnknownBody("it passes the request on, which may be read elsewhere")
        return None

    def _is_passed_on(self, chain: tuple[str, ...]) -> bool:
        """Whether a chain shows that other code than REST framework's gets the whole request."""
        if chain[0] != BARE or chain == (BARE, "hasattr"):
            return False
        *_, name = chain
        kinds = (vars(one).get(name) for one in self.view_class.__mro__)
        named = [one for one in kinds if one is not None and one is not self.handler]
        ours = [one for one in named if not str(one.__module__).startswith("rest_framework.")]
        return chain[1:-1] not in OWN or not named or bool(ours)

    def body(self) -> SerializerInput | None:
        """Return the fields of the body. Raise what ``serializer`` raises, or ``UnknownBody``."""
        found = self.serializer()
        if found is None:
            return None
        if not isinstance(found, serializers.Serializer):
            raise UnknownBody(f"{type(found).__name__} does not take the fields of one object")
        return SerializerInput(found, partial=self.method == "patch")

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
        if not detail and not self._calls("get_object", *DETAILS):
            return None
        name = self.view.lookup_url_kwarg or self._lookup
        return None if name in self.route.converters else str(name)

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """Arguments of the URL that no client chooses: the default version of the API."""
        versioning = getattr(self.view_class, "versioning_class", None)
        name, version = (
            getattr(versioning, one, None) for one in ("version_param", "default_version")
        )
        return {name: version} if version and name in self.route.converters else {}

    # Query.

    def query(self, problems: list[str]) -> list[QueryParameter]:
        """Return the parameters of the query string.

        Add to ``problems`` what cannot be read. A parameter of that name is left out.
        """
        found: list[QueryParameter] = []
        if self._is_list("filter_queryset"):
            for backend in getattr(self.view, "filter_backends", ()):
                try:
                    found += self._filters(backend())
                except Exception as error:  # filters run the project's code
                    problems.append(f"{backend.__name__}: {error}")
        found += self._pages()
        if (stated := self._stated.get("query")) is not None:
            found += _of_serializer(_instance(stated))
        named: dict[str, QueryParameter | None] = {one.name: one for one in found}
        # ``?format=csv`` chooses another renderer. Its result would not be JSON.
        named |= {**self.hints.parameters, str(api_settings.URL_FORMAT_OVERRIDE): None}
        return [one for one in named.values() if one is not None]

    def _is_list(self, method: str) -> bool:
        """Whether it is a list whose code calls ``method``, or passes to a mixin that does."""
        return self.reads_only and self._calls(method, "list")

    def _filters(self, backend: Any) -> Iterator[QueryParameter]:
        if hasattr(backend, "get_filterset_class"):
            yield from self._filterset(backend)
        elif isinstance(backend, filters.SearchFilter):
            if names := backend.get_search_fields(self.view, self.view.request):
                plain = ", ".join(str(name).lstrip("^=@$") for name in names)
                words = {"description": f"Text to search for in {plain}."}
                yield QueryParameter(str(backend.search_param), {"type": "string"} | words)
        elif isinstance(backend, filters.OrderingFilter):
            context = {"request": self.view.request}
            valid = backend.get_valid_fields(self.queryset, self.view, context)
            names = [name for field, _ in valid for name in (str(field), f"-{field}")]
            if names:
                one = {"type": "string", "enum": names}
                schema = {"type": "array", "items": one, "description": ORDERING}
                yield QueryParameter(str(backend.ordering_param), schema, separator=",")
        elif hasattr(backend, "get_schema_operation_parameters"):
            for shown in backend.get_schema_operation_parameters(self.view):
                yield _of_openapi(shown)

    def _filterset(self, backend: Any) -> Iterator[QueryParameter]:
        """Yield the filters of a filter set of django-filter."""
        kind = backend.get_filterset_class(self.view, self.queryset)
        if kind is not None:
            shown = kind(data=None, queryset=self.queryset, request=self.view.request)
            # An AllValuesFilter looks up its choices. It takes any text, and the others are kept.
            of_rows = [name for name, one in shown.filters.items() if _looks_up_choices(one)]
            kinds = {name: shown.filters.pop(name).field_class for name in of_rows}
            for name, field in shown.form.fields.items():
                yield from _of_form_field(shown.form.add_prefix(name), field)
            for name, field_class in kinds.items():
                one: JSON = {"type": "string"}
                several = issubclass(field_class, forms.MultipleChoiceField)
                schema = {"type": "array", "items": one} if several else one
                yield QueryParameter(shown.form.add_prefix(name), schema)

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
                yield _of_openapi(shown)

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
            found = _instance(hint) if hint is not None else None
        elif self._is_plain:
            found = self.view.get_serializer()
        else:
            return None
        if not isinstance(found, serializers.BaseSerializer):
            return None
        schema = output_schema(found)
        is_list = (
            self.reads_only
            and (self.action or "list") in LISTS
            and self._calls("get_serializer", "list")
        )
        if not is_list or self.paginator is None:
            if is_list and schema["type"] == "object":
                return {"type": "array", "items": schema}
            return schema
        return self._page_schema(schema)

    @property
    def _is_plain(self) -> bool:
        """Whether it is one of the actions of REST framework, or a method that calls one."""
        if not hasattr(self.view, "get_serializer"):
            return False
        if not self.action:
            return self._calls(*LISTS, *OBJECTS)
        # An action that is written anew may return anything.
        standard = self.action in (*LISTS, *OBJECTS)
        return standard and self._calls("get_serializer", *LISTS, *OBJECTS)

    def _page_schema(self, schema: JSON) -> JSON | None:
        """Return the schema of a page. None if the view may also return the whole list."""
        size = getattr(self.paginator, "page_size", None)
        if size is None and getattr(self.paginator, "default_limit", None) is None:
            return None
        items = schema if schema["type"] == "array" else {"type": "array", "items": schema}
        found = json_schema(self.paginator.get_paginated_response_schema({"type": "array"}))
        found.pop("required", None)
        for name, part in found.get("properties", {}).items():
            if part == {"type": "array"}:
                found["properties"][name] = items
            elif name in LINKS:
                words = f"Arguments for the {name} page. Null if there is none."
                found["properties"][name] = {"type": ["object", "null"], "description": words}
        return found

    # Texts.

    def description(self) -> str:
        """Return what the action does: from hints, its docstring, or the kind of the action."""
        own = self.hints.description or prose(_own_docstring(self.handler))
        if own:
            return own
        meta = getattr(self.model, "_meta", None)
        kind = self.action or next((one for one in SENTENCES if self._calls(one)), "")
        view = prose(vars(self.view_class).get("__doc__")) or ""
        if kind in SENTENCES and meta is not None:
            sentence = SENTENCES[kind].format(one=meta.verbose_name, many=meta.verbose_name_plural)
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


LINKS = ("next", "previous")
ORDERING = "The order, by the first name first. A minus sign means descending."
# Also parts of "LOAD_FAST_LOAD_FAST" and "STORE_FAST_LOAD_FAST", which Python 3.13 has.
BARE = "(request)"
CONTINUING = ("LOAD_ATTR", "LOAD_METHOD", "CACHE")
NAME_INSTRUCTIONS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_NAME")
OWN = (("self",), ("super",))  # what the view's own methods are called on


def _instance(serializer: Any) -> Any:
    return serializer() if isinstance(serializer, type) else serializer


def _own_docstring(handler: Any) -> str | None:
    """Return a docstring of the project. Those of REST framework are about its code."""
    ours = not str(getattr(handler, "__module__", "")).startswith("rest_framework.")
    return handler.__doc__ if ours else None


# Query parameters.


def _of_serializer(serializer: serializers.Serializer) -> Iterator[QueryParameter]:
    found = SerializerInput(serializer).schema
    for name, schema in found["properties"].items():
        yield QueryParameter(name, schema, name in found.get("required", ()))


def _of_openapi(shown: Mapping[str, Any]) -> QueryParameter:
    """Return a parameter that is described as OpenAPI describes it."""
    schema = json_schema(shown.get("schema") or {"type": "string"})
    words = {"description": str(shown["description"])} if shown.get("description") else {}
    separator = "" if shown.get("explode", True) else ","
    return QueryParameter(shown["name"], schema | words, bool(shown.get("required")), separator)


def _of_form_field(name: str, field: forms.Field) -> Iterator[QueryParameter]:
    """Yield the parameters of a filter: one, or one for each part of a range."""
    widget: Any = field.widget
    if isinstance(field, forms.MultiValueField) and hasattr(widget, "suffixed"):
        parts = zip(field.fields, widget.suffixes, strict=True)
        for part, suffix in parts:
            yield QueryParameter(widget.suffixed(name, suffix), _filter_schema(part, field, suffix))
        return
    schema, separator = _filter_schema(field, field), ""
    if any(kind.__name__ == "BaseCSVField" for kind in type(field).__mro__):
        words = {"description": f"{field.label}."} if field.label else {}
        schema.pop("description", None)
        schema, separator = {"type": "array", "items": schema} | words, ","
    yield QueryParameter(name, schema, field.required, separator)


def _looks_up_choices(shown: Any) -> bool:
    """Whether a filter of django-filter queries the database to make its form field."""
    try:
        shown.field  # noqa: B018
    except QueryDenied:
        return True
    return False


def _filter_schema(field: forms.Field, labelled: forms.Field, suffix: str | None = "") -> JSON:
    found = _filter_type(field)
    labels = "; ".join(f"{value}: {label}" for value, label in choices_of(field))
    label = " ".join(str(one) for one in (labelled.label, suffix) if one)
    texts = [f"{label}." if label else "", str(labelled.help_text or ""), labels]
    words = " ".join(text for text in texts if text)
    return found | ({"description": words} if words else {})


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


def query_string(parameters: Sequence[QueryParameter], given: JSON) -> str:
    """Return the query string of the given arguments."""
    return urlencode(
        [
            (one.name, text)
            for one in parameters
            if given.get(one.name) is not None
            for text in one.texts(given[one.name])
        ]
    )


# Code.


def functions_in(handler: Any) -> Iterator[set[tuple[str, ...]]]:
    """Yield the attribute chains of a function and of the functions that it decorates.

    A decorator passes the request on to what it decorates, so its chains of ``BARE`` are left out.
    """
    waiting, seen = [handler], set()
    while waiting:
        one = waiting.pop()
        one = getattr(one, "__func__", one)
        if not isinstance(one, FunctionType) or id(one) in seen:
            continue
        seen.add(id(one))
        inner = [getattr(one, "__wrapped__", None)]
        for cell in one.__closure__ or ():
            with suppress(ValueError):  # the cell is not filled yet
                inner.append(cell.cell_contents)
        is_decorator = any(isinstance(found, FunctionType) for found in inner)
        chains = set(attribute_chains(one))
        yield {chain for chain in chains if not (is_decorator and chain[0] == BARE)}
        waiting += inner


def attribute_chains(function: FunctionType) -> Iterator[tuple[str, ...]]:
    """Yield chains of names in the code of a function, such as ``("self", "request", "data")``.

    The result of a call begins a new chain with "()", that of ``super()`` with "super". An item is
    "[]". The first parameter after ``self`` is called "request", whatever its name is.

    Code that uses the whole request, and not an attribute of it, is a chain that begins with
    ``BARE``. The rest is what the code names before it, such as the method that it calls with it.
    """
    code = function.__code__
    parameters = code.co_varnames[: code.co_argcount]
    request = next((name for name in parameters if name != "self"), "request")
    waiting = [code]
    while waiting:
        one = waiting.pop()
        yield from _chains_in(one, request)
        # Lambdas, comprehensions and functions inside of the function.
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]


def _chains_in(code: CodeType, request: str) -> Iterator[tuple[str, ...]]:
    whole = (("request",), ("self", "request"))
    chain: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    callee: tuple[str, ...] = ()  # the chain before the current one
    for one in dis.get_instructions(code):
        if chain in whole and not one.opname.startswith(CONTINUING):
            yield (BARE, *callee)
        if one.opname.startswith("LOAD_SUPER_ATTR"):
            chain = ("super", one.argval)
        elif one.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            chain = (*chain, one.argval)
        elif any(name in one.opname for name in NAME_INSTRUCTIONS):
            # One instruction may store or load two names. The last one is on top of the stack.
            loaded = one.argval if isinstance(one.argval, tuple) else (one.argval,)
            # Python 3.13 also loads the cell of a variable so, which a function inside uses.
            cells = code.co_cellvars if "LOAD_FAST" in one.opname else ()
            names = ["" if name in cells else name for name in loaded]
            names = ["request" if name == request else name for name in names]
            if len(names) > 1 and names[0] == "request" and not one.opname.startswith("STORE"):
                yield (BARE, *chain)
            callee, chain = chain, (str(names[-1]),)
        elif one.opname.startswith("LOAD_CONST"):
            chain, before = (), chain
            continue
        elif one.opname.startswith("BINARY_SUBSCR"):
            chain = (*before, "[]")
        elif one.opname.startswith("CALL"):
            chain = chain if chain == ("super",) else ("()",)
        elif one.opname not in ("PRECALL", "PUSH_NULL", "CACHE"):
            chain = ()
        before = ()
        if len(chain) > 1:
            yield chain


# Hints of drf-spectacular.

UNSTATED: Any = object()


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
        """Answers in place of drf-spectacular's own guesses, of which there are better ones."""

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
            if isinstance(made := _instance(one), serializers.Serializer):
                yield from ((found.name, found) for found in _of_serializer(made))
        elif isinstance(one, OpenApiParameter) and one.location == OpenApiParameter.QUERY:
            yield one.name, None if one.exclude else _of_spectacular(one)


def _of_spectacular(one: Any) -> QueryParameter:
    schema = openapi_type(one.type)
    schema |= {"enum": list(one.enum)} if one.enum else {}
    if one.many:
        schema = {"type": "array", "items": schema}
    words = {"description": str(one.description)} if one.description else {}
    separator = "," if one.explode is False else ""
    return QueryParameter(one.name, schema | words, bool(one.required), separator)
