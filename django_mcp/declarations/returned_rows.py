"""Checks of the rows that a tool returns, before they are sent.

The result of each tool call passes through ``RowCollector`` before it is serialized. Rows are
serialized by their model resource, whose ``fields`` apply. A row that the caller could not read
through the resource raises ``HiddenRows``, whichever query the tool used. A tool wraps rows in
``trusted()`` to skip this check.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network
from typing import TYPE_CHECKING, Any, TypeVar, cast
from uuid import UUID

from django.core.files.base import File
from django.db import connections
from django.db.models import Model

from ..exceptions import ToolError

if TYPE_CHECKING:
    from .model_rows import ModelRows
    from .request import Request
    from .server import Server

T = TypeVar("T")
MAX_LOGGED_KEYS = 10
# Values of these types contain no rows. Most values have one of them: this is the fast path.
PLAIN_TYPES = frozenset(
    (str, int, float, bool, type(None), bytes, Decimal, date, datetime, time, timedelta, UUID)
)
# Iterables without rows in them.
ITERABLES_WITHOUT_ROWS = (str, bytes, bytearray, memoryview, range, IPv4Network, IPv6Network)
Path = tuple[str | int, ...]


class Trusted:
    """The argument of ``trusted``.

    It is not a dataclass, because pydantic would serialize a dataclass itself.
    """

    def __init__(self, rows: Any) -> None:
        self.rows = rows


def trusted(rows: T) -> T:
    """Return ``rows`` from a tool without checking that ``get_queryset`` shows them to the caller.

    ``rows`` is an instance, a list of instances or a queryset. The ``fields`` of their resource
    apply. Related rows that are serialized with them are not checked either. An unsaved row is
    never visible, so a tool can return it only in this way.
    """
    # The type is that of ``rows``, so that a tool annotated ``-> Invoice`` type-checks.
    return cast(T, Trusted(rows))


class HiddenRows(ToolError):
    """Not found."""

    # A tool returned rows that its caller may not see. The docstring of a ToolError is the message
    # to the client, which must not learn that the rows exist. ``detail`` is for the log.

    def __init__(self, resource: ModelRows, rows: Sequence[Model]) -> None:
        super().__init__()
        keys = ",".join(str(row.pk) for row in rows[:MAX_LOGGED_KEYS])
        more = ",..." if len(rows) > MAX_LOGGED_KEYS else ""
        self.detail = f"model={resource.model._meta.label} count={len(rows)} pk={keys}{more}"


class ReturnedRows:
    """The rows of one result. Queries check many rows of a resource and database at once."""

    def __init__(self) -> None:
        self._rows: dict[tuple[ModelRows, str | None], list[Model]] = {}

    def add(self, resource: ModelRows, row: Model) -> None:
        """Add a row to be checked."""
        self._rows.setdefault((resource, row._state.db), []).append(row)

    def check(self, request: Request) -> None:
        """Raise ``HiddenRows`` if ``request``'s user could not read one of the rows."""
        for (resource, using), rows in self._rows.items():
            visible = set(_visible_keys(resource, request, rows, using))
            if hidden := [row for row in rows if _key(resource, row) not in visible]:
                raise HiddenRows(resource, hidden)


class RowCollector:
    """Finds the rows in a value of a declared type, before pydantic reads their attributes.

    ``paths`` lead to all attributes that the type reads anywhere. Rows of models without a resource
    are not checked, because no resource says who may see them.
    """

    def __init__(self, server: Server, paths: Collection[Path]) -> None:
        self.rows = ReturnedRows()
        self._catalog, self._paths = server._catalog, paths
        # Keeps the values alive: Python may reuse the id() of a deleted object.
        self._seen: dict[int, Any] = {}

    def collect(self, value: Any, *, replaceable: bool = True) -> Any:
        """Return ``value`` with lists instead of iterators, and its rows instead of ``Trusted``.

        A value inside another object is not ``replaceable``. There, ``Trusted`` is left to the
        serializer, and an iterator raises ``ValueError``, because reading it here would leave
        nothing for pydantic.
        """
        kind = type(value)
        if kind in PLAIN_TYPES:
            return value
        if kind is dict:
            pairs = value.items()
            return {self.collect(k): self.collect(one, replaceable=replaceable) for k, one in pairs}
        if kind in (list, tuple, set, frozenset):
            return kind([self.collect(one, replaceable=replaceable) for one in value])
        if kind is Trusted:
            return value.rows
        if isinstance(value, Iterator):
            if not replaceable:
                raise ValueError(f"a {kind.__name__} can be read only once")
            return [self.collect(one) for one in value]
        if id(value) not in self._seen:
            self._seen[id(value)] = value
            self._look_into(value)
        return value

    def _look_into(self, value: Any) -> None:
        """Find the rows in an object: itself, its items and its attributes at the paths."""
        if isinstance(value, type):
            return
        if isinstance(value, Model):
            self._add(value)
        elif isinstance(value, Mapping):
            self.collect(list(value.items()), replaceable=False)
        elif isinstance(value, File):
            # Do not read its content. Whoever may see the row of a file field may see the file.
            # Without paths, the declared type reads nothing of the file that belongs to a row.
            if self._paths:
                self.collect(getattr(value, "instance", None))
        elif isinstance(value, Iterable) and not isinstance(value, ITERABLES_WITHOUT_ROWS):
            self.collect(list(value), replaceable=False)
        # Also for a row: the declared type may read ``invoice.customer``.
        for path in self._paths:
            self.collect(_at(value, path), replaceable=False)

    def _add(self, row: Model) -> None:
        kind = row.__class__  # type() would be the class of a lazy object
        if not self._catalog.models.keys().isdisjoint(kind.__mro__):
            self.rows.add(self._catalog.resource_of(kind), row)


def _at(value: Any, path: Path) -> Any:
    """Return the value at ``path`` in ``value``, or None."""
    try:
        for step in path:
            value = getattr(value, step) if isinstance(step, str) else value[step]
    except Exception:  # no such attribute, or a property raised: pydantic reports what it reads
        return None
    return value


def _key(resource: ModelRows, row: Any) -> tuple[Any, ...]:
    # Convert, because a row that was just created may contain a UUID as a string.
    fields = resource.model._meta.pk_fields
    return tuple(field.to_python(getattr(row, field.attname)) for field in fields)


def _visible_keys(
    resource: ModelRows, request: Request, rows: Sequence[Model], using: str | None
) -> Iterator[tuple[Any, ...]]:
    """Yield the keys of those rows that the caller may see."""
    keys = {_key(resource, row) for row in rows}
    saved = [key if len(key) > 1 else key[0] for key in keys if None not in key]
    # Do not call get_queryset for a caller who may not use the resource: it may require a user.
    if not saved or not resource._decide(request).allowed:
        return
    # Query the database of the row. A replica may not have what this call has just written.
    queryset = resource.get_queryset(request).using(using)
    permits = resource._row_check(request)
    names = [field.attname for field in resource.model._meta.pk_fields]
    # Half of the database's limit, because ``get_queryset`` may have parameters too.
    limit = connections[queryset.db].features.max_query_params
    size = max(limit // (2 * len(names)), 1) if limit else len(saved)
    for start in range(0, len(saved), size):
        found = queryset.filter(pk__in=saved[start : start + size])
        if permits is None:
            yield from found.values_list(*names)
        else:
            yield from (_key(resource, row) for row in found if permits(row))
