"""
The ``HttpRequest`` that a view receives when it runs as a tool or resource.

The server builds the request. Only the tool's arguments come from the client: no header, cookie or
address of the HTTP request is passed on. The user is the caller. Middleware may replace the user
object by another of the same user, or sign the user out by ``logout(request)``. Any other user that
it assigns is ignored, ``AnonymousUser`` too.

``CallSession`` is an in-memory session that lives as long as the call and stores nothing.
``Fields`` and its subclasses turn arguments into a query string or a body. Fields of a Django form
are posted as a browser posts them, and the view validates them. Fields of a pydantic model or
dataclass are validated first, and become a query string or a JSON body. Nothing here looks up rows.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django import forms
from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.backends import RemoteUserBackend
from django.contrib.sessions.backends.base import SessionBase
from django.core.handlers.wsgi import WSGIRequest
from django.http import QueryDict
from django.urls import Resolver404, ResolverMatch
from django.utils import translation
from django.utils.crypto import salted_hmac
from django.utils.datastructures import MultiValueDict
from django.utils.module_loading import import_string
from pydantic import TypeAdapter, ValidationError

from ...declarations.request import environ
from ...declarations.schemas import TerseSchema, all_of
from ...exceptions import InvalidArguments
from ..form_input import FormInput, Problem, post_data
from .urls import Target

if TYPE_CHECKING:
    from ...declarations.request import Request

MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"


class CallSession(SessionBase):
    """An in-memory session in which ``user`` is signed in, or an anonymous one."""

    def __init__(self, user: Any) -> None:
        super().__init__()
        self._session_cache = dict(_signed_in(user))
        self.was_signed_in = SESSION_KEY in self._session_cache
        # Signed-in users need a session key: without one, code that tells visitors apart by
        # ``session_key`` would take all of them for the same visitor.
        if self.was_signed_in:
            self.create()

    @property
    def is_over(self) -> bool:
        """Whether code signed the caller out.

        Reading this marks the session as accessed, so that responses vary by cookie.
        """
        return SESSION_KEY not in self and self.was_signed_in

    def exists(self, session_key: str | None = None) -> bool:
        return False

    def create(self) -> None:
        self._session_key = self._get_new_session_key()  # type: ignore[attr-defined]

    def save(self, must_create: bool = False) -> None:
        if self.session_key is None:
            self.create()

    def delete(self, session_key: str | None = None) -> None:
        """Do nothing: the session is not stored."""

    def load(self) -> dict[str, Any]:
        return {}

    async def aexists(self, session_key: str | None = None) -> bool:
        return False

    async def acreate(self) -> None:
        self.create()

    async def asave(self, must_create: bool = False) -> None:
        self.save()

    async def adelete(self, session_key: str | None = None) -> None:
        """Do nothing: the session is not stored."""

    async def aload(self) -> dict[str, Any]:
        return {}


def _signed_in(user: Any) -> dict[str, str]:
    """Return what ``django.contrib.auth.login`` stores in a session."""
    if not user.is_authenticated or not hasattr(user, "get_session_auth_hash"):
        return {}
    return {
        SESSION_KEY: user._meta.pk.value_to_string(user),
        BACKEND_SESSION_KEY: getattr(user, "backend", None) or _backend(),
        HASH_SESSION_KEY: user.get_session_auth_hash(),
    }


def _backend() -> str:
    """Return the first authentication backend that is not a ``RemoteUserBackend``.

    ``RemoteUserMiddleware`` signs out users of that backend when a request lacks its header.
    """
    for path in django_settings.AUTHENTICATION_BACKENDS:
        if not issubclass(import_string(path), RemoteUserBackend):
            return path
    return MODEL_BACKEND


# JSON first: of a view that can return data or a page, a language model reads the data best.
ACCEPT = "application/json, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.5"
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Body:
    """The body of a POST or of another method that writes, and its media type."""

    data: bytes = b""
    type: str = FORM
    method: str = "POST"


# A server in front of Django limits the request line to about as much.
MAX_QUERY_STRING_BYTES = 16 * 1024


class ViewRequest(WSGIRequest):
    """A request by the caller of ``request`` for ``target``: a GET if there is no body.

    ``mcp`` is the ``Request`` of the call. Raise ``InvalidArguments`` if the query string is longer
    than ``MAX_QUERY_STRING_BYTES``.
    """

    # CSRF protection is for credentials that a browser adds by itself, such as cookies. The token
    # of an MCP call is none of these, so no other site can have sent it.
    _dont_enforce_csrf_checks = True
    accept = ACCEPT

    # This request lacks headers by which responses usually vary, such as Authorization or those of
    # a proxy. A response cached for it could be served to other users, so none is ever stored.
    @property
    def _cache_update_cache(self) -> bool:
        return False

    @_cache_update_cache.setter
    def _cache_update_cache(self, wanted: bool) -> None:
        """Ignore the assignment by ``UpdateCacheMiddleware``."""

    def __init__(
        self, request: Request, target: Target, body: Body | None, session: CallSession
    ) -> None:
        if len(target.query) > MAX_QUERY_STRING_BYTES:  # ASCII, because it is percent-encoded
            raise InvalidArguments(
                f"The arguments make a query string of {len(target.query)} bytes. It may have "
                f"{MAX_QUERY_STRING_BYTES}. Send shorter or fewer values."
            )
        super().__init__(environ(request) | _view_environ(request, target, body, self.accept))
        self.mcp, self.target, self.call_session = request, target, session
        self.failed: Exception | None = None
        self.reached = False
        self._fragment = f"#{secrets.token_hex(8)}"
        self._given: Any = None
        # AuthenticationMiddleware reads these attributes before it looks into the session.
        self._cached_user = self._acached_user = request.user

    def build_absolute_uri(self, location: str | None = None) -> str:
        """Return an absolute URL. That of the request itself ends in a random fragment."""
        # Django's caches make their keys of this URL. With the fragment, no two requests have the
        # same key, so no caller gets a response that was stored for somebody else. REST framework
        # passes another request object to the methods of a view. If ``cache_page`` decorates such a
        # method, Django stores the response, but under a key that no other request has.
        found = super().build_absolute_uri(location)
        return found + self._fragment if location is None else found

    def mark_reached(self, match: ResolverMatch) -> None:
        """Mark the view as reached. Raise ``Resolver404`` if it is not the target's view."""
        if (match.view_name, match.kwargs) != (self.target.name, self.target.kwargs):
            raise Resolver404({"path": self.path_info})
        self.reached = True

    @property
    def user(self) -> Any:
        """The caller, or ``AnonymousUser`` if code signed the caller out.

        A user that middleware assigned is used only if it equals the caller.
        """
        # Reading the session marks it as accessed, so that pages in CacheMiddleware vary by user.
        if self._has_session and self.call_session.is_over:
            from django.contrib.auth.models import AnonymousUser

            return AnonymousUser()
        caller = self.mcp.user
        return self._given if self._given is not None and self._given == caller else caller

    @user.setter
    def user(self, given: Any) -> None:
        self._given = given

    @property
    def auser(self) -> Callable[[], Awaitable[Any]]:
        return sync_to_async(lambda: self.user)

    @auser.setter
    def auser(self, given: Any) -> None:
        """Ignore the assignment: ``auser`` follows ``user``."""

    @property
    def _has_session(self) -> bool:
        return "session" in vars(self)

    @property  # type: ignore[override]
    def session(self) -> CallSession:
        if not self._has_session:
            raise AttributeError("There is no session: SessionMiddleware is not installed.")
        return self.call_session

    @session.setter
    def session(self, given: Any) -> None:
        """Mark the session as present. The call's own session replaces the given store."""
        vars(self)["session"] = given


def _view_environ(
    request: Request, target: Target, body: Body | None, accept: str
) -> dict[str, Any]:
    posted = body or Body()
    found = {
        "REQUEST_METHOD": "GET" if body is None else body.method,
        "SCRIPT_NAME": (django_settings.FORCE_SCRIPT_NAME or "").rstrip("/"),
        "PATH_INFO": target.path.encode().decode("iso-8859-1"),
        "QUERY_STRING": target.query,
        # Empty, as behind a Unix socket: no list of allowed addresses can match it.
        "REMOTE_ADDR": "",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_ACCEPT": accept,
        "HTTP_ACCEPT_LANGUAGE": translation.get_language() or "",
        "HTTP_USER_AGENT": "django_mcp",
        "wsgi.input": BytesIO(posted.data),
    }
    if body is not None:
        found |= {"CONTENT_TYPE": body.type, "CONTENT_LENGTH": str(len(body.data))}
    return found | _cookie(request)


def _cookie(request: Request) -> dict[str, str]:
    """Return a session cookie that differs by user, for caches that vary by cookie.

    Its value is an HMAC of the principal's key, and the key of no stored session.
    """
    if not request.principal.key:
        return {}
    name = salted_hmac("django_mcp.bridges.views", request.principal.key, algorithm="sha256")
    return {"HTTP_COOKIE": f"{django_settings.SESSION_COOKIE_NAME}={name.hexdigest()[:32]}"}


JSON = dict[str, Any]


class Fields:
    """The arguments of a view beside those in its path. This base class takes none."""

    schema: JSON = {"type": "object", "properties": {}}
    problems: list[Problem] = []

    def body(self, given: Mapping[str, Any], shown: forms.BaseForm | None) -> Body:
        """Return the body to post for ``given``.

        ``shown`` is the form as the page renders it for this user, or None.
        """
        return Body()

    def form(self, body: Body) -> forms.BaseForm | None:
        """Return the form that a function view probably builds from the body, or None."""
        return None

    def query(self, given: Mapping[str, Any]) -> str:
        """Return the query string for ``given``. Raise ``InvalidArguments``."""
        return ""


class FormFields(Fields):
    """The fields of a Django form."""

    def __init__(self, form: type[forms.BaseForm], *, partial: bool = False) -> None:
        self._form, found = form, FormInput(form, partial=partial)
        self.schema, self.problems = found.schema, found.problems

    def body(self, given: Mapping[str, Any], shown: forms.BaseForm | None) -> Body:
        form = self._form() if shown is None else shown
        lacking = [n for n in given if n not in form.fields or form.fields[n].disabled]
        if lacking:  # The view may build another form for this user than the form class has.
            raise InvalidArguments(f"This page does not ask for {', '.join(lacking)}.")
        data, files = post_data(form, given)
        if files:
            return Body(*multipart(data, files))
        return Body(urlencode(data, doseq=True).encode())

    def form(self, body: Body) -> forms.BaseForm | None:
        return self._form(QueryDict(body.data)) if body.type == FORM else None

    def query(self, given: Mapping[str, Any]) -> str:
        data, files = post_data(self._form(), given)
        if files:
            raise InvalidArguments("A query string cannot contain files.")
        filled = {name: values for name, values in data.items() if any(values)}
        return urlencode(filled, doseq=True)


class TypedFields(Fields):
    """The fields of a pydantic model or a dataclass."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        found = self._adapter.json_schema(schema_generator=TerseSchema)
        if "$ref" in found:  # For a recursive model, pydantic puts the schema itself into $defs.
            found |= found["$defs"][found.pop("$ref").rpartition("/")[2]]
        self.schema = found

    def body(self, given: Mapping[str, Any], shown: forms.BaseForm | None) -> Body:
        return Body(json.dumps(self._to_json(given)).encode(), "application/json")

    def query(self, given: Mapping[str, Any]) -> str:
        written = self._to_json(given)
        return urlencode({k: v for k, v in written.items() if v is not None}, doseq=True)

    def _to_json(self, given: Mapping[str, Any]) -> JSON:
        try:
            value = self._adapter.validate_json(json.dumps(dict(given)))
        except ValidationError as error:
            found = error.errors(include_url=False)
            lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}." for one in found[:8]]
            raise InvalidArguments("Invalid arguments. " + " ".join(lines)) from None
        written: JSON = self._adapter.dump_python(value, mode="json", by_alias=True)
        return written


class PageNumber(Fields):
    """The page number of a ``ListView``."""

    def __init__(self, name: str) -> None:
        page = {"type": "integer", "minimum": 1, "description": "Which page of the list."}
        self.schema = {"type": "object", "properties": {name: page}}

    def query(self, given: Mapping[str, Any]) -> str:
        return urlencode(dict(given))


def fields_of(kind: Any, *, partial: bool = False, flat: bool = False) -> Fields:
    """Return the fields of a form class, pydantic model or dataclass; none for None.

    With ``partial``, no field of a form is required. With ``flat``, objects within objects raise
    ``TypeError``, because a query string cannot hold them. Errors of the class are passed on.
    """
    if kind is None:
        return Fields()
    if isinstance(kind, type) and issubclass(kind, forms.BaseForm):
        return FormFields(kind, partial=partial)
    found = TypedFields(kind)
    if "properties" not in found.schema:
        raise TypeError(f"{kind!r} is neither a form nor a model or dataclass.")
    if flat and (nested := [*_nested_properties(found.schema)]):
        raise TypeError(f"{nested[0]} is an object, which no query string holds.")
    return found


def _nested_properties(schema: JSON) -> Iterator[str]:
    """Yield the names of properties that may be objects, or lists of objects."""
    definitions = schema.get("$defs", {})
    for name, prop in schema["properties"].items():
        if "object" in types_in(prop, definitions):
            yield name


def types_in(schema: JSON, definitions: JSON, seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the types in a schema and in the definitions to which it refers."""
    found = {str(one) for one in all_of("type", schema)}
    for ref in {*all_of("$ref", schema)} - seen:
        found |= types_in(definitions[ref.rpartition("/")[2]], definitions, seen | {ref})
    return found


def multipart(data: Mapping[str, list[str]], files: MultiValueDict[str, Any]) -> tuple[bytes, str]:
    """Encode texts and files as multipart/form-data (RFC 7578). Return the body and media type."""
    boundary = secrets.token_hex(16)
    parts = [
        (f'name="{_escape_quotes(name)}"', v.encode()) for name, vs in data.items() for v in vs
    ]
    for name, uploads in files.lists():
        for file in uploads:
            header = f'name="{_escape_quotes(name)}"; filename="{_escape_quotes(file.name)}"'
            parts.append((f"{header}\r\nContent-Type: {file.content_type}", file.read()))
    encoded_parts = [
        f"--{boundary}\r\nContent-Disposition: form-data; {about}\r\n\r\n".encode() + value
        for about, value in parts
    ]
    body = b"\r\n".join([*encoded_parts, f"--{boundary}--\r\n".encode()])
    return body, f"multipart/form-data; boundary={boundary}"


def _escape_quotes(text: str) -> str:
    """Escape a name as the HTML standard does, so that it cannot end its header."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
