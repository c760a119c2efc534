"""Saved rows are recorded by one INSERT if a client follows the model, else without a query."""

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
from django_mcp.models import AuditEntry, Change
from django_mcp.storage import change_log
from django_mcp.storage.change_log import ANYTHING, watched
from tests.shop.models import Badge, Company, Invoice, LocalPlace, Note, Place, Tag, Warehouse

pytestmark = pytest.mark.django_db(transaction=True)
LOG = settings.DJANGO_MCP["DATABASE"]


@pytest.fixture(autouse=True)
def _database(no_cached_interests) -> Iterator[None]:
    """Start with empty caches."""
    change_log._ready.clear()
    yield
    change_log._ready.clear()
    change_log._lacking.clear()


@pytest.fixture
def register(server):
    """Register models, and follow those that are ``followed``."""

    def made(*models, followed=(), uri=None):
        for model in models:
            body = {"permission": mcp.PUBLIC, "fields": ["pk"], "get_queryset": everything}
            body |= {"uri": uri} if uri else {}
            server.register(model)(type(f"{model.__name__}s", (mcp.ModelResource,), body))
        for model in followed:
            follow(model._meta.label_lower)
        assert not followed or watched([followed[0]._meta.label_lower])

    return made


def everything(self, request):
    return self.model._default_manager.all()


def follow(*models):
    change_log.store_interests("somebody", models)
    watched.forget()


def statements(function) -> list[str]:
    """Return the first word of each statement on the connection that saves."""
    with CaptureQueriesContext(connection) as captured:
        function()
    return [q["sql"].split()[0] for q in captured.captured_queries]


def recorded(alias="default") -> list[tuple[str, object]]:
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


# Cost.


def test_unregistered_model_costs_no_query(monkeypatch):
    monkeypatch.setattr(change_log, "followed_models", lambda: 1 / 0)
    assert statements(lambda: Note(text="x").save(force_insert=True)) == ["INSERT"]
    assert watched._until == 0.0


def test_unregistered_model_is_deleted_in_one_statement(register):
    register(Tag, followed=[Tag])
    Note.objects.create(text="x")
    asked = statements(Note.objects.all().delete)
    assert asked.count("DELETE") == 1 and "SELECT" not in asked


@pytest.mark.parametrize("is_registered", [False, True])
def test_many_to_many_without_subscribers_costs_one_select_for_each_add(register, is_registered):
    register(Tag, followed=[Tag])  # of another model, so that changes are recorded
    with isolated_shelf() as shelves:
        if is_registered:
            register(shelves)
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
    assert recorded() == []


@isolate_apps("tests.shop")
def test_many_to_many_of_a_later_model_has_a_receiver(register):
    register(Tag, followed=[Tag])

    class Shelf(models.Model):  # noqa: DJ008
        tags = models.ManyToManyField(Tag, related_name="+")

        class Meta:
            app_label = "shop"

    assert signals.m2m_changed.has_listeners(Shelf.tags.through)


def test_receivers_are_connected_to_single_models_only():
    """A receiver of every model costs each save of the project a call, and each add a SELECT."""
    for signal in (signals.pre_save, signals.post_save, signals.m2m_changed, signals.post_delete):
        uids = [str(uid) for (uid, sender), *_ in signal.receivers if sender == NONE_ID]
        assert not [uid for uid in uids if uid.startswith("django_mcp")]


def test_only_registered_models_and_their_family_have_receivers(register):
    @isolate_apps("tests.shop")
    def defined_later() -> list[type[models.Model]]:
        class Later(Warehouse):
            class Meta:
                app_label = "shop"

        class LaterProxy(LocalPlace):
            class Meta:
                app_label, proxy = "shop", True

        return [Later, LaterProxy]

    saved, deleted = signals.post_save, signals.post_delete
    family = [Place, LocalPlace, Warehouse]
    for model in (Note, Tag, *family):
        assert not saved.has_listeners(model) and not deleted.has_listeners(model), model
    register(Place)
    for model in (*family, *defined_later()):
        assert saved.has_listeners(model) and deleted.has_listeners(model), model
    assert not signals.pre_save.has_listeners(Place)  # nothing is read before a save
    for model in (Note, Tag):
        assert not saved.has_listeners(model) and not deleted.has_listeners(model), model


@isolate_apps("tests.shop")
def test_relation_has_a_receiver_if_one_of_its_models_is_registered(register):
    class Shelf(models.Model):  # noqa: DJ008
        tags = models.ManyToManyField(Tag, related_name="+")
        near = models.ManyToManyField("self")

        class Meta:
            app_label = "shop"

    through = [Shelf.tags.through, Shelf.near.through]
    assert [signals.m2m_changed.has_listeners(one) for one in through] == [False, False]
    register(Shelf)
    assert [signals.m2m_changed.has_listeners(one) for one in through] == [True, True]


@isolate_apps("tests.shop")
def test_relation_of_a_later_model_may_name_its_through_model(register):
    register(Tag, followed=[Tag])

    class Rack(models.Model):  # noqa: DJ008
        tags = models.ManyToManyField(Tag, through="Tagging", related_name="+")

        class Meta:
            app_label = "shop"

    class Tagging(models.Model):  # noqa: DJ008
        rack = models.ForeignKey(Rack, models.CASCADE)
        tag = models.ForeignKey(Tag, models.CASCADE, related_name="+")

        class Meta:
            app_label = "shop"

    assert Rack.tags.through is Tagging and signals.m2m_changed.has_listeners(Tagging)


@pytest.mark.slow
def test_unfollowed_model_costs_one_lookup_per_second(register, monkeypatch):
    register(Tag)
    looks, look = [], change_log.followed_models
    monkeypatch.setattr(change_log, "followed_models", lambda: looks.append(1) or look())
    tag = Tag(label="x")
    assert statements(lambda: tag.save(force_insert=True)) == ["INSERT"]
    began = time.monotonic()
    for _ in range(50):
        assert statements(tag.save) == ["UPDATE"]
    assert len(looks) <= 1 + (time.monotonic() - began) / change_log.INTERESTS_CACHE_SECONDS + 1
    assert recorded() == []


def test_followed_model_costs_one_insert_per_save(register):
    register(Tag, followed=[Tag])
    tag = Tag(label="x")
    assert statements(lambda: tag.save(force_insert=True)) == ["INSERT", "INSERT"]
    assert statements(tag.save) == ["UPDATE", "INSERT"]
    subject = {"shop.tag": {"pk": str(tag.pk)}}
    assert recorded() == [("row", subject)] * 2


def test_transaction_costs_one_insert_at_its_end(register):
    register(Tag, followed=[Tag])
    with transaction.atomic():
        tag = Tag(label="x")
        assert statements(lambda: tag.save(force_insert=True)) == ["INSERT", "INSERT"]
        assert statements(tag.save) == ["UPDATE"]  # one for an object and a transaction
    with transaction.atomic():
        assert statements(tag.save) == ["UPDATE", "INSERT"]
    assert len(recorded()) == 2


def test_number_of_followers_does_not_change_the_cost(register):
    register(Tag, followed=[Tag])
    for holder in range(100):
        change_log.store_interests(f"process {holder}", ["shop.tag", "shop.note"])
    watched.forget()
    assert statements(lambda: Tag(label="x").save(force_insert=True)) == ["INSERT", "INSERT"]


# Transactions.


def test_change_is_rolled_back_with_the_row(register):
    register(Tag, followed=[Tag])
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        Tag.objects.create(label="x")
        raise ZeroDivisionError
    assert recorded() == []


def test_changes_of_a_rolled_back_savepoint_are_dropped(register):
    register(Tag, followed=[Tag])
    tag = Tag.objects.create(label="x")
    before = len(recorded())
    with transaction.atomic():
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            tag.save()
            raise ZeroDivisionError
        tag.save()  # it was told of, and is no more
    assert len(recorded()) == before + 1


def test_interest_declared_before_the_commit_is_respected(register):
    register(Tag, Badge)
    with transaction.atomic():
        Tag.objects.create(label="x")
        assert recorded() == []
        follow("shop.tag") if connection.vendor != "sqlite" or LOG != "default" else None
    assert recorded() == [("rows", ["shop.tag"])]


def test_rows_beyond_the_limit_of_a_transaction_are_one_change(register, monkeypatch):
    monkeypatch.setattr(capture, "MAX_ROWS_PER_TRANSACTION", 3)
    register(Tag, followed=[Tag])
    with transaction.atomic():
        for number in range(10):
            Tag.objects.create(label=str(number))
    assert [kind for kind, _ in recorded()] == ["row"] * 3 + ["rows"]


def test_transaction_is_one_batch_regardless_of_its_number_of_rows(register):
    register(Tag, Badge, followed=[Tag, Badge])
    with transaction.atomic():
        tags = [
            Tag.objects.create(label=str(number))
            for number in range(capture.MAX_ROWS_PER_TRANSACTION + 1)
        ]
        badges = [Badge(code=str(number), colour=str(number)) for number in range(10)]
        asked = statements(lambda: [badge.save(force_insert=True) for badge in badges])
        asked += statements(lambda: [tag.save() for tag in tags])
        assert len(asked) == len(badges) + len(tags) + 1  # any badges, once
    assert recorded()[capture.MAX_ROWS_PER_TRANSACTION :] == [
        ("rows", ["shop.tag"]),
        ("rows", ["shop.badge"]),
    ]
    assert (
        change_log.number_changes("default").waiting == []
        and change_log.read_state("default").last == 1
    )


def test_rolled_back_savepoints_do_not_raise_the_limit_of_a_transaction(register, monkeypatch):
    monkeypatch.setattr(capture, "MAX_ROWS_PER_TRANSACTION", 3)
    register(Tag, followed=[Tag])
    tags = [Tag.objects.create(label=str(number)) for number in range(10)]
    Change.objects.using("default").all().delete()
    with transaction.atomic():
        for tag in tags:
            tag.save()
            roll_back_savepoint(tags[0])
        hooks = [hook for _, hook, *_ in connection.run_on_commit]
    assert len(hooks) == 1
    # "Any row" may have been rolled back, so it is recorded again at the commit.
    assert [kind for kind, _ in recorded()] == ["row"] * 2 + ["rows"] * 2


def roll_back_savepoint(tag):
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        tag.save()
        raise ZeroDivisionError


def test_row_after_a_rolled_back_manual_savepoint_is_recorded(register, monkeypatch):
    monkeypatch.setattr(capture, "MAX_ROWS_PER_TRANSACTION", 2)
    register(Tag, followed=[Tag])
    tags = [Tag.objects.create(label=str(number)) for number in range(4)]
    Change.objects.using("default").all().delete()
    with transaction.atomic():
        tags[0].save()
        # Django 6.1 renames it.
        begin = getattr(transaction, "savepoint_create", None) or transaction.savepoint
        point = begin()
        for tag in tags[1:]:
            tag.save()  # the last one as "any row"
        transaction.savepoint_rollback(point)
        tags[3].save()
    assert [kind for kind, _ in recorded()] == ["row", "rows"]


def test_changes_of_an_aborted_transaction_do_not_count_in_the_next(register, monkeypatch):
    monkeypatch.setattr(capture, "MAX_ROWS_PER_TRANSACTION", 2)
    register(Tag, followed=[Tag])
    tags = [Tag.objects.create(label=str(number)) for number in range(3)]
    Change.objects.using("default").all().delete()
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        for tag in tags:
            tag.save()
        raise ZeroDivisionError
    with transaction.atomic():
        for tag in tags[:2]:
            tag.save()
    assert [kind for kind, _ in recorded()] == ["row"] * 2


def test_wakeup_is_sent_once_after_the_commit(register, monkeypatch):
    rung = []
    monkeypatch.setattr(capture, "wake_for_changes", lambda: rung.append(recorded()))
    register(Tag, followed=[Tag])
    with transaction.atomic():
        Tag.objects.create(label="x")
        Tag.objects.create(label="y")
        assert rung == []
    assert len(rung) == 1 and len(rung[0]) == 2


# Which rows.


def test_change_names_parent_models_and_the_concrete_model_of_a_proxy(register):
    register(Place, Warehouse, followed=[Place])
    warehouse = Warehouse.objects.create(name="North")
    keys = {"pk": str(warehouse.pk)}
    assert recorded() == [("row", {"shop.place": keys, "shop.warehouse": keys})]
    LocalPlace.objects.get().save()
    assert recorded()[1:] == recorded()[:1]


def test_saved_parent_row_is_a_change_of_the_child_model(register):
    register(Warehouse, followed=[Warehouse])
    place = Warehouse.objects.create(name="North").place_ptr
    assert statements(place.save) == ["UPDATE", "INSERT"]
    keys = {"pk": str(place.pk)}
    place.delete()
    assert recorded() == [("row", {"shop.warehouse": keys})] * 3


def test_child_with_its_own_primary_key_is_not_named_by_the_parent_key(register):
    with isolate_apps("tests.shop"):

        class Depot(Place):
            number = models.AutoField(primary_key=True)
            place = models.OneToOneField(Place, models.CASCADE, parent_link=True)

            class Meta:
                app_label = "shop"

        class Annex(Warehouse):
            class Meta:
                app_label = "shop"

        register(Depot, Annex)
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
def test_row_has_the_same_keys_from_instance_and_from_primary_key(register, field, key):
    with isolate_apps("tests.shop"):

        class Moment(models.Model):  # noqa: DJ008
            at = field(primary_key=True)

            class Meta:
                app_label = "shop"

        register(Moment)
        assert visibility.keys_by_pk(Moment, key) == visibility.keys_of(Moment(pk=key))


def test_child_field_in_the_uri_is_missing_in_keys_from_the_parent(register):
    register(Warehouse, uri="warehouse://{capacity}")
    assert visibility.keys_of(Place(pk=1, name="x")) == {"shop.warehouse": {"pk": "1"}}
    assert visibility.keys_of(Warehouse(pk=1, capacity=7)) == {
        "shop.warehouse": {"capacity": "7", "pk": "1"}
    }


def test_saved_child_is_recorded_for_followers_of_the_parent(register):
    register(Place, followed=[Place])
    warehouse = Warehouse.objects.create(name="North")
    assert recorded() == [("row", {"shop.place": {"pk": str(warehouse.pk)}})]


def test_row_deleted_through_proxy_or_child_model_is_recorded(register):
    register(Place, Badge, followed=[Place, Badge])
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
    told = [subject for _, subject in recorded()]
    assert [{"shop.place": key} for key in keys[:2]] == told[:2]
    assert {"shop.badge": keys[2]} == told[-1]


def test_change_contains_the_fields_of_the_resource_uri(register):
    register(Badge, followed=[Badge], uri="badge://{colour}")
    badge = Badge.objects.create(code="A", colour="red")
    badge.delete()
    assert recorded() == [("row", {"shop.badge": {"colour": "red", "pk": "A"}})] * 2


def test_many_to_many_change_records_both_ends(register):
    register(Invoice, Tag, followed=[Tag, Invoice])
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
    assert sorted(recorded(), key=str) == sorted([mine, *theirs], key=str)
    invoice.tags.add(*tags)  # nothing is new
    assert len(recorded()) == 3
    invoice.tags.clear()
    assert recorded()[3:] == [mine, ("rows", ["shop.tag"])]


def test_deleted_row_with_deferred_fields_is_recorded_as_any_row(register, caplog):
    register(Tag, followed=[Tag], uri="tag://{label}")
    Tag.objects.create(label="x")
    Tag.objects.only("pk").delete()
    assert recorded()[1:] == [("rows", ["shop.tag"])] and not caplog.records


@pytest.mark.parametrize("known", ["_is_there", "_is_lacking", "_is_impossible"])
def test_changes_are_recorded_without_autocommit(register, monkeypatch, known):
    register(Tag, followed=[Tag])
    follow(ANYTHING)
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
    kinds = {kind for alias in ("default", LOG) for kind, _ in recorded(alias)}
    assert kinds == (set() if known == "_is_impossible" else {"row", "uri"})


def test_row_whose_keys_cannot_be_read_is_recorded_as_any_row(register, monkeypatch, caplog):
    monkeypatch.setattr(capture, "keys_of", lambda row: 1 / 0)
    register(Tag, followed=[Tag])
    Tag.objects.create(label="x")
    assert recorded() == [("rows", ["shop.tag"])] and "cannot be read" in caplog.text


# Permissions.


def test_permission_changes_are_recorded_for_users_and_groups(register):
    follow(ANYTHING)
    assert watched([ANYTHING])
    user = User.objects.create_user("carol")
    group, permission = Group.objects.create(name="g"), Permission.objects.first()
    user.user_permissions.add(permission)
    user.groups.add(group)
    group.user_set.remove(user)
    assert recorded() == [("user", str(user.pk))] * 3
    group.permissions.add(permission)
    permission.group_set.remove(group)
    permission.user_set.clear()
    assert recorded()[3:] == [("group", str(group.pk))] * 2 + [("user", "")]


def test_deleted_group_or_permission_is_a_change_for_all_users(register):
    follow(ANYTHING)
    assert watched([ANYTHING])
    group = Group.objects.create(name="g")
    permission = Permission.objects.create(
        name="p", codename="p", content_type=Permission.objects.first().content_type
    )
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        group.delete()
        raise ZeroDivisionError
    assert recorded() == []
    Group.objects.all().delete()
    permission.delete()
    assert recorded() == [("user", "")] * 2


# Failures.


def test_unreadable_change_log_does_not_fail_a_save(register, monkeypatch, caplog):
    register(Tag, followed=[Tag])
    monkeypatch.setattr(change_log, "followed_models", lambda: 1 / 0)
    watched.forget()
    with caplog.at_level(logging.WARNING):
        Tag.objects.create(label="x")
        Tag.objects.create(label="y")
    assert len(recorded()) == 2  # nobody knows who wants to know: changes are recorded
    assert caplog.text.count("Followed models cannot be read") == 1


def test_database_without_the_table_records_changes_in_the_log_database(register, monkeypatch):
    if LOG == "default":
        pytest.skip("The log is there, and so is the table.")
    monkeypatch.setattr(change_log, "has_table", lambda alias: alias == LOG)
    register(Tag, followed=[Tag])
    Tag.objects.create(label="x")
    assert [kind for kind, _ in recorded(LOG)] == ["row"] and change_log.ready_databases() == [LOG]


def test_saves_work_before_migrations_have_run(register, monkeypatch):
    register(Tag)
    monkeypatch.setattr(change_log, "is_possible", lambda: False)
    monkeypatch.setattr(change_log, "rows", lambda model: broken())
    assert statements(lambda: Tag(label="x").save(force_insert=True)) == ["INSERT"]
    assert not watched.is_possible


def broken():
    from django.db import OperationalError

    raise OperationalError("no such table")


def test_aliases_are_the_default_and_the_log_database():
    assert change_log.aliases() == {"default", LOG}


def test_recorded_changes_are_no_rows_of_the_tool(connect, server, register, alice):
    """Otherwise the audit log would show more written rows if a client follows the model."""

    @server.tool(audit=True)
    def create(request: mcp.Request) -> str:
        Company.objects.create(name="Bolts")
        return "created"

    register(Company, followed=[Company])
    assert connect(alice, server=server).text("create") == "created"
    assert recorded()
    assert AuditEntry.objects.values_list("rows_written", "queries").get() == (1, 1)
