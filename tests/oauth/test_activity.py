"""Recording what OAuth clients do: batched writes, bounded rows, expiry and last-used times."""

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
from django_mcp.calls.records import CallRecord
from django_mcp.declarations.server import default_server
from django_mcp.oauth import activity
from django_mcp.oauth.activity import MAX_ROWS_PER_CLIENT_AND_USER, ActivityCounter
from django_mcp.oauth.models import Activity, Consent
from django_mcp.oauth.verifier import OAuthTokens
from django_mcp.protocol.connection import ClientCall
from django_mcp.protocol.revisions import LATEST
from django_mcp.runtime import threads

from .flows import issued
from .tokens import application


@pytest.fixture
def background_jobs(monkeypatch):
    """Collect the background jobs instead of running them."""
    found = []
    monkeypatch.setattr(threads.background, "run_in_background", found.append)
    return found


def record_of(principal, name="x"):
    call = ClientCall(1, "tools/call", {"name": name}, LATEST)
    record = CallRecord(call, default_server, principal)
    record.is_activity = True
    return record


def call_record(user, client, name="refund"):
    return record_of(Principal(user, Auth(application=client)), name)


def counter_with(*calls, into=None):
    """Return a counter that noted these calls in an event loop."""
    made = into or ActivityCounter()

    async def hear():
        for one in calls:
            made.add(one)

    asyncio.run(hear())
    return made


def stored_counts():
    return sorted(Activity.objects.values_list("name", "count"))


def test_calls_of_one_day_are_counted_in_one_row(alice, public_client):
    again = counter_with(
        *[call_record(alice, public_client)] * 3, call_record(alice, public_client, "look")
    )
    again.write()
    counter_with(call_record(alice, public_client), into=again).write()
    assert stored_counts() == [("look", 1), ("refund", 4)]
    row = Activity.objects.get(name="refund")
    assert (row.user, row.client_id, row.server) == (alice, public_client.client_id, "default")
    assert row.at.second == 0 and timezone.now() - row.at < timedelta(minutes=2)


def test_calls_of_another_day_get_a_row_of_their_own(alice, public_client, monkeypatch):
    today = timezone.now()
    made = counter_with(call_record(alice, public_client))
    monkeypatch.setattr(timezone, "now", lambda: today - timedelta(days=1))
    counter_with(call_record(alice, public_client), into=made).write()
    assert stored_counts() == [("refund", 1), ("refund", 1)]


def test_calls_are_written_in_the_background_in_one_batch(
    alice, public_client, background_jobs, monkeypatch
):
    monkeypatch.setattr(activity, "WRITE_INTERVAL_SECONDS", 0.01)
    made = ActivityCounter()

    async def hear():
        for _ in range(100):
            made.add(call_record(alice, public_client))
        while not background_jobs:  # noqa: ASYNC110 (no bell rings)
            await asyncio.sleep(0.01)

    asyncio.run(hear())
    assert background_jobs[0] == made.write and len(background_jobs) <= 2
    background_jobs[0]()
    assert stored_counts() == [("refund", 100)]


def test_noting_a_call_makes_no_query(alice, public_client, django_assert_num_queries):
    with django_assert_num_queries(0):
        counter_with(call_record(alice, public_client))


def test_calls_without_an_oauth_client_are_not_recorded(alice, public_client):
    made = counter_with(
        record_of(Principal(alice)),
        record_of(Principal(alice, Auth(key="token-1"))),
        record_of(Principal(alice, Auth(application=object()))),
        record_of(anonymous()),
    )
    made.write()
    assert not Activity.objects.exists()


def test_call_that_did_nothing_is_not_recorded(alice, public_client):
    denied = call_record(alice, public_client)
    denied.is_activity = False
    counter_with(denied).write()
    assert not Activity.objects.exists()


@pytest.mark.slow
def test_rows_per_client_and_user_are_limited(alice, public_client):
    """The oldest rows are deleted, only those of the same client and user."""
    other = application("Other")
    made = counter_with(call_record(alice, other, "first"))
    made.write()
    Activity.objects.update(at=timezone.now() - timedelta(hours=1))
    for start in range(0, 3 * MAX_ROWS_PER_CLIENT_AND_USER, MAX_ROWS_PER_CLIENT_AND_USER):
        counter_with(
            *(
                call_record(alice, public_client, f"tool_{start + one}")
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


def test_number_of_pending_rows_is_limited(alice, public_client, monkeypatch):
    monkeypatch.setattr(activity, "MAX_PENDING_ROWS", 10)
    made = counter_with(*(call_record(alice, public_client, f"tool_{one}") for one in range(50)))
    made.write()
    assert Activity.objects.count() == 10


def test_deleted_user_does_not_prevent_writing_rows_of_other_users(alice, public_client):
    bob = get_user_model().objects.create_user("bob")
    made = counter_with(call_record(bob, public_client), call_record(alice, public_client))
    bob.delete()
    made.write()
    assert Activity.objects.get().user == alice


def test_database_error_while_writing_is_not_raised(alice, public_client, monkeypatch):
    def broken(rows):
        raise DatabaseError("down")

    made = counter_with(call_record(alice, public_client))
    monkeypatch.setattr(activity, "_write_rows", broken)
    made.write()
    assert not Activity.objects.exists()


def test_concurrent_insert_of_the_same_row_is_retried_as_update(alice, public_client, monkeypatch):
    """Another process inserts the row between the update and the insert."""
    made = counter_with(call_record(alice, public_client))
    (key,) = made._counts
    made.write()
    updates = count()
    update = activity.Activity.objects.filter(key=key.digest).__class__.update

    def late(self, **changes):
        return 0 if next(updates) == 0 else update(self, **changes)

    monkeypatch.setattr("django.db.models.query.QuerySet.update", late)
    counter_with(call_record(alice, public_client), into=made).write()
    assert stored_counts() == [("refund", 2)]


def test_mcp_clear_clients_deletes_activity_older_than_90_days(alice, public_client, capsys):
    counter_with(
        call_record(alice, public_client, "old"), call_record(alice, public_client, "new")
    ).write()
    Activity.objects.filter(name="old").update(at=timezone.now() - timedelta(days=91))
    call_command("mcp_clear_clients", "--dry-run")
    assert "Would delete 1 records" in capsys.readouterr().out and Activity.objects.count() == 2
    call_command("mcp_clear_clients")
    assert "Deleted 1 records" in capsys.readouterr().out
    assert stored_counts() == [("new", 1)]


def test_writing_deletes_activity_older_than_90_days(alice, public_client):
    made = counter_with(call_record(alice, public_client, "old"))
    made.write()
    Activity.objects.update(at=timezone.now() - timedelta(days=91))
    counter_with(call_record(alice, public_client, "new"), into=made).write()
    assert stored_counts() == [("new", 1)]


def test_deleting_a_client_deletes_its_activity(alice, public_client):
    counter_with(call_record(alice, public_client)).write()
    public_client.delete()
    assert not Activity.objects.exists()


# Last-used times.


@pytest.fixture
def last_used_times(monkeypatch, background_jobs):
    """The last-used times of a new process."""
    made = SparseLastUsedTimes(activity._write_consent_uses)
    monkeypatch.setattr("django_mcp.oauth.verifier.consent_uses", made)
    return made


def test_lookup_of_a_token_updates_last_used_of_its_user_only(
    alice, last_used_times, public_client
):
    bob = get_user_model().objects.create_user("bob")
    tokens, _ = issued(alice, public_client), issued(bob, public_client)
    for _ in range(3):
        assert OAuthTokens().lookup(tokens["access_token"], default_server)
    last_used_times.write()
    assert Consent.objects.get(user=alice).last_used
    assert not Consent.objects.get(user=bob).last_used


def test_last_use_of_a_client_is_noted_once_a_minute(last_used_times, background_jobs):
    last_used_times.note((1, "client"))
    last_used_times._noted.clear()  # it was written
    last_used_times.note((1, "client"))
    last_used_times.note((2, "client"))
    assert len(background_jobs) == 2 and list(last_used_times._noted) == [(2, "client")]


def test_number_of_remembered_last_used_times_is_limited(last_used_times, monkeypatch):
    monkeypatch.setattr("django_mcp.auth.last_used.MAX_REMEMBERED_TIMES", 10)
    for number in range(95):
        last_used_times.note((number, "client"))
    assert len(last_used_times._before) <= 10
