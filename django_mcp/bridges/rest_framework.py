"""
Django REST framework's views as tools: ``ViewSetTools`` and ``APIViewTools``.

Each listed action becomes a tool. A call sends a request through the project's ``MIDDLEWARE`` to
the view at its URL, so that permissions, throttles, ``get_queryset``, filters, serializers and
pagination of the view apply. The caller of the tool is ``request.user``: REST framework does not
ask the view's ``authentication_classes``, and no header or cookie of the client reaches the view.

Only the listed actions can be called. A request has the method of its action, and contains only
arguments that are in the tool's schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

# Imported first, so that the error says what to install if REST framework is missing.
try:
    from rest_framework.settings import api_settings
    from rest_framework.views import APIView, exception_handler
    from rest_framework.viewsets import ViewSetMixin
except ModuleNotFoundError as error:
    if str(error.name).partition(".")[0] != "rest_framework":
        raise
    from django.core.exceptions import ImproperlyConfigured

    raise ImproperlyConfigured(
        "django_mcp.bridges.rest_framework needs Django REST framework, which is not installed. "
        'Install "django-modelcontext[drf]".'
    ) from error

from asgiref.sync import iscoroutinefunction
from django.contrib.auth.models import AnonymousUser
from django.core.checks import CheckMessage, Warning
from django.db import router
from django.utils.datastructures import MultiValueDict

from ..declarations import permissions
from ..declarations.arguments import Arguments
from ..declarations.attribute_checks import did_you_mean
from ..declarations.declaration import Declaration, Find, ascii_name, default_name
from ..declarations.elicitation_forms import asks_secret
from ..declarations.form_values import FILE_SCHEMA
from .api_endpoints import MULTIPART, Endpoint, is_nested
from .api_tools import (
    METHODS,
    ApiOutput,
    ApiRequest,
    ApiTool,
    ApiTools,
    QueryDenied,
    arguments_in,
    check_response,
    error_text,
    read_file,
)
from .authenticator_checks import needs_own_authenticator, reads_headers
from .views.execution import ViewResponse
from .views.requests import Body
from .views.response_bodies import is_json
from .views.urls import Pattern, Route, Target, routes_to

if TYPE_CHECKING:
    from ..declarations.request import Request
    from .serializer_schemas import SerializerInput

JSON = dict[str, Any]
SUFFIX = re.compile("(?:_api)?_view(?:_?set)?$")
NOT_FOUND = re.compile(r"No \w+ matches the given query\.$")  # django.shortcuts
SCHEMA_HINT = "annotate the field with extend_schema_field of drf-spectacular"


class RestFrameworkTools(ApiTools):
    """Base of ``ViewSetTools`` and ``APIViewTools``."""

    _kind = "class of REST framework views"
    _mapping_attributes = ("names", "descriptions", "serializers", "query")
    _view_kind: tuple[type, str] = (APIView, "APIView")

    serializers: Mapping[str, Any] = {}
    query: Mapping[str, Any] = {}

    @property
    def _view(self) -> Any:
        """The class of the view. A function of ``@api_view`` has one too."""
        return getattr(self._subject, "cls", self._subject)

    def _tools(self, entry: str) -> Iterator[Declaration]:
        yield from (RestFrameworkTool(self, one, entry) for one in self._endpoints(entry))

    def _endpoints(self, entry: str) -> Iterator[Endpoint]:
        raise NotImplementedError

    def _stated(self, entry: str) -> dict[str, Any]:
        """Return the serializers that the class states for an action or method."""
        places = {"serializer": self.serializers, "query": self.query}
        return {name: place[entry] for name, place in places.items() if entry in place}

    # Resolution.

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from super()._resolve(find)
        yield from self._anonymous_problems()

    def _anonymous_problems(self) -> Iterator[CheckMessage]:
        # A permission such as ``request.user is not None`` would accept anonymous callers.
        if self._is_public and api_settings.UNAUTHENTICATED_USER is not AnonymousUser:
            words = "It is PUBLIC, and REST framework's UNAUTHENTICATED_USER is not AnonymousUser."
            hint = "Require a user, or remove UNAUTHENTICATED_USER: tools have an AnonymousUser."
            yield self._error(words, 198, hint)

    def _subject_problems(self) -> Iterator[CheckMessage]:
        kind, name = self._view_kind
        view, is_viewset = self._view, _is_kind(self._view, ViewSetMixin)
        if not _is_kind(view, kind) or (is_viewset and kind is APIView):
            other = "ViewSetTools" if is_viewset else "APIViewTools"
            hint = f"Write @mcp.register(Invoice{name}) above the class."
            if _is_kind(view, APIView):
                hint = f"Use {other} for it."
            shown = getattr(view, "__name__", repr(view))
            yield self._error(f"It is registered with {shown}, which is no {name}.", 180, hint)
        elif not self._entries:
            hint = f"List them in {self._list_attribute}: there is no default."
            yield self._error(f"{self._list_attribute} is empty: nothing is exposed.", 181, hint)

    def _entry_problems(self) -> Iterator[CheckMessage]:
        for entry in self._entries:
            if entry not in self._known:
                near = did_you_mean(entry, self._known)
                hint = near or f"{self._view.__name__} has {', '.join(self._known) or 'none'}."
                words = f"{self._list_attribute}: {self._view.__name__} has no {entry!r}."
                yield self._error(words, 182, hint)
            elif iscoroutinefunction(getattr(self._view, entry)):
                hint = "Write def. Django REST framework calls it synchronously."
                yield self._error(f"{entry!r} is asynchronous.", 189, hint)
            elif wrong := [*self._route_problems(entry)]:
                yield from wrong
            elif self._is_asynchronous(entry):
                hint = "Use the views of Django REST framework, or write a tool with async def."
                words = f"The view of {entry!r} is asynchronous: its dispatch() is a coroutine."
                yield self._error(words, 270, hint)
            elif not [*self._endpoints(entry)]:
                words = f"http_method_names of the view lacks the method of {entry!r}."
                remedy = f"or remove it from {self._list_attribute}."
                yield self._error(words, 197, f"Add the method to http_method_names, {remedy}")
        for attribute, key in self._unlisted_keys():
            hint = f"The keys are those of {self._list_attribute}."
            yield self._error(f"{attribute}: {key!r} is not listed.", 191, hint)

    @property
    def _known(self) -> list[str]:
        raise NotImplementedError

    def _is_asynchronous(self, entry: str) -> bool:
        """Whether Django awaits the view, such as those of adrf."""
        callbacks = [one.callback for route in self._routes(entry) for one in route.patterns]
        return any(map(iscoroutinefunction, (self._view.dispatch, *callbacks)))

    def _route_problems(self, entry: str) -> Iterator[CheckMessage]:
        found = self._routes(entry)
        if not found:
            hint = f"Add {self._view.__name__} to the URLconf, with a name inside of a namespace."
            yield self._error(f"No URL leads to {entry!r}.", 183, hint)
        elif len(found) > 1:
            names = ", ".join(sorted(route.name for route in found))
            yield self._error(f"Several URLs lead to {entry!r}: {names}.", 184, self._choice_hint)
        elif not found[0].reversible:
            hint = "Name every group of its pattern, and use no alternatives there."
            yield self._error(f"The URL of {entry!r} cannot be reversed.", 185, hint)

    _choice_hint = ""

    def _routes(self, entry: str) -> list[Route]:
        """Return the URLs that lead to an action or method."""
        found = routes_to(lambda pattern: self._leads_to(pattern, entry))
        return [route for route in found if self._is_chosen(route)]

    def _leads_to(self, pattern: Pattern, entry: str) -> bool:
        # The suffix of a path, such as ``.csv``, chooses a renderer whose result is not JSON.
        has_suffix = api_settings.FORMAT_SUFFIX_KWARG in pattern.converters
        return not has_suffix and getattr(pattern.callback, "cls", None) is self._view

    def _is_chosen(self, route: Route) -> bool:
        raise NotImplementedError


def _is_kind(view: Any, kind: type) -> bool:
    return isinstance(view, type) and issubclass(view, kind)


class ViewSetTools(RestFrameworkTools):
    """Actions of a viewset as tools. Register a subclass with a viewset.

    ``actions`` lists the actions: ``list``, ``retrieve``, ``create``, ``update``,
    ``partial_update``, ``destroy``, and methods with ``@action``. No other action can be called.

    ``names`` and ``descriptions`` map actions to the name and description of the tool. The defaults
    are made from the action, the viewset and docstrings. ``serializers`` maps an action to the
    serializer of its body, where the action does not use the viewset's own, or to None if it reads
    no body. ``query`` maps an action to a serializer with more parameters of the query string.
    ``basename`` chooses a URL if the viewset has several.
    """

    _list_attribute = "actions"
    _view_kind = (ViewSetMixin, "ViewSet")
    _choice_hint = 'Set basename, such as basename = "v1:invoice".'

    actions: Sequence[str] = ()
    basename: str = ""

    @property
    def _known(self) -> list[str]:
        extra = [one.__name__ for one in self._view.get_extra_actions()]
        standard = ("list", "retrieve", "create", "update", "partial_update", "destroy")
        routed = {
            action
            for route in routes_to(lambda pattern: super(ViewSetTools, self)._leads_to(pattern, ""))
            for pattern in route.patterns
            for action in getattr(pattern.callback, "actions", {}).values()
        }
        named = dict.fromkeys([*standard, *extra, *sorted(routed)])
        return [name for name in named if hasattr(self._view, name)]

    def _leads_to(self, pattern: Pattern, entry: str) -> bool:
        actions = getattr(pattern.callback, "actions", {})
        return super()._leads_to(pattern, entry) and entry in actions.values()

    def _is_chosen(self, route: Route) -> bool:
        namespace, _, _ = route.name.rpartition(":")
        # Of the router, because one basename may be the beginning of another.
        own = getattr(route.callback, "initkwargs", {}).get("basename")
        if own is not None and self.basename:
            return self.basename == (f"{namespace}:{own}" if namespace else own)
        return not self.basename or route.name.startswith(f"{self.basename}-")

    def _endpoints(self, entry: str) -> Iterator[Endpoint]:
        (route,) = self._routes(entry)
        callback: Any = route.callback
        for method, action in callback.actions.items():
            if action == entry and method in METHODS and method in self._view.http_method_names:
                stated = self._stated(entry)
                yield Endpoint(self._view, route, method, entry, stated=stated)

    def _tool_name(self, endpoint: Endpoint, entry: str) -> str:
        callback: Any = endpoint.route.callback
        options = getattr(callback, "initkwargs", {})
        model = getattr(getattr(self._view, "queryset", None), "model", None)
        base = options.get("basename") or (model and model._meta.model_name)
        default = ascii_name(f"{entry}_{base or _snake(self._view)}")
        methods = [one for one, action in callback.actions.items() if action == entry]
        return self._name_of(entry, default, endpoint.method, methods)


class APIViewTools(RestFrameworkTools):
    """Methods of an ``APIView`` as tools. Register a subclass with a view.

    ``methods`` lists the HTTP methods: ``get``, ``post``, ``put``, ``patch`` and ``delete``. No
    other method can be called. The view may be a generic view, or a function with ``@api_view``.

    ``names``, ``descriptions``, ``serializers`` and ``query`` are those of ``ViewSetTools``, by
    method. ``url_name`` chooses a URL if the view has several.
    """

    _list_attribute = "methods"
    _choice_hint = 'Set url_name, such as url_name = "v1:report".'

    methods: Sequence[str] = ()
    url_name: str = ""

    @property
    def _known(self) -> list[str]:
        allowed = self._view.http_method_names
        return [one for one in METHODS if one in allowed and hasattr(self._view, one)]

    def _is_chosen(self, route: Route) -> bool:
        return self.url_name in ("", route.name)

    def _endpoints(self, entry: str) -> Iterator[Endpoint]:
        (route,) = self._routes(entry)
        yield Endpoint(self._view, route, entry, stated=self._stated(entry))

    def _tool_name(self, endpoint: Endpoint, entry: str) -> str:
        return self.names.get(entry) or f"{entry}_{_snake(self._view)}"


def _snake(view: type) -> str:
    """Return the name of a view in snake case: ``invoice`` for ``InvoiceViewSet``."""
    return ascii_name(SUFFIX.sub("", default_name(view)))


class RestFrameworkTool(ApiTool):
    """One method of a REST framework view as a tool."""

    _views: RestFrameworkTools

    def __init__(self, views: Any, endpoint: Endpoint, entry: str) -> None:
        name = views._tool_name(endpoint, entry)
        super().__init__(views, endpoint.route, endpoint.method, entry, name=name)
        self._endpoint = endpoint

    @property
    def _view_path(self) -> str:
        action = self._endpoint.action
        return (
            f"{permissions.path(self._endpoint.view_class)}.{action}"
            if action
            else super()._view_path
        )

    def _make_schemas(self) -> Iterator[CheckMessage]:
        try:
            self._endpoint.view  # noqa: B018
        except Exception as error:  # the project's code
            hint = "Its __init__ and initialize_request must work without a user."
            yield self._error(f"The view cannot be instantiated: {error}", 196, hint)
            return
        yield from (wrong := [*self._body_problems(), *self._media_problems()])
        if wrong:
            return
        yield from self._query_problems()
        yield from self._secret_problems()
        yield from self._clash_problems()
        yield from self._caller_problems()
        self.atomic = self._transaction_alias()
        self.description = self._views.descriptions.get(self._entry) or self._endpoint.description()
        self._arguments = Arguments(schema=self._schema(), handwritten=True)
        self._output = ApiOutput(self._endpoint.output(), self.name, hint=SCHEMA_HINT)

    def _transaction_alias(self) -> bool | str:
        """Return the database of ``atomic``, by default that of the view's rows, or False."""
        atomic, model = self._view_transaction, self._endpoint.model
        return router.db_for_write(model) if atomic is True and model is not None else atomic

    # Arguments.

    _body_fields: SerializerInput | None = None

    @property
    def _path_properties(self) -> JSON:
        return self._endpoint.path()

    @property
    def _body_schema(self) -> JSON:
        return self._body_fields.schema if self._body_fields is not None else {"properties": {}}

    def _clash_problems(self) -> Iterator[CheckMessage]:
        for name, where in self._clashes():
            words = f"{self._entry!r} takes {name!r} from {where}."
            hint = "Rename one of them. For the key in the URL, set lookup_url_kwarg on the view."
            yield self._error(words, 187, hint)

    # Checks.

    def _body_problems(self) -> Iterator[CheckMessage]:
        try:
            self._body_fields = self._endpoint.body()
        except Exception as error:  # serializers run the project's code
            listed = f"serializers = {{{self._entry!r}: InvoiceSerializer}}"
            hint = f"State it: {listed}, or None if it reads no body."
            if isinstance(error, QueryDenied):
                hint = "Look up rows when the serializer validates, or check swagger_fake_view."
            words = f"The serializer of {self._entry!r} is not known: {error}."
            yield self._error(words.replace("..", "."), 186, hint)
            return
        if (name := self._endpoint.lacks_lookup) is not None:
            hint = "Set lookup_field or lookup_url_kwarg on the view, or correct the URL."
            words = f"The URL of {self._entry!r} has no {name!r}, which get_object() reads."
            yield self._error(words, 195, hint)
        for name in self._body_fields.files if self._body_fields is not None else ():
            words = f"{self._entry!r} requires the file {name!r}, and the view reads no uploads."
            hint = "Add MultiPartParser to parser_classes, or leave the action out."
            yield self._error(words, 192, hint)

    def _secret_problems(self) -> Iterator[CheckMessage]:
        secrets = [*self._body_fields.secrets] if self._body_fields is not None else []
        own = [one for one in self._query if one.name not in self._page_names]
        secrets += [one.name for one in own if asks_secret(one.name, one.schema)]
        for name in secrets:
            hint = "Leave the action out, or state a serializer without the field in serializers."
            words = (
                f"{self._entry!r} takes the secret {name!r}. A language model would see its value."
            )
            yield Warning(words, hint=hint, obj=self, id="django_mcp.W193")

    def _media_problems(self) -> Iterator[CheckMessage]:
        lacking = []
        if self._accept is None:
            lacking.append(("write", "Add JSONRenderer to renderer_classes."))
        if self._body_fields is not None and not (self._content_type or self._endpoint.takes_files):
            lacking.append(("read", "Add JSONParser to parser_classes."))
        for verb, hint in lacking:
            yield self._error(f"The view of {self._entry!r} does not {verb} JSON.", 190, hint)

    def _query_problems(self) -> Iterator[CheckMessage]:
        problems: list[str] = []
        self._query = self._endpoint.query(problems)
        for words in problems:
            hint = "Check self.swagger_fake_view in get_queryset, or set queryset on the view."
            message = f"Filters of {self._entry!r} cannot be read. {words}"
            yield Warning(message, hint=hint, obj=self, id="django_mcp.W194")
        for name in self._endpoint.repeated_parameters:
            message = (
                f"{self._entry!r} has several filters, or a filter and a page, named {name!r}."
            )
            hint = "Rename one of them. Both get the same value, over HTTP too."
            yield Warning(message, hint=hint, obj=self, id="django_mcp.W195")
        for name in [one.name for one in self._query if is_nested(one.schema)]:
            message = f"The parameter {name!r} of {self._entry!r} is an object."
            hint = "Use a field for each value: a query string contains no objects."
            yield self._error(message, 199, hint)

    def _caller_problems(self) -> Iterator[CheckMessage]:
        if self._endpoint.needs_version:
            words = f"The view of {self._entry!r} needs a version, and has no default_version."
            hint = "Set default_version, or DEFAULT_VERSION of REST framework."
            yield self._error(words, 271, hint)
        for words in reads_headers(self._endpoint):
            hint = (
                "Calls of tools have no headers of the client. Accept requests with the attribute "
                'mcp (hasattr(request, "mcp")), and decide by request.user.'
            )
            yield Warning(words, hint=hint, obj=self, id="django_mcp.W196")
        for words in needs_own_authenticator(self._endpoint):
            hint = (
                "Calls of tools do not use its authentication_classes: request.user is the caller, "
                "and request.auth an mcp.Auth or None. Accept requests with the attribute mcp "
                '(hasattr(request, "mcp")), and decide by request.user.'
            )
            yield Warning(words, hint=hint, obj=self, id="django_mcp.W188")

    # Execution.

    @cached_property
    def _accept(self) -> str | None:
        """The JSON media type that the view writes."""
        return _json_type(self._endpoint.view.get_renderers())

    @cached_property
    def _content_type(self) -> str | None:
        """The JSON media type that the view reads."""
        return _json_type(self._endpoint.view.get_parsers())

    @property
    def _callbacks(self) -> Sequence[Any]:
        return self._endpoint.callbacks

    @property
    def _fixed(self) -> Mapping[str, Any]:
        return self._endpoint.fixed

    def _request(self, request: Request, target: Target, body: Body | None) -> ApiRequest:
        return RestFrameworkRequest(self, request, target, body)

    def _request_body(self, arguments: JSON) -> Body | None:
        method = self._endpoint.method
        if self._endpoint.reads_only:
            return None
        kind = self._content_type or "application/json"
        if self._body_fields is None:
            return Body(type=kind, method=method.upper())
        given = arguments_in(self._body_fields.schema, arguments)
        files: MultiValueDict[str, Any] = MultiValueDict()
        read = read_files(self._body_fields.schema, given, (), files)
        if files or self._content_type is None:
            return Upload(method=method.upper(), form=UploadData(read, files))
        return Body(json.dumps(given).encode(), kind, method.upper())

    def _check_response(self, answer: ViewResponse) -> None:
        detail = _error_text(answer)
        if NOT_FOUND.match(detail) and answer.status in (404, 410):
            detail = ""
        check_response(answer, detail, is_rejected=_is_rejected(answer))

    @property
    def _has_links(self) -> bool:
        return self._endpoint.paginator is not None

    @cached_property
    def _page_names(self) -> frozenset[str]:
        named = {one.name for one in self._endpoint._pages()}
        return frozenset(named & {one.name for one in self._query})

    @property
    def _first_page(self) -> Mapping[str, str]:
        page = getattr(self._endpoint.paginator, "page_query_param", None)
        return {page: "1"} if page else {}


def _json_type(formats: Iterable[Any]) -> str | None:
    kinds = (str(one.media_type).partition(";")[0].strip() for one in formats)
    return next((kind for kind in kinds if is_json(kind)), None)


# Files.


def read_files(
    schema: JSON, value: Any, path: tuple[str, ...], files: MultiValueDict[str, Any]
) -> Any:
    """Return a value with an uploaded file in place of each object that describes one.

    Add the files to ``files``, by the path of the field. Raise ``InvalidArguments``.
    """
    if isinstance(value, list):
        return [read_files(schema.get("items", {}), one, path, files) for one in value]
    if not isinstance(value, dict):
        return value
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    if properties == FILE_SCHEMA["properties"]:
        file = read_file(value, ".".join(path))
        files.appendlist(".".join(path), file)
        return file
    others = others if isinstance(others, dict) else {}
    return {
        name: read_files(properties.get(name, others), one, (*path, name), files)
        for name, one in value.items()
    }


class UploadData(dict[str, Any]):
    """``request.data`` of a call with files: the values of JSON, and files in their places.

    It is no ``QueryDict``: in a form, a field that is left out is False or an empty list, and a
    value has no type.
    """

    def __init__(self, data: Mapping[str, Any], files: MultiValueDict[str, Any]) -> None:
        super().__init__(data)
        self.files = files

    def copy(self) -> UploadData:
        return UploadData(self, self.files)

    def update(self, *given: Any, **named: Any) -> None:
        # REST framework adds ``request.FILES`` to a copy, which has the files in their places.
        # ``dict.update`` would also replace each file by a list.
        if not given or given[0] is not self.files:
            super().update(*given, **named)


@dataclass(frozen=True)
class Upload(Body):
    """A body that is read already. Only its length and media type are those of a real one."""

    data: bytes = b"--"  # an empty body has no data, for REST framework
    type: str = MULTIPART
    form: UploadData | None = None


class RestFrameworkRequest(ApiRequest):
    """The request of a call of a tool. REST framework takes the caller from it.

    ``_force_auth_user`` is what ``APIClient.force_authenticate`` sets: with it, REST framework does
    not ask the view's authentication classes.
    """

    def __init__(self, tool: ApiTool, request: Request, target: Target, body: Body | None) -> None:
        super().__init__(tool, request, target, body)
        if isinstance(body, Upload) and body.form is not None:
            # REST framework takes the data and files of a form that middleware has read before, if
            # the view parses forms. So the values keep their types, and no file is encoded again.
            self._read_started = True
            self._post, self._files = body.form, body.form.files

    @property
    def _force_auth_user(self) -> Any:
        return self.user

    @property
    def _force_auth_token(self) -> Any:
        # A caller whom middleware signed out has no scopes either.
        return self.mcp.auth if self.user == self.mcp.user else None


# Refusals and failures.


def _is_rejected(answer: ViewResponse) -> bool:
    """Whether REST framework made the response of an exception."""
    return bool(getattr(answer.response, "exception", False))


def _has_standard_handler(answer: ViewResponse) -> bool:
    view = (getattr(answer.response, "renderer_context", None) or {}).get("view")
    return view is not None and view.get_exception_handler() is exception_handler


def _error_text(answer: ViewResponse) -> str:
    """Return the errors in a response of a REST framework view, one line for each field."""
    # Not the rendered body: a renderer may rename fields, and the arguments have their own names.
    data = getattr(answer.response, "data", None)
    if answer.status < 400 and not _is_rejected(answer):
        return ""
    # REST framework's handler describes only an APIException. The project's own may have made this
    # of any exception, whose text can contain anything.
    if answer.status >= 500 and not _has_standard_handler(answer):
        return ""
    return error_text(data, api_settings.NON_FIELD_ERRORS_KEY)
