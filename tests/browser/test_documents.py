"""A client with a metadata document in a real browser, during and after the authorization.

The document and the callback are on an HTTPS site of the client.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from http.server import ThreadingHTTPServer
from queue import Queue
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.oauth.agent import text
from tests.oauth.clients import certificate  # noqa: F401
from tests.oauth.site import Site
from tests.oauth.test_end_to_end import SHORT, post_with_token

from .conftest import ARGUMENTS
from .test_authorization import SECONDS, CallbackHandler, ClientInThread, callback, page, sign_in  # noqa: F401

HOST = "app.example"
DOCUMENT = f"https://{HOST}/client.json"
SAID = {
    "client_id": DOCUMENT,
    "client_name": "Agent Jones",
    "redirect_uris": [f"https://{HOST}/callback", "http://127.0.0.1/callback"],
    "grant_types": ["authorization_code", "refresh_token"],
    "token_endpoint_auth_method": "none",
}


class ClientSite(ThreadingHTTPServer):
    """The site of the client: its document and its callback."""

    url = f"https://{HOST}/callback"

    def __init__(self, certificate):  # noqa: F811
        super().__init__(("127.0.0.1", 0), ClientSiteHandler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self.socket = context.wrap_socket(  # each shakes hands in a thread of its own
            self.socket, server_side=True, do_handshake_on_connect=False
        )
        self.came: Queue[str] = Queue()
        self.read = 0  # times that the document was had


class ClientSiteHandler(CallbackHandler):
    def do_GET(self):
        if self.path != "/client.json":
            super().do_GET()
            return
        self.server.read += 1
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(SAID).encode())


@pytest.fixture(scope="module")
def home(certificate):  # noqa: F811
    with ClientSite(certificate) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def chromium(chromium, program, home):
    """A browser that resolves and trusts the client's site."""
    there = f"--host-resolver-rules=MAP {HOST} 127.0.0.1:{home.server_port}"
    arguments = [*ARGUMENTS, there, "--ignore-certificate-errors"]
    browser = chromium.browser_type.launch(executable_path=program, args=arguments)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def make_site(program, home, certificate, tmp_path_factory):  # noqa: F811
    """Return a function that makes a site that resolves and trusts the client's."""

    def site(**more):
        found = {"SITE_DOCUMENTS": str(home.server_port), "SSL_CERT_FILE": certificate}
        return Site(tmp_path_factory.mktemp("site"), **found, **more)

    return site


@pytest.fixture(scope="module")
def site(make_site):
    site = make_site()
    with site.serve():
        yield site


@pytest.fixture(autouse=True)
def no_callbacks(home):
    """Forget the callbacks of earlier tests."""
    home.came = Queue()


def sign_in_as_alice(page, client):  # noqa: F811
    """Open the consent page as Alice."""
    page.goto(client.urls.get(timeout=SECONDS))
    sign_in(page, "alice")


def described_client(page):  # noqa: F811
    """Return the emphasized words about the client, and the whole text."""
    about = page.locator("dl > div").first
    marks = [one.inner_text() for one in about.locator("strong, .tag").all()]
    return marks, " ".join(about.inner_text().split())


def allow(page, waiting):  # noqa: F811
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(f"{waiting.url}?*")


def is_known_by_its_document(agent):
    """Return whether the client sent its document's URL and did not register."""
    (url,) = agent.asked
    named = parse_qs(urlsplit(url).query)["client_id"]
    return named == [agent.memory.client.client_id] == [DOCUMENT] and not (
        agent.answers("/oauth/register") or agent.memory.client.client_secret
    )


def test_client_with_a_site_redirect_is_verified(site, home, page):  # noqa: F811
    """From the 401 to the result of a tool."""
    client = ClientInThread(site.endpoint, home, document=DOCUMENT)
    sign_in_as_alice(page, client)
    marks, words = described_client(page)
    # A test before this one may have let the site read the document, which it keeps.
    assert marks == [HOST, "verified"] and home.read > 0
    assert "It calls itself “Agent Jones”." in words
    assert f"It is described by a document at {HOST}." in words
    allow(page, home)
    assert client.said.result(SECONDS) == "alice" and is_known_by_its_document(client.agent)
    assert client.agent.answers("/mcp").count(401) == 1
    assert client.agent.grants == ["authorization_code"]


def test_client_with_a_loopback_redirect_is_not_verified(site, callback, page):  # noqa: F811
    client = ClientInThread(site.endpoint, callback, document=DOCUMENT)
    sign_in_as_alice(page, client)
    marks, words = described_client(page)
    assert marks == [HOST] and f"described by a document at {HOST}, but another program" in words
    allow(page, callback)
    assert client.said.result(SECONDS) == "alice" and is_known_by_its_document(client.agent)


async def whoami_before_and_after_expiry(agent):
    """Call whoami before and after the token expires, in one conversation."""
    async with agent.opened() as client:
        before, first = text(await client.call_tool("whoami", {})), agent.memory.tokens
        while agent.provider.context.is_token_valid():  # noqa: ASYNC110 (no bell rings)
            await asyncio.sleep(0.1)
        ended = await post_with_token(agent, first.access_token)
        after, then = text(await client.call_tool("whoami", {})), agent.memory.tokens
    return before, first, ended.status_code, after, then


def test_expired_token_is_refreshed_without_the_browser(make_site, home, page):  # noqa: F811
    site = make_site(seconds=SHORT)
    with site.serve():
        client = ClientInThread(
            site.endpoint, home, whoami_before_and_after_expiry, document=DOCUMENT
        )
        sign_in_as_alice(page, client)
        allow(page, home)
        page.close()
        before, first, status, after, then = client.said.result(SECONDS)
    assert (before, status, after) == ("alice", 401, "alice")
    assert then.access_token != first.access_token and then.refresh_token != first.refresh_token
    assert client.agent.grants == ["authorization_code", "refresh_token"]
    assert set(client.agent.answers("/oauth/token")) == {200}
    assert is_known_by_its_document(client.agent) and home.came.empty()
