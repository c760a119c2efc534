"""
Operations of a REST API as tools: what the bridges to REST framework and django-ninja share.

A subclass of ``ApiTools`` lists operations, and each becomes an ``ApiTool``. A call sends an
``ApiRequest`` through the project's ``MIDDLEWARE`` to the operation's URL. The arguments are its
path, query string and body. Its user is the caller, and no header or cookie of the client reaches
the operation.

Only the listed operations can be called. A request has the method of its operation, and contains
only arguments that are in the tool's schema.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from django.core.checks import CheckMessage
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404
from django.urls import Resolver404, ResolverMatch

from ..calls.execution import queries_through
from ..declarations.declaration import Declaration, Find, ToolDeclaration, default_name
from ..declarations.form_values import upload
from ..declarations.outputs import Output
from ..declarations.schemas import clearly_fits, object_schema, violations
from ..declarations.tools import Tool
from ..exceptions import InvalidArguments, ToolError
from ..protocol.content import is_textual
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
from .views.response_bodies import body_of, decoded, file_of, is_html, is_json, media_type
from .views.tools import host_problems
from .views.urls import Route, Target
from .views.view_declaration import ViewDeclaration

if TYPE_CHECKING:
    from ..declarations.request import Request

JSON = dict[str, Any]
METHODS = ("get", "post", "put", "patch", "delete")
LINKS = ("next", "previous")  # URLs of other pages, in the page of a list
logger = logging.getLogger("django_mcp.calls")


# Schemas.


class QueryDenied(Exception):
    """Raised for a query while the schema of a tool is generated.

    It is not a ``DatabaseError``: projects catch that class in case their tables are missing, and
    would hide this error.
    """


def deny_queries(*args: Any) -> Any:
    """Raise ``QueryDenied`` for every query. Pass it to ``connection.execute_wrapper``."""
    raise QueryDenied("it queries the database, and rows must not be part of a schema")


@dataclass(frozen=True)
class QueryParameter:
    """One parameter of the query string. A list is joined by ``separator``, or repeated."""

    name: str
    schema: JSON
    required: bool = False
    separator: str = ""

    def encode(self, value: Any) -> list[str]:
        """Return ``value`` as the strings of this parameter in the query string."""
        texts = [_text(one) for one in (value if isinstance(value, list) else [value])]
        return [self.separator.join(texts)] if self.separator else texts


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | dict | list) else str(value)


def query_string(parameters: Sequence[QueryParameter], arguments: JSON) -> str:
    """Return the query string of the arguments."""
    return urlencode(
        [
            (one.name, text)
            for one in parameters
            if arguments.get(one.name) is not None
            for text in one.encode(arguments[one.name])
        ]
    )


def page_schema(name: str) -> JSON:
    """Return the schema of ``next`` or ``previous`` in a result.

    The tool replaces the URL there by the arguments of a call.
    """
    description = f"Arguments for the {name} page. Null if there is none."
    return {"type": ["object", "null"], "description": description}


# Declarations.


class ApiTools(ToolDeclaration):
    """Base of the classes that list operations of an API.

    ``atomic`` says whether the tools that write run in a transaction. A string is the alias of its
    database.
    """

    _ignored_attributes = frozenset({"title", "description"})  # each tool has its own
    # The class itself is no tool and has no function to call: ``_derived`` yields the tools.
    _entry_method = "_derived"
    _list_attribute = ""  # the name of the attribute that lists the operations
    # The names of the mappings whose keys are entries of that list.
    _mapping_attributes: tuple[str, ...] = ("names", "descriptions")

    names: Mapping[str, str] = {}
    descriptions: Mapping[str, str] = {}
    atomic: bool | str = True

    _subject: Any = None

    @classmethod
    def _instances_for(cls, subjects: tuple[Any, ...]) -> list[Declaration]:
        if len(subjects) > 1:
            raise TypeError(f"{cls.__name__} is registered with one view or API.")
        made = cls()
        made._subject = subjects[0] if subjects else None
        return [made]

    @property
    def _entries(self) -> list[str]:
        """The listed names."""
        return [*getattr(self, self._list_attribute)]

    def _derived(self) -> Iterator[Declaration]:
        for entry in self._entries:
            yield from self._tools(entry)

    def _tools(self, entry: str) -> Iterator[Declaration]:
        """Yield the tools of one entry of the list: one for each method."""
        raise NotImplementedError

    def _name_of(self, entry: str, default: str, method: str, methods: Sequence[str]) -> str:
        """Return the name of the tool for one of the ``methods`` of an entry."""
        named = self.names.get(entry) or default
        # An operation with several methods is several tools, which need several names.
        return named if len({*methods} & {*METHODS}) == 1 else f"{method}_{named}"

    # Resolution.

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        self.name = self.name or default_name(type(self))
        yield from self._common_problems()
        problems = [*self._subject_problems()]
        yield from problems or self._entry_problems()
        yield from host_problems(self)

    def _subject_problems(self) -> Iterator[CheckMessage]:
        """Yield an error if the view or API is unsuitable, or if no operations are listed."""
        raise NotImplementedError

    def _entry_problems(self) -> Iterator[CheckMessage]:
        """Yield errors for entries of the list, and for keys of the mappings."""
        raise NotImplementedError

    def _unlisted_keys(self) -> Iterator[tuple[str, str]]:
        """Yield the keys of mappings that are not listed, after the name of the mapping."""
        for attribute in self._mapping_attributes:
            for key in set(getattr(self, attribute)) - set(self._entries):
                yield attribute, key


class ApiTool(ViewDeclaration, Tool):
    """One method of an operation as a tool. Subclasses read what it takes and returns."""

    _views: ApiTools  # the declaration that lists the operation
    _query: Sequence[QueryParameter] = ()

    def __init__(self, views: Any, route: Route, method: str, entry: str, *, name: str) -> None:
        super().__init__(views, route, name=name, description=views.descriptions.get(entry))
        self._method, self._entry = method, entry
        self.title = " ".join(name.split("_")).capitalize()
        self.read_only = True if self._reads_only else None
        self.destructive = True if method == "delete" else None
        self.idempotent = True if method == "put" else None

    @property
    def _http_method(self) -> str:
        return self._method.upper()

    @property
    def _reads_only(self) -> bool:
        return self._method == "get"

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from self._common_problems()
        self._output = Output()
        # Everybody who may list tools sees the schema, which is made once. What code of the project
        # puts into it from rows, such as choices, would be shown to the users of other tenants.
        with queries_through(deny_queries):
            problems = [*self._make_schemas()]
        yield from problems
        yield from self._atomic_problems()

    def _make_schemas(self) -> Iterator[CheckMessage]:
        """Set the tool's schemas, and yield the problems found. Must not query the database."""
        raise NotImplementedError

    @property
    def _callbacks(self) -> Sequence[Any]:
        """The callbacks of the URLconf that run the operation. No other callback is run."""
        raise NotImplementedError

    @property
    def _accept(self) -> str | None:
        """The media type that the operation writes."""
        return "application/json"

    # Arguments.

    @property
    def _fixed(self) -> Mapping[str, Any]:
        """Arguments of the URL that have the same value in every call, such as the API version."""
        return {}

    @property
    def _path_properties(self) -> JSON:
        """The schemas of the URL's arguments."""
        raise NotImplementedError

    @property
    def _body_schema(self) -> JSON:
        """The schema of the arguments that are sent in the body."""
        raise NotImplementedError

    @cached_property
    def _path_schema(self) -> JSON:
        properties = self._path_properties
        required = [name for name in self._route.required if name in properties]
        return {"properties": properties, "required": required}

    @cached_property
    def _parts(self) -> dict[str, JSON]:
        """The schemas of the arguments, by the part of the request as error messages name it."""
        query = {one.name: one.schema for one in self._query}
        required = [one.name for one in self._query if one.required]
        return {
            "URL": self._path_schema,
            "query string": {"properties": query, "required": required},
            "body": self._body_schema,
        }

    def _schema(self) -> JSON:
        properties = {k: v for part in self._parts.values() for k, v in part["properties"].items()}
        required = [name for part in self._parts.values() for name in part.get("required", ())]
        return object_schema(properties, required)

    def _clashes(self) -> Iterator[tuple[str, str]]:
        """Yield each argument that several parts of the request have, and names of these parts."""
        names = [name for part in self._parts.values() for name in part["properties"]]
        for name in dict.fromkeys(name for name in names if names.count(name) > 1):
            parts = [label for label, part in self._parts.items() if name in part["properties"]]
            yield name, " and ".join(parts)

    # Pages.

    @property
    def _has_links(self) -> bool:
        """Whether ``next`` and ``previous`` in the data are URLs of other pages."""
        return False

    @property
    def _page_names(self) -> frozenset[str]:
        """The parameters of the query string that choose a page. Links name them."""
        return frozenset()

    @property
    def _first_page(self) -> Mapping[str, str]:
        """The values of ``_page_names`` for a link without any of them: those of the first page."""
        return {}

    # Execution.

    def handle(self, request: Any, *args: Any, **arguments: Any) -> Any:
        """Run the operation and return its data. Raise ``ToolError`` if it rejects the request."""
        # The URL prefix, language and time zone of a request: ``target`` reverses URLs with them.
        with request_environment():
            path = arguments_in(self._path_schema, arguments) | {**self._fixed}
            query = query_string(self._query, arguments)
            target = self._route.target(path, query)
            api_request = self._request(request, target, self._request_body(arguments))
            with view_response(api_request) as answer:
                self._check_response(answer)
                return self._result_of(answer, arguments)

    def _request(self, request: Request, target: Target, body: Body | None) -> ApiRequest:
        return ApiRequest(self, request, target, body)

    def _request_body(self, arguments: JSON) -> Body | None:
        """Return the body for the arguments. None for a GET without one."""
        raise NotImplementedError

    def _check_response(self, answer: ViewResponse) -> None:
        """Raise the exception for a response that is not a success."""
        raise NotImplementedError

    def _result_of(self, answer: ViewResponse, arguments: JSON) -> Any:
        kind, body = media_type(answer.response), body_of(answer)
        schema = self._output.schema
        if not body:
            if schema is None:
                return "Done."
            # An empty result must fit the schema too. Schemas of REST framework require no
            # property, and those of ninja permit ``{}`` if a response may have no data.
            return [] if schema.get("type") == "array" else {}
        if is_json(kind):
            return self._with_page_arguments(json.loads(body), arguments, answer.request)
        # A page of a browsable API contains forms with the rows of other users to choose from.
        if schema is not None or is_html(kind):
            raise ToolError(f"The view returned {kind} in place of JSON.")
        return decoded(body, answer.response) if is_textual(kind) else file_of(answer, body)

    def _with_page_arguments(self, data: Any, arguments: JSON, request: ViewRequest) -> Any:
        """Return the data. In a page of a list, replace each URL of a page by arguments."""
        if self._has_links and isinstance(data, dict):
            unpaged = {k: v for k, v in arguments.items() if k not in self._page_names}
            data |= {n: self._page_arguments(data[n], unpaged) for n in LINKS if n in data}
            return self._replace_links(data, unpaged, request)
        return data

    def _replace_links(self, data: JSON, unpaged: JSON, request: ViewRequest) -> JSON:
        """Replace each URL of this list by arguments, whatever the key of the URL is.

        Lists are not searched for URLs, because they contain the rows.
        """
        replaced = {}
        for name, value in data.items():
            if isinstance(value, dict):
                value = self._replace_links(value, unpaged, request)
            elif isinstance(value, str) and _is_url_of(request, value):
                value = self._page_arguments(value, unpaged)
            replaced[name] = value
        return replaced

    def _page_arguments(self, link: Any, unpaged: JSON) -> Any:
        """Return the arguments of the call for the page at ``link``.

        ``unpaged`` are the arguments of this call that do not choose a page.
        """
        if not isinstance(link, str):
            return link
        schemas = {one.name: one.schema for one in self._query}
        try:
            parameters = parse_qsl(urlsplit(link).query)
        except ValueError:  # the view wrote something else than a URL
            return None
        page = {k: v for k, v in parameters if k in self._page_names} or {**self._first_page}
        numbers = {k for k in page if _is_number(schemas[k])}
        page = {k: v for k, v in page.items() if k not in numbers or v.isdecimal()}
        return unpaged | {k: int(v) if k in numbers else v for k, v in page.items()}


def _is_url_of(request: ViewRequest, text: str) -> bool:
    """Whether a text is a URL of the view that answered the request."""
    if request.path not in text:
        return False
    try:
        url = urlsplit(text)
    except ValueError:
        return False
    is_same_host = url.netloc == request.get_host() or (not url.netloc and bool(url.query))
    return is_same_host and url.path == request.path


def _is_number(schema: JSON) -> bool:
    return any(one.get("type") == "integer" for one in (schema, *schema.get("anyOf", ())))


def arguments_in(part: JSON, arguments: JSON) -> JSON:
    """Return those of the arguments that one part of the request takes."""
    return {name: arguments[name] for name in part["properties"] if name in arguments}


def read_file(value: JSON, path: str) -> Any:
    """Return the upload that an argument describes. Raise ``InvalidArguments``."""
    try:
        return upload(value)
    except (ValidationError, ValueError) as error:
        message = " ".join(getattr(error, "messages", ["The data are not valid base64."]))
        raise InvalidArguments(f"{path}: {message}") from None


class ApiRequest(ViewRequest):
    """The request that a call of ``tool`` sends to the API."""

    def __init__(self, tool: ApiTool, request: Request, target: Target, body: Body | None) -> None:
        self.accept = tool._accept or "application/json"
        self._callbacks = tool._callbacks
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
    def user(self, user: Any) -> None:
        # Middleware and the API's authenticators assign ``request.user``. A view that asks its own
        # authenticators would run as another user than the caller, whose permissions django_mcp
        # checked. Middleware assigns its user before the view is reached.
        if self.reached and getattr(user, "is_authenticated", False) and user != self.mcp.user:
            raise PermissionDenied("The view authenticated another user than the caller.")
        self._given = user


class ApiOutput(Output):
    """The data of a response. Its schema describes the data, and does not change it.

    ``hint`` says what to do if a response does not fit the schema.
    """

    def __init__(self, schema: JSON | None, name: str, *, hint: str) -> None:
        self.schema, self._name, self._hint = schema, name, hint
        # An operation may return a file, which is sent as an embedded resource.
        self.embeds = schema is None

    def structured(self, value: Any, request: Request) -> Any:
        # A mismatch is logged and is no error, because other clients of the API get this value too.
        # ``clearly_fits`` is enough for most schemas. jsonschema would take a fifth of the time of
        # a call that returns a page of a list.
        if self.schema is None or clearly_fits(self.schema, value):
            return value
        if found := violations(self.schema, value, formats=False):
            # Only the paths: the rest of the text contains values of rows.
            paths = ", ".join(dict.fromkeys(one.partition(": ")[0] for one in found if ": " in one))
            logger.warning(
                "Response does not fit its schema: tool=%s fields=%s; %s",
                self._name, paths or "(all)", self._hint,
            )  # fmt: skip
        return value


# Responses that are errors.


def check_response(answer: ViewResponse, detail: str, *, is_rejected: bool = False) -> None:
    """Raise the exception for an unsuccessful response, which rolls the transaction back.

    ``detail`` is the error text of the response. ``is_rejected`` means that an exception handler of
    the API made the response, whatever its status is.
    """
    status, response = answer.status, answer.response
    if status >= 500 and not is_rejected:
        raise answer.request.failed or ViewFailed(f"{answer.request.target.name}: {status}.")
    if status in (401, 403) or asks_to_sign_in(answer):
        raise PermissionDenied("" if status == 401 else detail)
    if status in (404, 410):
        raise Http404(detail)
    if status == 429:
        seconds = response.get("Retry-After")
        when = f"in {seconds} seconds" if seconds else "later"
        raise ToolError(f"Too many requests. Try again {when}.")
    if status >= 400:
        is_described = status in (400, 422) and detail
        message = detail if is_described else f"{status} {response.reason_phrase}. {detail}"
        raise ToolError(message.strip())
    # Exception handlers of some projects answer errors with 200, and describe them in the data.
    if is_rejected:
        raise ToolError(detail or "The view rejected the request.")
    if status in REDIRECTS:
        raise ToolError("The view redirects to another address, which a tool does not follow.")
    if not answer.request.reached:
        raise ToolError("A middleware or another view answered, and the view did not run.")


def error_text(data: Any, unnamed: str = "") -> str:
    """Return the errors in the data of a response, one line for each field.

    ``unnamed`` is the key of errors that belong to no field.
    """
    found = _errors(data, (), unnamed)
    lines = [f"{'.'.join(path)}: {text}" if path else text for path, text in found]
    return "\n".join(line[:MAX_ERROR_LENGTH] for line in lines[:MAX_ERRORS])


def _errors(
    data: Any, path: tuple[str, ...], unnamed: str
) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(data, Mapping):
        for name, inner in data.items():
            is_unnamed = name == unnamed or (name == "detail" and not path)
            yield from _errors(inner, path if is_unnamed else (*path, str(name)), unnamed)
    elif isinstance(data, list | tuple):
        if texts := [str(one) for one in data if isinstance(one, str)]:
            yield path, " ".join(texts)
        for number, inner in enumerate(data):
            if not isinstance(inner, str):
                yield from _errors(inner, (*path, str(number)), unnamed)
    elif data not in (None, ""):
        yield path, str(data)
