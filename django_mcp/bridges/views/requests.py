"""
The ``HttpRequest`` that a view receives: the caller's own, whatever middleware says of a browser.

Rule: it is made by the server and of nothing that came over the wire but the arguments. Its user
is the caller; a middleware may put the caller into other clothes, or sign them out, and cannot
make somebody else of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.core.handlers.wsgi import WSGIRequest
from django.urls import Resolver404
from django.utils import translation
from django.utils.crypto import salted_hmac

from ...declare.http import environ
from .sessions import CallSession
from .urls import Target

if TYPE_CHECKING:
    from ...declare.requests import Request

# Data before pages: a view that has both gives what a model reads best.
ACCEPT = "application/json, text/markdown;q=0.9, text/html;q=0.8, */*;q=0.5"
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True)
class Body:
    """What is posted."""

    data: bytes = b""
    type: str = FORM


class ViewRequest(WSGIRequest):
    """A request of ``request``'s user for ``target``: a GET, or a POST where there is a body.

    ``mcp`` is the ``Request`` of the call.
    """

    # No site sent this: who calls is known by a token, which no browser adds by itself, and
    # that is all CsrfViewMiddleware is there to tell.
    _dont_enforce_csrf_checks = True

    # Of what a browser's request differs by for whoever else asks - Authorization, a proxy's
    # headers - nothing is here to differ by: whatever pages vary by, none is kept for others.
    @property
    def _cache_update_cache(self) -> bool:
        return False

    @_cache_update_cache.setter
    def _cache_update_cache(self, wanted: bool) -> None:
        """CacheMiddleware wants it."""

    def __init__(
        self, request: Request, target: Target, body: Body | None, session: CallSession
    ) -> None:
        super().__init__(environ(request) | _about(request, target, body))
        self.mcp, self.target, self.call_session = request, target, session
        self.failed: Exception | None = None
        self.arrived = False
        self._given: Any = None
        # Where AuthenticationMiddleware looks before it asks a session.
        self._cached_user = self._acached_user = request.user

    def arrive(self, name: str, kwargs: dict[str, Any]) -> None:
        """Raises ``Resolver404`` unless it is at the view it was made for."""
        if (name, kwargs) != (self.target.name, self.target.kwargs):
            raise Resolver404({"path": self.path_info})
        self.arrived = True

    @property
    def user(self) -> Any:
        """The caller; whoever was signed out on the way is nobody."""
        # A look at the session, so that pages kept by CacheMiddleware vary by whom they are for.
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
        """It is the user's twin."""

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
        """A store of SessionMiddleware's, whose place the call's own takes."""
        vars(self)["session"] = given


def _about(request: Request, target: Target, body: Body | None) -> dict[str, Any]:
    posted = body or Body()
    found = {
        "REQUEST_METHOD": "GET" if body is None else "POST",
        "SCRIPT_NAME": (django_settings.FORCE_SCRIPT_NAME or "").rstrip("/"),
        "PATH_INFO": target.path.encode().decode("iso-8859-1"),
        "QUERY_STRING": target.query,
        "REMOTE_ADDR": "",  # as behind a socket: nobody's, so that no list of addresses has it
        "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_ACCEPT": ACCEPT,
        "HTTP_ACCEPT_LANGUAGE": translation.get_language() or "",
        "HTTP_USER_AGENT": "django_mcp",
        "wsgi.input": BytesIO(posted.data),
    }
    if body is not None:
        found |= {"CONTENT_TYPE": body.type, "CONTENT_LENGTH": str(len(body.data))}
    return found | _cookie(request)


def _cookie(request: Request) -> dict[str, str]:
    """What tells users apart for caches that vary by cookie: the name of no session there is."""
    if not request.principal.key:
        return {}
    name = salted_hmac("django_mcp.bridges.views", request.principal.key, algorithm="sha256")
    return {"HTTP_COOKIE": f"{django_settings.SESSION_COOKIE_NAME}={name.hexdigest()[:32]}"}
