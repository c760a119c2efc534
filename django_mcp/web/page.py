"""The HTML page that a browser gets at the URL of a server.

``PageASGIHandler`` is Django's ASGI handler for one view, without a URLconf. The project's
MIDDLEWARE runs as for any page of the site, so the visitor is the user of the site's session. The
handler is created at the first visit.

The page lists the tools, resources and prompts that the visitor may use, from the same declarations
that clients get. It shows links only to users who can open them. Links that return to the page
contain a path and no host, so that they cannot lead to another site.

The page loads no script and must not be cached. The only cookie that it sets itself is Django's
CSRF cookie, for the form that signs out. The page has its own template engine, which escapes all
text. From the setting TEMPLATES it takes only DIRS.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from django.conf import global_settings
from django.conf import settings as django_settings
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse, HttpResponseRedirect
from django.middleware.csrf import get_token
from django.shortcuts import resolve_url
from django.template.backends.django import DjangoTemplates
from django.urls import (
    NoReverseMatch,
    Resolver404,
    ResolverMatch,
    get_script_prefix,
    resolve,
    reverse,
)
from django.utils.cache import add_never_cache_headers, patch_vary_headers
from django.utils.encoding import escape_uri_path
from django.utils.functional import LazyObject
from django.utils.translation import gettext, gettext_lazy

from ..auth.principal import Principal, anonymous
from ..calls.execution import surrounded
from ..calls.listing import Usable, usable
from ..conf import DEFAULTS, settings
from ..declarations import permissions
from ..declarations.content import Icon
from ..declarations.declaration import Declaration
from ..declarations.model_resources import ModelResource
from ..declarations.prompts import Prompt
from ..declarations.request import Request
from ..declarations.resources import Resource
from ..declarations.schema_summary import PropertyLine, lines
from ..declarations.server import address, sse_address
from ..declarations.tools import Tool
from ..runtime.view_limits import closes_connections
from .clients import connection_methods, is_open, signs_in

if TYPE_CHECKING:
    from django.http import HttpRequest

    from ..declarations.server import Server
    from ..transports.http.request import Application


def page_of(server: Server) -> Application:
    """Return the ASGI application that answers a browser's visit with the page of ``server``."""
    handler = cache(lambda: PageASGIHandler(server))

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await handler()(scope, receive, send)

    return application


class PageASGIHandler(ASGIHandler):
    """Django's ASGI handler, which resolves every request to the page of ``server``."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server

    def resolve_request(self, request: HttpRequest) -> ResolverMatch:
        """Skip the project's URLconf."""
        # Otherwise the thread of the request would keep its database connection.
        view = closes_connections(page)
        match = ResolverMatch(view, (), {"server": self.server}, route=self.server.path)
        request.resolver_match = match
        return match


def principal(request: HttpRequest) -> Principal:
    """Return the visitor as a principal; anonymous if no middleware sets ``request.user``."""
    user: Any = getattr(request, "user", None)
    # A principal must have a loaded user: permission checks may run outside this request.
    while isinstance(user, LazyObject):
        bool(user.is_authenticated)  # loads the user
        user = vars(user)["_wrapped"]
    return anonymous() if user is None else Principal(user)


def login_url(request: HttpRequest) -> str | None:
    """Return the URL of the login page with ``next`` set to this page; None if there is none."""
    login = _login_page()
    return None if login is None else redirect_to_login(current_path(request), login).url


def current_path(request: HttpRequest) -> str:
    """Return the path of the page, for redirects back to it."""
    return escape_uri_path(get_script_prefix() + request.path_info.lstrip("/"))


def _login_page() -> str | None:
    """Return LOGIN_URL.

    If LOGIN_URL is Django's default and no URL pattern matches it, return the admin's login page.
    """
    try:
        login = resolve_url(django_settings.LOGIN_URL)
    except NoReverseMatch:
        return _reverse_or_none("admin:login")
    if django_settings.LOGIN_URL != global_settings.LOGIN_URL or _resolves(login):
        return login
    return _reverse_or_none("admin:login")


def _resolves(url: str) -> bool:
    try:
        resolve("/" + urlsplit(url).path.removeprefix(get_script_prefix()).lstrip("/"))
    except Resolver404:
        return False
    return True


def logout_url(user: Any) -> str | None:
    """Return the URL that signs ``user`` out by POST: Django's, django-allauth's or the admin's.

    None for anonymous users, or if there is no such view.
    """
    if not user.is_authenticated:
        return None
    found = _reverse_or_none("logout") or _reverse_or_none("account_logout")
    # The admin's view does nothing for users who may not enter the admin.
    return found or (_reverse_or_none("admin:logout") if _is_staff(user) else None)


def admin_url(user: Any) -> str | None:
    return _reverse_or_none("admin:index") if _is_staff(user) else None


def token_url(user: Any) -> str | None:
    """Return the URL of the admin's form for a token; None for users who may not add tokens."""
    may_add = _is_staff(user) and user.has_perm("django_mcp.add_token")
    return _reverse_or_none("admin:django_mcp_token_add") if may_add else None


def inspector_url(user: Any, server: Server) -> str | None:
    """Return the URL of the admin's inspector; None for users who may not use it."""
    may_use = _is_staff(user) and user.has_perm("django_mcp.use_inspector")
    found = _reverse_or_none("admin:django_mcp_inspector_changelist") if may_use else None
    return found and f"{found}?{urlencode({'server': server.name})}"


def connections_url(user: Any) -> str | None:
    """Return the page that lists a user's connected clients; None if the project has none."""
    return _reverse_or_none("django_mcp_oauth:connections") if user.is_authenticated else None


def token_command(user: Any) -> list[str]:
    """Return the shell words of the command that creates an access token for ``user``."""
    name = user.get_username() if user.is_authenticated else "NAME"
    command = ["python", "manage.py", "mcp_token", "create", "--user", name, "--name", "laptop"]
    return [shlex.quote(word) for word in command]


def _is_staff(user: Any) -> bool:
    return bool(user.is_authenticated and getattr(user, "is_staff", False))


def _reverse_or_none(name: str) -> str | None:
    try:
        return reverse(name)
    except NoReverseMatch:
        return None


# A line break within a paragraph: not before a blank line, an indented line or a list item.
LINE_BREAK_IN_PARAGRAPH = re.compile(r"(?<!\n)\n(?![\s*•-]|\d+[.)])")
ROW_METADATA = ("_uri", "_links")  # members that every row has in addition to its fields

HINTS = {
    "idempotent": gettext_lazy("safe to repeat"),
    "open_world": gettext_lazy("contacts other systems"),
}
NEEDS = {
    "elicitation": gettext_lazy("asks you"),
    "sampling": gettext_lazy("uses your language model"),
    "roots": gettext_lazy("reads your list of folders"),
}


@dataclass(frozen=True)
class PageEntry:
    """A tool, resource or prompt on the page. ``takes`` lists arguments and ``gives`` results."""

    anchor: str
    name: str
    title: str
    summary: str
    more: str = ""
    icon: Icon | None = None
    address: str = ""
    effect: str = ""  # "reads", "writes" or "destroys"
    notes: Sequence[str] = ()
    takes: Sequence[PropertyLine] = ()
    gives: Sequence[PropertyLine] = ()

    @property
    def is_plain(self) -> bool:
        """Whether the entry has nothing beyond its summary."""
        return not (self.more or self.takes or self.gives)


@dataclass(frozen=True)
class Section:
    """Entries of one kind."""

    anchor: str
    title: str
    about: str
    entries: list[PageEntry] = field(default_factory=list)


def sections(usable: Usable) -> list[Section]:
    """Return the entries for ``usable`` in sections by kind, without empty sections."""
    found = (
        Section("tools", gettext("Tools"), gettext("What an assistant can do here."),
                [_tool(one) for one in usable.tools]),
        Section("resources", gettext("Resources"), gettext("What an assistant can read."),
                [_resource(one) for one in (*usable.resources, *usable.templates)]),
        Section("prompts", gettext("Prompts"), gettext("Conversations that you can start."),
                [_entry(one, takes=_takes(one)) for one in usable.prompts]),
    )  # fmt: skip
    return [section for section in found if section.entries]


def _tool(tool: Tool) -> PageEntry:
    effect = "destroys" if tool.destructive else "reads" if tool.read_only else "writes"
    hints = [str(words) for name, words in HINTS.items() if getattr(tool, name)]
    return _entry(
        tool,
        effect=effect,
        notes=list(dict.fromkeys([*hints, *_needs(tool)])),
        takes=_takes(tool),
        gives=lines(tool._output.schema or {}, translated=True),
    )


def _resource(resource: Resource) -> PageEntry:
    gives: list[PropertyLine] = []
    if isinstance(resource, ModelResource):
        shown = lines(resource._row_schema(), translated=True)
        gives = [line for line in shown if line.name.split(".")[0] not in ROW_METADATA]
    notes = [resource.mime_type] if resource.mime_type else []
    takes = _takes(resource)
    return _entry(resource, address=resource.uri, notes=notes, takes=takes, gives=gives)


def _takes(declaration: Prompt | Resource | Tool) -> list[PropertyLine]:
    return lines(declaration._arguments.schema, translated=True)


def _needs(declaration: Declaration) -> Iterator[str]:
    for need in declaration.needs:
        yield str(NEEDS.get(need.partition(".")[0], need))


def _entry(declaration: Declaration, **more: Any) -> PageEntry:
    summary, _, rest = paragraphs(declaration.description).partition("\n\n")
    return PageEntry(
        anchor=f"{declaration._kind.replace(' ', '-')}-{declaration.name}",
        name=declaration.name,
        title=str(declaration.title or ""),
        summary=summary,
        more=rest,
        icon=icon(declaration.icons),
        **more,
    )


def paragraphs(text: Any) -> str:
    """Return text with the line breaks within paragraphs replaced by spaces."""
    return LINE_BREAK_IN_PARAGRAPH.sub(" ", str(text or "").strip())


def icon(icons: Iterable[Icon], theme: str = "light") -> Icon | None:
    """Return the first icon for ``theme`` or for any theme; None if there is none."""
    fitting = [one for one in icons if one.theme in (None, theme) and one.url]
    return next(iter(fitting), None)


CSP = "Content-Security-Policy"
PAGE_HEADERS = {
    CSP: "; ".join([
        "default-src 'none'", "style-src 'sha256-{}'", "img-src 'self' data: https:",
        "base-uri 'none'", "form-action 'self'", "frame-ancestors 'none'",
    ]),
    "Cross-Origin-Resource-Policy": "same-origin",
    # With "no-referrer" browsers send "Origin: null" with the form that signs out, and Django's
    # protection against CSRF refuses it.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}  # fmt: skip


def page(request: HttpRequest, server: Server) -> HttpResponse:
    """Return the page: a description, how to connect, and what the visitor may use.

    Without the permission in ``Server.page``, an anonymous visitor is redirected to the login page.
    Raise ``PermissionDenied`` if the project has no login page, or if the visitor is signed in.
    """
    mcp_request = Request(principal(request), server, host=request.get_host())
    with surrounded(mcp_request):
        is_allowed = (  # never None: ``routing`` creates a page only with a permission
            server.page is not None
            and permissions.decide_permission(server.page, mcp_request).allowed
        )
    if not is_allowed:
        return _login_or_403(request, mcp_request)
    return _response(*_render(context(request, mcp_request)))


def _login_or_403(request: HttpRequest, mcp_request: Request) -> HttpResponse:
    login = login_url(request)
    if login is None or mcp_request.principal.is_authenticated:
        raise PermissionDenied
    return HttpResponseRedirect(login)


def context(request: HttpRequest, mcp_request: Request) -> dict[str, Any]:
    """Return the template's context."""
    server, user = mcp_request.server, mcp_request.user
    found = sections(usable(mcp_request))
    # Only visitors who could get the instructions as a client see them.
    may_read_instructions = bool(found) or mcp_request.principal.is_authenticated
    url = address(server)
    return {
        "server": server,
        "is_empty": server._is_empty,
        "title": str(server.title or server.public_name),
        "description": paragraphs(server.description),
        "instructions": paragraphs(server.instructions) if may_read_instructions else "",
        "icon": icon(server.icons),
        "dark_icon": icon(server.icons, "dark"),
        "website": _web_url(server.website),
        "url": url,
        "sse_url": sse_address(server),
        "visitor": user if mcp_request.principal.is_authenticated else None,
        "login_url": login_url(request),
        **_signing_out(request, user),
        "admin_url": admin_url(user),
        "connections_url": connections_url(user),
        "token_url": token_url(user),
        "inspector_url": inspector_url(user, server),
        "token_command": token_command(user) if _shows_commands(mcp_request) else None,
        "connection_methods": connection_methods(server, url),
        "is_open": is_open(server),
        "signs_in": signs_in(server),
        "sections": found,
        "other_origin": _other_origin(request),
    }


def _signing_out(request: HttpRequest, user: Any) -> dict[str, str]:
    """Return the context of the sign-out form; {} if there is none."""
    url = logout_url(user)
    if url is None:  # ``get_token`` sets a cookie, so it is called only if the form is shown
        return {}
    return {"logout_url": url, "logout_token": get_token(request), "here": current_path(request)}


def _web_url(url: str | None) -> str | None:
    """Return ``url`` if it is http or https, else None: a ``javascript:`` link would run code."""
    return url if url and url.lower().startswith(("https://", "http://")) else None


def _shows_commands(mcp_request: Request) -> bool:
    """Whether the page shows commands: only to signed-in users, or with DEBUG."""
    return mcp_request.principal.is_authenticated or django_settings.DEBUG


def _other_origin(request: HttpRequest) -> str:
    """Return the request's origin if ``URL`` has its default value and differs from that origin.

    The page then suggests the setting to the developer. Return "" otherwise, or without DEBUG.
    """
    origin = f"{request.scheme}://{request.get_host()}"
    url_is_default = django_settings.DEBUG and DEFAULTS["URL"] == settings.URL
    return origin if url_is_default and origin != settings.URL else ""


# Rendering.


def _render(shown: dict[str, Any]) -> tuple[str, str]:
    """Return the HTML, and the digest of its style sheet for the Content-Security-Policy."""
    engine = _templates()
    style = str(engine.get_template("django_mcp/page.css").render({}))
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return engine.get_template("django_mcp/page.html").render({**shown, "style": style}), digest


def _templates() -> DjangoTemplates:
    """Return a Django template engine; the DIRS in TEMPLATES let a project override templates."""
    engines: list[dict[str, Any]] = django_settings.TEMPLATES
    dirs = tuple(path for engine in engines for path in engine.get("DIRS", ()))
    # With DEBUG, templates are read again for each request.
    return _new_engine(dirs) if django_settings.DEBUG else _cached_engine(dirs)


def _new_engine(dirs: tuple[Any, ...]) -> DjangoTemplates:
    return DjangoTemplates({"NAME": "django_mcp", "DIRS": dirs, "APP_DIRS": True, "OPTIONS": {}})


_cached_engine = lru_cache(maxsize=8)(_new_engine)


def _response(html: str, digest: str) -> HttpResponse:
    response = HttpResponse(html, headers=PAGE_HEADERS)
    response[CSP] = PAGE_HEADERS[CSP].format(digest)
    add_never_cache_headers(response)
    patch_vary_headers(response, ("Accept", "Cookie"))
    return response
