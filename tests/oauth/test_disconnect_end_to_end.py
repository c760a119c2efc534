"""Disconnecting a client over real HTTP, with a session and a stream open."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import httpx2
import pytest

from tests.http import BOTH

from .agent import Agent, Person, fields, words
from .site import PASSWORD, Site

pytestmark = pytest.mark.slow

REVISION = "2025-11-25"
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": REVISION, "capabilities": {},
        "clientInfo": {"name": "tests", "version": "1"},
    },
}  # fmt: skip
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"))
    with made.serve() as server:
        yield made
    assert server.told() == ""


@asynccontextmanager
async def signed_in(site, name):
    """Open the page of connected apps in a signed-in browser."""
    async with httpx2.AsyncClient(timeout=60, base_url=site.origin) as web:
        login = await web.get("/oauth/connections", follow_redirects=True)
        given = fields(login) | {"username": name, "password": PASSWORD}
        page = await web.post(login.url, data=given, follow_redirects=True)
        assert page.status_code == 200 and page.url.path == "/oauth/connections"
        yield web


async def wait_for_text(web, wanted):
    """Return the page once it contains the text, which is written in the background."""
    while True:
        page = await web.get("/oauth/connections")
        if wanted in words(page):
            return page
        await asyncio.sleep(0.2)


async def open_stream(agent, web):
    """Return the headers and the stream of a new session."""
    headers = {"authorization": f"Bearer {agent.memory.tokens.access_token}", "accept": BOTH}
    hello = await web.post(agent.endpoint, headers=headers, json=INITIALIZE)
    headers |= {
        "mcp-session-id": hello.headers["mcp-session-id"], "mcp-protocol-version": REVISION,
    }  # fmt: skip
    await web.post(agent.endpoint, headers=headers, json=INITIALIZED)
    asked = web.build_request("GET", agent.endpoint, headers=headers)
    return headers, await web.send(asked, stream=True)


async def disconnect(web, agent):
    page = await web.get("/oauth/connections")
    form = fields(page) | {"client": agent.memory.client.client_id}
    return await web.post("/oauth/connections", data=form)


async def test_user_sees_activity_of_a_client_and_disconnects_it(site):
    agent, other = (Agent(site.endpoint, Person(name).sent) for name in ("alice", "bob"))
    assert (await agent.whoami(), await other.whoami()) == ("alice", "bob")
    async with signed_in(site, "alice") as web, httpx2.AsyncClient(timeout=60) as wire:
        page = await wait_for_text(web, "used the tool whoami")
        assert page.text.count('name="client"') == 1 and "Agent Smith unverified" in words(page)
        assert agent.memory.client.client_id in page.text
        assert other.memory.client.client_id not in page.text
        await wait_for_text(web, "Last used")

        headers, stream = await open_stream(agent, wire)
        assert stream.status_code == 200
        ended = await disconnect(web, agent)
        assert "Agent Smith was disconnected." in words(ended)
        refused = await wire.post(
            site.endpoint, headers=headers, json=INITIALIZED | {"method": "ping"}
        )
        assert refused.status_code == 401
        async with asyncio.timeout(60):
            async for _ in stream.aiter_raw():
                pass  # until it ends
    tokens = other.memory.tokens
    assert await other.whoami() == "bob" and other.memory.tokens == tokens
