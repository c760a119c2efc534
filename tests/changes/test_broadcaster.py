"""Sessions are told of changes by rows: each once, whoever has the turn, whatever breaks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError

from django_mcp.auth.principal import Principal
from django_mcp.calls.call_state import follow_model
from django_mcp.calls.visibility import place
from django_mcp.changes import broadcaster, feed
from django_mcp.changes.broadcaster import ChangeBroadcaster, SessionNotifications
from django_mcp.changes.change_set import ChangeSet
from django_mcp.changes.feed import change_feed
from django_mcp.models import (
    BroadcastCursor,
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
from .shops import counted, exposed

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("at_once")]


class Client:
    """A session of a user, with a stream that takes its news."""

    def __init__(self, shop: Any, user: Any, *, seated: bool = True, **options: Any) -> None:
        self.session = sessions.create(
            server=shop.name, owner=Principal(user).key, user=str(user.pk), revision="2025-11-25",
            client_info={}, capabilities={}, **options,
        )[1]  # fmt: skip
        sessions.initialize(self.session)
        self.stream = self.seat() if seated else None

    def seat(self):
        words = broadcaster.encoder_of(self.session)
        return streams.open(self.session, standalone=True, words=words)

    def subscribe(self, row: Any) -> None:
        at = place("shop.customer", str(row.pk))
        sessions.subscribe(self.session, uri_of(row), at)
        change_log.declare(change_log.SESSIONS, ["shop.customer"])
        watched.forget()

    def subscribe_all(self, rows: Iterable[Any]) -> None:
        """At once, which no client can."""
        Subscription.objects.bulk_create(
            Subscription(
                session=self.session, uri=uri_of(row), digest=digest_of(uri_of(row)),
                place=place("shop.customer", str(row.pk)),
            )
            for row in rows
        )  # fmt: skip

    @property
    def told(self) -> list[str]:
        found = Event.objects.filter(stream=self.stream).order_by("seq")
        messages = [decode(data) for data in found.values_list("data", flat=True)]
        names = [one.get("params", {}).get("uri") or one["method"] for one in messages]
        return [name.removeprefix("notifications/") for name in names]


def wanting_lists() -> None:
    """As a process says that tells sessions."""
    change_log.declare(change_log.LISTS, ["shop.customer"])
    watched.forget()


def uri_of(row):
    return f"model://shop/customer/{row.pk}"


@pytest.fixture
def following(loop):
    """This process tells sessions, from what is committed now."""

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


def quiet(loop):
    made = loop.do(broadcaster.broadcaster)

    def rest() -> bool:
        tips = {alias: change_log.tip(alias) for alias in change_log.aliases()}
        done = dict(BroadcastCursor.objects.values_list("name", "seq"))
        told = made._task is None or made._task.done()
        return told and all(
            not tip.waiting and done[name] == tip.last
            for alias, tip in tips.items()
            for name in (alias, alias + change_log.OF_LISTS)
        )

    loop.until(lambda: elsewhere(rest), 60)


@pytest.fixture
def subscriber(shop, people):
    """A row, and a client of one who sees it and has subscribed to it."""
    (mine, _), (alice, _) = people()
    row = Customer.objects.create(company=mine)
    one = Client(shop, alice)
    one.subscribe(row)
    return row, one


def test_who_sees_it_is_told(loop, shop, people, following):
    (mine, theirs), (alice, bob) = people()
    row = Customer.objects.create(company=mine)
    one, two, gone = Client(shop, alice), Client(shop, bob), Client(shop, alice, seated=False)
    for client in (one, gone):
        client.subscribe(row)
    following()
    row.save()
    quiet(loop)
    lists = "resources/list_changed"
    assert sorted(one.told) == sorted([uri_of(row), lists]) and two.told == []
    gone.stream = gone.seat()
    assert sorted(gone.told) == sorted(one.told)
    row.company = theirs
    row.save()
    quiet(loop)
    assert one.told.count(uri_of(row)) == 2 and two.told == [lists]
    uri = uri_of(row)
    row.delete()
    quiet(loop)
    assert one.told.count(uri) == 2 and two.told == [lists] * 2


def test_lists_are_told_of_whichever_rows_to_who_sees_any(loop, shop, people, following):
    (mine, _), (alice, bob) = people()
    Customer.objects.create(company=mine)
    one, two = Client(shop, alice), Client(shop, bob)
    following()
    change_log.record("default", (change_log.ROWS, ["shop.customer"]))
    quiet(loop)
    assert one.told == ["resources/list_changed"] and two.told == []


def test_what_was_seen_in_lists_is_known_to_whoever_has_the_turn(loop, shop, people, following):
    """The page of the delete may be told again, or by another process than that of the save."""
    (mine, _), (alice, bob) = people()
    one, two = Client(shop, alice), Client(shop, bob)
    following()
    wanting_lists()
    row = Customer.objects.create(company=mine)
    quiet(loop)
    assert one.told == ["resources/list_changed"]
    deleted = ChangeSet(listed={uri_of(row): "shop.customer"})
    Customer.objects.filter(pk=row.pk)._raw_delete("default")  # nothing tells of it yet
    for _ in range(2):
        found = SessionNotifications("default" + change_log.OF_LISTS)
        loop.run(broadcaster.add_notifications(shop, deleted, found))
        assert found.marks == {one.session.pk: ["resources"]}
    change_log.record("default", (change_log.ROW, {"shop.customer": {"pk": str(row.pk)}}))
    quiet(loop)
    assert one.told == ["resources/list_changed"] * 2 and two.told == []
    assert not VisibilitySnapshot.objects.exists()


def test_a_turn_that_breaks_off_forgets_nothing_of_the_lists(
    loop, shop, people, following, monkeypatch
):
    monkeypatch.setattr(broadcaster, "SESSIONS_PER_JOB", 2)
    monkeypatch.setattr(broadcaster, "BUSY_RETRY_SECONDS", 0.01)
    (mine, _), (alice, _) = people()
    clients = [Client(shop, alice) for _ in range(5)]
    following()
    wanting_lists()
    row = Customer.objects.create(company=mine)
    quiet(loop)
    tell, calls = change_log.deliver, []

    def fails(turn, *args, **options):
        calls.extend([turn.name] if turn.name.endswith(change_log.OF_LISTS) else [])
        if len(calls) in (1, 3):
            calls.append("")
            raise change_log.ClaimLost
        return tell(turn, *args, **options)

    monkeypatch.setattr(change_log, "deliver", fails)
    row.delete()
    quiet(loop)
    assert [client.told for client in clients] == [["resources/list_changed"] * 2] * 5


def test_what_lists_lag_behind_is_told_at_once(loop, shop, people, following, monkeypatch):
    monkeypatch.setattr(change_log, "CHANGES_PER_NUMBER", 2)
    (mine, _), (alice, bob) = people()
    one, two = Client(shop, alice), Client(shop, bob)
    change_log.create_cursors()
    wanting_lists()
    for number in range(20):
        Customer.objects.create(company=mine, name=str(number))
        change_log.numbered("default")
    following()
    quiet(loop)
    assert one.told == ["resources/list_changed"] and two.told == []


def test_lists_are_told_so_often_by_all_processes_together(
    loop, shop, people, following, monkeypatch
):
    (mine, _), (alice, _) = people()
    one, row = Client(shop, alice), Customer.objects.create(company=mine)
    one.subscribe(row)
    following()
    row.save()
    quiet(loop)
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 3600.0)
    row.save()
    other = loop.do(ChangeBroadcaster)
    loop.do(lambda: setattr(change_feed(), "broadcaster", other))
    loop.until(lambda: other._tried_at and other._task.done())
    loop.until(lambda: elsewhere(lambda: one.told.count(uri_of(row)) == 2))
    assert one.told.count("resources/list_changed") == 1
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 0.0)
    other._lists_due_at = 0.0
    quiet(loop)
    assert one.told.count("resources/list_changed") == 2


@pytest.fixture
def tenants(server):
    """The company is that of the host, whoever asks."""

    return exposed(server, mine=lambda request: {"company__name": request.host})


def test_each_session_sees_what_is_seen_at_its_host(loop, tenants, people, following):
    (first, second), (alice, _) = people()
    row = Customer.objects.create(company=first)
    one, two = (Client(tenants, alice, host=host) for host in ("c0", "c1"))
    one.subscribe(row)
    following()
    row.save()
    quiet(loop)
    uri, lists = uri_of(row), "resources/list_changed"
    assert sorted(one.told) == sorted([uri, lists]) and two.told == []
    row.company = second
    row.save()
    quiet(loop)
    assert sorted(one.told) == sorted([uri, lists] * 2) and two.told == [lists]
    row.save()
    quiet(loop)
    assert len(one.told) == 4 and two.told == [lists] * 2


def test_one_who_was_deactivated_is_told_of_what_they_saw_and_then_nothing(
    loop, subscriber, following
):
    row, one = subscriber
    following()
    User.objects.update(is_active=False)
    for _ in range(2):
        row.save()
        quiet(loop)
    assert one.told == [uri_of(row)]


@pytest.mark.parametrize("broken", [1, 2, 3])
def test_a_turn_that_breaks_off_is_gone_on_with(loop, shop, people, following, monkeypatch, broken):
    monkeypatch.setattr(broadcaster, "SESSIONS_PER_JOB", 2)
    monkeypatch.setattr(broadcaster, "BUSY_RETRY_SECONDS", 0.01)
    (mine, _), (alice, _) = people()
    row = Customer.objects.create(company=mine)
    clients = [Client(shop, alice) for _ in range(6)]
    for client in clients:
        client.subscribe(row)
    following()
    tell, calls = change_log.deliver, []

    def fails(*args, **options):
        calls.append(1)
        if len(calls) == broken:
            raise RuntimeError("killed")
        return tell(*args, **options)

    monkeypatch.setattr(change_log, "deliver", fails)
    row.save()
    quiet(loop)
    assert len(calls) > 3
    assert [client.told.count(uri_of(row)) for client in clients] == [1] * 6


def test_a_commit_that_came_through_all_the_same(loop, subscriber, following, monkeypatch):
    row, one = subscriber
    following()
    tell, lost = change_log.deliver, [1]

    def breaks(*args, **options):
        found = tell(*args, **options)
        if lost:
            lost.clear()
            raise OperationalError("server closed the connection unexpectedly")
        return found

    monkeypatch.setattr(change_log, "deliver", breaks)
    row.save()
    quiet(loop)
    assert not lost and one.told.count(uri_of(row)) == 1


def test_who_lags_behind_what_is_forgotten(loop, subscriber, following):
    from django_mcp.models import Change

    row, one = subscriber
    change_log.create_cursors()
    row.save()
    change_log.numbered("default")
    Change.objects.using("default").filter(pk=change_log.FLOOR).update(seq=10_000)
    Change.objects.using("default").filter(pk=change_log.LAST).update(seq=10_001)
    following()
    quiet(loop)
    assert one.told.count(uri_of(row)) == 1 and "resources/list_changed" in one.told


def test_a_database_that_was_put_back(loop, subscriber, following):
    """It was at a number that was told of before: what is different now, nobody knows."""
    row, one = subscriber
    change_log.create_cursors()
    BroadcastCursor.objects.filter(name__startswith="default").update(seq=10_000, until=10_000)
    following()
    quiet(loop)
    assert one.told.count(uri_of(row)) == 1 and "resources/list_changed" in one.told
    row.save()
    quiet(loop)
    assert one.told.count(uri_of(row)) == 2


def test_a_database_that_is_away(away, loop, subscriber, following):
    row, one = subscriber
    following()
    row.save()
    loop.until(lambda: elsewhere(lambda: one.told.count(uri_of(row)) == 1))
    away.back()  # nobody knows what changed there meanwhile
    loop.until(lambda: elsewhere(lambda: one.told.count(uri_of(row)) == 2))


@pytest.mark.slow
def test_one_look_for_each_principal(loop, shop, people, following):
    companies, users = people(5)
    rows = [Customer.objects.create(company=company) for company in companies]
    clients = [Client(shop, user) for user in users for _ in range(20)]
    for number, client in enumerate(clients):
        client.subscribe(rows[number // 20])
    following()
    quiet(loop)
    with counted() as found, over(broadcaster.is_of_lists) as told:
        for row in rows:
            row.save()
        quiet(loop)
    # Each subscription is of one page, and a turn of lists concerns everybody.
    assert told and looks(found) == 5 + 5 * len(told)
    assert all(len(set(one.told)) == 2 for one in clients)


@contextmanager
def over(of: Callable[[str], bool]) -> Iterator[list[str]]:
    """The turns with such names that are told to the end."""
    found: list[str] = []
    tell = change_log.deliver

    def noted(turn: Any, *args: Any, **options: Any) -> Any:
        made = tell(turn, *args, **options)
        found.extend([turn.name] if options["over"] and of(turn.name) else [])
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_log, "deliver", noted)
        yield found


def looks(found: Counter[str]) -> int:
    return sum(n for s, n in found.items() if s.startswith("SELECT") and "shop_customer" in s)


@pytest.mark.slow
def test_five_thousand_subscriptions_of_fifty_users(loop, server, people, following):
    exposed(server, listed=False)
    companies, users = people(50)
    Customer.objects.bulk_create(
        Customer(company=company) for company in companies for _ in range(100)
    )
    rows = [list(Customer.objects.filter(company=company)) for company in companies]
    clients = [Client(server, user) for user in users]
    for client, mine in zip(clients, rows, strict=True):
        client.subscribe_all(mine)
    following()
    quiet(loop)
    changed = [(change_log.ROW, {"shop.customer": {"pk": str(mine[0].pk)}}) for mine in rows]
    with counted() as found, over(lambda name: True) as told:
        change_log.record("default", *changed)
        quiet(loop)
    assert looks(found) == 50 and told.count("default") == 1
    assert [one.told for one in clients] == [[uri_of(mine[0])] for mine in rows]
    written = {sql: n for sql, n in found.items() if sql.startswith(("UPDATE", "INSERT"))}
    streams_ = {sql: n for sql, n in written.items() if "UPDATE django_mcp_stream" in plain(sql)}
    assert sum(streams_.values()) == 50 and sum(written.values()) <= 50 + 30, written


def plain(sql: str) -> str:
    return sql.replace('"', "").replace("`", "")


def test_subscribing_takes_effect_in_every_process(loop, shop, people):
    (mine, _), (alice, _) = people()
    row = Customer.objects.create(company=mine)
    one = Client(shop, alice)
    loop.run(follow_model(place("shop.customer", str(row.pk))))
    held = set(Interest.objects.filter(holder="").values_list("model", flat=True))
    assert held == {"?", "shop.customer"} and BroadcastCursor.objects.count() >= 2
    assert one.told == [] and not Subscription.objects.exists() and Session.objects.exists()
