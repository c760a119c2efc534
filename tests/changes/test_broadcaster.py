"""The broadcaster stores each notification for sessions once, whichever worker runs it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError

from django_mcp.auth.principal import Principal
from django_mcp.calls.call_state import follow_model
from django_mcp.calls.visibility import row_ref
from django_mcp.changes import broadcaster, feed
from django_mcp.changes.broadcaster import ChangeBroadcaster, SessionNotifications
from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import change_feed
from django_mcp.models import (
    BroadcastCursor,
    Change,
    Event,
    Interest,
    Session,
    Subscription,
    VisibilitySnapshot,
)
from django_mcp.protocol.jsonrpc import decode
from django_mcp.storage import change_log, sessions, streams
from django_mcp.storage.change_log import watched
from django_mcp.storage.databases import digest_of
from tests.shop.models import Customer

from ..storage.rows import elsewhere
from ..unreachable import unreachable
from .shop_server import counted_statements, register_models

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("immediate_delivery"),
]
LOG = settings.DJANGO_MCP["DATABASE"]


class SubscribedSession:
    """A session of a user, with a stream that receives its notifications."""

    def __init__(self, shop: Any, user: Any, *, has_stream: bool = True, **options: Any) -> None:
        self.session = sessions.create(
            server=shop.name, owner=Principal(user).key, user=str(user.pk), revision="2025-11-25",
            client_info={}, capabilities={}, **options,
        )[1]  # fmt: skip
        sessions.initialize(self.session)
        self.stream = self.open_stream() if has_stream else None

    def open_stream(self):
        encode_marks = partial(broadcaster.encode_marks, self.session.revision)
        return streams.open(self.session, standalone=True, encode_marks=encode_marks)

    def subscribe(self, row: Any) -> None:
        at = row_ref("shop.customer", str(row.pk))
        sessions.subscribe(self.session, uri_of(row), at)
        change_log.store_interests(change_log.SESSIONS_HOLDER, ["shop.customer"])
        watched.forget()

    def subscribe_all(self, rows: Iterable[Any]) -> None:
        """Subscribe to many rows by one statement, which no client can."""
        Subscription.objects.bulk_create(
            Subscription(
                session=self.session, uri=uri_of(row), digest=digest_of(uri_of(row)),
                row_ref=row_ref("shop.customer", str(row.pk)),
            )
            for row in rows
        )  # fmt: skip

    @property
    def notifications(self) -> list[str]:
        found = Event.objects.filter(stream=self.stream).order_by("seq")
        messages = [decode(data) for data in found.values_list("data", flat=True)]
        names = [one.get("params", {}).get("uri") or one["method"] for one in messages]
        return [name.removeprefix("notifications/") for name in names]


def declare_interest_in_lists() -> None:
    """Declare what a process with a broadcaster declares."""
    change_log.store_interests(change_log.LISTS_HOLDER, ["shop.customer"])
    watched.forget()


def uri_of(row):
    return f"model://shop/customer/{row.pk}"


@pytest.fixture
def start_broadcaster(loop):
    """Start the broadcaster of this process, at the changes that are committed now."""

    def begin():
        loop.run(begun())

    async def begun():
        import asyncio

        await asyncio.to_thread(in_thread)
        broadcaster.start()

    def in_thread():
        from django.db import connections

        change_log.create_cursors()
        connections.close_all()

    return begin


def running(made: ChangeBroadcaster) -> bool:
    return not all(task.done() for task in made._tasks.values())


def wait_for_broadcast(loop):
    made = loop.do(broadcaster.broadcaster)

    def rest() -> bool:
        states = {alias: change_log.read_state(alias) for alias in change_log.aliases()}
        done = dict(BroadcastCursor.objects.values_list("name", "seq"))
        return not running(made) and all(
            not state.waiting and done[name] == state.last
            for alias, state in states.items()
            for name in (alias, alias + change_log.LIST_CURSOR_SUFFIX)
        )

    loop.until(lambda: elsewhere(rest), 60)


@pytest.fixture
def subscription(shop, create_companies):
    """A row, and the session of a user who sees it and has subscribed to it."""
    (mine, _), (alice, _) = create_companies()
    row = Customer.objects.create(company=mine)
    one = SubscribedSession(shop, alice)
    one.subscribe(row)
    return row, one


def test_change_notifies_sessions_that_can_see_the_row(
    loop, shop, create_companies, start_broadcaster
):
    (mine, theirs), (alice, bob) = create_companies()
    row = Customer.objects.create(company=mine)
    one, two, gone = (
        SubscribedSession(shop, alice),
        SubscribedSession(shop, bob),
        SubscribedSession(shop, alice, has_stream=False),
    )
    for client in (one, gone):
        client.subscribe(row)
    start_broadcaster()
    row.save()
    wait_for_broadcast(loop)
    lists = "resources/list_changed"
    assert sorted(one.notifications) == sorted([uri_of(row), lists]) and two.notifications == []
    gone.stream = gone.open_stream()
    assert sorted(gone.notifications) == sorted(one.notifications)
    row.company = theirs
    row.save()
    wait_for_broadcast(loop)
    assert one.notifications.count(uri_of(row)) == 2 and two.notifications == [lists]
    uri = uri_of(row)
    row.delete()
    wait_for_broadcast(loop)
    assert one.notifications.count(uri) == 2 and two.notifications == [lists] * 2


def test_list_notification_for_any_rows_only_if_some_row_is_visible(
    loop, shop, create_companies, start_broadcaster
):
    (mine, _), (alice, bob) = create_companies()
    Customer.objects.create(company=mine)
    one, two = SubscribedSession(shop, alice), SubscribedSession(shop, bob)
    start_broadcaster()
    change_log.record("default", (change_log.ROWS, ["shop.customer"]))
    wait_for_broadcast(loop)
    assert one.notifications == ["resources/list_changed"] and two.notifications == []


def test_list_visibility_is_stored_for_every_worker(
    loop, shop, create_companies, start_broadcaster
):
    """The deletion may be broadcast twice, or by another process than the save."""
    (mine, _), (alice, bob) = create_companies()
    one, two = SubscribedSession(shop, alice), SubscribedSession(shop, bob)
    start_broadcaster()
    declare_interest_in_lists()
    row = Customer.objects.create(company=mine)
    wait_for_broadcast(loop)
    assert one.notifications == ["resources/list_changed"]
    deleted = ChangeSet(listed_uris={uri_of(row): "shop.customer"})
    Customer.objects.filter(pk=row.pk)._raw_delete("default")  # sends no signal
    for _ in range(2):
        found = SessionNotifications("default" + change_log.LIST_CURSOR_SUFFIX)
        loop.run(broadcaster.add_notifications(shop, deleted, found))
        assert found.marks == {one.session.pk: ["resources"]}
    change_log.record("default", (change_log.ROW, {"shop.customer": {"pk": str(row.pk)}}))
    wait_for_broadcast(loop)
    assert one.notifications == ["resources/list_changed"] * 2 and two.notifications == []
    assert not VisibilitySnapshot.objects.exists()


def test_interrupted_broadcast_of_lists_is_completed(
    loop, shop, create_companies, start_broadcaster, monkeypatch
):
    monkeypatch.setattr(broadcaster, "SESSIONS_PER_JOB", 2)
    monkeypatch.setattr(broadcaster, "BUSY_RETRY_SECONDS", 0.01)
    (mine, _), (alice, _) = create_companies()
    clients = [SubscribedSession(shop, alice) for _ in range(5)]
    start_broadcaster()
    declare_interest_in_lists()
    row = Customer.objects.create(company=mine)
    wait_for_broadcast(loop)
    tell, calls = change_log.deliver, []

    def fails(turn, *args, **options):
        calls.extend([turn.name] if turn.name.endswith(change_log.LIST_CURSOR_SUFFIX) else [])
        if len(calls) in (1, 3):
            calls.append("")
            raise change_log.ClaimLost
        return tell(turn, *args, **options)

    monkeypatch.setattr(change_log, "deliver", fails)
    row.delete()
    wait_for_broadcast(loop)
    assert [client.notifications for client in clients] == [["resources/list_changed"] * 2] * 5


def test_list_backlog_is_one_notification(
    loop, shop, create_companies, start_broadcaster, monkeypatch
):
    monkeypatch.setattr(change_log, "CHANGES_PER_NUMBER", 2)
    (mine, _), (alice, bob) = create_companies()
    one, two = SubscribedSession(shop, alice), SubscribedSession(shop, bob)
    change_log.create_cursors()
    declare_interest_in_lists()
    for number in range(20):
        Customer.objects.create(company=mine, name=str(number))
        change_log.number_changes("default")
    start_broadcaster()
    wait_for_broadcast(loop)
    assert one.notifications == ["resources/list_changed"] and two.notifications == []


def test_list_notifications_are_throttled_across_processes(
    loop, shop, create_companies, start_broadcaster, monkeypatch
):
    (mine, _), (alice, _) = create_companies()
    one, row = SubscribedSession(shop, alice), Customer.objects.create(company=mine)
    one.subscribe(row)
    start_broadcaster()
    row.save()
    wait_for_broadcast(loop)
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 3600.0)
    row.save()
    other = loop.do(ChangeBroadcaster)
    loop.do(lambda: setattr(change_feed(), "broadcaster", other))
    loop.until(lambda: other._tried_at and not running(other))
    loop.until(lambda: elsewhere(lambda: one.notifications.count(uri_of(row)) == 2))
    assert one.notifications.count("resources/list_changed") == 1
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 0.0)
    other._lists_due_at = 0.0
    wait_for_broadcast(loop)
    assert one.notifications.count("resources/list_changed") == 2


def test_list_cursor_behind_pruned_changes_notifies_of_the_list(
    loop, shop, create_companies, start_broadcaster
):
    """The main cursor has read the changes that were deleted."""
    (mine, _), (alice, _) = create_companies()
    one = SubscribedSession(shop, alice)
    start_broadcaster()
    declare_interest_in_lists()
    Customer.objects.create(company=mine)
    wait_for_broadcast(loop)
    assert one.notifications == ["resources/list_changed"]
    Change.objects.using("default").filter(pk=change_log.FLOOR).update(seq=10)
    Change.objects.using("default").filter(pk=change_log.LAST).update(seq=10)
    BroadcastCursor.objects.filter(name="default").update(seq=10, until=10)
    wait_for_broadcast(loop)
    assert one.notifications == ["resources/list_changed"] * 2


def test_unreachable_database_does_not_stop_notifications_of_others(
    loop, shop, create_companies, start_broadcaster, monkeypatch
):
    """Visibility of a change of one database cannot be checked, and another has changes too."""
    if LOG == "default":
        pytest.skip("There is one database.")
    monkeypatch.setattr(broadcaster, "BUSY_RETRY_SECONDS", 0.01)
    (mine, theirs), (alice, bob) = create_companies()
    row, other = Customer.objects.create(company=mine), Customer.objects.create(company=theirs)
    one, two = SubscribedSession(shop, alice), SubscribedSession(shop, bob)
    one.subscribe(row)
    two.subscribe(other)
    away, failures, visible = unreachable(), [], broadcaster.visible
    is_away = threading.Event()
    is_away.set()

    def fails(request, uris):
        if is_away.is_set() and uri_of(row) in uris:
            failures.append(uris)
            raise away
        return visible(request, uris)

    monkeypatch.setattr(broadcaster, "visible", fails)
    start_broadcaster()
    change_log.record(LOG, (change_log.ROW, {"shop.customer": {"pk": str(row.pk)}}))
    loop.until(lambda: failures)
    other.save()
    loop.until(lambda: elsewhere(lambda: uri_of(other) in two.notifications), 10)
    assert one.notifications == []
    is_away.clear()
    wait_for_broadcast(loop)
    assert uri_of(row) in one.notifications


@pytest.fixture
def tenants(server, settings):
    """A server that shows the company of the request's host to every user."""
    settings.ALLOWED_HOSTS = ["c0", "c1"]
    return register_models(server, mine=lambda request: {"company__name": request.http.get_host()})


def test_visibility_is_checked_with_the_host_of_each_session(
    loop, tenants, create_companies, start_broadcaster
):
    (first, second), (alice, _) = create_companies()
    row = Customer.objects.create(company=first)
    one, two = (SubscribedSession(tenants, alice, host=host) for host in ("c0", "c1"))
    one.subscribe(row)
    start_broadcaster()
    row.save()
    wait_for_broadcast(loop)
    uri, lists = uri_of(row), "resources/list_changed"
    assert sorted(one.notifications) == sorted([uri, lists]) and two.notifications == []
    row.company = second
    row.save()
    wait_for_broadcast(loop)
    assert sorted(one.notifications) == sorted([uri, lists] * 2) and two.notifications == [lists]
    row.save()
    wait_for_broadcast(loop)
    assert len(one.notifications) == 4 and two.notifications == [lists] * 2


def test_deactivated_user_is_notified_once_of_a_row_they_saw(loop, subscription, start_broadcaster):
    row, one = subscription
    start_broadcaster()
    User.objects.update(is_active=False)
    for _ in range(2):
        row.save()
        wait_for_broadcast(loop)
    assert one.notifications == [uri_of(row)]


def test_session_of_an_unknown_revision_does_not_block_the_others(
    loop, shop, create_companies, start_broadcaster, monkeypatch, caplog
):
    """A release was rolled back, so this one lacks the revision."""
    monkeypatch.setattr(broadcaster, "SESSIONS_PER_JOB", 1)
    (mine, _), (alice, _) = create_companies()
    row = Customer.objects.create(company=mine)
    clients = [SubscribedSession(shop, alice) for _ in range(3)]
    for client in clients:
        client.subscribe(row)
    Session.objects.filter(pk=clients[1].session.pk).update(revision="2099-01-01")
    start_broadcaster()
    row.save()
    wait_for_broadcast(loop)
    lists = "resources/list_changed"
    assert [sorted(one.notifications) for one in clients] == [
        [uri_of(row), lists],
        [],
        [uri_of(row), lists],
    ]
    assert f"session={clients[1].session.pk} revision=2099-01-01" in caplog.text


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_interrupted_broadcast_is_completed_without_duplicates(
    loop, shop, create_companies, start_broadcaster, monkeypatch, broken
):
    monkeypatch.setattr(broadcaster, "SESSIONS_PER_JOB", 2)
    monkeypatch.setattr(broadcaster, "BUSY_RETRY_SECONDS", 0.01)
    (mine, _), (alice, _) = create_companies()
    row = Customer.objects.create(company=mine)
    clients = [SubscribedSession(shop, alice) for _ in range(6)]
    for client in clients:
        client.subscribe(row)
    start_broadcaster()
    tell, calls = change_log.deliver, []

    def fails(*args, **options):
        calls.append(1)
        if len(calls) == broken:
            raise RuntimeError("killed")
        return tell(*args, **options)

    monkeypatch.setattr(change_log, "deliver", fails)
    row.save()
    wait_for_broadcast(loop)
    assert len(calls) > 3
    assert [client.notifications.count(uri_of(row)) for client in clients] == [1] * 6


def test_broadcast_is_not_repeated_after_a_commit_with_a_lost_reply(
    loop, subscription, start_broadcaster, monkeypatch
):
    row, one = subscription
    start_broadcaster()
    tell, lost = change_log.deliver, [1]

    def breaks(*args, **options):
        found = tell(*args, **options)
        if lost:
            lost.clear()
            raise OperationalError("server closed the connection unexpectedly")
        return found

    monkeypatch.setattr(change_log, "deliver", breaks)
    row.save()
    wait_for_broadcast(loop)
    assert not lost and one.notifications.count(uri_of(row)) == 1


def test_broadcaster_behind_pruned_changes_notifies_of_everything(
    loop, subscription, start_broadcaster
):
    from django_mcp.models import Change

    row, one = subscription
    change_log.create_cursors()
    row.save()
    change_log.number_changes("default")
    Change.objects.using("default").filter(pk=change_log.FLOOR).update(seq=10_000)
    Change.objects.using("default").filter(pk=change_log.LAST).update(seq=10_001)
    start_broadcaster()
    wait_for_broadcast(loop)
    assert (
        one.notifications.count(uri_of(row)) == 1 and "resources/list_changed" in one.notifications
    )


def test_restored_database_notifies_of_everything_and_goes_on(
    loop, subscription, start_broadcaster
):
    """The backup has a lower number than the cursor, so anything may have changed."""
    row, one = subscription
    change_log.create_cursors()
    BroadcastCursor.objects.filter(name__startswith="default").update(seq=10_000, until=10_000)
    start_broadcaster()
    wait_for_broadcast(loop)
    assert (
        one.notifications.count(uri_of(row)) == 1 and "resources/list_changed" in one.notifications
    )
    row.save()
    wait_for_broadcast(loop)
    assert one.notifications.count(uri_of(row)) == 2


def test_unreachable_database_does_not_stop_broadcasts(
    unreachable_database, loop, subscription, start_broadcaster
):
    row, one = subscription
    start_broadcaster()
    row.save()
    loop.until(lambda: elsewhere(lambda: one.notifications.count(uri_of(row)) == 1))
    unreachable_database.restore()  # anything may have changed there meanwhile
    loop.until(lambda: elsewhere(lambda: one.notifications.count(uri_of(row)) == 2))


@pytest.mark.slow
def test_visibility_takes_one_query_for_each_principal(
    loop, shop, create_companies, start_broadcaster
):
    companies, users = create_companies(5)
    rows = [Customer.objects.create(company=company) for company in companies]
    clients = [SubscribedSession(shop, user) for user in users for _ in range(20)]
    for number, client in enumerate(clients):
        client.subscribe(rows[number // 20])
    start_broadcaster()
    wait_for_broadcast(loop)
    with counted_statements() as found, finished_broadcasts(broadcaster.is_list_cursor) as told:
        for row in rows:
            row.save()
        wait_for_broadcast(loop)
    # A subscription is checked with one page of changes, and a broadcast of lists checks all users.
    assert told and count_selects(found) == 5 + 5 * len(told)
    assert all(len(set(one.notifications)) == 2 for one in clients)


@contextmanager
def finished_broadcasts(of: Callable[[str], bool]) -> Iterator[list[str]]:
    """Collect the names of cursors that were broadcast to the end."""
    found: list[str] = []
    tell = change_log.deliver

    def noted(turn: Any, *args: Any, **options: Any) -> Any:
        made = tell(turn, *args, **options)
        found.extend([turn.name] if options["is_last_chunk"] and of(turn.name) else [])
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_log, "deliver", noted)
        yield found


def count_selects(found: Counter[str]) -> int:
    return sum(n for s, n in found.items() if s.startswith("SELECT") and "shop_customer" in s)


@pytest.mark.slow
def test_five_thousand_subscriptions_of_fifty_users_cost_few_statements(
    loop, server, create_companies, start_broadcaster
):
    register_models(server, listed=False)
    companies, users = create_companies(50)
    Customer.objects.bulk_create(
        Customer(company=company) for company in companies for _ in range(100)
    )
    rows = [list(Customer.objects.filter(company=company)) for company in companies]
    clients = [SubscribedSession(server, user) for user in users]
    for client, mine in zip(clients, rows, strict=True):
        client.subscribe_all(mine)
    start_broadcaster()
    wait_for_broadcast(loop)
    changed = [(change_log.ROW, {"shop.customer": {"pk": str(mine[0].pk)}}) for mine in rows]
    with counted_statements() as found, finished_broadcasts(lambda name: True) as told:
        change_log.record("default", *changed)
        wait_for_broadcast(loop)
    assert count_selects(found) == 50 and told.count("default") == 1
    assert [one.notifications for one in clients] == [[uri_of(mine[0])] for mine in rows]
    written = {sql: n for sql, n in found.items() if sql.startswith(("UPDATE", "INSERT"))}
    streams_ = {sql: n for sql, n in written.items() if "UPDATE django_mcp_stream" in plain(sql)}
    assert sum(streams_.values()) == 50 and sum(written.values()) <= 50 + 30, written


def plain(sql: str) -> str:
    return sql.replace('"', "").replace("`", "")


def test_followed_model_is_declared_for_every_process(loop, shop, create_companies):
    (mine, _), (alice, _) = create_companies()
    row = Customer.objects.create(company=mine)
    one = SubscribedSession(shop, alice)
    loop.run(follow_model(row_ref("shop.customer", str(row.pk))))
    held = set(Interest.objects.filter(holder="").values_list("model", flat=True))
    assert held == {"?", "shop.customer"} and BroadcastCursor.objects.count() >= 2
    assert (
        one.notifications == [] and not Subscription.objects.exists() and Session.objects.exists()
    )
