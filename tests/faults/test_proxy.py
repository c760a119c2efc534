"""The wire between a worker and its database is cut at a commit, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from . import proxy

SIMPLE = b"Q\x00\x00\x00\x0bCOMMIT\x00"
EXTENDED = b"P\x00\x00\x00\x0e\x00COMMIT\x00\x00\x00B\x00\x00\x00\x0c"
MARIADB = b"\x07\x00\x00\x00\x03COMMIT"
WRITE = b'Q\x00\x00\x00\x40UPDATE "django_mcp_call" SET "state" = \'done\'\x00'
BEGIN = b"Q\x00\x00\x00\x0aBEGIN\x00"


@pytest.mark.parametrize("asked", [SIMPLE, EXTENDED, MARIADB])
def test_a_commit_is_known_in_every_protocol(asked):
    said = proxy.Said()
    assert not said.asks_commit(WRITE)
    assert said.asks_commit(asked)
    assert not said.asks_commit(asked), "what it commits now is nothing of the log"


def test_what_is_no_commit_of_the_log_is_none():
    said = proxy.Said()
    for asked in (b'UPDATE "auth_user"', SIMPLE, b'SELECT * FROM "django_mcp_call"', SIMPLE):
        assert not said.asks_commit(asked)
    assert not proxy.is_commit(b"INSERT INTO words VALUES ('COMMIT')" + b" " * 60)


@asynccontextmanager
async def served(*answers: Callable[..., Awaitable[None]]) -> AsyncIterator[list[int]]:
    """The ports of servers, whose connections have all ended when the block has."""
    ports, talks, servers = [], [], []

    def heard(answer: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talks.append(asyncio.current_task())
            with suppress(ConnectionError):
                await answer(reader, writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        return talk

    for answer in answers:
        servers.append(await asyncio.start_server(heard(answer), "127.0.0.1", 0))
        ports.append(servers[-1].sockets[0].getsockname()[1])
    try:
        yield ports
    finally:
        await asyncio.gather(*talks)
        for server in servers:
            server.close()
            await server.wait_closed()


@asynccontextmanager
async def wired() -> AsyncIterator[tuple[proxy.Proxy, list[bytes], int]]:
    """A proxy, what came to the database behind it, and its port; the database says ok."""
    came: list[bytes] = []
    made = proxy.Proxy(0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            came.append(data)
            writer.write(b"ok")

    async with served(answer, made.serve) as (there, here):
        made.target = there
        yield made, came, here


async def exchange(port: int, *asked: bytes) -> list[bytes]:
    """The answers, up to where the connection breaks."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = []
    try:
        for one in asked:
            writer.write(one)
            answers.append(await reader.read(100))
    except ConnectionError:
        answers.append(b"broken")
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answers


@pytest.mark.parametrize("happens", [True, False])
async def test_a_commit_is_cut(happens, capfd):
    async with wired() as (made, came, port):
        made.waiting.append(("f1", happens))
        answers = await exchange(port, BEGIN, WRITE, SIMPLE)
        assert answers == [b"ok", b"ok", b"broken"]
        assert came == [BEGIN, WRITE, SIMPLE][: 3 if happens else 2]
        assert await exchange(port, BEGIN, WRITE, SIMPLE) == [b"ok"] * 3
    assert capfd.readouterr().out == f'{{"cut": "f1", "happened": {str(happens).lower()}}}\n'


async def test_who_is_not_there_is_refused():
    async with served(proxy.Proxy(1).serve) as (port,):
        assert await exchange(port, BEGIN) in ([b""], [b"broken"])
