"""A short visit of the official client to the atlas, over HTTP.

    python -m tools visit [URL [TOKEN]]

The rule: what came is told, and what is not as it should be is exit code 1. With the token the
visitor is a user; without one, nobody, who sees what is for everybody. Without arguments it is the
demonstration that `make demo` serves, and its token.
"""

import asyncio
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client

from tools import demo, serving
from tools.conversation import Unexpected, expect, leaves, text_of
from tools.telling import Teller, teller

OWN = "itinerary"  # a tool that is not for everybody


async def visit(url: str, token: str | None, tell: Teller) -> None:
    tell.heading(f"{url}, {'with a token' if token else 'without a token'}")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        tell.say(f"MCP {client.protocol_version}")
        tools = [tool.name for tool in (await client.list_tools()).tools]
        tell.say(f"{len(tools)} tools: {', '.join(tools)}")
        expect((OWN in tools) == bool(token), f"{OWN} is for users")
        await (ride if token else measure)(client, tell)


async def ride(client: Client, tell: Teller) -> None:
    """A tool that says how far it is while it works."""
    heard: list[float] = []

    async def stop(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)
        tell.aside(f"{progress:g} of {total or 0:g}: {message}")

    asked = {"country": "JP", "stops": 3, "seconds": 0.1}
    result = await client.call_tool("ride_slow_train", asked, progress_callback=stop)
    expect(not result.is_error and heard == [1, 2, 3], "the train should stop three times")
    tell.say(text_of(result.content[0]))


async def measure(client: Client, tell: Teller) -> None:
    asked = {"start": 1850147, "end": 1857910}
    result = await client.call_tool("distance_between", asked)
    expect(not result.is_error, "a distance is for everybody")
    tell.say(text_of(result.content[0]))


def main(arguments: list[str]) -> int:
    url = arguments[0] if arguments else f"{serving.origin(serving.PORT)}/mcp"
    token = arguments[1] if arguments[1:] else demo.prepare(None)
    tell = teller()
    failures: list[BaseException] = []
    try:
        for shown in (token, None):
            asyncio.run(visit(url, shown, tell))
    except* (Unexpected, MCPError, OSError, httpx2.HTTPError) as failed:
        failures = list(leaves(failed))
    for failure in failures:
        tell.say(f"✗ {type(failure).__name__}: {failure}")
    return int(bool(failures))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
