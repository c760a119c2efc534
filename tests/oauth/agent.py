"""The official MCP client with its own OAuth, and a simulated user without a browser.

The client knows only the URL of the endpoint, and the user only the pages that the server sends.
"""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

from .site import PASSWORD

CALLBACK = "http://127.0.0.1:7777/callback"
FIELD = re.compile(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"')
TAG = re.compile(r"<(style|head).*?</\1>|<[^>]*>", re.DOTALL)
Told = dict[str, str]


class Memory:
    """Storage of the client's tokens and registration."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


class Person:
    """A user who signs in, reads the consent page and allows or cancels."""

    def __init__(self, name: str, allow: bool = True) -> None:
        self.name, self.allow = name, allow
        self.read: list[str] = []  # the text of every consent page
        self.cookies = httpx2.Cookies()

    async def sent(self, url: str) -> Told:
        """Follow the authorization URL, answer, and return the parameters of the redirect."""
        async with httpx2.AsyncClient(cookies=self.cookies, timeout=60) as web:
            page = await self._signed_in(web, await web.get(url, follow_redirects=True))
            self.cookies = web.cookies
            self.read.append(words(page))
            assert page.status_code == 200, self.read
            said = fields(page) | {"allow": str(self.allow).lower()}
            gone = await web.post(page.url, data=said)
        assert gone.status_code == 302, gone.text
        return told(gone.headers["location"])

    async def _signed_in(self, web: Any, page: Any) -> Any:
        if "Password" not in words(page):
            return page
        given = fields(page) | {"username": self.name, "password": PASSWORD}
        return await web.post(page.url, data=given, follow_redirects=True)


def fields(page: Any) -> Told:
    """Return the hidden fields of the forms of a page."""
    return {name: html.unescape(value) for name, value in FIELD.findall(page.text)}


def words(page: Any) -> str:
    return " ".join(html.unescape(TAG.sub(" ", page.text)).split())


def told(location: str, callback: str = CALLBACK) -> Told:
    """Return the query of a redirect to the client. Each parameter occurs once."""
    assert location.startswith(callback + "?"), location
    found = parse_qs(urlsplit(location).query, strict_parsing=True)
    assert all(len(values) == 1 for values in found.values()), found
    return {name: values[0] for name, values in found.items()}


class RecordingTransport(httpx2.AsyncHTTPTransport):
    """Records path and status of every request, and the grant types of token requests."""

    def __init__(self, noted: list[tuple[str, int]], grants: list[str]) -> None:
        super().__init__()
        self.noted, self.grants = noted, grants

    async def handle_async_request(self, request: Any) -> Any:
        response = await super().handle_async_request(request)
        self.noted.append((request.url.path, response.status_code))
        if request.url.path == "/oauth/token":
            self.grants += parse_qs(request.content.decode())["grant_type"]
        return response


class Agent:
    """A client of the endpoint. ``sent`` visits the authorization URL as a user does.

    ``document`` is the URL of its metadata document, if it has one. ``more`` is further metadata.
    """

    def __init__(
        self,
        endpoint: str,
        sent: Callable[[str], Awaitable[Told]],
        callback: str = CALLBACK,
        document: str | None = None,
        **more: Any,
    ) -> None:
        self.endpoint, self._sent = endpoint, sent
        self.asked: list[str] = []  # the authorization URLs
        self.told: list[Told] = []  # the parameters of the redirects
        self.requests: list[tuple[str, int]] = []
        self.grants: list[str] = []
        self.memory = Memory()
        said = OAuthClientMetadata(client_name="Agent Smith", redirect_uris=[callback], **more)
        self.provider = OAuthClientProvider(
            endpoint, said, self.memory, self._redirected, self._answered, document
        )

    async def _redirected(self, url: str) -> None:
        self.asked.append(url)

    async def _answered(self) -> AuthorizationCodeResult:
        found = await self._sent(self.asked[-1])
        self.told.append(found)
        return AuthorizationCodeResult(
            code=found.get("code", ""), state=found.get("state"), iss=found.get("iss")
        )

    def answers(self, path: str) -> list[int]:
        """Return the statuses of all responses at a path."""
        return [status for asked, status in self.requests if asked == path]

    @asynccontextmanager
    async def opened(self, mode: str = "auto") -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(
                transport=RecordingTransport(self.requests, self.grants),
                auth=self.provider,
                timeout=60,
            ) as http,
            Client(streamable_http_client(self.endpoint, http_client=http), mode=mode) as client,
        ):
            yield client

    async def whoami(self, mode: str = "auto") -> str:
        async with self.opened(mode) as client:
            return text(await client.call_tool("whoami", {}))


def text(result: Any) -> str:
    assert not result.is_error, result
    return str(result.content[0].text)
