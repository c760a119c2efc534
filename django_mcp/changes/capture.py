"""
Record in the change log what the project saves (receivers of Django's model signals).

Saving a row of an unregistered model runs no query. If no client follows the model, no query runs
on the project's connection. Otherwise one INSERT on that connection commits or rolls back with the
saved row. A client that begins to follow the model while a transaction is open is notified of its
commit.

Clients are notified of committed changes that send a model signal. ``QuerySet.update()``,
``bulk_create()``, ``bulk_update()`` and SQL send none: the project announces these.

In a test's transaction nothing is recorded, because it is rolled back. The clients of this process
are notified after the (simulated) commit.
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
from .feed import deliver_local_changes, has_followers

logger = logging.getLogger("django_mcp.storage")
# Changes recorded in one transaction. Further ones are recorded as "any row of the model". All of
# them must fit into one batch (``change_log.CHANGES_PER_NUMBER``).
MAX_ROWS_PER_TRANSACTION = 400
# The ``action`` of ``m2m_changed`` after a relation was written.
RELATION_ACTIONS = frozenset(("post_add", "post_remove", "post_clear"))


# Signal receivers.


def row_changed(sender: type[Model], instance: Model, using: str, **kwargs: Any) -> None:
    """Record a saved or deleted row (``post_save``, ``post_delete``)."""
    if labels := registered(sender):
        _record_rows(labels, using, lambda: [subject_of(instance, labels)])


def subject_of(instance: Model, labels: Collection[str]) -> tuple[str, Any]:
    """Return the kind and subject of a change of ``instance``: its keys, or any row of its models.

    It never raises, because it runs inside the project's ``save()``.
    """
    try:
        return ROW, keys_of(instance)
    except ObjectDoesNotExist:  # a deferred key field of a row that has been deleted
        return ROWS, sorted(labels)
    except Exception:
        logger.exception("Key of a changed row cannot be read: model=%s", instance._meta.label)
        return ROWS, sorted(labels)


def relation_changed(
    sender: type[Model],
    instance: Model,
    action: str,
    model: type[Model],
    pk_set: set[Any] | None,
    using: str,
    **kwargs: Any,
) -> None:
    """Record a change of a many-to-many relation, for the row and the rows at the other end."""
    if action not in RELATION_ACTIONS or pk_set == set():
        return
    row_changed(type(instance), instance, using)
    if labels := registered(model):
        _record_rows(labels, using, lambda: list(_related_rows(model, labels, pk_set)))


def _related_rows(
    model: type[Model], labels: Collection[str], pks: set[Any] | None
) -> Iterable[tuple[str, Any]]:
    found = [keys_by_pk(model, pk) for pk in sorted(pks or ())[: MAX_ROWS_PER_TRANSACTION + 1]]
    if pks is None or len(found) > MAX_ROWS_PER_TRANSACTION or None in found:
        return [(ROWS, sorted(labels))]
    return [(ROW, keys) for keys in found]


# Recording.


def record_announced(change: tuple[str, Any], using: str | None, models: Collection[str]) -> None:
    """Record an announced change, of a row of ``models`` or of something that is no row."""
    if models and using is not None:
        _record_rows(models, using, lambda: [change])
    else:
        record_after_commit(change, using=using)


def _record_rows(
    labels: Collection[str], using: str, subjects: Callable[[], list[tuple[str, Any]]]
) -> None:
    """Record changes if anybody follows one of the models with these ``labels``.

    ``subjects`` is called only if it is needed, because the keys may cost time.
    """
    connection = connections[using]
    if not environment().is_shared(connection):
        changes = subjects()
        _after_commit(lambda: notify_this_process(changes), using)
    elif watched(labels):
        record_with_row(using, *subjects(), models=labels)
    elif not watched.is_possible:  # there is no change log: only this process can be notified
        changes = subjects()
        _after_commit(lambda: notify_this_process(changes), using)
    elif connection.in_atomic_block:
        changes_of_transaction(connection).skip(labels)


def notify_this_process(changes: Iterable[tuple[str, Any]]) -> None:
    """Notify the clients of this process only."""
    if not has_followers():
        return
    numbered = [NumberedChange(0, kind, subject) for kind, subject in changes]
    for server in servers():
        if change_set := change_set_for(server, numbered):
            # No query for the members of changed groups here: treat all users as concerned.
            change_set.users.update({"": None} if change_set.groups else {})
            deliver_local_changes(server.name, change_set)


def record_with_row(using: str, *changes: tuple[str, Any], models: Iterable[str] = ()) -> None:
    """Record changes in the database of the rows, in the open transaction if there is one.

    If that database has no table of changes, record them in the session database after the commit.
    """
    connection = connections[using]
    if not watched.is_ready(using):
        _after_commit(lambda: _record_in_session_database(changes), using)
    elif connection.in_atomic_block:
        changes_of_transaction(connection).record(changes, list(models))
    else:
        change_log.record(using, *changes)
        wake_for_changes()


def record_after_commit(*changes: tuple[str, Any], using: str | None = None) -> None:
    """Record changes of things that are no rows, after the commit, in the session database."""
    if not environment().is_shared(transaction.get_connection(using)):
        _after_commit(lambda: notify_this_process(changes), using)
    else:
        _after_commit(lambda: _record_announcements(changes), using)


def record_permission_changes(using: str, *changes: tuple[str, Any]) -> None:
    """Record changes in the transaction of the database ``using``.

    Record them after the commit if there is no follower yet, or no table of changes there.
    """
    is_followed = environment().is_shared(connections[using]) and watched([ANYTHING])
    if is_followed and watched.is_ready(using):
        record_with_row(using, *changes)
    else:
        record_after_commit(*changes, using=using)


def is_wanted(using: str) -> bool:
    """Whether there is a follower of announced changes now, in any process."""
    if not environment().is_shared(connections[using]) or not watched.is_possible:
        return has_followers()
    return watched([ANYTHING])


def _after_commit(record: Callable[[], None], using: str | None) -> None:
    connection = transaction.get_connection(using)
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(record, using, robust=True)
    else:
        # With autocommit off and no ``atomic``, ``on_commit`` raises an error. It must not fail the
        # project's code, so do not wait for the commit.
        record()


def _record_announcements(changes: Iterable[tuple[str, Any]]) -> None:
    if watched([ANYTHING]):
        _record_in_session_database(changes)
    elif not watched.is_possible:
        notify_this_process(changes)


def _record_in_session_database(changes: Iterable[tuple[str, Any]]) -> None:
    try:
        change_log.record(settings.DATABASE, *changes)
    except Exception:
        # The project's transaction is committed. An error here must not look as if it had failed.
        logger.exception("A change could not be recorded, so other processes miss it")
        notify_this_process(changes)
    else:
        wake_for_changes()


# Transactions.


class TransactionChanges:
    """The changes that one transaction has recorded, and those that it has skipped.

    ``hooks`` is Django's list of commit hooks. Django replaces that list when the transaction ends
    and at a rollback to a savepoint. Recorded rows may then have been rolled back. If the new list
    does not have the hook of this object, none of its rows is left in an open transaction, and this
    object is no longer valid.
    """

    def __init__(self, connection: Any) -> None:
        self.hooks = connection.run_on_commit
        self._connection, self._alias = connection, connection.alias
        self._recorded: set[str] = set()
        self._count = 0  # inserted rows, also those that were rolled back with a savepoint
        self._models: set[str] = set()  # models recorded as "any row of the model"
        self._skipped: set[str] = set()  # models of skipped changes, which nobody followed
        self._has_hook = False

    def record(self, changes: Iterable[tuple[str, Any]], models: Collection[str]) -> None:
        """Record changes, each once in the transaction."""
        new = {key: change for change in changes if (key := encode(change)) not in self._recorded}
        if new and self._count + len(new) > MAX_ROWS_PER_TRANSACTION:
            new = self._coarser_changes(models)
        if new:
            self._recorded.update(new)
            self._count += len(new)
            change_log.record(self._alias, *new.values())
            self._add_commit_hook()

    def _coarser_changes(self, models: Iterable[str]) -> dict[str, tuple[str, Any]]:
        """Return changes that replace too many others: any row of the models, or all users."""
        rest = sorted({*models} - self._models)
        self._models.update(rest)
        changes = [(ROWS, rest)] if rest else [] if models else [(USER, ""), (CREDENTIALS, "")]
        return {key: change for change in changes if (key := encode(change)) not in self._recorded}

    def is_of_open_transaction(self) -> bool:
        """Whether the transaction of this object is open.

        After a rollback to a savepoint, also forget which rows were recorded.
        """
        hooks = self._connection.run_on_commit
        if hooks is self.hooks:
            return True
        if not any(hook[1] == self._committed for hook in hooks):
            return False
        # It is unknown which rows were rolled back: record them again when they change. "Any row of
        # the model" is recorded at the commit instead, or each rollback would add a row.
        self.hooks = hooks
        self._recorded.clear()
        self._skipped |= self._models
        return True

    def skip(self, models: Iterable[str]) -> None:
        """Note skipped changes, which are recorded at the commit if there is a follower then."""
        self._skipped.update(models)
        self._add_commit_hook()

    def _add_commit_hook(self) -> None:
        if not self._has_hook:
            self._has_hook = True
            self._connection.on_commit(self._committed, robust=True)
            self.hooks = self._connection.run_on_commit

    def _committed(self) -> None:
        vars(self._connection).pop(ATTRIBUTE, None)
        # A client that began to follow a model during the transaction has read the log before this
        # commit, so without this it would miss the change.
        if self._skipped and watched(self._skipped):
            followed = (model for model in self._skipped if watched([model]))
            record_with_row(self._alias, (ROWS, sorted(followed)))
        if self._recorded:
            wake_for_changes()


ATTRIBUTE = "_django_mcp_changes"  # of a connection, for the changes of its transaction


def changes_of_transaction(connection: Any) -> TransactionChanges:
    """Return the recorded changes of a connection's open transaction."""
    found: TransactionChanges | None = vars(connection).get(ATTRIBUTE)
    if found is None or not found.is_of_open_transaction():
        found = vars(connection)[ATTRIBUTE] = TransactionChanges(connection)
    return found
