"""
Running a view as Django runs it: through the project's MIDDLEWARE, in this process and thread.

Rule: only a named view is reached, by whatever way. Redirects are followed to views that are
named as well; of any other it is told where it leads. What the handler would do for a browser's
connection - the signals at which databases are let go - is not done: the call still needs them.
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
from django.http import Http404, HttpResponseBase
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
from .requests import Body, ViewRequest
from .sessions import CallSession
from .urls import Target, path_info, target_at

if TYPE_CHECKING:
    from ...declare.requests import Request

MAX_HOPS = 5
LOCALE = "django.middleware.locale.LocaleMiddleware"
GET_AFTER = (301, 302, 303)  # redirects after which a browser gets, whatever it did before
REDIRECTS = (*GET_AFTER, 307, 308)
REFUSALS: dict[int, type[Exception]] = {
    401: PermissionDenied, 403: PermissionDenied, 404: Http404, 410: Http404,
}  # fmt: skip


class ViewFailed(Exception):
    """The view, or a middleware, answered with a server error; the log has it."""


class Site(BaseHandler):
    """The project as Django serves it, where a request reaches no view but the one it is for."""

    def resolve_request(self, request: Any) -> Any:
        match = super().resolve_request(request)
        request.arrive(match.view_name, match.kwargs)
        return match

    def process_exception_by_middleware(self, exception: Exception, request: Any) -> Any:
        request.failed = exception
        return super().process_exception_by_middleware(exception, request)


@lru_cache(maxsize=4)
def _site(middleware: tuple[str, ...]) -> Site:
    made = Site()
    made.load_middleware()
    return made


def _forget(**kwargs: Any) -> None:
    """Middleware looks at settings when it is made, and a test changes them."""
    _site.cache_clear()


setting_changed.connect(_forget, dispatch_uid="django_mcp.bridges.views.calls")


@dataclass
class Answer:
    """What came back in the end, and the messages to the user on the way there."""

    request: ViewRequest
    response: Any
    messages: list[str] = field(default_factory=list)
    leads_to: str | None = None  # an address that was not gone to

    @property
    def status(self) -> int:
        return int(self.response.status_code)

    @property
    def location(self) -> str | None:
        """Where a browser would go to from here, as a whole address; None where it would stay."""
        there = self.response.get("Location") if self.status in REDIRECTS else None
        try:
            return there and urljoin(self.request.build_absolute_uri(), there)
        except ValueError:  # no address at all
            return None


@contextmanager
def visited(
    request: Request, target: Target, body: Body | None = None, *, views: Collection[str] = ()
) -> Iterator[Answer]:
    """What ``target`` answers to ``request``'s user, by way of redirects to other ``views``.

    Raises what a refusal or failure is for a tool: ``PermissionDenied``, ``Http404``,
    ``ToolError``, or the view's own exception.
    """
    session = CallSession(request.user)
    messages: list[str] = []
    posted: Answer | None = None
    for _ in range(MAX_HOPS + 1):
        made = ViewRequest(request, target, body, session)
        with _answered(made) as response:
            told = map(str, get_messages(made))  # again, where a session carried it on
            messages += [message for message in told if message not in messages]
            answer = Answer(made, response, messages)
            if posted is not None and (400 <= answer.status < 500 or _asks_to_sign_in(answer)):
                yield posted  # it is done, whatever may be seen of it
                return
            _check(answer)
            onward = _onward(answer, views)
            if onward is None:
                yield answer
                return
        posted = answer if body is not None else posted
        target, body = onward, None
    raise ToolError("The redirects of this page lead round in a circle.")


@contextmanager
def browsing() -> Iterator[None]:
    """Addresses are as in a request; what a view sets for its thread ends with it."""
    urlconf, prefix = get_urlconf(), get_script_prefix()
    set_script_prefix(django_settings.FORCE_SCRIPT_NAME or "/")
    with (
        translation.override(translation.get_language()),
        timezone.override(timezone.get_current_timezone()),
    ):
        try:
            _speak_as_a_site()
            yield
        finally:
            set_urlconf(urlconf)
            set_script_prefix(prefix)


def _speak_as_a_site() -> None:
    """Of a language, the variant that ``LocaleMiddleware`` will take it for: "en" for "en-us"."""
    if LOCALE in django_settings.MIDDLEWARE:
        with suppress(LookupError):
            language = translation.get_language() or django_settings.LANGUAGE_CODE
            translation.activate(translation.get_supported_language_variant(language))


@contextmanager
def _answered(made: ViewRequest) -> Iterator[HttpResponseBase]:
    response = None
    try:
        response = _site(tuple(django_settings.MIDDLEWARE)).get_response(made)
        yield response
    finally:
        # Not response.close(): it would say that the request is finished, and databases let go.
        for close in getattr(response, "_resource_closers", [made.close]):
            close()


# Refusals and failures.


def _check(answer: Answer) -> None:
    failed, status = answer.request.failed, answer.status
    if status >= 500:
        raise failed or ViewFailed(f"{answer.request.target.name} answered {status}.")
    if status in REFUSALS:
        kind = REFUSALS[status]
        raise failed if isinstance(failed, kind) else kind()
    if _asks_to_sign_in(answer):
        raise PermissionDenied()
    if answer.request.method == "POST" and not answer.request.arrived and status < 400:
        raise ToolError("Something else answered in place of the page: nothing was done.")


def _asks_to_sign_in(answer: Answer) -> bool:
    """Whether a redirect is what ``login_required`` and its like answer."""
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


def _onward(answer: Answer, views: Collection[str]) -> Target | None:
    """The page that a redirect leads to, if it is one of ``views``."""
    answer.leads_to = answer.location
    getting = answer.status in GET_AFTER or answer.request.method == "GET"
    found = _page_at(answer) if getting and answer.leads_to else None
    return found if found is not None and found.name in views else None


def _page_at(answer: Answer) -> Target | None:
    there, ours = urlsplit(str(answer.leads_to)), urlsplit(answer.request.build_absolute_uri())
    if (there.scheme, there.netloc) != (ours.scheme, ours.netloc):
        return None
    path = path_info(there.path)
    return None if path is None else target_at(path, there.query)
