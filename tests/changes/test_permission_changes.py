"""Whose rights are others now: each change one record, with what was saved; none for nothing."""

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
from django_mcp.storage.change_log import ANYTHING, ROW, declare, watched
from django_mcp.verifiers.personal_tokens import revoke
from tests.shop.models import Company

ALIASES = sorted({"default", settings.DJANGO_MCP["DATABASE"]})
pytestmark = pytest.mark.django_db(transaction=True, databases=ALIASES)


def found() -> list[tuple[str, str]]:
    """What was written down, wherever that is."""
    return [
        one
        for alias in ALIASES
        for one in Change.objects.using(alias).filter(pk__gt=0).order_by("pk")
        .values_list("kind", "subject")
    ]  # fmt: skip


@pytest.fixture
def people(shared_db):
    """A user in a group that has a permission; and somebody is connected somewhere."""
    watched.__init__()
    user, group = User.objects.create_user("carol"), Group.objects.create(name="g")
    user.groups.add(group)
    group.permissions.add(Permission.objects.first())
    declare("somebody", [ANYTHING])
    watched.forget()
    assert watched([ANYTHING])
    yield user, group
    watched.__init__()


@pytest.mark.parametrize(
    ("flag", "kind"),
    [("is_superuser", "user"), ("is_staff", "user"), ("is_active", "credentials")],
)
def test_a_flag_that_is_saved_is_told(people, flag, kind):
    user, _ = people
    setattr(user, flag, not getattr(user, flag))
    user.save()
    assert set(found()) == {(kind, str(user.pk))}


def test_a_user_who_is_let_in_again_may_do_something_else(people):
    user, _ = people
    for user.is_active in (False, True):
        user.save(update_fields=["is_active"])
    assert found()[0] == ("credentials", str(user.pk)) and found()[-1] == ("user", str(user.pk))


def test_what_else_a_user_is_is_nobodys_business(people, django_assert_num_queries):
    user, _ = people
    with django_assert_num_queries(2):  # what the flags were, and the row
        user.save(update_fields=["is_active", "is_superuser", "email"])
    with django_assert_num_queries(1):
        user.save(update_fields=["last_login"])
    User.objects.only("email").get().save()
    assert found() == []


def test_where_nobody_is_connected_it_costs_nothing(django_assert_num_queries):
    watched.__init__()
    user = User.objects.create_user("dan")
    user.is_superuser = True
    assert not watched([ANYTHING])
    with django_assert_num_queries(1):
        user.save(update_fields=["is_superuser"])
    assert found() == []


def test_a_proxy_of_users_is_a_user(people):
    class Person(User):
        class Meta:
            proxy = True
            app_label = "tests"

    person = Person.objects.get()
    person.is_superuser = True
    person.save()
    assert found() == [("user", str(person.pk))]


def test_class_with_the_id_of_a_deleted_sender_is_not_taken_for_it(people):
    (receiver,) = (
        one() for (uid, sender), one, *_ in signals.post_delete.receivers
        if sender == id(User) and "permission_changes.deleted" in str(uid)
    )  # fmt: skip
    signals.post_delete.connect(receiver, sender=Company, dispatch_uid="the same id")
    try:
        Company.objects.create(name="Acme").delete()
        assert found() == []
        key = str(people[0].pk)
        people[0].delete()
        assert ("credentials", key) in found()
    finally:
        signals.post_delete.disconnect(sender=Company, dispatch_uid="the same id")


def test_of_a_group_there_is_one_record_however_many_are_in_it(people):
    _, group = people
    more = User.objects.bulk_create(User(username=f"u{n}") for n in range(500))
    group.user_set.add(*more)
    assert found() == [("user", "")]
    group.permissions.clear()
    group.name = "h"
    group.save()
    assert found()[1:] == [("group", str(group.pk))] * 2


def test_a_proxy_of_groups_is_a_group(people):
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
    assert found() == [("group", str(people[1].pk))] * 2 + [("user", "")] * 2


@pytest.fixture
def made(people, monkeypatch):
    """Makes a project's own models, the first that of its users, with tables."""
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
    """As ``loaddata`` does."""
    for one in serializers.deserialize("python", serializers.serialize("python", rows)):
        one.save()


def test_what_a_fixture_takes_is_told(people):
    user, group = people
    load(user)
    assert found() == []
    User.objects.update(is_superuser=True)
    load(user)
    assert found() == [("user", str(user.pk))]
    user.is_active = False
    load(user)
    assert found()[1:] == [("credentials", str(user.pk))]
    load(group)
    assert found()[2:] == [("group", str(group.pk))]


@contextmanager
def declared():
    """Models are made here that nobody else knows, but for these they know."""
    with isolate_apps("tests.shop") as registry:
        for model in (Group, Permission):
            registry.register_model("auth", model)
        yield


@pytest.fixture
def accounts(made):
    """Users in groups by a table of the project's own; and employees, who have another key."""
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


def test_a_row_of_a_projects_own_between_users_and_groups(accounts, people):
    one, other = accounts.account.objects.create(), accounts.account.objects.create()
    row = accounts.membership.objects.create(account=one, group=people[1])
    row.delete()
    row = accounts.membership.objects.create(account=one, group=people[1])
    accounts.membership.objects.filter(pk=row.pk).delete()
    assert found() == [("user", str(one.pk))] * 4
    one.groups.add(people[1])
    assert found()[4:] == [("user", str(one.pk))]
    row = accounts.membership.objects.get()
    row.account = other
    row.save()
    assert set(found()[5:]) == {("user", str(one.pk)), ("user", str(other.pk))}
    assert len(found()) == 7
    accounts.membership.objects.only("pk").delete()  # nobody knows any more whose it was
    assert found()[7:] == [("user", "")]


def test_of_a_child_a_fixture_says_nothing_of_the_user(accounts, people):
    employee = accounts.employee.objects.create(code="E1", id=77, is_superuser=True)
    row = accounts.membership.objects.create(account_id=77, group=people[1])
    assert found() == [("user", "77")]  # of the group
    employee.is_superuser = False
    models.Model.save_base(employee, raw=True)
    assert len(found()) == 1
    models.Model.save_base(row, raw=True)
    assert found()[1:] == [("user", "77")]


@pytest.fixture
def people_of_parties(made):
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


def test_a_parent_of_a_user_is_that_user(people_of_parties, people):
    person, party = people_of_parties
    person.objects.create(number=7, id=77)
    parent = party.objects.get()
    parent.groups.add(people[1])
    assert members([str(people[1].pk)], ["7", "77"]) == {"7"}
    people[1].parties.remove(parent)
    parent.is_superuser = True
    parent.save()
    parent.is_active = False
    parent.save()
    assert found() == [("user", "7")] * 3 + [("credentials", "7")]
    parent.delete()
    assert found()[4:] == [("credentials", "7")]
    nobody = party.objects.create()
    nobody.is_active = False
    nobody.save()
    nobody.groups.add(people[1])
    nobody.delete()
    assert len(found()) == 5


def test_a_child_with_a_key_of_its_own_is_named_as_the_user_is(accounts, people):
    employee = accounts.employee.objects.create(code="E1", id=77)
    employee.is_superuser = True
    employee.save()
    employee.user_permissions.add(Permission.objects.first())
    employee.groups.add(people[1])
    people[1].accounts.clear()
    employee.is_active = False
    employee.save()
    assert found() == [("user", "77")] * 4 + [("user", ""), ("credentials", "77")]
    accounts.employee.objects.only("code").delete()
    assert ("credentials", "77") in found()[5:]


def test_what_goes_takes_from_everybody(people):
    kind = ContentType.objects.create(app_label="x", model="y")
    Permission.objects.bulk_create(
        Permission(content_type=kind, codename=f"p{n}", name="p") for n in range(3)
    )
    kind.delete()  # and with it its permissions
    assert set(found()) == {("user", "")}
    Change.objects.all().delete()
    people[1].delete()
    assert set(found()) == {("user", "")}


def test_a_user_who_is_deleted_ends(people):
    user, pk = people[0], str(people[0].pk)
    user.delete()
    assert ("credentials", pk) in found()


def test_a_user_who_is_a_row_that_is_read_ends_too(people, server):
    server.register(User, type("Users", (mcp.ModelResource,), {"fields": ["username"]}))
    user, pk = people[0], str(people[0].pk)
    declare("somebody else", ["auth.user"])
    watched.forget()
    user.delete()
    assert ("credentials", pk) in found() and ROW in dict(found())


def test_what_is_rolled_back_is_not_told(people):
    user, group = people
    token, _ = Token.make(user, "t")
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        user.is_superuser = True
        user.save()
        group.permissions.clear()
        token.delete()
        assert found()  # in the transaction it is there
        raise ZeroDivisionError
    assert found() == []


def test_tokens(people):
    user, _ = people
    for number in range(3):
        Token.make(user, str(number))
    assert found() == []
    assert revoke(Token.objects.filter(name="0")) == 1
    assert revoke(Token.objects.filter(name="0")) == 0
    Token.objects.get(name="1").save()
    assert found() == [("credentials", "")]
    Token.objects.get(name="1").delete()
    one = Token.objects.get(name="2")
    one.revoked = "2026-01-01T00:00:00Z"
    one.save()
    assert found()[1:] == [("credentials", str(user.pk))] * 2


def test_many_changes_in_one_transaction_end_in_everybody(people):
    with transaction.atomic():
        for number in range(450):
            permission_changes.changed(number, using="default")
    kinds = found()
    assert len(kinds) == 402 and kinds[-2:] == [("user", ""), ("credentials", "")]


def test_by_hand(people):
    user, group = people
    mcp.notify_permissions_changed(user, group)
    mcp.notify_permissions_changed()
    assert found() == [("user", str(user.pk)), ("group", str(group.pk)), ("user", "")]
    with pytest.raises(TypeError, match="neither a user nor a group"):
        mcp.notify_permissions_changed(Permission.objects.first())


def test_by_hand_in_a_loop(people):
    async def said() -> None:
        mcp.notify_permissions_changed()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            await task

    asyncio.run(said())
    assert found() == [("user", "")]
    connections.close_all()
