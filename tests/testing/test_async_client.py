"""``AsyncClient``, over each transport and in each revision, and the user a client acts as."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import AnonymousUser, Permission, User

import django_mcp as mcp
from django_mcp.testing import AsyncClient, Dropped, Unanswered
from django_mcp.testing.async_client import principal_of
from tests.shop.models import Company, Invoice


async def test_all_methods_can_be_awaited(transport, revision, alice, invoice):
    async with AsyncClient(alice, transport=transport, revision=revision) as client:
        result = await client.call("refund", invoice=invoice, reason="x", amount=2)
        result.assert_ok().assert_data(number="A-1").assert_num_queries(4)
        assert (await Invoice.objects.aget()).status == Invoice.Status.DRAFT
        (await client.read(invoice)).assert_sees("A-1")
        (await client.prompt("reminder", customer=invoice.customer)).assert_sees("Carla")
        assert await client.complete("visit", "city", "L", country="fr") == ["Lyon"]
        assert "refund" in await client.tools()
        assert "refund" in [one["name"] for one in (await client.catalog())["tools"]]
        assert (await client.info())["capabilities"]
        with pytest.raises(RuntimeError, match="hunter2"):
            await client.call("fail", how="bug")


async def test_function_that_answers_a_question_may_use_the_database(transport, server, alice):
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


async def test_concurrent_calls_have_separate_query_records(db, alice, invoice):
    async with AsyncClient(alice) as client:
        both = await asyncio.gather(
            client.call("refund", invoice=invoice, reason="x", amount=2),
            client.call("slow_add", a=1, b=1, steps=20),
            client.call("count_invoices"),
        )
    assert [len(one.queries) for one in both] == [4, 0, 1]
    assert both[2].data == {"count": 1}


async def test_cancelling_the_task_cancels_the_call(transport, revision, db):
    async with AsyncClient(transport=transport, revision=revision) as client:
        call = client.start("slow_add", a=1, b=1, steps=100_000)
        await client.until(lambda: client.progress)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        (await client.call("add", a=1)).assert_ok()


@pytest.mark.parametrize("transport", ["memory", "stdio"])
async def test_error_without_an_id_fails_the_request_at_once(server, db, transport):
    """The server cannot know the id of a message that it cannot parse."""

    @server.tool(permission=mcp.PUBLIC)
    def deep(request, value: list) -> str:
        return "read"

    nested: list = []
    for _ in range(200):
        nested = [nested]
    async with AsyncClient(server=server, transport=transport, seconds=20) as client:
        assert (await client.call("deep", value=nested)).code == -32700
        assert (await client.call("deep", value=[])).text == "read"


async def test_timeout_cancels_the_call(db):
    async with AsyncClient() as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await client.call("slow_add", a=1, b=1, steps=100_000)
        (await client.call("add", a=1)).assert_ok()


async def test_dropped_connection_is_resumed(db, handshake, holding_server, release):
    async with AsyncClient(server=holding_server, transport="http", revision=handshake) as client:
        call = client.start("hold")
        await client.until(lambda: len(client.progress) == 5)
        assert await client.drop() == 1
        release.set()
        await client.resume()
        assert (await call).text == "held"
        with client.dropping(after=2):
            assert (await client.call("hold")).text == "held"
        assert [one.done for one in client.progress] == [*range(1, 11), *range(1, 11)]


async def test_dropped_connection_without_resumption_raises(db):
    async with AsyncClient(transport="http") as client:
        with client.dropping(), pytest.raises(Dropped):
            await client.call("slow_add", a=1, b=1)


async def test_client_waits_for_update_and_list_changed_notifications(transport, revision, db):
    async with AsyncClient(transport=transport, revision=revision) as client:
        await client.listen()
        await client.subscribe("policy://returns")
        mcp.notify_changed("policy://returns")  # asynchronous code has no transaction
        await client.wait_for_update("policy://returns")
        mcp.notify_list_changed("tools")
        await client.wait_for("notifications/tools/list_changed")
        await client.unsubscribe("policy://returns")


async def test_several_clients_run_concurrently(transport, alice, bob):
    async with AsyncClient(alice, transport=transport) as first:
        second = first.acting_as(bob)
        company = await Company.objects.acreate(name="Third")
        await sync_to_async(company.members.add)(bob)
        mine, theirs = await asyncio.gather(first.tools(), second.tools())
    assert "refund" in mine and "refund" not in theirs


async def test_error_in_the_with_block_is_raised(db):
    with pytest.raises(ZeroDivisionError):
        async with AsyncClient() as client:
            await client.call("add", a=1)
            raise ZeroDivisionError


# Principals.


def test_principal_without_a_user_is_anonymous():
    assert not principal_of(None, None).is_authenticated
    assert principal_of(AnonymousUser(), None).auth is None


def test_principal_has_a_copy_of_the_user(alice, django_assert_num_queries):
    alice.first_name = "not saved"
    with django_assert_num_queries(0):
        found = principal_of(alice, None).user
    assert found == alice and found is not alice
    assert (found.first_name, found._state.db) == ("not saved", alice._state.db)


def test_principal_does_not_use_cached_permissions(alice):
    assert alice.has_perm("shop.change_invoice")
    alice.user_permissions.clear()
    assert alice.has_perm("shop.change_invoice")  # Django caches them on the object
    assert not principal_of(alice, None).user.has_perm("shop.change_invoice")
    alice.user_permissions.add(Permission.objects.get(codename="change_invoice"))
    assert principal_of(alice, None).user.has_perm("shop.change_invoice")


def test_deferred_fields_of_the_user_stay_deferred(alice):
    user = User.objects.only("username", "is_active").get()
    assert principal_of(user, None).user.get_deferred_fields() == user.get_deferred_fields()


def test_principal_of_an_inactive_user_is_anonymous(alice):
    alice.is_active = False
    assert not principal_of(alice, None).is_authenticated


def test_principal_has_the_given_scopes(alice):
    assert principal_of(alice, ["a", "b"]).auth.scopes == {"a", "b"}
    assert principal_of(alice, []).auth.scopes == frozenset()
    assert principal_of(alice, None).auth is None
