"""Raw words: what the server says at once to something that no decent client would send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from tests.client import Client

JSON = dict[str, Any]
# Of the range that JSON-RPC reserves, what the newest revision lets a server send.
NEWEST_CODES = {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022}


def said(client: Client, message: Any) -> list[Any]:
    """What comes, before anything else is sent, when ``message`` is written as it is."""
    before = len(client.received)
    client.send(message)
    client.settle()
    return client.received[before:]


def answer(client: Client, method: str, /, **params: Any) -> JSON:
    """The whole response to a request."""
    return client.wait(client.start(method, **params))


def error(client: Client, method: str, /, **params: Any) -> JSON:
    """The error member of the response to a request that must fail."""
    response = answer(client, method, **params)
    assert "result" not in response, response
    found: JSON = response["error"]
    return found


def is_response(message: JSON) -> bool:
    return "method" not in message


def written(message: JSON) -> str:
    return json.dumps(message, ensure_ascii=False)


def eventually(client: Client, condition: Callable[[], Any], seconds: float = 60) -> None:
    """Let the loop run until ``condition`` is true, which no message may tell."""

    async def waiting() -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)

    client._run(waiting())
