"""Fixtures of the server page: simulated browsers, and a parser of pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from html.parser import HTMLParser
from typing import Any

import pytest
from django.core.asgi import get_asgi_application
from django.test import Client

from django_mcp.declarations.server import Server, default_server
from django_mcp.routing import mount
from tests.http import ClientExchange, Site

# As Chromium, Firefox and Safari ask for a page.
CHROMIUM = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,"
    "*/*;q=0.8,application/signed-exchange;v=b3;q=0.7"
)
FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
EMPTY = {"meta", "link", "img", "br", "input"}


class Seen(HTMLParser):
    """A parsed page. Raises if tags are not nested correctly."""

    def __init__(self, exchange: ClientExchange) -> None:
        super().__init__()
        self.exchange, self.html = exchange, exchange.body.decode()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(self.html)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute is there twice: {attrs}"
        self.tags.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self._open[-1:] != ["style"]:
            self.words.append(data)

    @property
    def text(self) -> str:
        """The visible text, without the white space of the source."""
        return " ".join("".join(self.words).split())

    def all(self, attribute: str) -> list[str]:
        return [str(found[attribute]) for _, found in self.tags if attribute in found]

    @property
    def links(self) -> list[str]:
        return [str(found["href"]) for tag, found in self.tags if tag == "a"]

    def entry(self, anchor: str) -> bool:
        return anchor in self.all("id")


class Browser:
    """A browser that visits servers, signed in as ``user`` or anonymous."""

    def __init__(self, site: Site, user: Any = None) -> None:
        self.site, self.cookie = site, None
        if user is not None:
            client = Client()
            client.force_login(user, "django.contrib.auth.backends.ModelBackend")
            self.cookie = f"sessionid={client.cookies['sessionid'].value}"

    def ask(self, path: str = "/mcp", method: str = "GET", **options: Any) -> ClientExchange:
        headers = {"accept": CHROMIUM, "cookie": self.cookie, **options.pop("headers", {})}
        return self.site.send(method, path, headers=headers, **options)

    def visit(self, server: Server = default_server, **options: Any) -> Seen:
        exchange = self.ask(options.pop("path", f"/{server.path}"), **options)
        assert exchange.status == 200, exchange
        assert exchange.headers["content-type"] == "text/html; charset=utf-8"
        return Seen(exchange)


@pytest.fixture
def browse() -> Iterator[Callable[..., Browser]]:
    """Return a function that makes browsers of a site with the present settings."""
    with ExitStack() as stack:

        def made(user: Any = None) -> Browser:
            application = mount(get_asgi_application())
            return Browser(stack.enter_context(Page(application, strict=False)), user)

        yield made


class Page(Site):
    """A site whose responses may be Django's, with header names in capitals."""
