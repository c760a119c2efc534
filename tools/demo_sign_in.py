"""Sign in with the official MCP client's own OAuth flow and a scripted user instead of a browser.

The client gets only the URL of the MCP endpoint and discovers the authorization server.
"""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from typing import NoReturn
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

CALLBACK = "http://127.0.0.1:3118/callback"  # nothing listens there: the redirect is not followed
LONG_AGO = 1.0  # seconds since 1970
TITLE = re.compile(r"<title>(.*?)</title>", re.S)


class Refused(Exception):
    """The authorization server rejected the user or the request."""


class Memory:
    """In-memory storage of the client's registration and tokens."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


class Person:
    """Who signs in where that is asked, and agrees to what a program wants."""

    def __init__(self, name: str, password: str) -> None:
        self._given = {"username": name, "password": password}
        self.pages: list[str] = []  # the titles of the pages that were shown

    async def answer(self, url: str) -> AuthorizationCodeResult:
        """Return the authorization response. Raise ``Refused``."""
        async with httpx2.AsyncClient(follow_redirects=True, timeout=30) as web:
            page = self._read(await web.get(url))
            if "password" in page.fields:
                page = self._read(await web.post(page.url, data=page.fields | self._given))
            if "password" in page.fields:
                raise Refused("The authorization server rejected the user name or password.")
            agreed = page.fields | {"allow": "true"}
            gone = await web.post(page.url, data=agreed, follow_redirects=False)
        return code_result(gone)

    def _read(self, response: httpx2.Response) -> "Page":
        page = Page(response)
        self.pages.append(page.title)
        return page


class Page(HTMLParser):
    """Form fields and title of a page. Raise ``Refused`` for an error page."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__()
        if response.status_code != 200:
            refuse(response)
        self.url = str(response.url)
        self.title = title(response)
        self.fields: dict[str, str] = {}
        self.feed(response.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "input" and (name := given.get("name")):
            self.fields[name] = given.get("value") or ""


def code_result(gone: httpx2.Response) -> AuthorizationCodeResult:
    """Parse the redirect to the callback."""
    location = gone.headers.get("location", "")
    if not location.startswith(f"{CALLBACK}?"):
        refuse(gone)
    values_by_name = {
        name: values[0] for name, values in parse_qs(urlsplit(location).query).items()
    }
    return AuthorizationCodeResult(
        code=values_by_name.get("code", ""),
        state=values_by_name.get("state"),
        iss=values_by_name.get("iss"),
    )


def refuse(response: httpx2.Response) -> NoReturn:
    raise Refused(f"{response.url.path} answers {response.status_code}: {title(response)}")


def title(response: httpx2.Response) -> str:
    found = TITLE.search(response.text)
    return found[1].strip() if found else ""


class SignedIn:
    """An MCP client that signs in when the server responds with 401."""

    def __init__(self, url: str, person: Person) -> None:
        self._url, self._person, self._sent = url, person, ""
        self.memory = Memory()
        metadata = OAuthClientMetadata(
            client_name="A visitor",
            redirect_uris=[AnyUrl(CALLBACK)],
            token_endpoint_auth_method="none",  # a public client
        )
        self._provider = OAuthClientProvider(
            url, metadata, self.memory, self._redirected, self._answered
        )

    async def _redirected(self, url: str) -> None:
        self._sent = url

    async def _answered(self) -> AuthorizationCodeResult:
        return await self._person.answer(self._sent)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(auth=self._provider, timeout=30) as http,
            Client(streamable_http_client(self._url, http_client=http)) as client,
        ):
            yield client

    def wait_an_hour(self) -> None:
        """Make the client treat its access token as expired."""
        self._provider.context.token_expiry_time = LONG_AGO
