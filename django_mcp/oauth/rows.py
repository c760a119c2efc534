"""
The row of an access token, and all that decides whether it is good, by one statement.

Rule: the statement is written once, for that takes longer than executing it; but anew where a
manager of the project leaves rows out, for whom it hides may depend on the moment. Whom the
project's default manager of users hides may not come in.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from django.contrib.auth import get_user_model
from django.db import connections, models
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from oauth2_provider.models import get_access_token_model, get_application_model

from .conf import settings
from .models import Binding, ClientProfile

OWN = ("pk", "scope", "expires", "resource")  # of the token
BOUND = ("account", "checked")  # of its binding, where the project has an upstream
NEVER = datetime(1970, 1, 1, tzinfo=UTC)  # when a client that was not used was used
MARK = "the checksum"  # stands for it where the statement is written


@dataclass(frozen=True, slots=True)
class Found:
    """A token that somebody has: what it says, and whose it is.

    ``user`` is whom it was given for, ``owner`` to whom its client belongs; ``last_noted`` is None
    where nothing is kept of the client.
    """

    pk: Any
    scope: str
    expires: datetime
    resource: Any
    user: Any
    application: Any
    owner: Any
    is_blocked: bool
    last_noted: datetime | None
    account: str | None = None  # elsewhere, that it is bound to, where the project has an upstream
    checked: datetime | None = None  # as of when that is known to stand


def find(token: str) -> Found | None:
    """The row of a token, in one query."""
    tokens, users = get_access_token_model().objects.all(), get_user_model()._default_manager.all()
    bound = settings.UPSTREAM is not None
    if tokens.query.where or users.query.where:
        statement = _written(tokens, users, bound)
    else:
        vendor = connections[tokens.db].vendor
        statement = _written_once(tokens.model, users.model, tokens.db, vendor, bound)
    row = statement.row(tokens.db, hashlib.sha256(token.encode()).hexdigest())
    return None if row is None else _found(tokens.db, iter(row))


def profiles() -> QuerySet[ClientProfile]:
    """What is kept of the client of a row."""
    return ClientProfile.objects.filter(client_id=OuterRef("application__client_id"))


def blocked() -> QuerySet[ClientProfile]:
    return profiles().filter(blocked__isnull=False)


def of(users: QuerySet[Any]) -> Q:
    """Of rows, those of these users: a client's own where there is nobody else."""
    return Q(user__in=users) | Q(user=None, application__user__in=users)


# The statement.


class Statement(NamedTuple):
    """What is sent to the database, and the columns that come back."""

    query: Any
    sql: str
    params: Sequence[Any]
    columns: Sequence[Any]

    def row(self, alias: str, checksum: str) -> Sequence[Any] | None:
        """The first row, in Python's types."""
        connection = connections[alias]
        with connection.cursor() as cursor:
            cursor.execute(self.sql, [checksum if one == MARK else one for one in self.params])
            found = cursor.fetchone()
        if found is None:
            return None
        compiler = self.query.get_compiler(connection=connection)
        (row,) = compiler.apply_converters([found], compiler.get_converters(self.columns))
        return list(row)


@lru_cache(maxsize=8)
def _written_once(tokens: Any, users: Any, alias: str, vendor: str, bound: bool) -> Statement:
    return _written(tokens.objects.all(), users._default_manager.all(), bound)


def _written(tokens: Any, users: QuerySet[Any], bound: bool) -> Statement:
    found = tokens.filter(token_checksum=MARK)
    if users.query.where:
        found = found.filter(of(users))
    found = found.annotate(
        is_blocked=Exists(blocked()), is_kept=Exists(profiles()),
        last_used=Subquery(profiles().values("last_used")[:1]),
    )  # fmt: skip
    names = [*_names(), "is_blocked", "is_kept", "last_used"]
    if bound:
        found = found.annotate(**_bound())
        names += BOUND
    query = found.values_list(*names)[:1].query
    compiler = query.get_compiler(tokens.db)
    sql, params = compiler.as_sql()
    return Statement(query, sql, params, [column for column, *_ in compiler.select])


def _bound() -> dict[str, Any]:
    rows = Binding.objects.filter(family=OuterRef("refresh_token__token_family"))
    return {name: Subquery(rows.values(name)[:1]) for name in BOUND}


# What it asks for, and what is made of the answer.


def _related() -> dict[str, type[models.Model]]:
    """What comes with a token, by the way there from its row."""
    user = get_user_model()
    return {"user": user, "application": get_application_model(), "application__user": user}


def _names() -> Iterator[str]:
    yield from OWN
    for way, model in _related().items():
        yield from (f"{way}__{field.attname}" for field in model._meta.concrete_fields)


def _found(alias: str, values: Iterator[Any]) -> Found:
    own: dict[str, Any] = dict(zip(OWN, values, strict=False))
    user, application, owner = (_instance(model, alias, values) for model in _related().values())
    if owner is not None:
        application.user = owner  # which is not asked for again
    is_blocked, is_kept, last_used, *bound = values
    last_noted = last_used or NEVER if is_kept else None
    return Found(
        **own, user=user, application=application, owner=owner, is_blocked=is_blocked,
        last_noted=last_noted, **dict(zip(BOUND, bound, strict=False)),
    )  # fmt: skip


def _instance(model: type[models.Model], alias: str, values: Iterator[Any]) -> Any:
    """The next of them, or None where there is none."""
    names = [field.attname for field in model._meta.concrete_fields]
    found = list(islice(values, len(names)))
    is_none = found[names.index(model._meta.pk.attname)] is None
    return None if is_none else model.from_db(alias, names, found)
