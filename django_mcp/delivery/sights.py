"""
What of the lists each principal could see, so that it is told when that goes.

Rule: one row for each principal, read before a page is told, and written in the
transaction in which it is: whoever tells the next one knows it. A row holds
digests of addresses, so many at most, and goes with the last session of its owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from django.db import connections
from django.db.models import Exists, OuterRef

from ..conf import settings
from ..models import Session, Sight
from .rows import digest_of, erase, rows

MOST = 1_000  # addresses that are remembered for each
LENGTH = 12  # characters of a digest: among so many no two are alike
CHUNK = 100  # rows in one statement


class Seen(NamedTuple):
    """What its owner could see, as it is kept."""

    owner: str
    uris: Sequence[str]


def of(names: Collection[str]) -> dict[str, Sequence[str]]:
    """What was kept under these names."""
    wanted = sorted(names)
    found: dict[str, Sequence[str]] = {}
    for start in range(0, len(wanted), CHUNK):
        some = rows(Sight).filter(pk__in=wanted[start : start + CHUNK])
        found.update(some.values_list("pk", "uris"))
    return found


def looked(
    before: Collection[str], uris: Iterable[str], seen: Collection[str]
) -> tuple[bool, list[str]]:
    """Whether one of ``uris`` is ``seen`` now, or was ``before``; and what is to be kept."""
    theirs, known, found = dict.fromkeys(before), set(before), False
    for uri in uris:
        digest = digest_of(uri)[:LENGTH]
        found |= uri in seen or digest in known
        if uri in seen:
            theirs[digest] = None
        else:
            theirs.pop(digest, None)
    return found, list(theirs)[-MOST:]


def keep(found: Mapping[str, Seen]) -> None:
    """Keep it, within the caller's transaction."""
    if gone := [name for name, one in found.items() if not one.uris]:
        erase(rows(Sight).filter(pk__in=gone))
    made = [Sight(name=name, owner=o, uris=uris) for name, (o, uris) in found.items() if uris]
    rows(Sight).bulk_create(
        made, CHUNK, update_conflicts=True, update_fields=["uris"], unique_fields=_unique(),
    )  # fmt: skip


def _unique() -> list[str] | None:
    features = connections[settings.DATABASE].features
    return ["name"] if features.supports_update_conflicts_with_target else None


def prune() -> int:
    """Forget what was seen by those who have no session any more."""
    theirs = Exists(rows(Session).filter(owner=OuterRef("owner")))
    gone = list(rows(Sight).exclude(theirs).values_list("pk", flat=True))
    return sum(
        erase(rows(Sight).filter(pk__in=gone[start : start + CHUNK]))
        for start in range(0, len(gone), CHUNK)
    )
