"""
Django's views as tools and as resources, by the names of their URLs.

Rule: each list is a whitelist, and nothing outside of the lists is run or shown. A view runs as
Django runs it - through the project's MIDDLEWARE, as the user who calls - and says itself what
this user may do; what it states of permission on its class is also asked before it is listed.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Warning
from django.http.request import split_domain_port, validate_host

from ...conf import settings
from ...declare.declarations import Declaration, default_name

if TYPE_CHECKING:
    from ...declare.catalogs import Catalog
    from .things import ViewThing
    from .urls import Route

LISTS = {"get": "GET", "post": "POST", "resources": "GET"}
PAGES = ("markdown", "text")


class ViewTools(Declaration):
    """Views of the project, by URL name: register a subclass with at least one of the lists.

    ``get`` become tools that only read, ``post`` tools that write, ``resources`` what is read at
    ``view://...``. ``forms`` says what a POST takes, where the view does not say it by a
    ``form_class``, and ``query`` what a GET takes in its query string: each maps a URL name to a
    form class (sent as a browser sends it), or to a pydantic model or dataclass (a body of JSON).
    ``names`` and ``descriptions`` replace what would be made of the URL name and the view's
    docstring. ``pages`` says what becomes of HTML: "markdown" or "text".
    """

    kind = "class of views"
    entry = "derived"  # it does nothing itself

    get: Sequence[str] = ()
    post: Sequence[str] = ()
    resources: Sequence[str] = ()
    forms: Mapping[str, Any] = {}
    query: Mapping[str, Any] = {}
    names: Mapping[str, str] = {}
    descriptions: Mapping[str, str] = {}
    pages: str = "markdown"

    def derived(self) -> Iterator[ViewThing]:
        """The tools and resources."""
        from .things import ViewResource, ViewTool

        for name in self.get:
            yield ViewTool(self, self._routes[name], name=self._tool_name(name, "get"))
        for name in self.post:
            yield ViewTool(self, self._routes[name], name=self._tool_name(name, "post"), posts=True)
        for name in self.resources:
            for route in self._routes[name].ways():
                yield ViewResource(self, route, name=_plain(name))

    def _tool_name(self, name: str, listed: str) -> str:
        if listed == "get" and name in self.post:
            return f"show_{self._tool_name(name, 'post')}"  # two tools of one page
        return self.names.get(name) or _plain(name)

    @property
    def shown(self) -> set[str]:
        """The pages that may be seen, and so be gone to by a redirect."""
        return {*self.get, *self.resources}

    # Resolution.

    @cached_property
    def _routes(self) -> dict[str, Route]:
        from .urls import routes

        return routes()

    def resolve(self, catalog: Catalog) -> Iterator[CheckMessage]:
        self.name = self.name or default_name(type(self))
        yield from self._common_problems()
        wrong = [*self._list_problems()]
        yield from wrong or [*self._name_problems(), *self._key_problems()]
        yield from self._host_problems()

    def _list_problems(self) -> Iterator[CheckMessage]:
        lists = {listed: getattr(self, listed) for listed in LISTS}
        for listed in (listed for listed, names in lists.items() if not _are_names(names)):
            hint = f'{listed} = ["billing:invoice-list"]'
            yield self.error(f"{listed} is no list of URL names.", 101, hint)
        if all(names in ([], ()) for names in lists.values()):
            hint = "List names of URLs in get, post or resources: there is no default."
            yield self.error("No view is named.", 102, hint)
        if self.pages not in PAGES:
            yield self.error(f"pages is {self.pages!r}.", 103, f"One of {', '.join(PAGES)}.")
        if find_spec("markdownify") is None:
            hint = 'Install "django-modelcontext[views]".'
            yield self.error("Pages cannot be read: markdownify is not installed.", 104, hint)

    def _name_problems(self) -> Iterator[CheckMessage]:
        for listed, method in LISTS.items():
            for name in getattr(self, listed):
                if name not in self._routes:
                    yield self.error(f"{listed}: no URL is named {name!r}.", 105, self._near(name))
                    continue
                yield from self._route_problems(self._routes[name], method)

    def _route_problems(self, route: Route, method: str) -> Iterator[CheckMessage]:
        if not route.reversible:
            hint = "Name every group of its pattern, and use no alternatives there."
            yield self.error(f"No address can be made of {route.name!r}.", 106, hint)
        view = route.view_class
        own = {name for name in route.option("http_method_names") or () if hasattr(view, name)}
        if view is not None and method.lower() not in own:
            hint = f"Give {view.__name__} the method, or list it elsewhere."
            yield self.error(f"{route.name!r} does not answer to {method}.", 107, hint)

    def _host_problems(self) -> Iterator[CheckMessage]:
        """Views ask for the host; where no request came with one, it is that of ``URL``."""
        host = split_domain_port(urlsplit(settings.URL).netloc)[0]
        if not validate_host(host, django_settings.ALLOWED_HOSTS or _local_hosts()):
            message = f"DJANGO_MCP['URL'] is of {host!r}, which is not in ALLOWED_HOSTS."
            hint = "Add it: views refuse calls that come over stdio else."
            yield Warning(message, hint=hint, obj=self, id="django_mcp.W111")

    def _near(self, name: str) -> str:
        near = difflib.get_close_matches(name, self._routes, 3)
        return f"Did you mean {' or '.join(near)}?" if near else "See the URLconf."

    def _key_problems(self) -> Iterator[CheckMessage]:
        """Names that say something of a view which is not listed."""
        tools = {*self.get, *self.post}
        known = {"forms": self.post, "query": self.get, "names": tools}
        known["descriptions"] = {*tools, *self.resources}
        for attribute, names in known.items():
            for name in set(getattr(self, attribute)) - set(names):
                hint = "The keys are names of the lists: forms of post, query of get."
                yield self.error(f"{attribute}: {name!r} is not listed.", 108, hint)


def _are_names(names: Any) -> bool:
    listed = isinstance(names, Iterable) and not isinstance(names, str)
    return listed and all(isinstance(name, str) for name in names)


def _local_hosts() -> list[str]:
    """Where Django answers under DEBUG, if ALLOWED_HOSTS is empty."""
    return [".localhost", "127.0.0.1", "[::1]"] if django_settings.DEBUG else []


def _plain(name: str) -> str:
    """``billing:invoice-close`` is ``billing_invoice_close``."""
    return re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
