"""The page on custom transports: its Unix socket transport serves clients."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.auth.principal import anonymous
from django_mcp.protocol.revisions import LATEST, REVISIONS
from tests.client import PREFIX
from tests.oracle import message_conforms

from .pages import ROOT, blocks

pytestmark = pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there are no such sockets")
PAGE = ROOT / "docs/how-to/custom-transport.md"
TEXT_WITH_LINE_SEPARATORS = "one\ntwo\r\nthree\u2028four\x85five ☃ 𝄞"
JSON = dict[str, Any]


@pytest.fixture(scope="module")
def page_code():
    """The names that the code of the page defines."""
    namespace: dict[str, Any] = {}
    for code in blocks(PAGE, "python"):
        exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


@pytest.fixture
def small_server(server):
    """A server whose tools need no database, and record how they end."""
    server._ended = []

    @server.tool(permission=mcp.PUBLIC)
    async def echo(request: mcp.Request, text: str) -> str:
        await request.aprogress(1, message="half")
        return text

    @server.tool(permission=mcp.PUBLIC)
    async def wait(request: mcp.Request) -> str:
        try:
            await request.aprogress(1)
            await asyncio.Event().wait()
        finally:
            server._ended.append("wait")
        return "never"

    return server


class ClientExchange:
    """A client of the socket, which validates every message by the schema."""

    def __init__(self, revision: str, reader: asyncio.StreamReader, writer: Any) -> None:
        self.revision = REVISIONS[revision]
        self._reader, self.writer = reader, writer
        self._methods: dict[int, str] = {}
        self.notes: list[JSON] = []

    def message(self, method: str, params: JSON) -> JSON:
        id = len(self._methods) + 1
        self._methods[id] = method
        meta = {PREFIX + "protocolVersion": self.revision.name, PREFIX + "clientCapabilities": {}}
        meta = {} if self.revision.handshake else meta
        params = params | {"_meta": meta | params.get("_meta", {})}
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    def write(self, *messages: JSON) -> None:
        self.writer.write(b"".join(json.dumps(one).encode() + b"\n" for one in messages))

    def start(self, method: str, **params: Any) -> JSON:
        message = self.message(method, params)
        self.write(message)
        return message

    async def read(self) -> JSON | None:
        """The next message; None at the end."""
        async with asyncio.timeout(60):
            line = await self._reader.readline()
        if not line:
            return None
        message: JSON = json.loads(line.decode())
        message_conforms(self.revision, message, self._methods.get(message.get("id", 0)))
        return message

    async def response(self) -> JSON:
        while (message := await self.read()) is not None:
            if "method" not in message:
                return message
            self.notes.append(message)
        raise EOFError

    async def request(self, method: str, **params: Any) -> JSON:
        sent = self.start(method, **params)
        response = await self.response()
        assert response["id"] == sent["id"], response
        result: JSON = response["result"]
        return result

    async def open(self) -> None:
        if self.revision.handshake:
            info = {"name": "tests", "version": "1"}
            asked = {"protocolVersion": self.revision.name, "capabilities": {}, "clientInfo": info}
            assert (await self.request("initialize", **asked))["protocolVersion"] == str(
                self.revision
            )
            self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})


class Served:
    """The running transport."""

    def __init__(self, task: asyncio.Task[None], path: str) -> None:
        self.task, self.path = task, path
        self.clients: list[ClientExchange] = []

    async def connect(self, revision: str = LATEST.name, *, opened: bool = True) -> ClientExchange:
        exchange = ClientExchange(revision, *await asyncio.open_unix_connection(self.path))
        self.clients.append(exchange)
        if opened:
            await exchange.open()
        return exchange

    async def hang_up(self) -> None:
        for client in self.clients:
            client.writer.close()
            with contextlib.suppress(ConnectionError):
                await client.writer.wait_closed()

    async def end(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.shield(self.task), 10)


@pytest.fixture
def transport(page_code, small_server):
    """Serve the small server by the code of the page."""

    @contextlib.asynccontextmanager
    async def serving() -> AsyncIterator[Served]:
        async def nobody() -> mcp.Principal:
            return anonymous()

        task = asyncio.create_task(page_code["serve"](small_server, path, nobody))
        await asyncio.sleep(0)  # it listens at once
        served = Served(task, path)
        try:
            yield served
        finally:
            await served.end()
            await served.hang_up()

    with tempfile.TemporaryDirectory() as folder:  # a short path: that of a socket must be
        path = str(Path(folder) / "s")
        yield serving
        assert not Path(path).exists()


async def test_client_of_each_revision_is_served(transport, revision):
    async with transport() as served:
        client = await served.connect(revision)
        assert [one["name"] for one in (await client.request("tools/list"))["tools"]] == [
            "echo",
            "wait",
        ]
        call = {
            "name": "echo",
            "arguments": {"text": TEXT_WITH_LINE_SEPARATORS},
            "_meta": {"progressToken": "t"},
        }
        assert (await client.request("tools/call", **call))["content"][0][
            "text"
        ] == TEXT_WITH_LINE_SEPARATORS
        assert [note["params"]["progressToken"] for note in client.notes] == ["t"]
        assert client.start("no/such") and (await client.response())["error"]["code"] == -32601


async def test_clients_of_all_revisions_are_served_at_once(transport):
    async with transport() as served:
        clients = [await served.connect(name) for name in REVISIONS]
        for number, client in enumerate(clients):
            client.start("tools/call", name="echo", arguments={"text": f"for {number}"})
        for number, client in reversed(list(enumerate(clients))):
            found = (await client.response())["result"]["content"][0]["text"]
            assert found == f"for {number}"


async def test_request_before_the_handshake_is_rejected(transport):
    async with transport() as served:
        old = await served.connect("2025-11-25", opened=False)
        old.start("tools/list")
        assert (await old.response())["error"]["code"] == -32600
        new = await served.connect()
        message = new.message("tools/list", {})
        del message["params"]["_meta"][PREFIX + "clientCapabilities"]
        new.write(message)
        assert (await new.response())["error"]["code"] == -32602


async def test_each_line_is_a_message_however_it_is_split(transport):
    async with transport() as served:
        client = await served.connect()
        calls = [
            client.message("tools/call", {"name": "echo", "arguments": {"text": str(number)}})
            for number in range(3)
        ]
        client.write(*calls[:2])  # two at once
        for byte in json.dumps(calls[2]).encode():
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        client.writer.write(b"\r\n\n\r\n")
        responses = [await client.response() for _ in calls]
        assert {one["id"] for one in responses} == {one["id"] for one in calls}
        client.writer.write(json.dumps(calls[0], indent=1).encode() + b"\n")
        assert (await client.response())["error"]["code"] in (-32700, -32600)


async def test_too_long_line_is_rejected_and_closes_the_connection(transport, page_code):
    async with transport() as served:
        client, other = await served.connect(), await served.connect()
        client.writer.write(b"[" * (page_code["MAX_MESSAGE_BYTES"] * 2 + 2))
        refused = await client.response()
        assert refused["error"]["code"] == -32700 and "too long" in refused["error"]["message"]
        with contextlib.suppress(ConnectionError):
            assert await client.read() is None
        assert await other.request("tools/list")


async def test_request_is_cancelled_by_a_notification(transport, small_server, revision):
    async with transport() as served:
        client = await served.connect(revision)
        call = client.start("tools/call", name="wait", _meta={"progressToken": 1})
        note = await client.read()
        assert note is not None and note["method"] == "notifications/progress"
        params = {"requestId": call["id"]}
        client.write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        again = await client.request(
            "tools/list"
        )  # and no response to the other request comes before it
        assert again["tools"] and small_server._ended == ["wait"]


async def test_closing_the_connection_cancels_its_calls(transport, small_server, page_code):
    page_code["GRACE_SECONDS"] = 0.05
    async with transport() as served:
        client, other = await served.connect(), await served.connect()
        client.start("tools/call", name="wait", _meta={"progressToken": 1})
        assert await client.read()
        client.start("tools/call", name="echo", arguments={"text": "last"})
        client.writer.write_eof()
        assert (await client.response())["result"]["content"][0]["text"] == "last"
        assert await client.read() is None and small_server._ended == ["wait"]
        assert await other.request("tools/list")


async def test_shutdown_completes_streams_and_closes_connections(transport, small_server):
    async with transport() as served:
        client = await served.connect()
        listen = client.start("subscriptions/listen", notifications={"toolsListChanged": True})
        assert await client.read()
        client.start("tools/call", name="wait", _meta={"progressToken": 1})
        assert await client.read()
        await served.end()
        response = await client.response()
        assert response["id"] == listen["id"] and response["result"]["resultType"] == "complete"
        assert await client.read() is None and small_server._ended == ["wait"]


ELSEWHERE = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
"""


def open_socket_as(path: str, user: int) -> str:
    """Return the errors of a process of this user that opens the socket."""
    arguments = [sys.executable, "-I", "-c", ELSEWHERE, path, str(user)]
    return subprocess.run(arguments, stderr=subprocess.PIPE, timeout=120, text=True).stderr


async def test_other_users_cannot_open_the_socket(transport, page_code):
    async with transport() as served:
        assert stat.S_IMODE(os.stat(served.path).st_mode) == 0o600
        with pytest.raises(OSError):
            page_code["private_socket"](served.path)  # an existing path is not used, either
        assert await asyncio.to_thread(open_socket_as, served.path, os.getuid()) == ""
        if os.geteuid() == 0:
            Path(served.path).parent.chmod(0o755)  # so that only the mode of the socket protects it
            other = await asyncio.to_thread(open_socket_as, served.path, 65534)
            assert "PermissionError" in other


async def test_aborted_connections_do_not_end_the_server(transport):
    async with transport() as served:
        for _ in range(3):
            client = await served.connect()
            client.start("tools/call", name="wait")
            client.writer.transport.abort()
        assert await (await served.connect()).request("tools/list")
        assert not served.task.done()


@pytest.mark.parametrize(
    "heading",
    ["How it connects", "How messages are framed", "How a request is cancelled", "How it ends"],
)
def test_page_describes_the_protocol(heading):
    _, found, rest = PAGE.read_text("utf-8").partition(f"\n## {heading}\n")
    assert found and len(rest.partition("\n## ")[0].split()) > 15
