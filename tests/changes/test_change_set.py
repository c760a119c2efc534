"""Whom a change of groups concerns, of those who are connected."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from django_mcp.changes import change_set
from django_mcp.changes.change_set import ChangeSet, resolved

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.asyncio]


@pytest.mark.slow
async def test_it_is_their_members(shared_db, people):
    carol, group = people
    found = await resolved(ChangeSet(groups={str(group.pk): None}), [str(carol.pk), "no key", None])
    assert found.permits(str(carol.pk)) and not found.permits("0") and not found.groups


async def test_of_more_groups_than_are_asked_for_at_once_none_is_forgotten(
    shared_db, people, monkeypatch
):
    """Attack: whoever changes many groups in one moment hides that of one."""
    monkeypatch.setattr(change_set, "GROUPS_PER_QUERY", 2)
    carol, group = people
    groups = dict.fromkeys(["a", "b", str(group.pk)])
    assert (await resolved(ChangeSet(groups=groups), [str(carol.pk)])).permits(str(carol.pk))


@pytest.fixture
def people():
    user, group = User.objects.create_user("carol"), Group.objects.create(name="g")
    user.groups.add(group)
    return user, group
