"""The client of the kit for tests that await: with pytest-asyncio, on the connections of a test."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

import django_mcp as mcp
from django_mcp.testing import AsyncClient, Dropped, Unanswered
from tests.shop.models import Company, Invoice


async def test_everything_is_awaited(transport, revision, alice, invoice):
    async with AsyncClient(alice, transport=transport, revision=revision) as client:
        told = await client.call("refund", invoice=invoice, reason="x", amount=2)
        told.assert_ok().assert_data(number="A-1").assert_num_queries(4)
        assert (await Invoice.objects.aget()).status == Invoice.Status.DRAFT
        (await client.read(invoice)).assert_sees("A-1")
        (await client.prompt("reminder", customer=invoice.customer)).assert_sees("Carla")
        assert await client.complete("visit", "city", "L", country="fr") == ["Lyon"]
        assert "refund" in await client.tools()
        assert "refund" in [one["name"] for one in (await client.catalog())["tools"]]
        assert (await client.info())["capabilities"]
        with pytest.raises(RuntimeError, match="hunter2"):
            await client.call("fail", how="bug")


async def test_a_function_that_answers_may_use_the_database(transport, server, alice):
    @server.tool(permission=mcp.PUBLIC)
    def confirm(request: mcp.Request) -> bool:
        return request.elicit("Really?", bool)

    def sure(message: str, schema: dict[str, Any]) -> bool:
        return User.objects.filter(username="alice").exists()

    async def asure(message: str, schema: dict[str, Any]) -> bool:
        return await User.objects.filter(username="nobody").aexists()

    async with AsyncClient(server=server, transport=transport, revision="2025-11-25") as client:
        with pytest.raises(Unanswered):
            await client.call("confirm")
        assert (await client.answers(elicit=sure).call("confirm")).data is True
        assert (await client.answers(elicit=asure).call("confirm")).data is False


async def test_calls_beside_each_other_have_records_of_their_own(db, alice, invoice):
    async with AsyncClient(alice) as client:
        both = await asyncio.gather(
            client.call("refund", invoice=invoice, reason="x", amount=2),
            client.call("slow_add", a=1, b=1, steps=20),
            client.call("count_invoices"),
        )
    assert [len(one.queries) for one in both] == [4, 0, 1]
    assert both[2].data == {"count": 1}


async def test_a_task_that_is_cancelled_cancels_its_call(transport, revision, db):
    async with AsyncClient(transport=transport, revision=revision) as client:
        call = client.start("slow_add", a=1, b=1, steps=100_000)
        await client.until(lambda: client.progress)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        (await client.call("add", a=1)).assert_ok()


@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_error_without_an_id_fails_the_request_at_once(server, db, transport):
    """The server cannot tell the id of a message that it cannot parse."""

    @server.tool(permission=mcp.PUBLIC)
    def deep(request, value: list) -> str:
        return "read"

    nested: list = []
    for _ in range(200):
        nested = [nested]
    async with AsyncClient(server=server, transport=transport, seconds=20) as client:
        assert (await client.call("deep", value=nested)).code == -32700
        assert (await client.call("deep", value=[])).text == "read"


async def test_a_timeout_cancels_too(db):
    async with AsyncClient() as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.call("slow_add", a=1, b=1, steps=100_000)
        (await client.call("add", a=1)).assert_ok()


async def test_a_connection_that_breaks(db, handshake, holding, go):
    async with AsyncClient(server=holding, transport="http", revision=handshake) as client:
        call = client.start("hold")
        await client.until(lambda: len(client.progress) == 5)
        assert await client.drop() == 1
        go.set()
        await client.resume()
        assert (await call).text == "held"
        with client.dropping(after=2):
            assert (await client.call("hold")).text == "held"
        assert [one.done for one in client.progress] == [*range(1, 11), *range(1, 11)]


async def test_a_connection_that_breaks_for_good(db):
    async with AsyncClient(transport="http") as client:
        with client.dropping(), pytest.raises(Dropped):
            await client.call("slow_add", a=1, b=1)


async def test_news(transport, revision, db):
    async with AsyncClient(transport=transport, revision=revision) as client:
        await client.listen()
        await client.subscribe("policy://returns")
        mcp.notify_changed("policy://returns")  # asynchronous code has no transaction
        await client.wait_for_update("policy://returns")
        mcp.notify_list_changed("tools")
        await client.wait_for("notifications/tools/list_changed")
        await client.unsubscribe("policy://returns")


async def test_several_clients_at_once(transport, alice, bob):
    async with AsyncClient(alice, transport=transport) as first:
        second = first.acting_as(bob)
        company = await Company.objects.acreate(name="Third")
        await sync_to_async(company.members.add)(bob)
        mine, theirs = await asyncio.gather(first.tools(), second.tools())
    assert "refund" in mine and "refund" not in theirs


async def test_an_error_in_the_block_is_the_one_that_is_raised(db):
    with pytest.raises(ZeroDivisionError):
        async with AsyncClient() as client:
            await client.call("add", a=1)
            raise ZeroDivisionError
