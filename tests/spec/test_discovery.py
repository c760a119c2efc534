"""server/discover, and the name of the server in results."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.declarations.server import Server, _servers
from django_mcp.protocol.revisions import REVISIONS

from .helpers import LISTS, request_error

pytestmark = pytest.mark.django_db
SERVER_INFO = "io.modelcontextprotocol/serverInfo"


@pytest.fixture
def named():
    """A server that says all there is to say of itself, with one thing of each kind."""
    server = Server("library", title="The library", version="7.1", instructions="Borrow.")

    @server.prompt(permission=mcp.PUBLIC)
    def tell(request: mcp.Request, of: str = "") -> str:
        return of

    @server.tool(permission=mcp.PUBLIC)
    def ask(request: mcp.Request) -> str:
        return str(request.elicit("Sure?"))

    @server.tool(permission=mcp.PUBLIC)
    def lend(request: mcp.Request) -> str:
        return "lent"

    @server.resource("book://{number}", permission=mcp.PUBLIC)
    def book(request: mcp.Request, number: int) -> str:
        return f"book {number}"

    yield server
    _servers.pop("library")


def test_discover_returns_versions_capabilities_and_server_info(connect, named, alice):
    for user in (None, alice):
        found = connect(user, server=named).request("server/discover")
        assert found["supportedVersions"] == list(REVISIONS)[::-1]
        assert found["capabilities"].keys() == {"logging", "tools", "prompts", "resources"}
        assert found["_meta"][SERVER_INFO] == {
            "name": "library",
            "title": "The library",
            "version": "7.1",
        }
        assert found["instructions"] == "Borrow."


def test_discovered_versions_and_capabilities_work(connect, named):
    found = connect(server=named).request("server/discover")
    for version in found["supportedVersions"]:
        client = connect(server=named, revision=version)
        for kind, (method, member) in LISTS.items():
            if kind in found["capabilities"]:
                assert member in client.request(method)
        assert client.text("lend") == "lent"
    for older in REVISIONS.values():
        if older.handshake:  # which have no discovery, but a handshake
            client = connect(server=named, revision=older.name)
            assert request_error(client, "server/discover").code == -32601


REQUESTS = {
    "server/discover": {},
    "tools/list": {},
    "prompts/list": {},
    "resources/list": {},
    "resources/templates/list": {},
    "tools/call": {"name": "lend"},
    "tools/call that asks": {"name": "ask"},
    "tools/call that fails": {"name": "lend", "arguments": {"no": 1}},
    "prompts/get": {"name": "tell"},
    "resources/read": {"uri": "book://7"},
}


@pytest.mark.parametrize("request_", REQUESTS)
def test_every_result_contains_server_info(connect, named, request_):
    client = connect(server=named)
    result = client.request(request_.partition(" ")[0], **REQUESTS[request_])
    assert result["_meta"][SERVER_INFO]["name"] == "library"
    assert result["_meta"][SERVER_INFO]["version"] == "7.1"


def test_results_of_completion_and_listen_contain_server_info(connect):
    client = connect()
    ref = {"type": "ref/prompt", "name": "visit"}
    completed = client.request(
        "completion/complete", ref=ref, argument={"name": "country", "value": "f"}
    )
    id = client.start("subscriptions/listen", notifications={})
    client._run(client.conversation.close())
    for result in (completed, client.wait(id)["result"]):
        assert result["_meta"][SERVER_INFO]["version"]
        assert result["_meta"][SERVER_INFO]["name"]
