"""
Whose rights a change of a group touches, of those who are connected here.

Rule: a group is one record, however many its members are; who acts on it asks for
the members among its own clients, in one query for 500 of them. Where that cannot
be asked it is taken for everybody: to look once too often ends nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Any

from .. import threads
from ..delivery.jobs import reconnecting
from . import holders
from .bulletins import Bulletin
from .callers import in_pages, is_key

MOST = 500  # groups in one query
logger = logging.getLogger("django_mcp")


async def resolved(news: Bulletin, users: Iterable[str | None]) -> Bulletin:
    """The same, with those ``users`` who are members of its groups, and no groups."""
    if not news.groups:
        return news
    keys = sorted({user for user in users if user and is_key(user)})
    if len(news.groups) > MOST:
        return replace(news, users=news.users | {"": None}, groups={})
    try:
        found = await threads.lookups.run(reconnecting, members, list(news.groups), keys)
    except Exception as error:
        logger.warning("Nobody can tell whom a change of a group concerns: %s", error)
        found = {""}
    return replace(news, users=news.users | dict.fromkeys(found), groups={})


def members(groups: Collection[str], users: list[str]) -> set[str]:
    """Those of the users who are in one of the groups. Asks the database."""
    relation = getattr(holders.users(), "groups", None)
    if getattr(relation, "field", None) is None:
        return set()
    return {str(pk) for some in in_pages(users) for pk in _some(groups, some)}


def _some(groups: Collection[str], users: list[str]) -> Iterable[Any]:
    found = holders.users()._base_manager.filter(pk__in=users, groups__in=groups)
    keys: Iterable[Any] = found.values_list("pk", flat=True).distinct()
    return keys
