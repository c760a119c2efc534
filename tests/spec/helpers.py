"""Requests of clients in the tests of the specification, and what servers reply."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.declarations.server import Server
from django_mcp.exceptions import Misdeclared
from tests.client import Client, RpcError

JSON = dict[str, Any]
# The method that lists each kind, and the member of its result that has the items.
LISTS = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}
# The error codes from the range reserved by JSON-RPC that a server may send in the newest revision.
NEWEST_CODES = {-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022}


# Declarations.


def declare(
    server: Server, kind: str, name: str, *, permission: Any = mcp.PUBLIC, asks: bool = False
) -> None:
    """Declare a thing of that kind. With ``asks``, it asks the client a question."""

    def thing(request: mcp.Request) -> str:
        return str(request.elicit("Sure?", bool)) if asks else name

    def things(request: mcp.Request, id: str) -> str:
        return id

    options: JSON = {"name": name, "permission": permission}
    if kind in ("tools", "prompts"):
        getattr(server, kind.removesuffix("s"))(**options)(thing)
    elif kind == "resources":
        server.resource(f"thing://{name}", **options)(thing)
    else:
        server.resource(f"thing://{name}/{{id}}", **options)(things)


def startup_errors(server: Server) -> list[str]:
    """Return the messages of the errors because of which the server cannot start."""
    with pytest.raises(Misdeclared) as refused:
        server.ready()
    assert all(message.hint for message in refused.value.messages)
    return [str(message.msg) for message in refused.value.messages]


# Requests.


def server_info(client: Client) -> JSON:
    """Open the connection. Return the result of ``initialize`` or ``server/discover``."""
    if client.revision.handshake:
        return client.initialize()
    return client.request("server/discover")


def list_items(client: Client, kind: str) -> list[JSON]:
    """Return the items of all pages of a list."""
    return client.all(*LISTS[kind])


def list_names(client: Client, kind: str) -> list[str]:
    return [item["name"] for item in list_items(client, kind)]


def request_error(client: Client, method: str, **params: Any) -> RpcError:
    """Send a request that must fail. Return the error that the client raises."""
    with pytest.raises(RpcError) as refused:
        client.request(method, **params)
    return refused.value


def request_with_answers(client: Client, method: str, answers: JSON, **params: Any) -> JSON:
    """Send a request, answer its elicitations with ``answers``, and return its result."""
    client.answers = {"elicitation/create": lambda asked: answers}
    return client.request(method, **params)


# Messages.


def replies_to(client: Client, message: Any) -> list[Any]:
    """Send ``message`` unchanged. Return what the server sends before the next message."""
    before = len(client.received)
    client.send(message)
    client.settle()
    return client.received[before:]


def response_to(client: Client, method: str, /, **params: Any) -> JSON:
    """Send a request. Return the whole response."""
    return client.wait(client.start(method, **params))


def error_member(client: Client, method: str, /, **params: Any) -> JSON:
    """Send a request that must fail. Return the member ``error`` of the response."""
    response = response_to(client, method, **params)
    assert "result" not in response, response
    found: JSON = response["error"]
    return found


def notification_params(client: Client, method: str) -> list[JSON]:
    """Return the parameters of the notifications received so far that have this method."""
    return [note.get("params", {}) for note in client.notes if note["method"] == method]


def is_response(message: JSON) -> bool:
    return "method" not in message


def to_json(message: JSON) -> str:
    return json.dumps(message, ensure_ascii=False)


def run_until(client: Client, condition: Callable[[], Any], seconds: float = 60) -> None:
    """Run the event loop until ``condition`` is true, also if the server sends nothing."""

    async def waiting() -> None:
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110 - no message or event marks it
                await asyncio.sleep(0.001)

    client._run(waiting())
