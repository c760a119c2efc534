"""Listeners are notified of changes that any process commits: who, how often, and at what cost."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import OperationalError, connections

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls.visibility import row_ref
from django_mcp.changes import feed, subscriptions
from django_mcp.changes.feed import change_feed
from django_mcp.changes.subscriptions import ClientSubscriptions, listener_registry
from django_mcp.models import Change, Interest
from django_mcp.protocol.connection import Connection
from django_mcp.storage import change_log, retention
from tests.shop.models import Badge, Customer, Place, Tag, Warehouse

from ..storage.rows import elsewhere
from ..unreachable import unreachable
from .shop_server import counted_statements

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("immediate_delivery"),
]
LOG = settings.DJANGO_MCP["DATABASE"]


class Listener:
    """A listener of one user, with the messages and completed pages that it received."""

    def __init__(self, server: Any, user: Any, *row_refs: tuple[str, str], lists: bool = False):
        self.principal: Principal | None = Principal(user)
        self.messages: list[Any] = []
        self.subscriptions = ClientSubscriptions(
            server, Connection(transport="http"), self.get_principal, self.messages.append
        )
        self.row_refs, self.lists, self.ended, self.pages = dict(row_refs), lists, False, []
        self.token_valid = True

    async def get_principal(self) -> Principal:
        assert self.principal is not None
        return self.principal

    def renew(self, principal: Principal) -> None:
        self.principal = principal

    async def is_token_valid(self) -> bool:
        return self.token_valid

    def end(self) -> None:
        self.ended = True
        self.subscriptions.end_listens()

    def complete(self, id: str) -> None:
        self.pages.append(id)

    async def listen(self) -> None:
        assert self.principal is not None
        wanted = {"resourceSubscriptions": list(self.row_refs), "resourcesListChanged": self.lists}
        models = {one.partition(" ")[0] for one in self.row_refs.values() if one}
        self.subscriptions.set_principal(self.principal)
        listener_registry().add(self)
        await listener_registry().follow(self, models, lists=self.lists)
        await self.subscriptions.listen(1, wanted, self.row_refs)

    @property
    def notified(self) -> list[str]:
        names = (one["params"].get("uri", one["method"]) for one in self.messages[1:])
        return [name.removeprefix("notifications/") for name in names]


@pytest.fixture
def listen(loop, shop) -> Callable[..., Any]:
    def made(user, *rows, **options):
        at = [(uri_of(shop, row), place_at(row)) for row in rows]
        listener = Listener(shop, user, *at, **options)
        loop.begin(listener.listen())
        loop.until(lambda: listener.messages)
        return listener

    return made


def uri_of(shop, row):
    return shop._catalog.models[type(row)][0]._uri_of(row)


def place_at(row):
    return row_ref(row._meta.label_lower, str(row.pk))


def wait_for_delivery(loop):
    """Wait until listeners were notified of every committed change."""

    made, feed_ = loop.do(listener_registry), loop.do(change_feed)

    def rest() -> bool:
        states = {alias: change_log.read_state(alias) for alias in change_log.aliases()}
        is_idle = not made._tasks and not feed_._listed
        return is_idle and all(
            not state.waiting and feed_._cursors.get(alias) == state.last
            for alias, state in states.items()
        )

    loop.until(lambda: elsewhere(rest), 60)
    loop.sleep(0.02)


# Who is notified.


def test_saved_row_notifies_only_listeners_who_can_see_it(loop, shop, create_companies, listen):
    (mine, theirs), (alice, bob) = create_companies(2)
    row, other = Customer.objects.create(company=mine), Customer.objects.create(company=theirs)
    one, two = listen(alice, row), listen(bob, other)
    row.save()
    wait_for_delivery(loop)
    assert (
        one.notified == [f"resources/updated {uri_of(shop, row)}".split()[1]] and two.notified == []
    )


def test_row_that_becomes_invisible_notifies_once_and_again_when_it_returns(
    loop, shop, create_companies, listen
):
    (mine, theirs), (alice, _) = create_companies(2)
    row = Customer.objects.create(company=mine)
    one, uri = listen(alice, row), uri_of(shop, row)
    for company, count in ((theirs, 1), (theirs, 1), (mine, 2)):
        row.company = company
        row.save()
        wait_for_delivery(loop)
        assert one.notified == [uri] * count


def test_deleted_row_notifies_only_listeners_who_could_see_it(loop, shop, create_companies, listen):
    (mine, theirs), (alice, bob) = create_companies(2)
    row = Customer.objects.create(company=mine)
    one, uri = listen(alice, row), uri_of(shop, row)
    two = listen(bob, Customer.objects.create(company=theirs))
    row.delete()
    wait_for_delivery(loop)
    assert one.notified == [uri] and two.notified == []


def test_row_with_new_uri_notifies_subscribers_of_its_old_uri(loop, shop, create_companies, listen):
    _, (alice,) = create_companies(1)
    badge = Badge.objects.create(code="A", colour="red")
    one = listen(alice, badge)
    badge.colour = "blue"
    badge.save()
    wait_for_delivery(loop)
    assert one.notified == ["badge://red"]
    Badge.objects.create(code="B", colour="red")  # another row at that address
    wait_for_delivery(loop)
    assert one.notified == ["badge://red"] * 2


def test_change_of_any_rows_of_a_model_notifies_subscribers_once(
    loop, shop, create_companies, listen
):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, uri = listen(alice, row), uri_of(shop, row)
    change_log.record("default", (change_log.ROWS, ["shop.customer"]))
    change_log.record("default", (change_log.ROWS, ["shop.tag"]), ("newer", ""))
    wait_for_delivery(loop)
    assert one.notified == [uri]


def test_notify_functions_reach_listeners_of_that_server(loop, shop, create_companies, listen):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, uri = listen(alice, row), uri_of(shop, row)
    Customer.objects.filter(pk=row.pk).update(name="x")
    mcp.notify_changed(row)
    wait_for_delivery(loop)
    mcp.notify_changed(uri, server=shop)
    mcp.notify_changed(uri, server=mcp.server)
    wait_for_delivery(loop)
    mcp.notify_elicitation_complete("id")
    wait_for_delivery(loop)
    assert one.notified == [uri] * 2 and one.pages == ["id"]


def test_new_listener_receives_only_later_changes(loop, shop, create_companies, listen):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    first = listen(alice, row)
    row.save()
    wait_for_delivery(loop)
    second = listen(alice, row)
    row.save()
    wait_for_delivery(loop)
    assert len(first.notified) == 2 and len(second.notified) == 1


def test_listener_behind_pruned_changes_is_notified_of_everything(
    loop, shop, create_companies, listen
):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, uri = listen(alice, row, lists=True), uri_of(shop, row)

    row.save()
    wait_for_delivery(loop)
    assert one.notified.count(uri) == 1
    before = len(one.notified)
    Change.objects.using("default").filter(pk=change_log.FLOOR).update(seq=10_000)
    Change.objects.using("default").filter(pk=change_log.LAST).update(seq=10_001)
    wait_for_delivery(loop)
    assert sorted(one.notified[before:]) == [uri, "resources/list_changed"]


def test_saved_parent_row_notifies_listeners_of_visible_child_row(
    loop, shop, create_companies, listen
):
    _, (alice,) = create_companies(1)
    mine, hidden = (Warehouse.objects.create(name="x", capacity=n) for n in (1, 0))
    one = listen(alice, mine)
    two = listen(alice, hidden)  # a row that she has never seen
    loop.do(two.subscriptions._visible.clear)
    for row in (mine, hidden):
        row.place_ptr.save()
    Place.objects.create(name="y")  # which is no warehouse
    wait_for_delivery(loop)
    assert one.notified == [uri_of(shop, mine)] and two.notified == []


# Lists.


def test_list_notification_only_for_rows_visible_before_or_after(
    loop, shop, create_companies, listen
):
    (mine, theirs), (alice, bob) = create_companies(2)
    one, two = listen(alice, lists=True), listen(bob, lists=True)
    row = Customer.objects.create(company=mine)
    wait_for_delivery(loop)
    assert one.notified == ["resources/list_changed"] and two.notified == []
    row.delete()
    wait_for_delivery(loop)
    assert one.notified == ["resources/list_changed"] * 2 and two.notified == []


def test_list_notification_for_any_rows_only_if_some_row_is_or_was_visible(
    loop, shop, create_companies, listen
):
    (mine, _), (alice, bob) = create_companies(2)
    Customer.objects.create(company=mine)
    one, two = listen(alice, lists=True), listen(bob, lists=True)
    any_of_them = change_log.ROWS, ["shop.customer", "shop.badge"]
    change_log.record("default", any_of_them)
    wait_for_delivery(loop)
    assert one.notified == ["resources/list_changed"] and two.notified == []
    for _ in range(2):
        Customer.objects.all()._raw_delete("default")
        change_log.record("default", any_of_them)
        wait_for_delivery(loop)
        assert one.notified == ["resources/list_changed"] * 2 and two.notified == []


def test_list_notification_checks_all_of_very_many_rows(
    loop, shop, create_companies, listen, monkeypatch
):
    """The visible row comes first, and more rows follow than are remembered one by one."""
    monkeypatch.setattr(subscriptions, "MAX_LISTED_URIS", 10)
    (mine, theirs), (alice, bob) = create_companies(2)
    row = Customer.objects.create(company=mine)
    Customer.objects.bulk_create(Customer(company=theirs) for _ in range(30))
    one, two = (
        listen(alice, lists=True),
        listen(User.objects.create(username="of none"), lists=True),
    )
    keys = [row.pk, *Customer.objects.filter(company=theirs).values_list("pk", flat=True)]
    change_log.record(
        "default", *[(change_log.ROW, {"shop.customer": {"pk": str(k)}}) for k in keys]
    )
    wait_for_delivery(loop)
    assert one.notified == ["resources/list_changed"] and two.notified == []
    row.save()
    wait_for_delivery(loop)
    row.delete()
    Customer.objects.filter(company=mine)._raw_delete("default")
    change_log.record(
        "default", *[(change_log.ROW, {"shop.customer": {"pk": str(k)}}) for k in keys]
    )
    wait_for_delivery(loop)
    assert one.notified == ["resources/list_changed"] * 3 and two.notified == []


def test_notify_changed_of_a_row_also_notifies_of_the_list(loop, shop, create_companies, listen):
    (mine,), (alice,) = create_companies(1)
    one = listen(alice, lists=True)
    (row,) = Customer.objects.bulk_create([Customer(company=mine)])
    mcp.notify_changed(row, server=mcp.server)
    mcp.notify_changed(row, server=shop)
    wait_for_delivery(loop)
    assert one.notified == ["resources/list_changed"]


def test_notify_changed_of_row_with_new_uri_notifies_subscribers_of_old_uri(
    loop, shop, create_companies, listen
):
    _, (alice,) = create_companies(1)
    row = Badge.objects.create(code="x", colour="red")
    one = listen(alice, row)
    Badge.objects.update(colour="blue")
    mcp.notify_changed(Badge.objects.get(), server=shop)
    wait_for_delivery(loop)
    assert one.notified == ["badge://red"]


@pytest.mark.slow
def test_list_notifications_are_throttled(loop, shop, create_companies, listen, monkeypatch):
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 0.5)
    (mine,), (alice,) = create_companies(1)
    one, began = listen(alice, lists=True), time.monotonic()
    for number in range(30):
        Customer.objects.create(company=mine, name=str(number))
        loop.sleep(0.02)
    wait_for_delivery(loop)
    assert 1 <= len(one.notified) <= 2 + (time.monotonic() - began) / 0.5


def test_permission_change_sends_list_notifications_to_that_user_only(
    loop, shop, create_companies, listen
):
    from django.contrib.auth.models import Permission

    _, (alice, bob) = create_companies(2)
    one, two = listen(alice, lists=True), listen(bob, lists=True)
    alice.user_permissions.add(Permission.objects.first())
    wait_for_delivery(loop)
    assert one.notified == ["resources/list_changed"] and two.notified == []


# Cost.


def is_background_query(sql: str) -> bool:
    """Whether the query polls, is a heartbeat, or opens a transaction or connection."""
    framing = ("BEGIN", "COMMIT", "SELECT set_config", "SELECT VERSION", "SET ", "PRAGMA")
    looking = "IS NULL" in sql and not sql.startswith("UPDATE")
    ticking = "django_mcp_process" in sql or "django_mcp_switch" in sql
    return looking or ticking or sql.lstrip().startswith(framing)


@pytest.mark.slow
def test_five_thousand_listeners_of_fifty_users_cost_one_query_per_user(
    loop, shop, create_companies
):
    companies, users = create_companies(50)
    rows = [Customer.objects.create(company=company) for company in companies]
    made = [
        Listener(shop, user, (uri_of(shop, row), place_at(row)))
        for user, row in zip(users, rows, strict=True)
        for _ in range(100)
    ]
    for listener in made:
        loop.tasks.append(loop._runner.get_loop().create_task(listener.listen()))
    loop.until(lambda: all(listener.messages for listener in made), 60)
    change_log.record(
        "default", *[(change_log.ROW, {"shop.customer": {"pk": str(r.pk)}}) for r in rows]
    )
    with counted_statements() as found:
        loop.until(lambda: all(listener.notified for listener in made), 60)
    looks = {sql: n for sql, n in found.items() if 'FROM "shop_customer"' in sql.replace("`", '"')}
    others = {
        sql: n for sql, n in found.items() if sql not in looks and not is_background_query(sql)
    }
    assert sum(looks.values()) == 50 and sum(others.values()) <= 10, found
    assert all(len(listener.notified) == 1 for listener in made)


# Revoked permissions.


def test_listener_of_deactivated_user_is_closed(loop, shop, create_companies, listen):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one = listen(alice, row)
    User.objects.update(is_active=False)
    row.save()
    wait_for_delivery(loop)
    assert one.ended and one.notified == ["notifications/cancelled".removeprefix("notifications/")]


def test_listener_is_closed_when_its_verifier_rejects_the_token(
    loop, shop, create_companies, listen
):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, two = listen(alice, row), listen(alice, row)
    one.principal = Principal(alice, Auth(key="of a verifier of the project's"))
    two.principal = Principal(alice, Auth(key="another"))
    two.token_valid = False
    row.save()
    wait_for_delivery(loop)
    assert one.notified == [uri_of(shop, row)] and two.ended


def test_user_is_reloaded_without_cached_permissions_for_each_change(
    loop, shop, create_companies, listen
):
    """This also holds for tokens that only a verifier of the project can check."""
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one = listen(alice, row)
    one.principal = Principal(alice, Auth(key="of a verifier of the project's"))
    alice._perm_cache = {"shop.kept"}
    row.save()
    wait_for_delivery(loop)
    assert one.notified and one.principal.user is not alice
    assert not hasattr(one.principal.user, "_perm_cache")


# Failures.


def test_slow_verifier_does_not_delay_other_listeners(loop, shop, create_companies, listen):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, two = listen(alice, row), listen(alice, row)
    one.principal = Principal(alice, Auth(key="of a verifier of the project's"))
    answered = loop.do(asyncio.Event)

    async def is_token_valid() -> bool:
        return bool(await answered.wait())

    one.is_token_valid = is_token_valid
    row.save()
    loop.until(lambda: two.notified)
    assert one.notified == []
    loop.do(answered.set)
    wait_for_delivery(loop)
    assert one.notified == two.notified == [uri_of(shop, row)]


def test_delivery_continues_when_the_database_is_reachable_again(
    loop, shop, create_companies, listen, monkeypatch, caplog
):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, broken, after = listen(alice, row), [unreachable()], change_log.after
    monkeypatch.setattr("django_mcp.changes.feed.MAX_PAUSE_SECONDS", 0.05)

    def fails_once(*of):
        if broken:
            raise broken.pop()
        return after(*of)

    monkeypatch.setattr(change_log, "after", fails_once)
    row.save()
    wait_for_delivery(loop)
    assert one.notified == [uri_of(shop, row)] and "cannot be reached" in caplog.text


def test_unreachable_database_does_not_stop_changes_of_others(
    unreachable_database, loop, shop, create_companies, listen, caplog
):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, uri = listen(alice, row), uri_of(shop, row)
    for count in (1, 2):
        row.save()
        loop.until(lambda count=count: one.notified == [uri] * count)
    loop.sleep(0.2)  # the poller tries again without logging
    assert caplog.text.count("Database cannot be reached: database=away") == 1
    assert retention.prune()["changes"] == 0


@pytest.mark.parametrize("is_locked", [True, False])
def test_prune_names_a_database_that_it_skips(unreachable_database, shop, capsys, is_locked):
    path = ":memory:"  # nothing to lock: the database cannot be opened
    if is_locked:
        unreachable_database.restore()
        path = unreachable_database.path
        connections["away"].close()
        connections["away"].settings_dict["OPTIONS"] = {"timeout": 0.1}  # seconds
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        call_command("mcp_prune")
    printed = capsys.readouterr()
    assert "The database 'away' is locked or cannot be reached" in printed.err
    assert "old changes of rows: 0" in printed.out


def test_database_reachable_again_counts_as_change_of_everything_in_it(
    unreachable_database, loop, shop, create_companies, listen
):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, uri = listen(alice, row), uri_of(shop, row)
    unreachable_database.restore()
    loop.until(lambda: one.notified == [uri])
    badge = Badge.objects.create(code="A", colour="red")
    two = listen(alice, badge)
    badge.save()
    loop.until(lambda: two.notified == ["badge://red"])
    assert one.notified == [uri]


def test_principals_with_an_unreachable_database_do_not_delay_others(
    loop, shop, create_companies, listen, monkeypatch
):
    monkeypatch.setattr(subscriptions, "BUSY_RETRY_SECONDS", 0.1)
    companies, users = create_companies(subscriptions.LOOKUP_CONCURRENCY + 1)
    rows = [Customer.objects.create(company=company) for company in companies]
    *waiting, one = [listen(user, row) for user, row in zip(users, rows, strict=True)]
    away, visible, is_away = unreachable(), subscriptions.visible, threading.Event()
    is_away.set()

    def fails(request, uris):
        if is_away.is_set() and request.user != users[-1]:
            raise away
        return visible(request, uris)

    monkeypatch.setattr(subscriptions, "visible", fails)
    for row in rows:
        row.save()
    loop.until(lambda: one.notified, 10)
    assert not any(listener.notified for listener in waiting)
    is_away.clear()
    wait_for_delivery(loop)
    assert all(listener.notified for listener in waiting)


# A query of the project that fails is no outage of the database.
@pytest.mark.parametrize("error", [RuntimeError("a bug"), OperationalError("no such column")])
def test_notification_is_retried_after_a_failed_principal_check(
    loop, shop, create_companies, listen, monkeypatch, caplog, error
):
    monkeypatch.setattr(subscriptions, "ERROR_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(subscriptions, "BUSY_RETRY_SECONDS", 0.1)
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, renewed, broken = listen(alice, row), subscriptions.reload_valid_principals, [1]

    def fails(wanted):
        if broken:
            broken.clear()
            raise error
        return renewed(wanted)

    monkeypatch.setattr(subscriptions, "reload_valid_principals", fails)
    row.save()
    wait_for_delivery(loop)
    assert one.notified == [uri_of(shop, row)] and "principals cannot be checked" in caplog.text


def test_notification_is_retried_after_a_failed_token_check(
    loop, shop, create_companies, listen, monkeypatch
):
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    monkeypatch.setattr(subscriptions, "ERROR_RETRY_SECONDS", 0.1)
    one, answers = listen(alice, row), [ValueError("a bug"), True]
    one.principal = Principal(alice, Auth(key="of a verifier of the project's"))

    async def is_token_valid() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    one.is_token_valid = is_token_valid
    row.save()
    loop.until(lambda: one.notified, 10)
    assert one.notified == [uri_of(shop, row)]


def test_removed_listener_is_not_retried(loop, shop, create_companies, listen, monkeypatch):
    monkeypatch.setattr(subscriptions, "ERROR_RETRY_SECONDS", 0.1)
    (mine,), (alice,) = create_companies(1)
    row = Customer.objects.create(company=mine)
    one, checks = listen(alice, row), []
    monkeypatch.setattr(
        subscriptions, "reload_valid_principals", lambda wanted: checks.append(1) or 1 / 0
    )
    row.save()
    loop.until(lambda: checks)
    made = loop.do(listener_registry)
    loop.do(made.remove, one)
    loop.until(lambda: not made._tasks)
    assert len(checks) == 1 and one.notified == []


def test_interest_is_renewed_before_it_expires(loop, shop, create_companies, listen, monkeypatch):
    (mine,), (alice,) = create_companies(1)
    listen(alice, Customer.objects.create(company=mine))
    monkeypatch.setattr(feed, "INTERESTS_RENEWAL_SECONDS", 0.0)
    said = set(Interest.objects.values_list("at", flat=True))
    loop.until(lambda: elsewhere(lambda: said.isdisjoint(interest_times())))


def interest_times() -> set[Any]:
    return set(Interest.objects.values_list("at", flat=True))


def test_registry_without_listeners_wants_no_changes(loop, shop, create_companies, listen):
    (mine,), (alice,) = create_companies(1)
    one = listen(alice, Customer.objects.create(company=mine))
    made = loop.do(listener_registry)
    assert made.is_following and made.is_eager
    loop.do(made.remove, one)
    assert not made.is_following
    Tag.objects.create(label="x")


def test_interest_of_removed_listener_is_not_renewed(
    loop, shop, create_companies, listen, monkeypatch
):
    (mine,), (alice,) = create_companies(1)
    listen(alice, Customer.objects.create(company=mine))
    gone = listen(alice, Warehouse.objects.create(name="x", capacity=1))
    loop.do(loop.do(listener_registry).remove, gone)
    Interest.objects.all().delete()
    monkeypatch.setattr(feed, "INTERESTS_RENEWAL_SECONDS", 0.0)
    loop.until(lambda: elsewhere(interest_times))
    assert {*Interest.objects.values_list("model", flat=True)} == {"?", "shop.customer"}


def test_listener_that_is_removed_before_it_follows_stays_removed(
    loop, shop, create_companies, monkeypatch
):
    _, (alice,) = create_companies(1)
    one, made, declare = (
        Listener(shop, alice),
        loop.do(listener_registry),
        change_log.store_interests,
    )
    go = threading.Event()
    monkeypatch.setattr(change_log, "store_interests", lambda *args: go.wait(30) and declare(*args))

    async def follow_and_remove() -> None:
        made.add(one)
        following = asyncio.ensure_future(made.follow(one, {"shop.customer"}, lists=False))
        await asyncio.sleep(0.01)
        made.remove(one)
        go.set()
        await following

    loop.run(follow_and_remove())
    assert not made._listeners and not made._wanted


def test_listener_that_follows_more_models_keeps_its_earlier_ones(
    loop, shop, create_companies, listen, monkeypatch
):
    (mine,), (alice,) = create_companies(1)
    one = listen(alice, Customer.objects.create(company=mine))
    made = loop.do(listener_registry)
    loop.begin(made.follow(one, {"shop.warehouse"}, lists=False))
    loop.until(lambda: made._wanted["shop.warehouse"])
    Interest.objects.all().delete()
    monkeypatch.setattr(feed, "INTERESTS_RENEWAL_SECONDS", 0.0)
    loop.until(lambda: elsewhere(interest_times))
    models = {*Interest.objects.values_list("model", flat=True)}
    assert models == {"?", "shop.customer", "shop.warehouse"}
    loop.do(made.remove, one)
    assert not made._wanted
