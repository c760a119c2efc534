"""Authorizing a client in a real browser, from the endpoint's URL to the tool's result."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from queue import Queue

import pytest

from tests.oauth.agent import Agent, told
from tests.oauth.site import PASSWORD, Site

SECONDS = 60


@pytest.fixture(scope="module")
def site(program, tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"))
    with made.serve():
        yield made


class Callback(HTTPServer):
    """The server to which the browser returns with the code."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), CallbackHandler)
        self.url = f"http://127.0.0.1:{self.server_port}/callback"
        self.came: Queue[str] = Queue()


class CallbackHandler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.came.put(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>Back</title><link rel=icon href=data:,><p>Close this window.")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def callback():
    with Callback() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def page(chromium):
    """A tab. The test fails if the console shows an error."""
    wrong = []
    with chromium.new_context() as context:
        context.set_default_timeout(SECONDS * 1000)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        yield page
    assert not wrong


class ClientInThread:
    """The client, in its own thread, because the browser uses this one."""

    def __init__(self, endpoint, callback, does=Agent.whoami, **more):
        self.callback, self.urls = callback, Queue()
        self.agent = Agent(endpoint, self.sent, callback.url, **more)
        self._pool = ThreadPoolExecutor(1)
        self.said = self._pool.submit(lambda: asyncio.run(does(self.agent)))
        self._pool.shutdown(wait=False)

    async def sent(self, url):
        self.urls.put(url)
        came = await asyncio.to_thread(self.callback.came.get, timeout=SECONDS)
        return told(self.callback.url.removesuffix("/callback") + came, self.callback.url)


def sign_in(page, user):
    page.get_by_label("Username").fill(user)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    # A click does not wait for the page that it leads to.
    page.get_by_label("Password").wait_for(state="detached")
    page.wait_for_load_state()


def test_user_signs_in_reads_and_allows(site, callback, page):
    client = ClientInThread(site.endpoint, callback)
    page.goto(client.urls.get(timeout=SECONDS))
    sign_in(page, "alice")
    main = page.get_by_role("main")
    for words in ("Agent Smith", "unverified", site.endpoint, callback.url.split("/")[2]):
        assert words in main.inner_text()
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(f"{callback.url}?*")
    assert client.said.result(SECONDS) == "alice"


def test_user_switches_to_another_user_and_allows(site, callback, page):
    client = ClientInThread(site.endpoint, callback)
    page.goto(client.urls.get(timeout=SECONDS))
    sign_in(page, "alice")
    page.get_by_role("button", name="Sign in as another user").click()
    sign_in(page, "bob")
    page.get_by_role("button", name="Allow").click()
    page.wait_for_url(f"{callback.url}?*")
    assert client.said.result(SECONDS) == "bob"


def test_user_cancels(site, callback, page):
    client = ClientInThread(site.endpoint, callback)
    page.goto(client.urls.get(timeout=SECONDS))
    sign_in(page, "alice")
    page.get_by_role("button", name="Cancel").click()
    page.wait_for_url(f"{callback.url}?*")
    assert client.said.exception(SECONDS) is not None
    assert client.agent.told[0]["error"] == "access_denied"
    assert client.agent.answers("/oauth/token") == []
