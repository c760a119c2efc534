"""What an attacker tries over HTTP, each attack as a test: as a stranger, as a user of few rights,
as somebody who may do no more, as a client without measure, and as a neighbour."""

from __future__ import annotations

import json
from contextlib import ExitStack

import pytest

import django_mcp as mcp
from django_mcp.models import Token
from tests.http import HttpClient

pytestmark = pytest.mark.django_db
NEWEST_SESSION, LATEST = "2025-11-25", "2026-07-28"
BOTH = pytest.mark.parametrize("revision", [NEWEST_SESSION, LATEST])
WORD = "hunter2"  # what nobody else is to read


@pytest.fixture
def http(db):
    with ExitStack() as stack:

        def made(*args, **options):
            return stack.enter_context(HttpClient(*args, **options))

        yield made


@pytest.fixture
def changed(settings):
    """Changes keys of the one setting."""

    def changed(**keys):
        settings.DJANGO_MCP = {**settings.DJANGO_MCP, **keys}

    return changed


def token_of(user, **options):
    return Token.make(user, "x", **options)[1]


def shown(talk):
    """All of an answer that a caller can tell apart from another."""
    talk.wait()
    headers = {k: v for k, v in talk.headers.items() if k not in ("date", "content-length")}
    return talk.status, headers, talk.messages


def called(client, name, *, id=1, **arguments):
    return client.start("tools/call", id=id, name=name, arguments=arguments)


# What is not for a caller does not exist: no answer tells it from what is not there.


@pytest.fixture
def guarded(server):
    """Tools that bob may not use, one of each kind, and something for everybody."""

    @server.tool(permission=mcp.PUBLIC)
    def hello(request) -> str:
        return "hello"

    @server.tool(permission="shop.change_invoice")
    def plain(request) -> str:
        return WORD

    @server.tool(permission="shop.change_invoice", durable=True)
    def kept(request) -> str:
        return WORD

    @server.tool(permission="shop.change_invoice", durable=True)
    async def kept_too(request) -> str:
        return WORD

    @server.tool(permission=lambda request: request.user.username == "alice", durable=True)
    def asked(request) -> str:
        return WORD

    @server.tool(permission=lambda request: 1 / 0, durable=True)
    def broken(request) -> str:
        return WORD

    return server


@BOTH
@pytest.mark.parametrize("name", ["plain", "kept", "kept_too", "asked"])
@pytest.mark.parametrize("durable", [False, True])
def test_a_tool_that_is_forbidden_is_not_told_from_one_that_is_not(
    http, guarded, bob, revision, name, durable
):
    """Attack: call by guessed names, and look at the kind of the answer."""
    guarded.durable = durable
    client = http(token_of(bob), server=guarded, revision=revision)
    there, missing = (shown(called(client, one)) for one in (name, "x" * len(name)))
    assert json.dumps(there).replace(name, "") == json.dumps(missing).replace("x" * len(name), "")


def test_who_may_use_a_durable_tool_still_has_it_written_down(http, guarded, alice):
    client = http(token_of(alice), server=guarded, revision=NEWEST_SESSION)
    for name in ("kept", "kept_too", "asked"):
        talk = called(client, name, id=name).wait()
        assert talk.is_stream and WORD in json.dumps(talk.messages)
    talk = called(client, "broken", id="broken").wait()
    assert "division" not in talk.body.decode() and not talk.is_stream
