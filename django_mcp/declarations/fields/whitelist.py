"""The whitelist of a model resource: ``fields``, and the JSON of a row that it shows.

Fields that ``fields`` does not name are neither shown nor loaded from the database. A page of rows
takes as many queries as one row. ``FieldSet.values`` always fits ``FieldSet.schema``.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from django.core.exceptions import FieldError
from django.db import models

from ..redaction import SECRET_COLUMN
from ..schemas import problem
from .columns import JSON, stored_field
from .entries import Column, Entry, FieldTypeEntry, RelatedRows, entry_of, method_of
from .field_types import field_type
from .keys import ColumnPath, ModelClass, field_names
from .values import FileType, MakeURI, basename, has_json_form

M = TypeVar("M", bound=models.Model)


class FieldSet:
    """The fields, paths, relations, properties and methods that clients see of a model's rows.

    Properties and methods get the whole row. If one is named, all columns of the row are loaded,
    and the queryset's own ``select_related`` and ``prefetch_related`` are kept. Otherwise they are
    dropped.
    """

    def __init__(
        self,
        model: ModelClass,
        names: Sequence[str],
        methods: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.model = model
        self.names = names
        self.methods = methods or {}

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """The entry of each name. Raises ``FieldError`` for an unknown name."""
        return {name: self._entry(name) for name in self.names}

    def _entry(self, name: str) -> Entry:
        if name in self.methods:
            return method_of(name, self.methods[name])
        return entry_of(self.model, name)

    def problems(self) -> list[str]:
        """Return messages for the developer about the whitelist; [] if it is correct."""
        if isinstance(self.names, str) or not self.names:
            return [f"{self.names!r} is not a list of field names."]
        repeated = {repr(name) for name in self.names if list(self.names).count(name) > 1}
        problems = [f"{name} is listed twice." for name in sorted(repeated)]
        return problems + [text for name in self.names for text in self._problems_of(name)]

    def _problems_of(self, name: str) -> Iterator[str]:
        try:
            entry = self._entry(str(name))
        except FieldError as error:
            yield str(error)
            return
        if SECRET_COLUMN.search(name):
            yield f"{name!r} looks like a secret. Do not show it to clients."
        if name in self.methods and name in field_names(self.model):
            yield f"{name!r} is both a field of the model and a method of the resource."
        if isinstance(entry, Column):
            yield from _problems_of_column(entry)
        if isinstance(entry, RelatedRows) and entry.path is not None:
            yield from _problems_of_path(entry.name, entry.path, elsewhere=True)
        kind = entry.type if isinstance(entry, FieldTypeEntry) else None
        kind = field_type(entry.path.field) if isinstance(entry, Column) else kind
        if kind is not None and (wrong := problem(kind.schema)):
            yield f"{name!r}: {type(kind).__name__}.schema: {wrong}"

    @property
    def files(self) -> list[str]:
        """The names that show a file."""
        return [name for name, entry in self.entries.items() if _is_file(entry)]

    def mime_type(self, instance: models.Model, name: str) -> str:
        """Return the media type of the file under ``name``, guessed from the file's name."""
        path = str(getattr(instance, name))
        return mimetypes.guess_type(basename(path))[0] or "application/octet-stream"

    def target(self, name: str) -> ModelClass | None:
        """Return the model whose key is shown under ``name``, or None if it is not a single key."""
        return self.entries[name].target

    def limit_related(self, name: str, resources: Sequence[Any]) -> None:
        """Show only those rows of the to-many relation ``name`` that ``resources`` show."""
        entry = self.entries[name]
        assert isinstance(entry, RelatedRows)
        self.entries[name] = replace(entry, resources=tuple(resources))

    def select(
        self, queryset: models.QuerySet[M], request: Any = None, *, whole: bool = False
    ) -> models.QuerySet[M]:
        """Return ``queryset`` with only what ``values()`` reads for the user of ``request``.

        With ``whole``, all columns of the model's own table are loaded too.
        """
        entries = list(self.entries.values())
        whole = whole or any(entry.needs_all_columns for entry in entries)
        if not whole:  # nothing reads what the project's queryset joins and prefetches
            queryset = queryset.select_related(None).prefetch_related(None)
        columns = [] if _joins_deeply(queryset.query.select_related) else self._column_names(whole)
        if related := [path for entry in entries for path in entry.related_paths()]:
            queryset = queryset.select_related(*related)
        # The project may prefetch the same attribute with its own queryset. Its prefetch wins.
        prefetched = {getattr(each, "prefetch_to", each) for each in _prefetches_of(queryset)}
        missing = [each for each in self._prefetches(request) if each not in prefetched]
        return queryset.prefetch_related(*missing).defer(None).only(*columns)

    def complete(self, row: models.Model, queryset: models.QuerySet[Any]) -> None:
        """Prefetch for one row what ``select()`` prefetches for ``queryset``.

        The row was fetched without ``select()``, for example to lock it.
        """
        models.prefetch_related_objects([row], *_prefetches_of(queryset))

    def _prefetches(self, request: Any) -> list[models.Prefetch[str] | str]:
        return [each for entry in self.entries.values() for each in entry.prefetches(request)]

    def _column_names(self, whole: bool) -> list[str]:
        own = [field.attname for field in self.model._meta.concrete_fields] if whole else []
        keys = [field.attname for field in self.model._meta.pk_fields]
        named = [name for entry in self.entries.values() for name in entry.column_names()]
        return [*keys, *own, *named]

    def values(
        self, instance: models.Model, make_uri: MakeURI | None = None, request: Any = None
    ) -> JSON:
        """Return what clients see of ``instance``. ``make_uri(name)`` returns the URI of a file."""
        entries = self.entries.items()
        return {name: entry.value(instance, make_uri, request) for name, entry in entries}

    def schema(self) -> JSON:
        """Return the JSON Schema of ``values()``, in the active language."""
        return {
            "type": "object",
            "properties": {name: entry.schema() for name, entry in self.entries.items()},
            "required": list(self.entries),
            "additionalProperties": False,
        }


def _prefetches_of(queryset: models.QuerySet[Any]) -> Sequence[models.Prefetch[str] | str]:
    return queryset._prefetch_related_lookups  # type: ignore[attr-defined,no-any-return]


def _joins_deeply(joined: Any) -> bool:
    """Whether ``select_related`` follows more than one foreign key in a row.

    ``only()`` would raise an error for the deeper ones, so all columns are loaded then.
    """
    return joined is True or bool(joined) and any(joined.values())


def _is_file(entry: Entry) -> bool:
    return isinstance(entry, Column) and isinstance(field_type(entry.path.field), FileType)


def _problems_of_column(entry: Column) -> Iterator[str]:
    yield from _problems_of_path(entry.name, entry.path, elsewhere=bool(entry.path.relations))


def _problems_of_path(name: str, path: ColumnPath, *, elsewhere: bool) -> Iterator[str]:
    """Yield what is wrong with the column at the end of ``path``.

    ``elsewhere`` says that it belongs to another row.
    """
    field = path.field
    kind = type(stored_field(field)).__name__
    if kind == "SearchVectorField":
        yield (
            f"{name!r} is a SearchVectorField, which has no value to show. Name it in "
            "full_text_search, and show the columns that it contains."
        )
    elif not has_json_form(field):
        yield (
            f"{name!r} is a {kind}, which cannot be written as JSON. Register a field type "
            "(mcp.register_field_type), or name a property or a method instead."
        )
    if elsewhere and isinstance(field_type(field), FileType):
        yield f"{name!r} is a file of another row. Show it with the resource of that model."
