"""
The two datasets that must look alike to alice: with and without hidden rows.

Every value that alice may not see is a canary, a text that occurs nowhere else. In the second
dataset the hidden rows do not exist, and the hidden columns of her rows contain other canaries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import F

from tests.rollback import rolled_back

from .models import Author, Label, Paper, Remark, Tenant

# How a canary is known, whatever it is written as.
CANARIES = ("kanary", "91827364", "1907-03", "8273645")
VISIBLE, THEIRS, SEALED, NOWHERE = range(1, 7), range(101, 105), range(201, 204), range(901, 903)
HIDDEN = (*THEIRS, *SEALED)
MARKER = "bell://rung"  # notified last, so that subscribers know that they have everything
AMOUNT, DAY, RANK = Decimal("91827364.00"), date(1907, 3, 1), 8_273_645


def number(key: int) -> str:
    """The number of a paper, which an attacker can guess."""
    return f"P-{key}" if key in VISIBLE or key in NOWHERE else f"kanary-number-{key}"


def fill() -> User:
    """Create the dataset with hidden rows, and the user alice."""
    alice = User.objects.create_user("alice", email="kanary-alice@example.com")
    ours, theirs = Tenant.objects.create(name="Ours"), Tenant.objects.create(name="kanary-tenant")
    ours.members.add(alice)
    theirs.members.add(User.objects.create_user("kanary-mallory"))
    for key in (1, 2):
        Author.objects.create(pk=key, tenant=ours, name=f"Author {key}", secret=_canary())
    Author.objects.create(pk=101, tenant=theirs, name=_canary(), secret=_canary())
    Author.objects.create(pk=201, tenant=ours, name=_canary(), secret=_canary(), sealed=True)
    Label.objects.create(pk=1, tenant=ours, word="red")
    Label.objects.create(pk=101, tenant=theirs, word=_canary())
    for key in VISIBLE:
        paper = _paper(
            key, ours, 1 + key % 2, title=f"On {'abcdef'[key - 1]}", day=date(2026, 1, key)
        )
        paper.labels.add(1)
    for key in THEIRS:
        _hidden(key, theirs, 101).labels.add(101)
    for key in SEALED:
        _hidden(key, ours, 1 + key % 2, sealed=True)
    ContentType.objects.get_for_models(Author, Label, Paper)  # which are asked for once
    return alice


_numbers = itertools.count(1)


def _canary() -> str:
    return f"kanary-{next(_numbers)}"


def _paper(key: int, tenant: Tenant, author: int, **values: Any) -> Paper:
    given: dict[str, Any] = {
        "amount": Decimal(10 * key), "state": Paper.State.FINAL if key % 3 else Paper.State.DRAFT,
        "scan": f"scans/{key}.txt", "secret": _canary(), "secret_rank": RANK + key,
        "read_at": datetime(2026, 2, 1, tzinfo=UTC) if key % 2 else None,
    }  # fmt: skip
    made = Paper.objects.create(
        pk=key, tenant=tenant, author_id=author, number=number(key), **(given | values)
    )
    if key != VISIBLE[-1]:  # which can be deleted
        Remark.objects.create(paper=made, text=_canary())
    return made


def _hidden(key: int, tenant: Tenant, author: int, **values: Any) -> Paper:
    canaries = {"title": _canary(), "amount": AMOUNT + key, "scan": f"scans/{_canary()}.txt"}
    return _paper(key, tenant, author, day=DAY.replace(day=key % 28 + 1), **canaries, **values)


@contextmanager
def without() -> Iterator[None]:
    """Use the dataset without hidden rows, for the duration of the block. Roll back changes."""
    with rolled_back():
        Paper.objects.filter(pk__in=HIDDEN).delete()
        Author.objects.filter(pk__gt=100).delete()
        Label.objects.filter(pk__gt=100).delete()
        Tenant.objects.filter(name="kanary-tenant").delete()
        for shown in (*Author.objects.order_by("-pk"), *Paper.objects.order_by("-pk")):
            type(shown).objects.filter(pk=shown.pk).update(secret=f"another-{_canary()}")
        Paper.objects.update(secret_rank=-F("secret_rank"))
        Remark.objects.update(text="another-kanary")
        yield
