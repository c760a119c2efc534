"""What clients did: noted without waiting, written in bounds, forgotten in time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from itertools import count

import pytest
from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.db import DatabaseError
from django.utils import timezone

from django_mcp.auth.last_used import SparseLastUsedTimes
from django_mcp.auth.principal import Auth, Principal, anonymous
from django_mcp.calls.reports import CallRecord
from django_mcp.declarations.server import default_server
from django_mcp.oauth import activity
from django_mcp.oauth.activity import MAX_ROWS_PER_CLIENT_AND_USER, ActivityCounter
from django_mcp.oauth.models import Activity, Consent
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.runtime import threads

from .flows import issued
from .tokens import application


@pytest.fixture
def begun(monkeypatch):
    """The jobs that are begun, and not done."""
    found = []
    monkeypatch.setattr(threads.background, "run_in_background", found.append)
    return found


def call_of(user, client, name="refund", method="tools/call", server="default"):
    return CallRecord(Principal(user, Auth(application=client)), server, method, name)


def noted(*calls, into=None):
    """Those calls, as the loop hears of them."""
    made = into or ActivityCounter()

    async def hear():
        for one in calls:
            made.add(one)

    asyncio.run(hear())
    return made


def names():
    return sorted(Activity.objects.values_list("name", "count"))


def test_what_was_done_is_counted_by_the_day(alice, public_client):
    again = noted(*[call_of(alice, public_client)] * 3, call_of(alice, public_client, "look"))
    again.write()
    noted(call_of(alice, public_client), into=again).write()
    assert names() == [("look", 1), ("refund", 4)]
    row = Activity.objects.get(name="refund")
    assert (row.user, row.client_id, row.server) == (alice, public_client.client_id, "default")
    assert row.at.second == 0 and timezone.now() - row.at < timedelta(minutes=2)


def test_another_day_is_another_row(alice, public_client, monkeypatch):
    today = timezone.now()
    made = noted(call_of(alice, public_client))
    monkeypatch.setattr(timezone, "now", lambda: today - timedelta(days=1))
    noted(call_of(alice, public_client), into=made).write()
    assert names() == [("refund", 1), ("refund", 1)]


def test_it_is_written_soon_and_once_for_all_that_came(alice, public_client, begun, monkeypatch):
    monkeypatch.setattr(activity, "WRITE_INTERVAL_SECONDS", 0.01)
    made = ActivityCounter()

    async def hear():
        for _ in range(100):
            made.add(call_of(alice, public_client))
        while not begun:  # noqa: ASYNC110 (no bell rings)
            await asyncio.sleep(0.01)

    asyncio.run(hear())
    assert begun[0] == made.write and len(begun) <= 2
    begun[0]()
    assert names() == [("refund", 100)]


def test_nothing_is_asked_of_the_database_to_note(alice, public_client, django_assert_num_queries):
    with django_assert_num_queries(0):
        noted(call_of(alice, public_client))


def test_what_is_no_client_of_ours_is_not_noted(alice, public_client):
    made = noted(
        CallRecord(Principal(alice), "default", "tools/call", "x"),
        CallRecord(Principal(alice, Auth(key="token-1")), "default", "tools/call", "x"),
        CallRecord(Principal(alice, Auth(application=object())), "default", "tools/call", "x"),
        CallRecord(anonymous(), "default", "tools/call", "x"),
    )
    made.write()
    assert not Activity.objects.exists()


@pytest.mark.slow
def test_a_client_leaves_so_many_rows_of_a_person_and_no_more(alice, public_client):
    """A project that declares much: what is the oldest goes."""
    other = application("Other")
    made = noted(call_of(alice, other, "first"))
    made.write()
    Activity.objects.update(at=timezone.now() - timedelta(hours=1))
    for start in range(0, 3 * MAX_ROWS_PER_CLIENT_AND_USER, MAX_ROWS_PER_CLIENT_AND_USER):
        noted(
            *(
                call_of(alice, public_client, f"tool_{start + one}")
                for one in range(MAX_ROWS_PER_CLIENT_AND_USER)
            ),
            into=made,
        ).write()
    theirs = Activity.objects.filter(client_id=public_client.client_id)
    assert (
        theirs.count() == MAX_ROWS_PER_CLIENT_AND_USER
        and Activity.objects.count() == MAX_ROWS_PER_CLIENT_AND_USER + 1
    )
    assert theirs.filter(name=f"tool_{3 * MAX_ROWS_PER_CLIENT_AND_USER - 1}").exists()


def test_what_waits_to_be_written_is_bounded(alice, public_client, monkeypatch):
    monkeypatch.setattr(activity, "MAX_PENDING_ROWS", 10)
    made = noted(*(call_of(alice, public_client, f"tool_{one}") for one in range(50)))
    made.write()
    assert Activity.objects.count() == 10


def test_a_person_who_is_gone_keeps_nobody_elses_from_being_written(alice, public_client):
    bob = get_user_model().objects.create_user("bob")
    made = noted(call_of(bob, public_client), call_of(alice, public_client))
    bob.delete()
    made.write()
    assert Activity.objects.get().user == alice


def test_where_it_cannot_be_written_nobody_fails(alice, public_client, monkeypatch):
    def broken(rows):
        raise DatabaseError("down")

    made = noted(call_of(alice, public_client))
    monkeypatch.setattr(activity, "_write_rows", broken)
    made.write()
    assert not Activity.objects.exists()


def test_two_processes_count_the_same_row(alice, public_client, monkeypatch):
    """Who finds no row and is not the first to make it."""
    made = noted(call_of(alice, public_client))
    (key,) = made._counts
    made.write()
    updates = count()
    update = activity.Activity.objects.filter(key=key.digest).__class__.update

    def late(self, **changes):
        return 0 if next(updates) == 0 else update(self, **changes)

    monkeypatch.setattr("django.db.models.query.QuerySet.update", late)
    noted(call_of(alice, public_client), into=made).write()
    assert names() == [("refund", 2)]


def test_old_ones_are_forgotten(alice, public_client, capsys):
    noted(call_of(alice, public_client, "old"), call_of(alice, public_client, "new")).write()
    Activity.objects.filter(name="old").update(at=timezone.now() - timedelta(days=91))
    call_command("mcp_clear_clients", "--dry-run")
    assert "Would delete 1 records" in capsys.readouterr().out and Activity.objects.count() == 2
    call_command("mcp_clear_clients")
    assert "Deleted 1 records" in capsys.readouterr().out
    assert names() == [("new", 1)]


def test_what_is_written_takes_old_ones_along(alice, public_client):
    made = noted(call_of(alice, public_client, "old"))
    made.write()
    Activity.objects.update(at=timezone.now() - timedelta(days=91))
    noted(call_of(alice, public_client, "new"), into=made).write()
    assert names() == [("new", 1)]


def test_with_a_client_goes_what_it_did(alice, public_client):
    noted(call_of(alice, public_client)).write()
    public_client.delete()
    assert not Activity.objects.exists()


# When it was last used.


@pytest.fixture
def fresh(monkeypatch, begun):
    """None was used before, in this process."""
    made = SparseLastUsedTimes(activity._write_consent_uses)
    monkeypatch.setattr("django_mcp.oauth.verifier.consent_uses", made)
    return made


def test_the_use_is_noted_of_whoever_it_was_for(alice, fresh, public_client):
    bob = get_user_model().objects.create_user("bob")
    tokens, _ = issued(alice, public_client), issued(bob, public_client)
    for _ in range(3):
        assert OAuthTokens().lookup(tokens["access_token"], default_server)
    fresh.write()
    assert Consent.objects.get(user=alice).last_used
    assert not Consent.objects.get(user=bob).last_used


def test_it_is_noted_once_a_minute(fresh, begun):
    fresh.note((1, "client"))
    fresh._noted.clear()  # it was written
    fresh.note((1, "client"))
    fresh.note((2, "client"))
    assert len(begun) == 2 and list(fresh._noted) == [(2, "client")]


def test_what_is_remembered_of_uses_is_bounded(fresh, monkeypatch):
    monkeypatch.setattr("django_mcp.auth.last_used.MAX_REMEMBERED_TIMES", 10)
    for number in range(95):
        fresh.note((number, "client"))
    assert len(fresh._before) <= 10
