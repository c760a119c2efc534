"""Test the example project's server with the official MCP client over HTTP.

    python -m tools visit [URL] [--largest N]

The client connects with alice's access token, then by signing in as alice, and then without a
token, which the server must reject. The exit code is 1 if anything is wrong. The default URL is
that of `make demo`.
"""

import argparse
import asyncio
import json
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.auth import OAuthFlowError
from mcp.client.streamable_http import streamable_http_client

from tools import demo, demo_sign_in, serving
from tools.console import Console, open_console
from tools.demo_stdio import Unexpected, expect, leaves, text_of

OWN = "itinerary"  # a tool for users
FAILURES = (Unexpected, demo_sign_in.Refused, OAuthFlowError, MCPError, OSError, httpx2.HTTPError)


async def by_token(url: str, access: demo.Access, console: Console) -> None:
    """with an access token"""
    headers = {"Authorization": f"Bearer {access.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await look_around(client, console)
        await ride(client, console)


async def by_signing_in(url: str, access: demo.Access, console: Console) -> None:
    """by signing in"""
    expect(demo.USER in access.passwords, f"{demo.USER}'s password is not known: {demo.ANOTHER}")
    person = demo_sign_in.Person(demo.USER, access.passwords[demo.USER])
    visitor = demo_sign_in.SignedIn(url, person)
    async with visitor.opened() as client:
        for page in person.pages:
            console.aside(f"a page: {page}")
        await look_around(client, console)
        first = visitor.memory.tokens
        visitor.wait_an_hour()
        await ride(client, console)
    expect(first != visitor.memory.tokens, "the client should have other tokens by now")
    expect(len(person.pages) == 2, "the person should have been asked once")
    console.say("An hour later it refreshed its tokens without asking you.")


async def by_nothing(url: str, access: demo.Access, console: Console) -> None:
    """without a token"""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accepted = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(timeout=30) as http:
        answer = await http.post(url, json=asked, headers=accepted)
    challenge = answer.headers.get("WWW-Authenticate", "")
    console.say(f"{answer.status_code}, {challenge}")
    expect(answer.status_code == 401, "a request without a token should be refused")
    expect("resource_metadata=" in challenge, "the response should name where to sign in")


async def look_around(client: Client, console: Console) -> None:
    console.say(f"MCP {client.protocol_version}")
    tools = [tool.name for tool in (await client.list_tools()).tools]
    console.say(f"{len(tools)} tools: {', '.join(tools)}")
    expect(OWN in tools, f"{OWN} is for users")


async def ride(client: Client, console: Console) -> None:
    """A tool that says how far it is while it works."""
    received: list[float] = []

    async def stop(progress: float, total: float | None, message: str | None) -> None:
        received.append(progress)
        console.aside(f"{progress:g} of {total or 0:g}: {message}")

    found = await client.call_tool("search_city", {"limit": 1})
    country = found.structured_content["results"][0]["country"]  # with --largest, few have cities
    asked = {"country": country, "stops": 3, "seconds": 0.1}
    result = await client.call_tool("ride_slow_train", asked, progress_callback=stop)
    cities = [] if result.is_error else json.loads(text_of(result.content[0]))
    expect(cities and received == [*range(1, len(cities) + 1)], "the train should report each stop")
    console.say(", ".join(cities))


WAYS = (by_token, by_signing_in, by_nothing)


def visit(url: str, access: demo.Access, console: Console) -> int:
    """Each way; the exit code."""
    failures: list[BaseException] = []
    for way in WAYS:
        console.heading(f"{url}, {way.__doc__}")
        try:
            asyncio.run(way(url, access, console))
        except* FAILURES as failed:
            failures += leaves(failed)
    for failure in failures:
        console.say(f"✗ {type(failure).__name__}: {failure}")
    return int(bool(failures))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools visit", allow_abbrev=False)
    parser.add_argument("url", nargs="?", default=f"{serving.origin(serving.PORT)}/mcp")
    parser.add_argument("--largest", type=int, metavar="N", help="only the N largest cities")
    options = parser.parse_args(arguments)
    return visit(options.url, demo.prepare(options.largest), open_console())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
