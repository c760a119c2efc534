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
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

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
from django.core.exceptions import PermissionDenied
from django.db import DEFAULT_DB_ALIAS, router
from django.http import Http404
from django.urls import Resolver404, ResolverMatch

from ..calls.execution import queries_through
from ..declarations.arguments import Arguments
from ..declarations.attribute_checks import did_you_mean
from ..declarations.declaration import Declaration, default_name
from ..declarations.elicitation_checks import asks_secret
from ..declarations.outputs import Output
from ..declarations.schemas import violations
from ..declarations.tools import Tool
from ..exceptions import ToolError
from ..protocol.content import is_textual
from .api_endpoints import (
    LINKS,
    Endpoint,
    QueryDenied,
    QueryParameter,
    deny_queries,
    is_nested,
    query_string,
)
from .authenticator_checks import needs_own_authenticator
from .form_input import MAX_ERROR_LENGTH, MAX_ERRORS
from .views.execution import (
    REDIRECTS,
    ViewFailed,
    ViewResponse,
    asks_to_sign_in,
    request_environment,
    view_response,
)
from .views.requests import Body, CallSession, ViewRequest
from .views.response_bodies import body_of, decoded, file_of, is_json, media_type
from .views.tools import host_problems, tool_name_of
from .views.urls import Pattern, Route, Target, routes_to
from .views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from ..declarations.catalog import Catalog
    from ..declarations.request import Request
    from .serializer_schemas import SerializerInput

JSON = dict[str, Any]
METHODS = ("get", "post", "put", "patch", "delete")
HTML = ("text/html", "application/xhtml+xml")
SUFFIX = re.compile("(?:_api)?_view(?:_?set)?$")
NOT_FOUND = re.compile(r"No \w+ matches the given query\.$")  # django.shortcuts
logger = logging.getLogger("django_mcp")


class ApiTools(Declaration):
    """Base of ``ViewSetTools`` and ``APIViewTools``."""

    _kind = "class of REST framework views"
    _inherits_unread = frozenset({"title", "description"})  # each tool has its own
    # The class itself is no tool: ``_derived`` yields the tools.
    _entry_method = "_derived"
    _listed = ""  # the name of the attribute with the list
    _view_kind: tuple[type, str] = (APIView, "APIView")

    names: Mapping[str, str] = {}
    descriptions: Mapping[str, str] = {}
    serializers: Mapping[str, Any] = {}
    query: Mapping[str, Any] = {}

    _subject: Any = None

    @classmethod
    def _made_for(cls, subjects: tuple[Any, ...]) -> list[Declaration]:
        if len(subjects) > 1:
            raise TypeError(f"{cls.__name__} is registered with one view.")
        made = cls()
        made._subject = subjects[0] if subjects else None
        return [made]

    @property
    def _view(self) -> Any:
        """The class of the view. A function of ``@api_view`` has one too."""
        return getattr(self._subject, "cls", self._subject)

    @property
    def _entries(self) -> list[str]:
        """The listed names: actions of a viewset, or methods of a view."""
        return [*getattr(self, self._listed)]

    def _derived(self) -> Iterator[Declaration]:
        for entry in self._entries:
            yield from (ApiTool(self, endpoint, entry) for endpoint in self._endpoints(entry))

    def _endpoints(self, entry: str) -> Iterator[Endpoint]:
        raise NotImplementedError

    def _stated(self, entry: str) -> dict[str, Any]:
        """Return the serializers that the class states for an action or method."""
        places = {"serializer": self.serializers, "query": self.query}
        return {name: place[entry] for name, place in places.items() if entry in place}

    # Resolution.

    def _resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        self.name = self.name or default_name(type(self))
        yield from self._common_problems()
        yield from self._anonymous_problems()
        wrong = [*self._subject_problems()]
        yield from wrong or [*self._entry_problems(), *self._key_problems()]
        yield from host_problems(self)

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
            hint = f"List them in {self._listed}: there is no default."
            yield self._error(f"{self._listed} is empty: nothing is exposed.", 181, hint)

    def _entry_problems(self) -> Iterator[CheckMessage]:
        for entry in self._entries:
            if entry not in self._known:
                near = did_you_mean(entry, self._known)
                hint = near or f"{self._view.__name__} has {', '.join(self._known) or 'none'}."
                words = f"{self._listed}: {self._view.__name__} has no {entry!r}."
                yield self._error(words, 182, hint)
            elif iscoroutinefunction(getattr(self._view, entry)):
                hint = "Write def. Django REST framework calls it synchronously."
                yield self._error(f"{entry!r} is asynchronous.", 189, hint)
            elif wrong := [*self._route_problems(entry)]:
                yield from wrong
            elif not [*self._endpoints(entry)]:
                hint = "Add its method to http_method_names."
                yield self._error(f"The view answers {entry!r} with 405.", 197, hint)

    @property
    def _known(self) -> list[str]:
        raise NotImplementedError

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

    def _key_problems(self) -> Iterator[CheckMessage]:
        """Yield errors for keys of the mappings that are not listed."""
        for attribute in ("names", "descriptions", "serializers", "query"):
            for key in set(getattr(self, attribute)) - set(self._entries):
                hint = f"The keys are those of {self._listed}."
                yield self._error(f"{attribute}: {key!r} is not listed.", 191, hint)


def _is_kind(view: Any, kind: type) -> bool:
    return isinstance(view, type) and issubclass(view, kind)


class ViewSetTools(ApiTools):
    """Actions of a viewset as tools. Register a subclass with a viewset.

    ``actions`` lists the actions: ``list``, ``retrieve``, ``create``, ``update``,
    ``partial_update``, ``destroy``, and methods with ``@action``. No other action can be called.

    ``names`` and ``descriptions`` map actions to the name and description of the tool. The defaults
    are made from the action, the viewset and docstrings. ``serializers`` maps an action to the
    serializer of its body, where the action does not use the viewset's own, or to None if it reads
    no body. ``query`` maps an action to a serializer with more parameters of the query string.
    ``basename`` chooses a URL if the viewset has several.
    """

    _listed = "actions"
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
        named = self.names.get(entry) or tool_name_of(f"{entry}_{base or _snake(self._view)}")
        methods = [one for one, action in callback.actions.items() if action == entry]
        # An action with several methods is several tools, which need several names.
        return named if len({*methods} & {*METHODS}) == 1 else f"{endpoint.method}_{named}"


class APIViewTools(ApiTools):
    """Methods of an ``APIView`` as tools. Register a subclass with a view.

    ``methods`` lists the HTTP methods: ``get``, ``post``, ``put``, ``patch`` and ``delete``. No
    other method can be called. The view may be a generic view, or a function with ``@api_view``.

    ``names``, ``descriptions``, ``serializers`` and ``query`` are those of ``ViewSetTools``, by
    method. ``url_name`` chooses a URL if the view has several.
    """

    _listed = "methods"
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
    return tool_name_of(SUFFIX.sub("", default_name(view)))


class ApiTool(ViewDeclaration, Tool):
    """One method of a REST framework view as a tool."""

    _views: ApiTools

    def __init__(self, views: Any, endpoint: Endpoint, entry: str) -> None:
        name = views._tool_name(endpoint, entry)
        description = views.descriptions.get(entry)
        super().__init__(views, endpoint.route, name=name, description=description)
        self._endpoint, self._entry = endpoint, entry
        self.title = " ".join(name.split("_")).capitalize()
        self.read_only = True if endpoint.reads_only else None
        self.destructive = True if endpoint.method == "delete" else None

    def _resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        yield from self._common_problems()
        self._output = Output()
        # Everybody who may list tools sees the schema, which is made once. What code of the project
        # puts into it from rows, such as choices, would be shown to the users of other tenants.
        with queries_through(deny_queries):
            problems = [*self._view_problems()]
        yield from problems

    def _view_problems(self) -> Iterator[CheckMessage]:
        """Yield what is wrong with the view. Make the tool's schemas, without any query."""
        try:
            self._endpoint.view  # noqa: B018
        except Exception as error:  # the project's code
            hint = "Its __init__ and initialize_request must work without a user."
            yield self._error(f"No instance of the view can be made: {error}", 196, hint)
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
        self._output = ApiOutput(self._endpoint.output(), self.name)

    def _transaction_alias(self) -> bool | str:
        """Return the database of the view's rows. False if the view runs without transactions."""
        # As for an HTTP request: a view with ``non_atomic_requests`` runs without a transaction.
        callback: Any = self._route.callback
        if DEFAULT_DB_ALIAS in getattr(callback, "_non_atomic_requests", ()):
            return False
        model = self._endpoint.model
        return True if model is None else router.db_for_write(model)

    # Arguments.

    _body: SerializerInput | None = None
    _query: Sequence[QueryParameter] = ()

    @cached_property
    def _parts(self) -> dict[str, JSON]:
        """The schemas of URL, query string and body."""
        query = {one.name: one.schema for one in self._query}
        path = self._endpoint.path()
        needed = [name for name in self._route.required if name in path]
        required = [one.name for one in self._query if one.required]
        return {
            "URL": {"properties": path, "required": needed},
            "query string": {"properties": query, "required": required},
            "body": self._body.schema if self._body is not None else {"properties": {}},
        }

    def _schema(self) -> JSON:
        properties = {k: v for part in self._parts.values() for k, v in part["properties"].items()}
        required = [name for part in self._parts.values() for name in part.get("required", ())]
        schema: JSON = {"type": "object", "properties": properties, "additionalProperties": False}
        return schema | ({"required": required} if required else {})

    def _clash_problems(self) -> Iterator[CheckMessage]:
        names = [name for part in self._parts.values() for name in part["properties"]]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            where = [place for place, part in self._parts.items() if name in part["properties"]]
            words = f"{self._entry!r} takes {name!r} from {' and '.join(where)}."
            hint = "Rename one of them. For the key in the URL, set lookup_url_kwarg on the view."
            yield self._error(words, 187, hint)

    # Checks.

    def _body_problems(self) -> Iterator[CheckMessage]:
        try:
            self._body = self._endpoint.body()
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
        for name in self._body.files if self._body is not None else ():
            hint = "Make it optional, or leave the action out: arguments are JSON."
            yield self._error(f"{self._entry!r} requires the file {name!r}.", 192, hint)

    def _secret_problems(self) -> Iterator[CheckMessage]:
        secrets = [*self._body.secrets] if self._body is not None else []
        own = [one for one in self._query if one.name not in self._page_names]
        secrets += [one.name for one in own if asks_secret(one.name, one.schema)]
        for name in secrets:
            hint = "Leave the action out, or state a serializer without the field in serializers."
            words = f"{self._entry!r} takes {name!r}: a secret passes through a language model."
            yield Warning(words, hint=hint, obj=self, id="django_mcp.W193")

    def _media_problems(self) -> Iterator[CheckMessage]:
        lacking = []
        if self._accept is None:
            lacking.append(("write", "Add JSONRenderer to renderer_classes."))
        if self._body is not None and self._content_type is None:
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
        for name in [one.name for one in self._query if is_nested(one.schema)]:
            message = f"The parameter {name!r} of {self._entry!r} is an object."
            hint = "Use a field for each value: a query string contains no objects."
            yield self._error(message, 199, hint)

    def _caller_problems(self) -> Iterator[CheckMessage]:
        for words in needs_own_authenticator(self._endpoint):
            hint = (
                "Its authentication_classes are not asked: request.user is the caller, and "
                "request.auth an mcp.Auth or None. Accept such callers, whose request has mcp."
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

    def handle(self, request: Any, *args: Any, **arguments: Any) -> Any:
        """Run the view and return its data. Raise ``ToolError`` if it rejects the request."""
        # The URL prefix, language and time zone of a request: ``target`` reverses URLs with them.
        with request_environment():
            path = _arguments_in(self._parts["URL"], arguments) | self._endpoint.fixed
            query = query_string(self._query, arguments)
            target = self._route.target(path, query)
            api_request = ApiRequest(self, request, target, self._body_of(arguments))
            with view_response(api_request) as answer:
                _check_response(answer)
                return self._value(answer, arguments)

    def _body_of(self, arguments: JSON) -> Body | None:
        method = self._endpoint.method
        if self._endpoint.reads_only:
            return None
        kind = self._content_type or "application/json"
        if self._body is None:
            return Body(type=kind, method=method.upper())
        given = _arguments_in(self._body.schema, arguments)
        return Body(json.dumps(given).encode(), kind, method.upper())

    def _value(self, answer: ViewResponse, arguments: JSON) -> Any:
        kind, body = media_type(answer.response), body_of(answer)
        schema = self._output.schema
        if not body:
            # A client expects data of the schema's type, which requires no property.
            return "Done." if schema is None else [] if schema["type"] == "array" else {}
        if is_json(kind):
            return self._page(json.loads(body), arguments)
        # A page of the browsable API contains forms with the rows of other users to choose from.
        if schema is not None or kind in HTML:
            raise ToolError(f"The view returned {kind} in place of JSON.")
        return decoded(body, answer.response) if is_textual(kind) else file_of(answer, body)

    def _page(self, data: Any, arguments: JSON) -> Any:
        """Return the data. For a page of a list, replace the URLs of other pages."""
        if self._endpoint.paginator is not None and isinstance(data, dict):
            others = {k: v for k, v in arguments.items() if k not in self._page_names}
            data |= {n: self._page_arguments(data[n], others) for n in LINKS if n in data}
        return data

    def _page_arguments(self, link: Any, others: JSON) -> Any:
        """Return the arguments for another page in place of its URL: ``others`` and the page."""
        if not isinstance(link, str):
            return link
        schemas = {one.name: one.schema for one in self._query}
        try:
            given = parse_qsl(urlsplit(link).query)
        except ValueError:  # the view wrote something else than a URL
            return None
        named = {k: v for k, v in given if k in self._page_names}
        if not named and (page := getattr(self._endpoint.paginator, "page_query_param", None)):
            named = {page: "1"}  # the link to the first page does not name it
        numbers = {k for k in named if schemas[k]["type"] == "integer"}
        named = {k: v for k, v in named.items() if k not in numbers or v.isdecimal()}
        return others | {k: int(v) if k in numbers else v for k, v in named.items()}

    @cached_property
    def _page_names(self) -> set[str]:
        return {one.name for one in self._endpoint._pages()} & {one.name for one in self._query}


def _json_type(formats: Iterable[Any]) -> str | None:
    kinds = (str(one.media_type).partition(";")[0].strip() for one in formats)
    return next((kind for kind in kinds if is_json(kind)), None)


def _arguments_in(part: JSON, arguments: JSON) -> JSON:
    return {name: arguments[name] for name in part["properties"] if name in arguments}


class ApiRequest(ViewRequest):
    """The request of a call of ``tool``. REST framework takes the caller from it.

    ``_force_auth_user`` is what ``APIClient.force_authenticate`` sets: with it, REST framework does
    not ask the view's authentication classes.
    """

    def __init__(self, tool: ApiTool, request: Request, target: Target, body: Body | None) -> None:
        self.accept = tool._accept or "application/json"
        self._callbacks = tool._endpoint.callbacks
        super().__init__(request, target, body, CallSession(request.user))

    def mark_reached(self, match: ResolverMatch) -> None:
        # Another view, or another action, may have the same name and arguments.
        if match.func not in self._callbacks:
            raise Resolver404({"path": self.path_info})
        super().mark_reached(match)

    @property
    def user(self) -> Any:
        return super().user

    @user.setter
    def user(self, given: Any) -> None:
        # REST framework assigns the user that it authenticated, also to this request. A view that
        # asks its own authenticators would run as another user than the caller, whose permissions
        # django_mcp checked. Middleware assigns its user before the view is reached.
        if self.reached and getattr(given, "is_authenticated", False) and given != self.mcp.user:
            raise PermissionDenied("The view authenticated another user than the caller.")
        self._given = given

    @property
    def _force_auth_user(self) -> Any:
        return self.user

    @property
    def _force_auth_token(self) -> Any:
        # A caller whom middleware signed out has no scopes either.
        return self.mcp.auth if self.user == self.mcp.user else None


class ApiOutput(Output):
    """The data of a response. Its schema describes the data, and does not change it."""

    def __init__(self, schema: JSON | None, name: str) -> None:
        self.schema, self._name = schema, name
        # An action may return a file, which is sent as an embedded resource.
        self.embeds = schema is None

    def structured(self, value: Any, request: Request) -> Any:
        # The value is sent as REST framework wrote it, as other clients of the API receive it, even
        # if the serializer wrote something else than its fields declare.
        if self.schema and (wrong := violations(self.schema, value, formats=False)):
            # Only the paths: the rest of the text contains values of rows.
            paths = ", ".join(dict.fromkeys(one.partition(": ")[0] for one in wrong if ": " in one))
            logger.warning(
                "Response does not fit the schema of its serializer: tool=%s fields=%s; annotate "
                "the field with extend_schema_field of drf-spectacular",
                self._name, paths or "(all)",
            )  # fmt: skip
        return value


# Refusals and failures.


def _check_response(answer: ViewResponse) -> None:
    """Raise what a response means that is not a success. The transaction is rolled back then."""
    status, response = answer.status, answer.response
    detail = _error_text(answer)
    if status >= 500 and not _is_rejected(answer):
        raise answer.request.failed or ViewFailed(f"{answer.request.target.name}: {status}.")
    if status in (401, 403) or asks_to_sign_in(answer):
        raise PermissionDenied("" if status == 401 else detail)
    if status in (404, 410):
        raise Http404("" if NOT_FOUND.match(detail) else detail)
    if status == 429:
        seconds = response.get("Retry-After")
        when = f"in {seconds} seconds" if seconds else "later"
        raise ToolError(f"Too many requests. Try again {when}.")
    if status >= 400:
        is_described = status == 400 and detail
        words = detail if is_described else f"{status} {response.reason_phrase}. {detail}"
        raise ToolError(words.strip())
    # Exception handlers of some projects answer errors with 200, and describe them in the data.
    if _is_rejected(answer):
        raise ToolError(detail or "The view rejected the request.")
    if status in REDIRECTS:
        raise ToolError("The view redirects to another address, which a tool does not follow.")
    if not answer.request.reached:
        raise ToolError("Something else answered in place of the view: nothing was done.")


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
    lines = [f"{'.'.join(path)}: {text}" if path else text for path, text in _errors(data, ())]
    return "\n".join(line[:MAX_ERROR_LENGTH] for line in lines[:MAX_ERRORS])


def _errors(data: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(data, Mapping):
        for name, inner in data.items():
            unnamed = name == api_settings.NON_FIELD_ERRORS_KEY or (name == "detail" and not path)
            yield from _errors(inner, path if unnamed else (*path, str(name)))
    elif isinstance(data, list | tuple):
        if texts := [str(one) for one in data if isinstance(one, str)]:
            yield path, " ".join(texts)
        for number, inner in enumerate(data):
            if not isinstance(inner, str):
                yield from _errors(inner, (*path, str(number)))
    elif data not in (None, ""):
        yield path, str(data)
