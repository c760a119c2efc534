"""
Record in the change log what the project saves (receivers of Django's model signals).

Saving a row of an unregistered model runs no query. If nobody follows the model, no query runs on
the project's connection. Otherwise one INSERT on that connection commits or rolls back with the
saved row. A follower that comes while a transaction is open is notified of its commit.

In a test's transaction nothing is recorded, because it is rolled back. The listeners of this
process are notified after the (simulated) commit.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, transaction
from django.db.models import Model

from ..calls.visibility import keys_by_pk, keys_of, registered
from ..conf import settings
from ..declarations.server import servers
from ..protocol.jsonrpc import encode
from ..runtime.runtime import environment
from ..storage import change_log
from ..storage.change_log import ANYTHING, CREDENTIALS, ROW, ROWS, USER, NumberedChange, watched
from ..storage.wakeups import wake_for_changes
from .change_set import change_set_for
from .feed import deliver_here, has_clients

logger = logging.getLogger("django_mcp")
# Changes recorded in one transaction. Further ones are recorded as "any row of the model". All of
# them must fit into one batch (``change_log.CHANGES_PER_NUMBER``).
MAX_ROWS_PER_TRANSACTION = 400
WRITTEN = frozenset(("post_add", "post_remove", "post_clear"))


# Signal receivers.


def saved(sender: type[Model], instance: Model, using: str, **kwargs: Any) -> None:
    if labels := registered(sender):
        _changed(labels, using, lambda: [subject_of(instance, labels)])


def subject_of(instance: Model, labels: Collection[str]) -> tuple[str, Any]:
    """Return the kind and subject of a change of ``instance``: its keys, or any row of its models.

    It never raises, because it runs inside the project's ``save()``.
    """
    try:
        return ROW, keys_of(instance)
    except ObjectDoesNotExist:  # a deferred key field of a row that has been deleted
        return ROWS, sorted(labels)
    except Exception:
        logger.exception("The key of a changed row of %s cannot be read", instance._meta.label)
        return ROWS, sorted(labels)


def related(
    sender: type[Model],
    instance: Model,
    action: str,
    model: type[Model],
    pk_set: set[Any] | None,
    using: str,
    **kwargs: Any,
) -> None:
    """Record a change of a many-to-many relation, for the row and the rows at the other end."""
    if action not in WRITTEN or pk_set == set():
        return
    saved(type(instance), instance, using)
    if labels := registered(model):
        _changed(labels, using, lambda: list(_others(model, labels, pk_set)))


def _others(
    model: type[Model], labels: Collection[str], pks: set[Any] | None
) -> Iterable[tuple[str, Any]]:
    found = [keys_by_pk(model, pk) for pk in sorted(pks or ())[: MAX_ROWS_PER_TRANSACTION + 1]]
    if pks is None or len(found) > MAX_ROWS_PER_TRANSACTION or None in found:
        return [(ROWS, sorted(labels))]
    return [(ROW, keys) for keys in found]


# Recording.


def note(found: tuple[str, Any], using: str | None, models: Iterable[str]) -> None:
    """Record an announced change, of a row of ``models`` or of something that is no row."""
    if models and using is not None:
        _changed(models, using, lambda: [found])
    else:
        say(found, using=using)


def _changed(
    labels: Iterable[str], using: str, subjects: Callable[[], list[tuple[str, Any]]]
) -> None:
    """Record a change if anybody follows one of the models. ``labels`` are their labels.

    ``subjects`` is called only if it is needed, because the keys may cost time.
    """
    connection = connections[using]
    if not environment().is_shared(connection):
        found = subjects()
        transaction.on_commit(lambda: tell_here(found), using)
    elif watched(list(labels)):
        write(using, *subjects(), models=labels)
    elif not watched.is_possible:  # there is no change log: only this process can be notified
        found = subjects()
        _after_commit(lambda: tell_here(found), using)
    elif connection.in_atomic_block:
        unit(connection).pass_over(labels)


def tell_here(found: Iterable[tuple[str, Any]]) -> None:
    """Notify the clients of this process only."""
    if not has_clients():
        return
    said = [NumberedChange(0, kind, subject) for kind, subject in found]
    for server in servers():
        if news := change_set_for(server, said):
            # No query for the members of changed groups here: treat all users as concerned.
            news.users.update({"": None} if news.groups else {})
            deliver_here(server.name, news)


def write(using: str, *found: tuple[str, Any], models: Iterable[str] = ()) -> None:
    """Record changes in the database of the rows, in the open transaction if there is one.

    If that database has no table of changes, record them in the session database after the commit.
    """
    connection = connections[using]
    if not watched.is_ready(using):
        _after_commit(lambda: _beside_the_log(found), using)
    elif connection.in_atomic_block:
        unit(connection).write(found, list(models))
    else:
        change_log.record(using, *found)
        wake_for_changes()


def say(*found: tuple[str, Any], using: str | None = None) -> None:
    """Record changes of things that are no rows, after the commit, in the session database."""
    if not environment().is_shared(transaction.get_connection(using)):
        transaction.on_commit(lambda: tell_here(found), using)
    else:
        _after_commit(lambda: _said(found), using)


def say_with(using: str, *found: tuple[str, Any]) -> None:
    """Record changes such as those of permissions in the transaction of the database ``using``.

    Record them after the commit if there is no follower yet, or no table of changes there.
    """
    is_theirs = environment().is_shared(connections[using]) and watched([ANYTHING])
    if is_theirs and watched.is_ready(using):
        write(using, *found)
    else:
        say(*found, using=using)


def is_wanted(using: str) -> bool:
    """Whether there is a follower of announced changes now, in any process."""
    if not environment().is_shared(connections[using]) or not watched.is_possible:
        return has_clients()
    return watched([ANYTHING])


def _after_commit(tell: Callable[[], None], using: str | None) -> None:
    connection = transaction.get_connection(using)
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(tell, using, robust=True)
    else:
        # With autocommit off and no ``atomic``, ``on_commit`` raises an error. It must not fail the
        # project's code, so do not wait for the commit.
        tell()


def _said(found: Iterable[tuple[str, Any]]) -> None:
    if watched([ANYTHING]):
        _beside_the_log(found)
    elif not watched.is_possible:
        tell_here(found)


def _beside_the_log(found: Iterable[tuple[str, Any]]) -> None:
    try:
        change_log.record(settings.DATABASE, *found)
    except Exception:
        logger.exception("A change could not be recorded, so other processes miss it")
        tell_here(found)
    else:
        wake_for_changes()


# Transactions.


class TransactionChanges:
    """The changes that one transaction has recorded, and those that it has skipped.

    ``hooks`` is Django's list of commit hooks. Django replaces that list on commit and on any
    rollback. Then recorded rows may have been rolled back, and this object is no longer valid.
    """

    def __init__(self, connection: Any) -> None:
        self.hooks = connection.run_on_commit
        self._connection, self._alias = connection, connection.alias
        self._written: set[str] = set()
        self._any: set[str] = set()  # models recorded as "any row of the model"
        self._passed: set[str] = set()  # models of skipped changes, which nobody followed
        self._is_heard = False  # whether the commit hook is registered

    def write(self, found: Iterable[tuple[str, Any]], models: Collection[str]) -> None:
        """Record changes, each once in the transaction."""
        fresh = {key: one for one in found if (key := encode(one)) not in self._written}
        if fresh and len(self._written) + len(fresh) > MAX_ROWS_PER_TRANSACTION:
            fresh = self._whichever(models)
        if fresh:
            self._written.update(fresh)
            change_log.record(self._alias, *fresh.values())
            self._hear()

    def _whichever(self, models: Iterable[str]) -> dict[str, tuple[str, Any]]:
        """Return coarser changes in place of too many: any row of the models, or all users."""
        rest = sorted({*models} - self._any)
        self._any.update(rest)
        found = [(ROWS, rest)] if rest else [] if models else [(USER, ""), (CREDENTIALS, "")]
        return {key: one for one in found if (key := encode(one)) not in self._written}

    def pass_over(self, models: Iterable[str]) -> None:
        """Note skipped changes, which are recorded at the commit if there is a follower then."""
        self._passed.update(models)
        self._hear()

    def _hear(self) -> None:
        if not self._is_heard:
            self._is_heard = True
            transaction.on_commit(self._committed, self._alias, robust=True)
            self.hooks = self._connection.run_on_commit

    def _committed(self) -> None:
        vars(self._connection).pop(KEPT, None)
        if wanted := sorted(one for one in self._passed if watched([one])):
            write(self._alias, (ROWS, wanted))
        if self._written:
            wake_for_changes()


KEPT = "_django_mcp_changes"


def unit(connection: Any) -> TransactionChanges:
    """Return the recorded changes of a connection's open transaction."""
    found: TransactionChanges | None = vars(connection).get(KEPT)
    if found is None or found.hooks is not connection.run_on_commit:
        found = vars(connection)[KEPT] = TransactionChanges(connection)
    return found
