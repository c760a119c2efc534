"""Hearing of changes that any process makes: who is told, how often, and what it costs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls.visibility import place
from django_mcp.changes import feed, subscriptions
from django_mcp.changes.feed import change_feed
from django_mcp.changes.subscriptions import SubscriptionFilter, listener_registry
from django_mcp.models import Change, Interest
from django_mcp.protocol.connection import Connection
from django_mcp.storage import change_log, retention
from tests.shop.models import Badge, Customer, Place, Tag, Warehouse

from ..storage.rows import elsewhere
from ..unreachable import unreachable
from .shops import counted

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("at_once")]
LOG = settings.DJANGO_MCP["DATABASE"]


class Ear:
    """One listen of one user."""

    def __init__(self, server: Any, user: Any, *places: tuple[str, str], lists: bool = False):
        self.principal: Principal | None = Principal(user)
        self.said: list[Any] = []
        self.listening = SubscriptionFilter(
            server, Connection(transport="http"), self.who, self.said.append
        )
        self.places, self.lists, self.ended, self.pages = dict(places), lists, False, []
        self.welcome = True

    async def who(self) -> Principal:
        assert self.principal is not None
        return self.principal

    def renew(self, principal: Principal) -> None:
        self.principal = principal

    async def is_token_valid(self) -> bool:
        return self.welcome

    def end(self) -> None:
        self.ended = True
        self.listening.end()

    def complete(self, id: str) -> None:
        self.pages.append(id)

    async def listen(self) -> None:
        assert self.principal is not None
        wanted = {"resourceSubscriptions": list(self.places), "resourcesListChanged": self.lists}
        models = {one.partition(" ")[0] for one in self.places.values() if one}
        self.listening.set_principal(self.principal)
        await listener_registry().follow(self, models, lists=self.lists)
        await self.listening.listen(1, wanted, self.places)

    @property
    def told(self) -> list[str]:
        names = (one["params"].get("uri", one["method"]) for one in self.said[1:])
        return [name.removeprefix("notifications/") for name in names]


@pytest.fixture
def ears(loop, shop) -> Callable[..., Any]:
    def made(user, *rows, **options):
        at = [(uri_of(shop, row), place_at(row)) for row in rows]
        ear = Ear(shop, user, *at, **options)
        loop.begin(ear.listen())
        loop.until(lambda: ear.said)
        return ear

    return made


def uri_of(shop, row):
    return shop._catalog.models[type(row)][0]._uri_of(row)


def place_at(row):
    return place(row._meta.label_lower, str(row.pk))


def quiet(loop):
    """Everything that was committed is told."""

    made, feed_ = loop.do(listener_registry), loop.do(change_feed)

    def rest() -> bool:
        tips = {alias: change_log.tip(alias) for alias in change_log.aliases()}
        told = not made._tasks and not feed_._listed
        return told and all(
            not tip.waiting and feed_._cursors.get(alias) == tip.last for alias, tip in tips.items()
        )

    loop.until(lambda: elsewhere(rest), 60)
    loop.sleep(0.02)


# Who is told.


def test_a_save_is_told_to_who_sees_it(loop, shop, people, ears):
    (mine, theirs), (alice, bob) = people(2)
    row, other = Customer.objects.create(company=mine), Customer.objects.create(company=theirs)
    one, two = ears(alice, row), ears(bob, other)
    row.save()
    quiet(loop)
    assert one.told == [f"resources/updated {uri_of(shop, row)}".split()[1]] and two.told == []


def test_what_leaves_is_told_once_and_what_comes_back_again(loop, shop, people, ears):
    (mine, theirs), (alice, _) = people(2)
    row = Customer.objects.create(company=mine)
    one, uri = ears(alice, row), uri_of(shop, row)
    for company, count in ((theirs, 1), (theirs, 1), (mine, 2)):
        row.company = company
        row.save()
        quiet(loop)
        assert one.told == [uri] * count


def test_a_row_that_is_deleted_is_told_to_who_saw_it(loop, shop, people, ears):
    (mine, theirs), (alice, bob) = people(2)
    row = Customer.objects.create(company=mine)
    one, uri = ears(alice, row), uri_of(shop, row)
    two = ears(bob, Customer.objects.create(company=theirs))
    row.delete()
    quiet(loop)
    assert one.told == [uri] and two.told == []


def test_a_row_that_is_renamed_is_told_under_its_old_address(loop, shop, people, ears):
    _, (alice,) = people(1)
    badge = Badge.objects.create(code="A", colour="red")
    one = ears(alice, badge)
    badge.colour = "blue"
    badge.save()
    quiet(loop)
    assert one.told == ["badge://red"]
    Badge.objects.create(code="B", colour="red")  # another row at that address
    quiet(loop)
    assert one.told == ["badge://red"] * 2


def test_many_rows_at_once(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, uri = ears(alice, row), uri_of(shop, row)
    change_log.record("default", (change_log.ROWS, ["shop.customer"]))
    change_log.record("default", (change_log.ROWS, ["shop.tag"]), ("newer", ""))
    quiet(loop)
    assert one.told == [uri]


def test_what_is_said_by_hand(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, uri = ears(alice, row), uri_of(shop, row)
    Customer.objects.filter(pk=row.pk).update(name="x")
    mcp.notify_changed(row)
    quiet(loop)
    mcp.notify_changed(uri, server=shop)
    mcp.notify_changed(uri, server=mcp.server)
    quiet(loop)
    mcp.notify_elicitation_complete("id")
    quiet(loop)
    assert one.told == [uri] * 2 and one.pages == ["id"]


def test_who_is_connected_later_hears_of_what_comes_later(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    first = ears(alice, row)
    row.save()
    quiet(loop)
    second = ears(alice, row)
    row.save()
    quiet(loop)
    assert len(first.told) == 2 and len(second.told) == 1


def test_who_lags_behind_what_is_forgotten_hears_that_anything_may_have_changed(
    loop, shop, people, ears
):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, uri = ears(alice, row, lists=True), uri_of(shop, row)

    row.save()
    quiet(loop)
    assert one.told.count(uri) == 1
    before = len(one.told)
    Change.objects.using("default").filter(pk=change_log.FLOOR).update(seq=10_000)
    Change.objects.using("default").filter(pk=change_log.LAST).update(seq=10_001)
    quiet(loop)
    assert sorted(one.told[before:]) == [uri, "resources/list_changed"]


def test_who_sees_a_child_hears_when_its_parent_is_saved(loop, shop, people, ears):
    _, (alice,) = people(1)
    mine, hidden = (Warehouse.objects.create(name="x", capacity=n) for n in (1, 0))
    one = ears(alice, mine)
    two = ears(alice, hidden)  # which she has never seen
    loop.do(two.listening._visible.clear)
    for row in (mine, hidden):
        row.place_ptr.save()
    Place.objects.create(name="y")  # which is no warehouse
    quiet(loop)
    assert one.told == [uri_of(shop, mine)] and two.told == []


# Lists.


def test_lists_are_told_of_rows_that_one_sees_or_saw(loop, shop, people, ears):
    (mine, theirs), (alice, bob) = people(2)
    one, two = ears(alice, lists=True), ears(bob, lists=True)
    row = Customer.objects.create(company=mine)
    quiet(loop)
    assert one.told == ["resources/list_changed"] and two.told == []
    row.delete()
    quiet(loop)
    assert one.told == ["resources/list_changed"] * 2 and two.told == []


def test_lists_are_told_of_whichever_rows_to_who_sees_any_or_saw_one(loop, shop, people, ears):
    (mine, _), (alice, bob) = people(2)
    Customer.objects.create(company=mine)
    one, two = ears(alice, lists=True), ears(bob, lists=True)
    any_of_them = change_log.ROWS, ["shop.customer", "shop.badge"]
    change_log.record("default", any_of_them)
    quiet(loop)
    assert one.told == ["resources/list_changed"] and two.told == []
    for _ in range(2):
        Customer.objects.all()._raw_delete("default")
        change_log.record("default", any_of_them)
        quiet(loop)
        assert one.told == ["resources/list_changed"] * 2 and two.told == []


def test_of_very_many_rows_none_is_passed_over(loop, shop, people, ears, monkeypatch):
    """Those that came first are one's own, and more came since than are remembered one by one."""
    monkeypatch.setattr(subscriptions, "MAX_LISTED_URIS", 10)
    (mine, theirs), (alice, bob) = people(2)
    row = Customer.objects.create(company=mine)
    Customer.objects.bulk_create(Customer(company=theirs) for _ in range(30))
    one, two = ears(alice, lists=True), ears(User.objects.create(username="of none"), lists=True)
    keys = [row.pk, *Customer.objects.filter(company=theirs).values_list("pk", flat=True)]
    change_log.record(
        "default", *[(change_log.ROW, {"shop.customer": {"pk": str(k)}}) for k in keys]
    )
    quiet(loop)
    assert one.told == ["resources/list_changed"] and two.told == []
    row.save()
    quiet(loop)
    row.delete()
    Customer.objects.filter(company=mine)._raw_delete("default")
    change_log.record(
        "default", *[(change_log.ROW, {"shop.customer": {"pk": str(k)}}) for k in keys]
    )
    quiet(loop)
    assert one.told == ["resources/list_changed"] * 3 and two.told == []


def test_what_is_said_of_a_row_by_hand_is_said_of_lists_too(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    one = ears(alice, lists=True)
    (row,) = Customer.objects.bulk_create([Customer(company=mine)])
    mcp.notify_changed(row, server=mcp.server)
    mcp.notify_changed(row, server=shop)
    quiet(loop)
    assert one.told == ["resources/list_changed"]


def test_a_row_that_is_renamed_by_hand_is_told_under_its_old_address(loop, shop, people, ears):
    _, (alice,) = people(1)
    row = Badge.objects.create(code="x", colour="red")
    one = ears(alice, row)
    Badge.objects.update(colour="blue")
    mcp.notify_changed(Badge.objects.get(), server=shop)
    quiet(loop)
    assert one.told == ["badge://red"]


@pytest.mark.slow
def test_lists_are_told_at_most_once_a_second(loop, shop, people, ears, monkeypatch):
    monkeypatch.setattr(feed, "LISTING_INTERVAL_SECONDS", 0.5)
    (mine,), (alice,) = people(1)
    one, began = ears(alice, lists=True), time.monotonic()
    for number in range(30):
        Customer.objects.create(company=mine, name=str(number))
        loop.sleep(0.02)
    quiet(loop)
    assert 1 <= len(one.told) <= 2 + (time.monotonic() - began) / 0.5


def test_who_may_use_something_else_reads_lists_again(loop, shop, people, ears):
    from django.contrib.auth.models import Permission

    _, (alice, bob) = people(2)
    one, two = ears(alice, lists=True), ears(bob, lists=True)
    alice.user_permissions.add(Permission.objects.first())
    quiet(loop)
    assert one.told == ["resources/list_changed"] and two.told == []


# What it costs.


def goes_on_anyway(sql: str) -> bool:
    """Looks for changes and switches, a living process, what begins a transaction or earlier."""
    framing = ("BEGIN", "COMMIT", "SELECT set_config", "SELECT VERSION", "SET ", "PRAGMA")
    looking = "IS NULL" in sql and not sql.startswith("UPDATE")
    ticking = "django_mcp_process" in sql or "django_mcp_switch" in sql
    return looking or ticking or sql.lstrip().startswith(framing)


@pytest.mark.slow
def test_five_thousand_listens_of_fifty_users(loop, shop, people):
    companies, users = people(50)
    rows = [Customer.objects.create(company=company) for company in companies]
    made = [
        Ear(shop, user, (uri_of(shop, row), place_at(row)))
        for user, row in zip(users, rows, strict=True)
        for _ in range(100)
    ]
    for ear in made:
        loop.tasks.append(loop._runner.get_loop().create_task(ear.listen()))
    loop.until(lambda: all(ear.said for ear in made), 60)
    change_log.record(
        "default", *[(change_log.ROW, {"shop.customer": {"pk": str(r.pk)}}) for r in rows]
    )
    with counted() as found:
        loop.until(lambda: all(ear.told for ear in made), 60)
    looks = {sql: n for sql, n in found.items() if 'FROM "shop_customer"' in sql.replace("`", '"')}
    others = {sql: n for sql, n in found.items() if sql not in looks and not goes_on_anyway(sql)}
    assert sum(looks.values()) == 50 and sum(others.values()) <= 10, found
    assert all(len(ear.told) == 1 for ear in made)


# Who may no longer hear.


def test_who_may_no_longer_sign_in_is_dismissed(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one = ears(alice, row)
    User.objects.update(is_active=False)
    row.save()
    quiet(loop)
    assert one.ended and one.told == ["notifications/cancelled".removeprefix("notifications/")]


def test_only_its_verifier_can_tell_of_a_token(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, two = ears(alice, row), ears(alice, row)
    one.principal = Principal(alice, Auth(key="of a verifier of the project's"))
    two.principal = Principal(alice, Auth(key="another"))
    two.welcome = False
    row.save()
    quiet(loop)
    assert one.told == [uri_of(shop, row)] and two.ended


def test_nothing_that_a_user_may_do_is_kept_for_the_next_change(loop, shop, people, ears):
    """Not even where only the verifier can tell of the token, which it does not each time."""
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one = ears(alice, row)
    one.principal = Principal(alice, Auth(key="of a verifier of the project's"))
    alice._perm_cache = {"shop.kept"}
    row.save()
    quiet(loop)
    assert one.told and one.principal.user is not alice
    assert not hasattr(one.principal.user, "_perm_cache")


# What goes wrong.


def test_a_verifier_that_does_not_answer_holds_up_nobody_else(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, two = ears(alice, row), ears(alice, row)
    one.principal = Principal(alice, Auth(key="of a verifier of the project's"))
    answered = loop.do(asyncio.Event)

    async def is_token_valid() -> bool:
        return bool(await answered.wait())

    one.is_token_valid = is_token_valid
    row.save()
    loop.until(lambda: two.told)
    assert one.told == []
    loop.do(answered.set)
    quiet(loop)
    assert one.told == two.told == [uri_of(shop, row)]


def test_it_goes_on_when_the_database_comes_back(loop, shop, people, ears, monkeypatch, caplog):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, broken, after = ears(alice, row), [unreachable()], change_log.after
    monkeypatch.setattr("django_mcp.changes.feed.MAX_POLL_INTERVAL_SECONDS", 0.05)

    def away(*of):
        if broken:
            raise broken.pop()
        return after(*of)

    monkeypatch.setattr(change_log, "after", away)
    row.save()
    quiet(loop)
    assert one.told == [uri_of(shop, row)] and "cannot be reached" in caplog.text


def test_a_database_that_is_away_silences_no_other(away, loop, shop, people, ears, caplog):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, uri = ears(alice, row), uri_of(shop, row)
    for count in (1, 2):
        row.save()
        loop.until(lambda count=count: one.told == [uri] * count)
    loop.sleep(0.2)  # it is asked again, and not told of
    assert caplog.text.count("The database 'away' cannot be reached") == 1
    assert retention.prune()["changes"] == 0


def test_what_was_missed_while_it_was_away_is_anything(away, loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, uri = ears(alice, row), uri_of(shop, row)
    away.back()
    loop.until(lambda: one.told == [uri])
    badge = Badge.objects.create(code="A", colour="red")
    two = ears(alice, badge)
    badge.save()
    loop.until(lambda: two.told == ["badge://red"])
    assert one.told == [uri]


def test_a_verifier_that_fails_keeps_nobody_deaf(loop, shop, people, ears, monkeypatch, caplog):
    (mine,), (alice,) = people(1)
    row = Customer.objects.create(company=mine)
    one, renewed, broken = ears(alice, row), subscriptions.renewed, [1]

    def fails(wanted):
        if broken:
            broken.clear()
            raise RuntimeError("a bug in standing")
        return renewed(wanted)

    monkeypatch.setattr(subscriptions, "renewed", fails)
    row.save()
    quiet(loop)
    assert one.told == [] and "principals cannot be checked" in caplog.text
    row.save()
    quiet(loop)
    assert one.told == [uri_of(shop, row)]


def test_interest_is_said_again_before_it_is_forgotten(loop, shop, people, ears, monkeypatch):
    (mine,), (alice,) = people(1)
    ears(alice, Customer.objects.create(company=mine))
    monkeypatch.setattr(feed, "INTERESTS_RENEWAL_SECONDS", 0.0)
    said = set(Interest.objects.values_list("at", flat=True))
    loop.until(lambda: elsewhere(lambda: said.isdisjoint(ats())))


def ats() -> set[Any]:
    return set(Interest.objects.values_list("at", flat=True))


def test_nobody_is_looked_for_who_is_gone(loop, shop, people, ears):
    (mine,), (alice,) = people(1)
    one = ears(alice, Customer.objects.create(company=mine))
    made = loop.do(listener_registry)
    assert made.is_wanted and made.is_eager
    loop.do(made.remove, one)
    assert not made.is_wanted
    Tag.objects.create(label="x")


def test_interest_that_nobody_has_any_more_is_not_said_again(loop, shop, people, ears, monkeypatch):
    (mine,), (alice,) = people(1)
    ears(alice, Customer.objects.create(company=mine))
    gone = ears(alice, Warehouse.objects.create(name="x", capacity=1))
    loop.do(loop.do(listener_registry).remove, gone)
    Interest.objects.all().delete()
    monkeypatch.setattr(feed, "INTERESTS_RENEWAL_SECONDS", 0.0)
    loop.until(lambda: elsewhere(ats))
    assert {*Interest.objects.values_list("model", flat=True)} == {"?", "shop.customer"}


def test_who_wants_to_know_of_more_wants_to_know_of_what_it_did_before(
    loop, shop, people, ears, monkeypatch
):
    (mine,), (alice,) = people(1)
    one = ears(alice, Customer.objects.create(company=mine))
    made = loop.do(listener_registry)
    loop.begin(made.follow(one, {"shop.warehouse"}, lists=False))
    loop.until(lambda: made._wanted["shop.warehouse"])
    Interest.objects.all().delete()
    monkeypatch.setattr(feed, "INTERESTS_RENEWAL_SECONDS", 0.0)
    loop.until(lambda: elsewhere(ats))
    models = {*Interest.objects.values_list("model", flat=True)}
    assert models == {"?", "shop.customer", "shop.warehouse"}
    loop.do(made.remove, one)
    assert not made._wanted
