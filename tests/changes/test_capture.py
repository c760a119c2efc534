"""Saves: one INSERT where somebody wants to know, and no query where nobody does."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.db import connection, models, transaction
from django.db.models import signals
from django.dispatch.dispatcher import NONE_ID
from django.test.utils import CaptureQueriesContext, isolate_apps

import django_mcp as mcp
from django_mcp.calls import visibility
from django_mcp.changes import capture
from django_mcp.models import Change
from django_mcp.storage import change_log
from django_mcp.storage.change_log import ANYTHING, watched
from tests.shop.models import Badge, Company, LocalPlace, Note, Place, Tag, Warehouse

pytestmark = pytest.mark.django_db(transaction=True)
LOG = settings.DJANGO_MCP["DATABASE"]


@pytest.fixture(autouse=True)
def _database(unwatched) -> Iterator[None]:
    """Nobody has asked before, and nothing is remembered."""
    change_log._ready.clear()
    yield
    change_log._ready.clear()
    change_log._lacking.clear()


@pytest.fixture
def exposed(server):
    """These models are registered, and somebody wants to know of those that are ``wanted``."""

    def made(*models, wanted=(), uri=None):
        for model in models:
            body = {"permission": mcp.PUBLIC, "fields": ["pk"], "get_queryset": everything}
            body |= {"uri": uri} if uri else {}
            server.register(model)(type(f"{model.__name__}s", (mcp.ModelResource,), body))
        for model in wanted:
            want(model._meta.label_lower)
        assert not wanted or watched([wanted[0]._meta.label_lower])

    return made


def everything(self, request):
    return self.model._default_manager.all()


def want(*models):
    change_log.declare("somebody", models)
    watched.forget()


def statements(function) -> list[str]:
    """What is executed on the connection that saves."""
    with CaptureQueriesContext(connection) as captured:
        function()
    return [q["sql"].split()[0] for q in captured.captured_queries]


def found(alias="default") -> list[tuple[str, object]]:
    rows = Change.objects.using(alias).filter(pk__gt=0).order_by("pk")
    return list(rows.values_list("kind", "subject"))


@contextmanager
def isolated_shelf() -> Iterator[type[models.Model]]:
    """A model with a many-to-many relation to itself, and its tables."""
    with isolate_apps("tests.shop"):

        class Shelf(models.Model):  # noqa: DJ008
            near = models.ManyToManyField("self", symmetrical=False)

            class Meta:
                app_label = "shop"

    with connection.schema_editor() as editor:
        editor.create_model(Shelf)
    try:
        yield Shelf
    finally:
        with connection.schema_editor() as editor:
            editor.delete_model(Shelf)


# What it costs.


def test_a_model_that_nobody_registered_costs_nothing(monkeypatch):
    monkeypatch.setattr(change_log, "followed_models", lambda: 1 / 0)
    assert statements(lambda: Note(text="x").save(force_insert=True)) == ["INSERT"]
    assert watched._until == 0.0


def test_a_model_that_nobody_registered_is_deleted_in_one_statement(exposed):
    exposed(Tag, wanted=[Tag])
    Note.objects.create(text="x")
    asked = statements(Note.objects.all().delete)
    assert asked.count("DELETE") == 1 and "SELECT" not in asked


@pytest.mark.parametrize("is_registered", [False, True])
def test_many_to_many_without_subscribers_costs_one_select_for_each_add(exposed, is_registered):
    exposed(Tag, wanted=[Tag])  # of another model, so that changes are recorded
    with isolated_shelf() as shelves:
        if is_registered:
            exposed(shelves)
        shelf, first, second = (shelves.objects.create() for _ in range(3))
        select = ["SELECT"] * is_registered
        within = lambda *expected: ["BEGIN", *expected, "COMMIT"]  # noqa: E731
        assert statements(lambda: shelf.near.add(first)) == within(*select, "INSERT")
        assert statements(lambda: shelf.near.add(first, second)) == within(*select, "INSERT")
        assert statements(lambda: shelf.near.remove(first)) == within("DELETE")
        # The first SELECT is Django's for `set`.
        given = ["SELECT", "DELETE", *select, "INSERT"]
        assert statements(lambda: shelf.near.set([first])) == within(*given)
        assert statements(shelf.near.clear) == within("DELETE")
    assert found() == []


@isolate_apps("tests.shop")
def test_many_to_many_of_a_model_that_is_defined_later_is_noted(exposed):
    exposed(Tag, wanted=[Tag])

    class Shelf(models.Model):  # noqa: DJ008
        tags = models.ManyToManyField(Tag, related_name="+")

        class Meta:
            app_label = "shop"

    assert signals.m2m_changed.has_listeners(Shelf.tags.through)


def test_signals_without_a_sender_have_no_receiver_of_ours():
    """A receiver of every model costs each save of the project a call, and each add a SELECT."""
    for signal in (signals.pre_save, signals.post_save, signals.m2m_changed, signals.post_delete):
        uids = [str(uid) for (uid, sender), *_ in signal.receivers if sender == NONE_ID]
        assert not [uid for uid in uids if uid.startswith("django_mcp")]


@pytest.mark.slow
def test_one_that_nobody_wants_to_know_of_costs_a_look_a_second(exposed, monkeypatch):
    exposed(Tag)
    looks, look = [], change_log.followed_models
    monkeypatch.setattr(change_log, "followed_models", lambda: looks.append(1) or look())
    tag = Tag(label="x")
    assert statements(lambda: tag.save(force_insert=True)) == ["INSERT"]
    began = time.monotonic()
    for _ in range(50):
        assert statements(tag.save) == ["UPDATE"]
    assert len(looks) <= 1 + (time.monotonic() - began) / change_log.INTERESTS_CACHE_SECONDS + 1
    assert found() == []


def test_any_other_costs_one_insert(exposed):
    exposed(Tag, wanted=[Tag])
    tag = Tag(label="x")
    assert statements(lambda: tag.save(force_insert=True)) == ["INSERT", "INSERT"]
    assert statements(tag.save) == ["UPDATE", "INSERT"]
    subject = {"shop.tag": {"pk": str(tag.pk)}}
    assert found() == [("row", subject)] * 2


def test_the_same_in_a_transaction(exposed):
    exposed(Tag, wanted=[Tag])
    with transaction.atomic():
        tag = Tag(label="x")
        assert statements(lambda: tag.save(force_insert=True)) == ["INSERT", "INSERT"]
        assert statements(tag.save) == ["UPDATE"]  # one for an object and a transaction
    with transaction.atomic():
        assert statements(tag.save) == ["UPDATE", "INSERT"]
    assert len(found()) == 2


def test_how_many_want_to_know_makes_no_difference(exposed):
    exposed(Tag, wanted=[Tag])
    for holder in range(100):
        change_log.declare(f"process {holder}", ["shop.tag", "shop.note"])
    watched.forget()
    assert statements(lambda: Tag(label="x").save(force_insert=True)) == ["INSERT", "INSERT"]


# Transactions.


def test_it_is_rolled_back_with_what_was_saved(exposed):
    exposed(Tag, wanted=[Tag])
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Tag.objects.create(label="x")
        raise ZeroDivisionError
    assert found() == []


def test_a_savepoint_that_is_rolled_back_takes_its_changes_along(exposed):
    exposed(Tag, wanted=[Tag])
    tag = Tag.objects.create(label="x")
    before = len(found())
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            tag.save()
            raise ZeroDivisionError
        tag.save()  # it was told of, and is no more
    assert len(found()) == before + 1


def test_who_wants_to_know_before_the_commit_is_told_of_it(exposed):
    exposed(Tag, Badge)
    with transaction.atomic():
        Tag.objects.create(label="x")
        assert found() == []
        want("shop.tag") if connection.vendor != "sqlite" or LOG != "default" else None
    assert found() == [("rows", ["shop.tag"])]


def test_very_many_rows_of_a_transaction_are_one_change(exposed, monkeypatch):
    monkeypatch.setattr(capture, "MAX_ROWS_PER_TRANSACTION", 3)
    exposed(Tag, wanted=[Tag])
    with transaction.atomic():
        for number in range(10):
            Tag.objects.create(label=str(number))
    assert [kind for kind, _ in found()] == ["row"] * 3 + ["rows"]


def test_a_transaction_is_one_batch_however_many_rows_it_writes(exposed):
    exposed(Tag, Badge, wanted=[Tag, Badge])
    with transaction.atomic():
        tags = [
            Tag.objects.create(label=str(number))
            for number in range(capture.MAX_ROWS_PER_TRANSACTION + 1)
        ]
        badges = [Badge(code=str(number), colour=str(number)) for number in range(10)]
        asked = statements(lambda: [badge.save(force_insert=True) for badge in badges])
        asked += statements(lambda: [tag.save() for tag in tags])
        assert len(asked) == len(badges) + len(tags) + 1  # any badges, once
    assert found()[capture.MAX_ROWS_PER_TRANSACTION :] == [
        ("rows", ["shop.tag"]),
        ("rows", ["shop.badge"]),
    ]
    assert change_log.numbered("default").waiting == [] and change_log.tip("default").last == 1


def test_the_bell_rings_after_the_commit_once(exposed, monkeypatch):
    rung = []
    monkeypatch.setattr(capture, "wake_for_changes", lambda: rung.append(found()))
    exposed(Tag, wanted=[Tag])
    with transaction.atomic():
        Tag.objects.create(label="x")
        Tag.objects.create(label="y")
        assert rung == []
    assert len(rung) == 1 and len(rung[0]) == 2


# Which rows.


def test_a_child_is_its_parents_too_and_a_proxy_what_it_stands_for(exposed):
    exposed(Place, Warehouse, wanted=[Place])
    warehouse = Warehouse.objects.create(name="North")
    keys = {"pk": str(warehouse.pk)}
    assert found() == [("row", {"shop.place": keys, "shop.warehouse": keys})]
    LocalPlace.objects.get().save()
    assert found()[1:] == found()[:1]


def test_a_row_that_is_saved_as_its_parents_is_its_childs_too(exposed):
    exposed(Warehouse, wanted=[Warehouse])
    place = Warehouse.objects.create(name="North").place_ptr
    assert statements(place.save) == ["UPDATE", "INSERT"]
    keys = {"pk": str(place.pk)}
    place.delete()
    assert found() == [("row", {"shop.warehouse": keys})] * 3


def test_a_child_that_has_a_key_of_its_own_is_not_named_by_its_parents(exposed):
    with isolate_apps("tests.shop"):

        class Depot(Place):
            number = models.AutoField(primary_key=True)
            place = models.OneToOneField(Place, models.CASCADE, parent_link=True)

            class Meta:
                app_label = "shop"

        class Annex(Warehouse):
            class Meta:
                app_label = "shop"

        exposed(Depot, Annex)
        place, warehouse, depot = Place(pk=1, name="x"), Warehouse(pk=2), Depot(number=3, id=4)
    named = {"shop.annex": {"pk": "1"}}
    assert visibility.keys_of(place) == named
    assert visibility.keys_of(warehouse) == {"shop.annex": {"pk": "2"}}
    assert visibility.keys_of(depot) == {"shop.annex": {"pk": "4"}, "shop.depot": {"pk": "3"}}
    assert visibility.keys_by_pk(Place, 1) == named and visibility.keys_by_pk(Depot, 3) is None


@pytest.mark.parametrize(
    ("field", "key"),
    [
        (models.DateTimeField, datetime(2027, 4, 1, 12, 30, tzinfo=UTC)),
        (models.UUIDField, UUID(int=7)),
        (partial(models.DecimalField, max_digits=9, decimal_places=3), Decimal("1.500")),
    ],
)
def test_a_row_is_named_alike_by_itself_and_by_its_key(exposed, field, key):
    with isolate_apps("tests.shop"):

        class Moment(models.Model):  # noqa: DJ008
            at = field(primary_key=True)

            class Meta:
                app_label = "shop"

        exposed(Moment)
        assert visibility.keys_by_pk(Moment, key) == visibility.keys_of(Moment(pk=key))


def test_a_field_that_only_the_child_has_does_not_name_it_by_its_parents(exposed):
    exposed(Warehouse, uri="warehouse://{capacity}")
    assert visibility.keys_of(Place(pk=1, name="x")) == {"shop.warehouse": {"pk": "1"}}
    assert visibility.keys_of(Warehouse(pk=1, capacity=7)) == {
        "shop.warehouse": {"capacity": "7", "pk": "1"}
    }


def test_a_parent_alone_is_wanted(exposed):
    exposed(Place, wanted=[Place])
    warehouse = Warehouse.objects.create(name="North")
    assert found() == [("row", {"shop.place": {"pk": str(warehouse.pk)}})]


def test_a_row_that_is_deleted_by_another_class_is_told(exposed):
    exposed(Place, Badge, wanted=[Place, Badge])
    place, warehouse = Place.objects.create(name="Here"), Warehouse.objects.create(name="North")
    badge = Badge.objects.create(code="A", colour="red")
    keys = [{"pk": str(row.pk)} for row in (place, warehouse, badge)]
    with isolate_apps("tests.shop"):

        class Later(Badge):
            class Meta:
                app_label, proxy = "shop", True

    Change.objects.using("default").all().delete()
    LocalPlace.objects.filter(pk=place.pk).delete()
    Warehouse.objects.all().delete()
    Later.objects.all().delete()
    told = [subject for _, subject in found()]
    assert [{"shop.place": key} for key in keys[:2]] == told[:2]
    assert {"shop.badge": keys[2]} == told[-1]


def test_a_row_is_named_as_its_resources_name_it(exposed):
    exposed(Badge, wanted=[Badge], uri="badge://{colour}")
    badge = Badge.objects.create(code="A", colour="red")
    badge.delete()
    assert found() == [("row", {"shop.badge": {"colour": "red", "pk": "A"}})] * 2


def test_both_ends_of_a_relation_have_changed(exposed):
    from tests.shop.models import Invoice

    exposed(Invoice, Tag, wanted=[Tag, Invoice])
    company = Company.objects.create(name="Acme")
    customer = company.customers.create(name="Carla")
    invoice = Invoice.objects.create(
        company=company, customer=customer, number="A-1", total=1, issued="2026-01-01"
    )
    tags = [Tag.objects.create(label=name) for name in "ab"]
    Change.objects.using("default").all().delete()
    invoice.tags.add(*tags)
    mine = ("row", {"shop.invoice": {"number": "A-1", "pk": str(invoice.pk)}})
    theirs = [("row", {"shop.tag": {"pk": str(tag.pk)}}) for tag in tags]
    assert sorted(found(), key=str) == sorted([mine, *theirs], key=str)
    invoice.tags.add(*tags)  # nothing is new
    assert len(found()) == 3
    invoice.tags.clear()
    assert found()[3:] == [mine, ("rows", ["shop.tag"])]


def test_a_row_of_which_nothing_was_loaded_is_any_row_when_it_is_gone(exposed, caplog):
    exposed(Tag, wanted=[Tag], uri="tag://{label}")
    Tag.objects.create(label="x")
    Tag.objects.only("pk").delete()
    assert found()[1:] == [("rows", ["shop.tag"])] and not caplog.records


@pytest.mark.parametrize("known", ["_is_there", "_is_lacking", "_is_impossible"])
def test_who_commits_by_hand_is_not_stopped(exposed, monkeypatch, known):
    exposed(Tag, wanted=[Tag])
    want(ANYTHING)
    if known == "_is_lacking":
        monkeypatch.setattr(watched, "is_ready", lambda alias: False)
    elif known == "_is_impossible":
        monkeypatch.setattr(change_log, "followed_models", frozenset)
        monkeypatch.setattr(change_log, "is_possible", lambda: False)
        watched.__init__()
    transaction.set_autocommit(False)
    try:
        Tag.objects.create(label="x")
        mcp.notify_changed("tag://y")
        transaction.commit()
    finally:
        transaction.set_autocommit(True)
    kinds = {kind for alias in ("default", LOG) for kind, _ in found(alias)}
    assert kinds == (set() if known == "_is_impossible" else {"row", "uri"})


def test_a_row_without_a_key_that_can_be_told_is_any_row(exposed, monkeypatch, caplog):
    monkeypatch.setattr(capture, "keys_of", lambda row: 1 / 0)
    exposed(Tag, wanted=[Tag])
    Tag.objects.create(label="x")
    assert found() == [("rows", ["shop.tag"])] and "cannot be read" in caplog.text


# Permissions.


def test_who_may_use_something_else_is_told(exposed):
    want(ANYTHING)
    assert watched([ANYTHING])
    user = User.objects.create_user("carol")
    group, permission = Group.objects.create(name="g"), Permission.objects.first()
    user.user_permissions.add(permission)
    user.groups.add(group)
    group.user_set.remove(user)
    assert found() == [("user", str(user.pk))] * 3
    group.permissions.add(permission)
    permission.group_set.remove(group)
    permission.user_set.clear()
    assert found()[3:] == [("group", str(group.pk))] * 2 + [("user", "")]


def test_a_group_or_a_permission_that_is_deleted_takes_something_from_everybody(exposed):
    want(ANYTHING)
    assert watched([ANYTHING])
    group = Group.objects.create(name="g")
    permission = Permission.objects.create(
        name="p", codename="p", content_type=Permission.objects.first().content_type
    )
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        group.delete()
        raise ZeroDivisionError
    assert found() == []
    Group.objects.all().delete()
    permission.delete()
    assert found() == [("user", "")] * 2


# What goes wrong.


def test_a_log_that_is_gone_stops_nobody_who_saves(exposed, monkeypatch, caplog):
    exposed(Tag, wanted=[Tag])
    monkeypatch.setattr(change_log, "followed_models", lambda: 1 / 0)
    watched.forget()
    with caplog.at_level(logging.WARNING):
        Tag.objects.create(label="x")
        Tag.objects.create(label="y")
    assert len(found()) == 2  # nobody knows who wants to know: it is written down
    assert caplog.text.count("Followed models cannot be read") == 1


def test_a_database_without_the_table_has_its_changes_beside_the_log(exposed, monkeypatch):
    if LOG == "default":
        pytest.skip("The log is there, and so is the table.")
    monkeypatch.setattr(change_log, "has_table", lambda alias: alias == LOG)
    exposed(Tag, wanted=[Tag])
    Tag.objects.create(label="x")
    assert [kind for kind, _ in found(LOG)] == ["row"] and change_log.held() == [LOG]


def test_before_it_is_migrated_nobody_wants_to_know(exposed, monkeypatch):
    exposed(Tag)
    monkeypatch.setattr(change_log, "is_possible", lambda: False)
    monkeypatch.setattr(change_log, "rows", lambda model: broken())
    assert statements(lambda: Tag(label="x").save(force_insert=True)) == ["INSERT"]
    assert not watched.is_possible


def broken():
    from django.db import OperationalError

    raise OperationalError("no such table")


def test_the_databases_of_changes():
    assert change_log.aliases() == {"default", LOG}
