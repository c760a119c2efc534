"""
What the project saves, written down for whoever wants to know that it changed.

Rule: a model that nobody registered costs no query, one that nobody wants to
know of none on the connection that saves; any other one INSERT, there, which
commits or rolls back with what was saved. Whoever begins to want to know while
a transaction is open is told of its commit. In a test's transaction nothing is
written: its process is the only one, and is told at once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db import connections, transaction
from django.db.models import Model

from .. import threads
from ..conf import settings
from ..declare.servers import servers
from ..delivery import changes
from ..delivery.changes import ROW, ROWS, STANDING, USER, Found
from ..delivery.doorbell import ring_for_changes
from ..delivery.interests import ANYTHING, watched
from ..protocol.jsonrpc import encode
from .announcements import is_heard, spread
from .bulletins import bulletin
from .places import keys_by_pk, keys_of, registered

logger = logging.getLogger("django_mcp")
MOST = 400  # rows in one transaction; beyond, any of their models. With these they are one batch
WRITTEN = frozenset(("post_add", "post_remove", "post_clear"))


# What Django says.


def saved(sender: type[Model], instance: Model, using: str, **kwargs: Any) -> None:
    if labels := registered(sender):
        _changed(labels, using, lambda: [subject_of(instance, labels)])


def subject_of(instance: Model, labels: Collection[str]) -> tuple[str, Any]:
    try:
        return ROW, keys_of(instance)
    except ObjectDoesNotExist:  # what names it was never loaded, and now it is gone
        return ROWS, sorted(labels)
    except Exception:  # whoever saves has nothing to do with it
        logger.exception("A row of %s has no key that could be told", instance._meta.label)
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
    """A many-to-many relation was changed: of a row, and of those at its other end."""
    if action not in WRITTEN or pk_set == set():
        return
    saved(type(instance), instance, using)
    if labels := registered(model):
        _changed(labels, using, lambda: list(_others(model, labels, pk_set)))


def _others(
    model: type[Model], labels: Collection[str], pks: set[Any] | None
) -> Iterable[tuple[str, Any]]:
    found = [keys_by_pk(model, pk) for pk in sorted(pks or ())[: MOST + 1]]
    if pks is None or len(found) > MOST or None in found:
        return [(ROWS, sorted(labels))]
    return [(ROW, keys) for keys in found]


# What is made of it.


def note(found: tuple[str, Any], using: str | None, models: Iterable[str]) -> None:
    """Write a change down: of a row of these models, or of none."""
    if models and using is not None:
        _changed(models, using, lambda: [found])
    else:
        say(found, using=using)


def _changed(
    labels: Iterable[str], using: str, subjects: Callable[[], list[tuple[str, Any]]]
) -> None:
    connection = connections[using]
    if is_in_test(connection):
        found = subjects()
        transaction.on_commit(lambda: tell_here(found), using)
    elif watched(list(labels)):
        write(using, *subjects(), models=labels)
    elif not watched.is_possible:  # nobody but this process can be told
        found = subjects()
        _after_commit(lambda: tell_here(found), using)
    elif connection.in_atomic_block:
        unit(connection).pass_over(labels)


def is_in_test(connection: Any) -> bool:
    """Whether a test rolls back whatever is saved here."""
    blocks = connection.atomic_blocks
    return threads.is_adopted() or any(getattr(one, "_from_testcase", False) for one in blocks)


def tell_here(found: Iterable[tuple[str, Any]]) -> None:
    """Tell the clients of this process, and no other."""
    if not is_heard():
        return
    said = [Found(0, kind, subject) for kind, subject in found]
    for server in servers():
        if news := bulletin(server, said):
            news.users.update({"": None} if news.groups else {})  # nobody asks who is a member
            spread(server.name, news)


def write(using: str, *found: tuple[str, Any], models: Iterable[str] = ()) -> None:
    """Write changes down where they happened, to be told after the commit."""
    connection = connections[using]
    if not watched.is_ready(using):  # they cannot be there
        _after_commit(lambda: _beside_the_log(found), using)
    elif connection.in_atomic_block:
        unit(connection).write(found, list(models))
    else:
        changes.record(using, *found)
        ring_for_changes()


def say(*found: tuple[str, Any], using: str | None = None) -> None:
    """Write down what is no row's, after the commit."""
    if is_in_test(transaction.get_connection(using)):
        transaction.on_commit(lambda: tell_here(found), using)
    else:
        _after_commit(lambda: _said(found), using)


def say_with(using: str, *found: tuple[str, Any]) -> None:
    """Write down what is no row's of a registered model, with what is saved.

    Where nobody wants to know yet, or that database has no room for it, after the commit.
    """
    is_theirs = not is_in_test(connections[using]) and watched([ANYTHING])
    if is_theirs and watched.is_ready(using):
        write(using, *found)
    else:
        say(*found, using=using)


def is_wanted(using: str) -> bool:
    """Whether anybody, anywhere, would be told of it now."""
    if is_in_test(connections[using]) or not watched.is_possible:
        return is_heard()
    return watched([ANYTHING])


def _after_commit(tell: Callable[[], None], using: str | None) -> None:
    connection = transaction.get_connection(using)
    if connection.in_atomic_block or connection.get_autocommit():
        transaction.on_commit(tell, using, robust=True)
    else:  # who commits by hand has no hooks, and is not to be stopped for that
        tell()


def _said(found: Iterable[tuple[str, Any]]) -> None:
    if watched([ANYTHING]):
        _beside_the_log(found)
    elif not watched.is_possible:
        tell_here(found)


def _beside_the_log(found: Iterable[tuple[str, Any]]) -> None:
    try:
        changes.record(settings.DATABASE, *found)
    except Exception:
        logger.exception("Other processes cannot be told that something changed")
        tell_here(found)
    else:
        ring_for_changes()


# A transaction.


class Unit:
    """What one transaction has written, each thing once, and what it has passed over.

    Django begins another list of hooks when it commits, and when anything of it is rolled
    back: what is known here then holds no longer.
    """

    def __init__(self, connection: Any) -> None:
        self.hooks = connection.run_on_commit
        self._connection, self._alias = connection, connection.alias
        self._written: set[str] = set()
        self._any: set[str] = set()  # models any of whose rows were written
        self._passed: set[str] = set()
        self._is_heard = False

    def write(self, found: Iterable[tuple[str, Any]], models: Collection[str]) -> None:
        fresh = {key: one for one in found if (key := encode(one)) not in self._written}
        if fresh and len(self._written) + len(fresh) > MOST:
            fresh = self._whichever(models)
        if fresh:
            self._written.update(fresh)
            changes.record(self._alias, *fresh.values())
            self._hear()

    def _whichever(self, models: Iterable[str]) -> dict[str, tuple[str, Any]]:
        """Any rows of these models, or anybody, each said once: of so many none is told apart."""
        rest = sorted({*models} - self._any)
        self._any.update(rest)
        found = [(ROWS, rest)] if rest else [] if models else [(USER, ""), (STANDING, "")]
        return {key: one for one in found if (key := encode(one)) not in self._written}

    def pass_over(self, models: Iterable[str]) -> None:
        """Nobody wants to know; if somebody does at the commit, they are told then."""
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
            ring_for_changes()


KEPT = "_django_mcp_changes"


def unit(connection: Any) -> Unit:
    """The open transaction of a connection."""
    found: Unit | None = vars(connection).get(KEPT)
    if found is None or found.hooks is not connection.run_on_commit:
        found = vars(connection)[KEPT] = Unit(connection)
    return found
