"""Each change of permissions or credentials is recorded once, in the transaction of the save."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.core import serializers
from django.db import connections, models, transaction
from django.db.models import signals
from django.test.utils import isolate_apps

import django_mcp as mcp
from django_mcp.auth import group_membership
from django_mcp.changes import permission_changes, receivers
from django_mcp.changes.change_set import members
from django_mcp.models import Change, Token
from django_mcp.storage.change_log import ANYTHING, ROW, store_interests, watched
from django_mcp.verifiers.personal_tokens import revoke
from tests.shop.models import Company

ALIASES = sorted({"default", settings.DJANGO_MCP["DATABASE"]})
pytestmark = pytest.mark.django_db(transaction=True, databases=ALIASES)


def recorded() -> list[tuple[str, str]]:
    """Return the recorded changes of all databases."""
    return [
        one
        for alias in ALIASES
        for one in Change.objects.using(alias).filter(pk__gt=0).order_by("pk")
        .values_list("kind", "subject")
    ]  # fmt: skip


@pytest.fixture
def user_and_group(shared_db):
    """A user in a group that has a permission, while a client is connected."""
    watched.__init__()
    user, group = User.objects.create_user("carol"), Group.objects.create(name="g")
    user.groups.add(group)
    group.permissions.add(Permission.objects.first())
    store_interests("somebody", [ANYTHING])
    watched.forget()
    assert watched([ANYTHING])
    yield user, group
    watched.__init__()


@pytest.mark.parametrize(
    ("flag", "kind"),
    [("is_superuser", "user"), ("is_staff", "user"), ("is_active", "credentials")],
)
def test_saved_user_flag_is_recorded(user_and_group, flag, kind):
    user, _ = user_and_group
    setattr(user, flag, not getattr(user, flag))
    user.save()
    assert set(recorded()) == {(kind, str(user.pk))}


def test_reactivated_user_is_a_permission_change(user_and_group):
    user, _ = user_and_group
    for user.is_active in (False, True):
        user.save(update_fields=["is_active"])
    assert recorded()[0] == ("credentials", str(user.pk)) and recorded()[-1] == (
        "user",
        str(user.pk),
    )


def test_other_user_fields_record_nothing(user_and_group, django_assert_num_queries):
    user, _ = user_and_group
    with django_assert_num_queries(2):  # what the flags were, and the row
        user.save(update_fields=["is_active", "is_superuser", "email"])
    with django_assert_num_queries(1):
        user.save(update_fields=["last_login"])
    User.objects.only("email").get().save()
    assert recorded() == []


def test_saved_user_costs_no_query_without_connected_clients(django_assert_num_queries):
    watched.__init__()
    user = User.objects.create_user("dan")
    user.is_superuser = True
    assert not watched([ANYTHING])
    with django_assert_num_queries(1):
        user.save(update_fields=["is_superuser"])
    assert recorded() == []


def test_proxy_of_the_user_model_is_recorded(user_and_group):
    class Person(User):
        class Meta:
            proxy = True
            app_label = "tests"

    person = Person.objects.get()
    person.is_superuser = True
    person.save()
    assert recorded() == [("user", str(person.pk))]


def test_class_with_the_id_of_a_deleted_sender_is_not_taken_for_it(user_and_group):
    (receiver,) = (
        one() for (uid, sender), one, *_ in signals.post_delete.receivers
        if sender == id(User) and "permission_changes.user_deleted" in str(uid)
    )  # fmt: skip
    signals.post_delete.connect(receiver, sender=Company, dispatch_uid="the same id")
    try:
        Company.objects.create(name="Acme").delete()
        assert recorded() == []
        key = str(user_and_group[0].pk)
        user_and_group[0].delete()
        assert ("credentials", key) in recorded()
    finally:
        signals.post_delete.disconnect(sender=Company, dispatch_uid="the same id")


def test_group_change_is_one_record_regardless_of_its_members(user_and_group):
    _, group = user_and_group
    more = User.objects.bulk_create(User(username=f"u{n}") for n in range(500))
    group.user_set.add(*more)
    assert recorded() == [("user", "")]
    group.permissions.clear()
    group.name = "h"
    group.save()
    assert recorded()[1:] == [("group", str(group.pk))] * 2


def test_proxy_of_the_group_model_is_recorded(user_and_group):
    class Role(Group):
        class Meta:
            proxy = True
            app_label = "tests"

    role = Role.objects.get()
    role.name = "other"
    role.save()
    mcp.notify_permissions_changed(role)
    role.delete()
    Role.objects.create(name="z")
    Role.objects.filter(name="z").delete()
    assert recorded() == [("group", str(user_and_group[1].pk))] * 2 + [("user", "")] * 2


@pytest.fixture
def made(user_and_group, monkeypatch):
    """Create tables for custom models, of which the first is the user model."""
    tables = []

    def made(*models):
        monkeypatch.setattr(group_membership, "users", lambda: models[0])
        receivers.connect_all()
        for model in sorted(models, key=lambda one: len(one.__mro__)):
            with connections["default"].schema_editor() as editor:
                editor.create_model(model)
            tables.append(model)

    yield made
    for model in reversed(tables):
        with connections["default"].schema_editor() as editor:
            editor.delete_model(model)


def load(*rows):
    """Save rows as ``loaddata`` does."""
    for one in serializers.deserialize("python", serializers.serialize("python", rows)):
        one.save()


def test_permissions_changed_by_a_fixture_are_recorded(user_and_group):
    user, group = user_and_group
    load(user)
    assert recorded() == []
    User.objects.update(is_superuser=True)
    load(user)
    assert recorded() == [("user", str(user.pk))]
    user.is_active = False
    load(user)
    assert recorded()[1:] == [("credentials", str(user.pk))]
    load(group)
    assert recorded()[2:] == [("group", str(group.pk))]


@contextmanager
def declared():
    """Define models in an isolated registry that knows Group and Permission."""
    with isolate_apps("tests.shop") as registry:
        for model in (Group, Permission):
            registry.register_model("auth", model)
        yield


@pytest.fixture
def accounts(made):
    """Users in groups through a custom table, and employees with another primary key."""
    with declared():

        class Account(models.Model):  # noqa: DJ008
            is_active = models.BooleanField(default=True)
            is_superuser = models.BooleanField(default=False)
            groups = models.ManyToManyField(Group, "accounts", through="Membership")
            user_permissions = models.ManyToManyField(Permission, "accounts")

            class Meta:
                app_label = "shop"

        class Membership(models.Model):  # noqa: DJ008
            account = models.ForeignKey(Account, models.CASCADE, null=True)
            group = models.ForeignKey(Group, models.CASCADE, db_constraint=False)

            class Meta:
                app_label = "shop"

        class Employee(Account):  # noqa: DJ008
            code = models.CharField(primary_key=True, max_length=9)
            account = models.OneToOneField(Account, models.CASCADE, parent_link=True)

            class Meta:
                app_label = "shop"

    made(Account, Membership, Employee)
    return SimpleNamespace(account=Account, membership=Membership, employee=Employee)


def test_membership_through_a_custom_table_is_recorded(accounts, user_and_group):
    one, other = accounts.account.objects.create(), accounts.account.objects.create()
    row = accounts.membership.objects.create(account=one, group=user_and_group[1])
    row.delete()
    row = accounts.membership.objects.create(account=one, group=user_and_group[1])
    accounts.membership.objects.filter(pk=row.pk).delete()
    assert recorded() == [("user", str(one.pk))] * 4
    one.groups.add(user_and_group[1])
    assert recorded()[4:] == [("user", str(one.pk))]
    row = accounts.membership.objects.get()
    row.account = other
    row.save()
    assert set(recorded()[5:]) == {("user", str(one.pk)), ("user", str(other.pk))}
    assert len(recorded()) == 7
    accounts.membership.objects.only("pk").delete()  # nobody knows any more whose it was
    assert recorded()[7:] == [("user", "")]


def test_fixture_of_a_child_model_records_no_change_of_the_user(accounts, user_and_group):
    employee = accounts.employee.objects.create(code="E1", id=77, is_superuser=True)
    row = accounts.membership.objects.create(account_id=77, group=user_and_group[1])
    assert recorded() == [("user", "77")]  # of the group
    employee.is_superuser = False
    models.Model.save_base(employee, raw=True)
    assert len(recorded()) == 1
    models.Model.save_base(row, raw=True)
    assert recorded()[1:] == [("user", "77")]


@pytest.fixture
def users_with_a_parent_model(made):
    """Users who are children of rows that have their flags and groups, and have another key."""
    with declared():

        class Party(models.Model):  # noqa: DJ008
            is_active = models.BooleanField(default=True)
            is_superuser = models.BooleanField(default=False)
            groups = models.ManyToManyField(Group, "parties")

            class Meta:
                app_label = "shop"

        class Person(Party):  # noqa: DJ008
            number = models.IntegerField(primary_key=True)
            party = models.OneToOneField(Party, models.CASCADE, parent_link=True)

            class Meta:
                app_label = "shop"

    made(Person, Party)
    return Person, Party


def test_parent_row_of_a_user_is_recorded_as_the_user(users_with_a_parent_model, user_and_group):
    person, party = users_with_a_parent_model
    person.objects.create(number=7, id=77)
    parent = party.objects.get()
    parent.groups.add(user_and_group[1])
    assert members([str(user_and_group[1].pk)], ["7", "77"]) == {"7"}
    user_and_group[1].parties.remove(parent)
    parent.is_superuser = True
    parent.save()
    parent.is_active = False
    parent.save()
    assert recorded() == [("user", "7")] * 3 + [("credentials", "7")]
    parent.delete()
    assert recorded()[4:] == [("credentials", "7")]
    nobody = party.objects.create()
    nobody.is_active = False
    nobody.save()
    nobody.groups.add(user_and_group[1])
    nobody.delete()
    assert len(recorded()) == 5


def test_child_with_its_own_primary_key_is_recorded_by_the_key_of_the_user(
    accounts, user_and_group
):
    employee = accounts.employee.objects.create(code="E1", id=77)
    employee.is_superuser = True
    employee.save()
    employee.user_permissions.add(Permission.objects.first())
    employee.groups.add(user_and_group[1])
    user_and_group[1].accounts.clear()
    employee.is_active = False
    employee.save()
    assert recorded() == [("user", "77")] * 4 + [("user", ""), ("credentials", "77")]
    accounts.employee.objects.only("code").delete()
    assert ("credentials", "77") in recorded()[5:]


def test_deleted_permissions_and_groups_are_a_change_for_all_users(user_and_group):
    kind = ContentType.objects.create(app_label="x", model="y")
    Permission.objects.bulk_create(
        Permission(content_type=kind, codename=f"p{n}", name="p") for n in range(3)
    )
    kind.delete()  # and with it its permissions
    assert set(recorded()) == {("user", "")}
    Change.objects.all().delete()
    user_and_group[1].delete()
    assert set(recorded()) == {("user", "")}


def test_deleted_user_is_a_change_of_credentials(user_and_group):
    user, pk = user_and_group[0], str(user_and_group[0].pk)
    user.delete()
    assert ("credentials", pk) in recorded()


def test_deleted_user_of_a_registered_user_model_is_a_change_of_credentials(user_and_group, server):
    server.register(User, type("Users", (mcp.ModelResource,), {"fields": ["username"]}))
    user, pk = user_and_group[0], str(user_and_group[0].pk)
    store_interests("somebody else", ["auth.user"])
    watched.forget()
    user.delete()
    assert ("credentials", pk) in recorded() and ROW in dict(recorded())


def test_rolled_back_changes_are_not_recorded(user_and_group):
    user, group = user_and_group
    token, _ = Token.make(user, "t")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        user.is_superuser = True
        user.save()
        group.permissions.clear()
        token.delete()
        assert recorded()  # in the transaction it is there
        raise ZeroDivisionError
    assert recorded() == []


def test_revoked_and_deleted_tokens_are_changes_of_credentials(user_and_group):
    user, _ = user_and_group
    for number in range(3):
        Token.make(user, str(number))
    assert recorded() == []
    assert revoke(Token.objects.filter(name="0")) == 1
    assert revoke(Token.objects.filter(name="0")) == 0
    Token.objects.get(name="1").save()
    assert recorded() == [("credentials", "")]
    Token.objects.get(name="1").delete()
    one = Token.objects.get(name="2")
    one.revoked = "2026-01-01T00:00:00Z"
    one.save()
    assert recorded()[1:] == [("credentials", str(user.pk))] * 2


def test_too_many_changes_in_one_transaction_are_a_change_for_all_users(user_and_group):
    with transaction.atomic():
        for number in range(450):
            permission_changes.record_user_changes(number, using="default")
    kinds = recorded()
    assert len(kinds) == 402 and kinds[-2:] == [("user", ""), ("credentials", "")]


def test_notify_permissions_changed_records_users_groups_or_everybody(user_and_group):
    user, group = user_and_group
    mcp.notify_permissions_changed(user, group)
    mcp.notify_permissions_changed()
    assert recorded() == [("user", str(user.pk)), ("group", str(group.pk)), ("user", "")]
    with pytest.raises(TypeError, match="neither a user nor a group"):
        mcp.notify_permissions_changed(Permission.objects.first())


def test_notify_permissions_changed_works_in_an_event_loop(user_and_group):
    async def said() -> None:
        mcp.notify_permissions_changed()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await task

    asyncio.run(said())
    assert recorded() == [("user", "")]
    connections.close_all()
