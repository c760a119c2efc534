"""
``ViewTools``: Django views as tools and resources, listed by URL name.

Each list is an allowlist: no other view is run or followed to by a redirect. A view runs through
the project's ``MIDDLEWARE`` as the calling user, and its own permission checks apply. Permissions
that the view's class states are also checked before the tool is listed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Warning
from django.http.request import split_domain_port, validate_host

from ...conf import settings
from ...declarations.declaration import Declaration, Find, ToolDeclaration, ascii_name, default_name

if TYPE_CHECKING:
    from .urls import Route
    from .view_declaration import ViewDeclaration

LISTS = {"get": "GET", "post": "POST", "resources": "GET"}
PAGES = ("markdown", "text")


class ViewTools(ToolDeclaration):
    """Views of the project as tools and resources. Register a subclass with at least one list.

    ``get``, ``post`` and ``resources`` are sequences of URL names. ``get`` makes read-only tools,
    ``post`` tools that write, and ``resources`` resources at ``view://...``.

    ``forms`` maps a URL name to the form of its POST, where the view has no ``form_class``.
    ``query`` maps a URL name to the fields of its query string. A value is a form class, whose
    fields are sent as a browser sends them, or a pydantic model or dataclass, which is posted as
    JSON.

    ``names`` and ``descriptions`` map URL names to the name and description of the tool. The
    defaults are made from the URL name and the view's docstring. ``pages`` is "markdown" or "text":
    HTML is converted to that. ``atomic`` is True, False or the alias of the database in whose
    transaction the tools of ``post`` run.
    """

    _kind = "class of views"
    _ignored_attributes = frozenset({"title", "description"})  # each view has its own
    # The class itself is no tool: ``_derived`` yields the tools and resources.
    _entry_method = "_derived"

    get: Sequence[str] = ()
    post: Sequence[str] = ()
    resources: Sequence[str] = ()
    forms: Mapping[str, Any] = {}
    query: Mapping[str, Any] = {}
    names: Mapping[str, str] = {}
    descriptions: Mapping[str, str] = {}
    pages: str = "markdown"
    atomic: bool | str = True

    def _derived(self) -> Iterator[ViewDeclaration]:
        """Yield the tools and resources of the lists."""
        # Imported here, because they import pydantic and markdownify. A project that declares views
        # must load fast, and without markdownify must get the check that says what to install.
        from .view_tool import ViewResource, ViewTool

        common: dict[str, Any] = {"pages": self.pages, "redirects_to": {*self.get, *self.resources}}
        for name in self.get:
            options = common | {"query": self.query.get(name), **self._texts(name, "get")}
            yield ViewTool(self, self._routes[name], **options)
        for name in self.post:
            options = common | {"form": self.forms.get(name), **self._texts(name, "post")}
            yield ViewTool(self, self._routes[name], posts=True, **options)
        for name in self.resources:
            options = common | {
                "name": ascii_name(name),
                "description": self.descriptions.get(name),
            }
            for route in self._routes[name].variants():
                yield ViewResource(self, route, **options)

    def _texts(self, name: str, listed: str) -> dict[str, str | None]:
        """Return the name and the description of a tool, as its keyword arguments."""
        return {
            "name": self._tool_name(name, listed), "description": self.descriptions.get(name)
        }  # fmt: skip

    def _tool_name(self, name: str, listed: str) -> str:
        if listed == "get" and name in self.post:
            # The same URL name is in get and post, so the two tools need two names.
            return f"show_{self._tool_name(name, 'post')}"
        return self.names.get(name) or ascii_name(name)

    # Resolution.

    @cached_property
    def _routes(self) -> dict[str, Route]:
        from .urls import routes

        return routes()

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        self.name = self.name or default_name(type(self))
        yield from self._common_problems()
        wrong = [*self._list_problems()]
        yield from wrong or [*self._name_problems(), *self._key_problems()]
        yield from host_problems(self)

    def _list_problems(self) -> Iterator[CheckMessage]:
        if not any(getattr(self, listed) for listed in LISTS):
            hint = "List names of URLs in get, post or resources: there is no default."
            yield self._error("No view is named.", 102, hint)
        if self.pages not in PAGES:
            message = f"pages is {self.pages!r}: it must be one of {', '.join(PAGES)}."
            yield self._error(message, 103, f"Write pages = {PAGES[0]!r}.")
        if find_spec("markdownify") is None:
            hint = 'Install "django-modelcontext[views]".'
            yield self._error("Pages cannot be read: markdownify is not installed.", 104, hint)

    def _name_problems(self) -> Iterator[CheckMessage]:
        for listed, method in LISTS.items():
            for name in getattr(self, listed):
                if name not in self._routes:
                    yield self._error(f"{listed}: no URL is named {name!r}.", 105, self._near(name))
                    continue
                yield from self._route_problems(self._routes[name], method)

    def _route_problems(self, route: Route, method: str) -> Iterator[CheckMessage]:
        if not route.reversible:
            hint = "Name every group of its pattern, and use no alternatives there."
            yield self._error(f"The URL {route.name!r} cannot be reversed.", 106, hint)
        view = route.view_class
        own = {name for name in route.option("http_method_names") or () if hasattr(view, name)}
        if view is not None and method.lower() not in own:
            hint = f"Give {view.__name__} the method, or list it elsewhere."
            yield self._error(f"{route.name!r} does not answer to {method}.", 107, hint)

    def _near(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._routes, 3)
        return f"Did you mean {' or '.join(near)}?" if near else "See the URLconf."

    def _key_problems(self) -> Iterator[CheckMessage]:
        """Yield errors for keys of the mappings that name a view which is not listed."""
        tools = {*self.get, *self.post}
        known = {"forms": self.post, "query": self.get, "names": tools}
        known["descriptions"] = {*tools, *self.resources}
        for attribute, names in known.items():
            for name in set(getattr(self, attribute)) - set(names):
                hint = "The keys are names of the lists: forms of post, query of get."
                yield self._error(f"{attribute}: {name!r} is not listed.", 108, hint)


def host_problems(declaration: Declaration) -> Iterator[CheckMessage]:
    """Warn if the host of ``DJANGO_MCP["URL"]`` is not in ALLOWED_HOSTS.

    Views may call ``request.get_host()``. Over stdio there is no Host header, so ``URL`` is used.
    """
    host = split_domain_port(urlsplit(settings.URL).netloc)[0]
    if not validate_host(host, django_settings.ALLOWED_HOSTS or _local_hosts()):
        message = f"DJANGO_MCP['URL'] has the host {host!r}, which is not in ALLOWED_HOSTS."
        hint = "Add it. Otherwise views reject calls over stdio."
        yield Warning(message, hint=hint, obj=declaration, id="django_mcp.W111")


def _local_hosts() -> list[str]:
    """Return the hosts that Django allows under DEBUG if ALLOWED_HOSTS is empty."""
    return [".localhost", "127.0.0.1", "[::1]"] if django_settings.DEBUG else []
