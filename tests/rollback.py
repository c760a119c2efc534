"""A block whose changes of the database are rolled back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from django.db import connections, transaction


@contextmanager
def rolled_back() -> Iterator[None]:
    """Roll back what the block changes, in all databases."""
    with ExitStack() as stack:
        for alias in connections:
            stack.enter_context(transaction.atomic(alias))
        yield
        for alias in connections:
            transaction.set_rollback(True, alias)
