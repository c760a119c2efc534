"""
Run a view through the project's ``MIDDLEWARE``, in the current process and thread.

``response_of`` sends a request for a named view and follows redirects to other listed views, at
most ``MAX_REDIRECTS``. A redirect to any other address is not followed: the result contains it.
No request reaches a view other than its target, whatever middleware does to the path.

The signals ``request_started`` and ``request_finished`` are not sent. Django closes database
connections on them, and the call still needs its connection.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urljoin, urlsplit

from django.conf import settings as django_settings
from django.contrib.auth import REDIRECT_FIELD_NAME
from django.contrib.messages import get_messages
from django.core.exceptions import PermissionDenied
from django.core.handlers.base import BaseHandler
from django.core.signals import setting_changed
from django.http import Http404
from django.shortcuts import resolve_url
from django.urls import (
    NoReverseMatch,
    get_script_prefix,
    get_urlconf,
    set_script_prefix,
    set_urlconf,
)
from django.utils import timezone, translation

from ...exceptions import ToolError
from .requests import MAX_QUERY_STRING_BYTES, Body, CallSession, ViewRequest
from .urls import Target, path_info, target_at

if TYPE_CHECKING:
    from ...declarations.request import Request

MAX_REDIRECTS = 5
LOCALE = "django.middleware.locale.LocaleMiddleware"
GET_AFTER = (301, 302, 303)  # A browser follows these with a GET, whatever the first method was.
REDIRECTS = (*GET_AFTER, 307, 308)
REFUSALS: dict[int, type[Exception]] = {
    401: PermissionDenied, 403: PermissionDenied, 404: Http404, 410: Http404,
}  # fmt: skip


class ViewFailed(Exception):
    """The view or a middleware returned a server error. The log has the traceback."""


class ViewHandler(BaseHandler):
    """The project's request handler, which runs no view but the request's target.

    ``resolve_request`` raises ``Resolver404`` if middleware changed the path to that of another
    view.
    """

    def resolve_request(self, request: Any) -> Any:
        match = super().resolve_request(request)
        request.mark_reached(match)
        return match

    def process_exception_by_middleware(self, exception: Exception, request: Any) -> Any:
        request.failed = exception
        return super().process_exception_by_middleware(exception, request)


@lru_cache(maxsize=4)
def _handler(middleware: tuple[str, ...]) -> ViewHandler:
    handler = ViewHandler()
    handler.load_middleware()
    return handler


def _clear_handlers(**kwargs: Any) -> None:
    """Drop cached handlers when a test overrides settings, which middleware reads on creation."""
    _handler.cache_clear()


setting_changed.connect(_clear_handlers, dispatch_uid="django_mcp.bridges.views.execution")


@dataclass
class ViewResponse:
    """The last response, and the user messages (``django.contrib.messages``) of all responses."""

    request: ViewRequest
    response: Any
    messages: list[str] = field(default_factory=list)
    leads_to: str | None = None  # The URL of a redirect that was not followed.

    @property
    def status(self) -> int:
        return int(self.response.status_code)

    @property
    def location(self) -> str | None:
        """The absolute URL of a redirect, or None.

        None if the response is no redirect, or if its ``Location`` is not a valid URL.
        """
        location = self.response.get("Location") if self.status in REDIRECTS else None
        try:
            return location and urljoin(self.request.build_absolute_uri(), location)
        except ValueError:  # urljoin cannot parse it
            return None


@contextmanager
def response_of(
    request: Request, target: Target, body: Body | None = None, *, views: Collection[str] = ()
) -> Iterator[ViewResponse]:
    """Yield the response of ``target`` to the caller, after redirects to other ``views``.

    Raise what a refusal or failure means for a tool: ``PermissionDenied``, ``Http404``,
    ``ToolError`` or the view's own exception.
    """
    session = CallSession(request.user)
    messages: list[str] = []
    posted: ViewResponse | None = None
    for _ in range(MAX_REDIRECTS + 1):
        view_request = ViewRequest(request, target, body, session)
        with view_response(view_request) as answer:
            # A message that is stored in the session appears again after the redirect.
            texts = map(str, get_messages(view_request))
            messages += [message for message in texts if message not in messages]
            answer.messages = messages
            if posted is not None and (400 <= answer.status < 500 or asks_to_sign_in(answer)):
                # The POST succeeded. That the caller may not see the next page does not undo it.
                yield posted
                return
            _check(answer)
            next_target = _redirect_target(answer, views)
            if next_target is None:
                yield answer
                return
        posted = answer if body is not None else posted
        target, body = next_target, None
    raise ToolError("The redirects of this page form a loop.")


@contextmanager
def request_environment() -> Iterator[None]:
    """Set URL prefix, language and time zone as in a request. Restore all of them afterwards."""
    urlconf, prefix = get_urlconf(), get_script_prefix()
    set_script_prefix(django_settings.FORCE_SCRIPT_NAME or "/")
    with (
        translation.override(translation.get_language()),
        timezone.override(timezone.get_current_timezone()),
    ):
        try:
            _activate_supported_language()
            yield
        finally:
            set_urlconf(urlconf)
            set_script_prefix(prefix)


def _activate_supported_language() -> None:
    """Activate the supported variant of the current language, as ``LocaleMiddleware`` will.

    For example "en" for "en-us". Otherwise addresses with a language prefix would not resolve.
    """
    if LOCALE in django_settings.MIDDLEWARE:
        with suppress(LookupError):
            language = translation.get_language() or django_settings.LANGUAGE_CODE
            translation.activate(translation.get_supported_language_variant(language))


@contextmanager
def view_response(view_request: ViewRequest) -> Iterator[ViewResponse]:
    """Yield the response of the project's middleware and view. Close it afterwards."""
    response = None
    try:
        response = _handler(tuple(django_settings.MIDDLEWARE)).get_response(view_request)
        yield ViewResponse(view_request, response)
    finally:
        # Not response.close(): it sends request_finished, on which Django closes database
        # connections.
        for close in getattr(response, "_resource_closers", [view_request.close]):
            close()


# Refusals and failures.


def _check(answer: ViewResponse) -> None:
    failed, status = answer.request.failed, answer.status
    if status >= 500:
        raise failed or ViewFailed(f"{answer.request.target.name} answered {status}.")
    if status in REFUSALS:
        kind = REFUSALS[status]
        raise failed if isinstance(failed, kind) else kind()
    if asks_to_sign_in(answer):
        raise PermissionDenied()
    if answer.request.method == "POST" and not answer.request.reached and status < 400:
        raise ToolError("A middleware or another view answered, and the view did not run.")


def asks_to_sign_in(answer: ViewResponse) -> bool:
    """Whether the response is the redirect of ``login_required`` or a similar check."""
    if answer.location is None:
        return False
    location = urlsplit(answer.location)
    try:
        page = urlsplit(resolve_url(django_settings.LOGIN_URL)).path
    except NoReverseMatch:
        page = str(django_settings.LOGIN_URL)
    back = parse_qs(location.query).get(REDIRECT_FIELD_NAME, [""])[0]
    return bool(location.path == page or urlsplit(back).path == answer.request.path)


# Redirects.


def _redirect_target(answer: ViewResponse, views: Collection[str]) -> Target | None:
    """Return the page that a redirect leads to if it is one of ``views``, else None."""
    answer.leads_to = answer.location
    getting = answer.status in GET_AFTER or answer.request.method == "GET"
    found = _target_of_redirect(answer) if getting and answer.leads_to else None
    return found if found is not None and found.name in views else None


def _target_of_redirect(answer: ViewResponse) -> Target | None:
    target, ours = urlsplit(str(answer.leads_to)), urlsplit(answer.request.build_absolute_uri())
    if (target.scheme, target.netloc) != (ours.scheme, ours.netloc):
        return None
    if len(target.query) > MAX_QUERY_STRING_BYTES:  # such a request would raise InvalidArguments
        return None
    path = path_info(target.path)
    return None if path is None else target_at(path, target.query)
