"""A change set with groups resolves to the connected users who are members."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from django_mcp.changes import change_set
from django_mcp.changes.change_set import ChangeSet, replace_groups_by_members

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest.mark.slow
async def test_changed_group_resolves_to_its_connected_members(shared_db, user_and_group):
    carol, group = user_and_group
    found = await replace_groups_by_members(
        ChangeSet(groups={str(group.pk): None}), [str(carol.pk), "no key", None]
    )
    assert (
        found.affects_permissions_of(str(carol.pk))
        and not found.affects_permissions_of("0")
        and not found.groups
    )


async def test_groups_beyond_one_query_are_all_resolved(shared_db, user_and_group, monkeypatch):
    """Attack: change many groups at once to hide the change of one."""
    monkeypatch.setattr(change_set, "GROUPS_PER_QUERY", 2)
    carol, group = user_and_group
    groups = dict.fromkeys(["a", "b", str(group.pk)])
    assert (
        await replace_groups_by_members(ChangeSet(groups=groups), [str(carol.pk)])
    ).affects_permissions_of(str(carol.pk))


@pytest.fixture
def user_and_group():
    user, group = User.objects.create_user("carol"), Group.objects.create(name="g")
    user.groups.add(group)
    return user, group
