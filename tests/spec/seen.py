"""What a client sees of a server, and what the checks say of it: short words for the tests here."""

from __future__ import annotations

from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.declarations.server import Server
from django_mcp.exceptions import Misdeclared
from tests.client import Client, RpcError

JSON = dict[str, Any]
# Method, and the member of its result that holds the items.
LISTS = {
    "tools": ("tools/list", "tools"),
    "prompts": ("prompts/list", "prompts"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
}


def declare(
    server: Server, kind: str, name: str, *, permission: Any = mcp.PUBLIC, asks: bool = False
) -> None:
    """Declare the least thing of a kind."""

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


def introduced(client: Client) -> JSON:
    """What the server says of itself, by the handshake or by discovery; opens the connection."""
    if client.revision.handshake:
        return client.initialize()
    return client.request("server/discover")


def listed(client: Client, kind: str) -> list[JSON]:
    return client.all(*LISTS[kind])


def names(client: Client, kind: str) -> list[str]:
    return [item["name"] for item in listed(client, kind)]


def refusal(client: Client, method: str, **params: Any) -> RpcError:
    """The error that answers a request."""
    with pytest.raises(RpcError) as refused:
        client.request(method, **params)
    return refused.value


def refused_to_serve(server: Server) -> list[str]:
    """The words with which a server does not start."""
    with pytest.raises(Misdeclared) as refused:
        server.ready()
    assert all(message.hint for message in refused.value.messages)
    return [str(message.msg) for message in refused.value.messages]


def notes(client: Client, method: str) -> list[JSON]:
    """The parameters of the notifications of a kind that have come."""
    return [note.get("params", {}) for note in client.notes if note["method"] == method]


def retry(client: Client, method: str, answers: JSON, **params: Any) -> JSON:
    """Ask, answer what is asked back, and ask again: the final result."""
    client.answers = {"elicitation/create": lambda asked: answers}
    return client.request(method, **params)
