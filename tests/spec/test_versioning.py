"""Protocol versions and extensions: rejected, served side by side, or ignored."""

from __future__ import annotations

import pytest

import django_mcp as mcp
from django_mcp.declarations.server import Server, _servers
from django_mcp.protocol.revisions import LATEST, REVISIONS
from tests.client import PREFIX, Client
from tests.oracle import message_conforms

from .helpers import error_member, response_to

pytestmark = pytest.mark.django_db
UI = "com.example/ui"


@pytest.fixture
def plain(server):
    @server.tool(permission=mcp.PUBLIC)
    def add(request: mcp.Request, a: int = 1) -> int:
        return a + 1

    @server.tool(permission=mcp.PUBLIC)
    def places(request: mcp.Request) -> str:
        return f"{request.revision} {len(request.roots())}"

    class Show(mcp.Tool):
        permission = mcp.PUBLIC
        needs = (f"extensions.{UI}",)

        def handle(self, request: mcp.Request) -> str:
            return f"shown as {request.can.extension(UI)}"

    server.register(Show)
    return server


@pytest.mark.parametrize("version", ["1900-01-01", "2099-01-01", "", "x", "2025-11-25"])
@pytest.mark.parametrize("method", ["tools/list", "tools/call", "server/discover", "no/such"])
def test_unsupported_version_is_rejected_with_the_supported_ones(connect, plain, version, method):
    client = connect(server=plain)
    refused = error_member(client, method, name="add", _meta={PREFIX + "protocolVersion": version})
    assert refused["code"] == -32022
    assert refused["data"] == {"supported": list(REVISIONS)[::-1], "requested": version}
    assert client.text("add") == "2"


class TwoRevisionsClient(Client):
    """Speaks a handshake revision, and at times the newest."""

    def newest(self, method, **params):
        id = f"newest {len(self.received)} {method}"
        meta = {
            PREFIX + "protocolVersion": LATEST.name,
            PREFIX + "clientCapabilities": {"roots": {}},
        }
        return self.start(method, id=id, **params, _meta=meta)

    def _check(self, message):
        newest = str(message.get("id")).startswith("newest ")
        revision = LATEST if newest else self.revision
        message_conforms(revision, message, self._methods.get(message.get("id")))


def test_handshake_and_newest_revision_are_served_on_one_pipe(handshake, plain):
    answers = {"roots/list": lambda params: {"roots": []}}
    with TwoRevisionsClient(server=plain, revision=handshake, answers=answers) as client:
        old = client.start("tools/call", name="places")
        new = client.newest("tools/call", name="places")
        asked = client.wait(new)["result"]
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        again = client.newest(
            "tools/call",
            name="places",
            requestState=asked["requestState"],
            inputResponses={key: {"roots": [{"uri": "file:///a"}]}},
        )
        assert client.wait(again)["result"]["content"][0]["text"] == f"{LATEST} 1"
        assert client.wait(old)["result"]["content"][0]["text"] == f"{handshake} 0"
        discovered = client.wait(client.newest("server/discover"))["result"]
        assert handshake in discovered["supportedVersions"]
        assert client.text("add", a=2) == "3"


def test_all_revisions_are_served_by_one_process(connect, plain):
    clients = [connect(server=plain, revision=name) for name in REVISIONS]
    ids = [client.start("tools/call", name="add") for client in clients]
    for client, id in zip(clients, ids, strict=True):
        result = client.wait(id)["result"]
        assert result["content"][0]["text"] == "2"
        assert ("resultType" in result) is not client.revision.handshake


# Extensions.


def extended(name, settings):
    server = Server("extended", extensions={name: settings})
    server.tool(permission=mcp.PUBLIC)(lambda request: "x")
    found = [message.id for message in server.check()]
    _servers.pop("extended")
    return found


@pytest.mark.parametrize(
    "name", ["ui", "", "/ui", "-a.b/ui", "1a/ui", "a b/ui", "a/", "a/-", "a/b/"]
)
def test_extension_name_must_have_a_prefix(name):
    assert "django_mcp.E006" in extended(name, {})


@pytest.mark.parametrize("name", [UI, "io.modelcontextprotocol/tasks", "a-1.b2/x.y_z"])
def test_declared_extension_is_advertised(connect, name):
    server = Server("extending", extensions={name: {"mimeTypes": ["text/html"]}})

    @server.tool(permission=mcp.PUBLIC)
    def nothing(request: mcp.Request) -> str:
        return ""

    try:
        found = connect(server=server).request("server/discover")
        assert found["capabilities"]["extensions"] == {name: {"mimeTypes": ["text/html"]}}
    finally:
        _servers.pop("extending")


def test_client_without_the_extension_gets_the_core_protocol(connect, plain, revision):
    extensions = {"extensions": {UI: {"theme": "dark"}}}
    other = {"extensions": {"com.example/other": {}}}
    for capabilities in ({}, other):
        bare = connect(server=plain, revision=revision, capabilities=capabilities)
        refused = response_to(bare, "tools/call", name="show")
        if REVISIONS[revision].handshake:
            assert refused["result"]["isError"]
        else:
            assert refused["error"]["code"] == -32021
            required = refused["error"]["data"]["requiredCapabilities"]
            assert required == {"extensions": {UI: {}}}
        assert bare.text("add") == "2"
    able = connect(server=plain, revision=revision, capabilities=extensions)
    assert able.text("show") == "shown as {'theme': 'dark'}"
