"""
The page that a browser is shown at the address of a server.

Rule: it sends no cookie, loads no script and is kept by nobody; the project's own words
are escaped by an engine that no setting can tell otherwise.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.conf import settings as django_settings
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseRedirect
from django.template.backends.django import DjangoTemplates
from django.utils.cache import add_never_cache_headers, patch_vary_headers

from ..conf import DEFAULTS, settings
from ..declare import permissions
from ..declare.addresses import address, sse_address
from ..declare.requests import Request
from ..dispatch.running import surrounded
from ..dispatch.usable import usable
from . import visitors
from .connecting import is_open, signs_in, ways
from .entries import icon, paragraphs, sections

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..declare.servers import Server

HEADERS = {
    "Content-Security-Policy": "; ".join([
        "default-src 'none'", "style-src 'sha256-{}'", "img-src 'self' data: https:",
        "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
    ]),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}  # fmt: skip


def page(request: HttpRequest, server: Server) -> HttpResponse:
    """What ``server`` is, how to connect to it, and what the visitor may use.

    Raises ``PermissionDenied`` for users whom ``Server.page`` leaves out.
    """
    asked = Request(visitors.principal(request), server, host=request.get_host())
    with surrounded(asked):
        is_allowed = server.page is not None and permissions.allows(server.page, asked)
    if not is_allowed:
        return _sent_away(request, asked)
    return _dressed(*_rendered(context(request, asked)))


def _sent_away(request: HttpRequest, asked: Request) -> HttpResponse:
    login = visitors.login_url(request)
    if login is None or asked.principal.is_authenticated:
        raise PermissionDenied
    return HttpResponseRedirect(login)


def context(request: HttpRequest, asked: Request) -> dict[str, Any]:
    """What the template shows."""
    server, user = asked.server, asked.user
    found = sections(usable(asked))
    knows = bool(found) or asked.principal.is_authenticated  # as who may connect at all
    url = address(server)
    return {
        "server": server,
        "title": str(server.title or server.public_name),
        "description": paragraphs(server.description),
        "instructions": paragraphs(server.instructions) if knows else "",
        "icon": icon(server.icons),
        "dark_icon": icon(server.icons, "dark"),
        "website": _page_of_the_web(server.website),
        "url": url,
        "sse_url": sse_address(server),
        "visitor": user if asked.principal.is_authenticated else None,
        "login_url": visitors.login_url(request),
        "admin_url": visitors.admin_url(user),
        "connections_url": visitors.connections_url(user),
        "token_url": visitors.token_url(user),
        "token_command": visitors.token_command(user) if _is_told(asked) else None,
        "ways": ways(server, url),
        "is_open": is_open(server),
        "signs_in": signs_in(server),
        "sections": found,
        "elsewhere": _elsewhere(request),
    }


def _page_of_the_web(url: str | None) -> str | None:
    """``url`` where a link may lead there: nothing that a browser would run."""
    return url if url and url.lower().startswith(("https://", "http://")) else None


def _is_told(asked: Request) -> bool:
    """Whether the visitor is told of commands: strangers need not know how a site is run."""
    return asked.principal.is_authenticated or django_settings.DEBUG


def _elsewhere(request: HttpRequest) -> str:
    """The origin that the visitor came to, for a developer whose setting says another."""
    here = f"{request.scheme}://{request.get_host()}"
    is_new = django_settings.DEBUG and DEFAULTS["URL"] == settings.URL
    return here if is_new and here != settings.URL else ""


# Rendering.


def _rendered(shown: dict[str, Any]) -> tuple[str, str]:
    """The page, and the digest of its style sheet, by which the browser knows it."""
    engine = _templates()
    style = str(engine.get_template("django_mcp/page.css").render({}))
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return engine.get_template("django_mcp/page.html").render({**shown, "style": style}), digest


def _templates() -> DjangoTemplates:
    """Django's templates, whatever TEMPLATES says, with what the project has put over ours."""
    engines: list[dict[str, Any]] = django_settings.TEMPLATES
    dirs = tuple(place for engine in engines for place in engine.get("DIRS", ()))
    return (_engine.__wrapped__ if django_settings.DEBUG else _engine)(dirs)


@lru_cache(maxsize=8)
def _engine(dirs: tuple[Any, ...]) -> DjangoTemplates:
    """Kept, with the templates it has read, for as long as nobody is changing them."""
    return DjangoTemplates({"NAME": "django_mcp", "DIRS": dirs, "APP_DIRS": True, "OPTIONS": {}})


def _dressed(html: str, digest: str) -> HttpResponse:
    response = HttpResponse(html)
    for name, value in HEADERS.items():
        response[name] = value.format(digest)
    add_never_cache_headers(response)
    patch_vary_headers(response, ("Accept", "Cookie"))
    return response
