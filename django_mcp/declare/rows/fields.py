"""
The whitelist of a model: what of a row a client may see, and nothing else.

Rule: what is not named is neither shown nor loaded, and a page of rows costs as many queries as
one row. `values()` always fits `schema()`.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

from django.core.exceptions import FieldError
from django.db import models

from .columns import JSON
from .entries import Column, Computed, Entry, Related, entry_of
from .paths import ModelClass
from .values import FileURI, basename, is_writable

M = TypeVar("M", bound=models.Model)

SECRET = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|api_?key|(private|secret)_?key"
    r"|(access|refresh|auth|session)_(token|key))(_hash)?$",
    re.IGNORECASE,
)


class FieldSet:
    """
    What is shown of a model's rows: fields, forward paths, relations' keys and properties, by name.

    A property is given its whole row, so naming one loads every column of it (and keeps the
    queryset's own `select_related` and `prefetch_related`, which are otherwise dropped).
    """

    def __init__(self, model: ModelClass, names: Sequence[str]) -> None:
        self.model = model
        self.names = names

    @cached_property
    def entries(self) -> dict[str, Entry]:
        """What each name stands for; raises FieldError for a name that stands for nothing."""
        return {name: entry_of(self.model, name) for name in self.names}

    def problems(self) -> list[str]:
        """What is wrong with the whitelist, in words for the developer; [] if nothing is."""
        if isinstance(self.names, str) or not self.names:
            return [f"{self.names!r} is not a list of the fields that a client may see."]
        repeated = {repr(name) for name in self.names if list(self.names).count(name) > 1}
        problems = [f"{name} is named twice." for name in sorted(repeated)]
        return problems + [text for name in self.names for text in self._problems_of(name)]

    def _problems_of(self, name: str) -> Iterator[str]:
        try:
            entry = entry_of(self.model, str(name))
        except FieldError as error:
            yield str(error)
            return
        if SECRET.search(name):
            yield f"{name!r} looks like a secret: no client may see it."
        if isinstance(entry, Column):
            yield from _problems_of_column(entry)

    @property
    def files(self) -> list[str]:
        """The names that show a file."""
        return [name for name, entry in self.entries.items() if _is_file(entry)]

    def mime_type(self, instance: models.Model, name: str) -> str:
        """What kind of file `instance` has under `name`, told by the file's name."""
        path = str(getattr(instance, name))
        return mimetypes.guess_type(basename(path))[0] or "application/octet-stream"

    def target(self, name: str) -> ModelClass | None:
        """The model of the row whose key is shown under `name`; None if it is no single key."""
        return self.entries[name].target

    def select(self, queryset: models.QuerySet[M], *, whole: bool = False) -> models.QuerySet[M]:
        """`queryset` with just what `values()` reads; with `whole`, every column of its own."""
        entries = list(self.entries.values())
        whole = whole or any(isinstance(entry, Computed) for entry in entries)
        if not whole:  # what else is joined would be loaded for nothing
            queryset = queryset.select_related(None).prefetch_related(None)
        loads = [] if _joins_deeply(queryset.query.select_related) else self._loads(whole)
        if joins := [path for entry in entries for path in entry.joins()]:
            queryset = queryset.select_related(*joins)
        return queryset.prefetch_related(*self._prefetches()).defer(None).only(*loads)

    def complete(self, row: models.Model) -> None:
        """Fetch what `values()` reads of other tables, for a row that was fetched without it."""
        models.prefetch_related_objects([row], *self._prefetches())

    def _prefetches(self) -> list[models.Prefetch[str]]:
        return [entry.prefetch() for entry in self.entries.values() if isinstance(entry, Related)]

    def _loads(self, whole: bool) -> list[str]:
        own = [field.attname for field in self.model._meta.concrete_fields] if whole else []
        keys = [field.attname for field in self.model._meta.pk_fields]
        named = [name for entry in self.entries.values() for name in entry.loads()]
        return [*keys, *own, *named]

    def values(self, instance: models.Model, file_uri: FileURI | None = None) -> JSON:
        """What a client sees of `instance`; `file_uri(name)` gives the address of a file."""
        return {name: entry.value(instance, file_uri) for name, entry in self.entries.items()}

    def schema(self) -> JSON:
        """The JSON Schema of `values()`, in the active language."""
        return {
            "type": "object",
            "properties": {name: entry.schema() for name, entry in self.entries.items()},
            "required": list(self.entries),
            "additionalProperties": False,
        }


def _joins_deeply(joined: Any) -> bool:
    """Whether rows of joined rows are joined, which what is loaded of those must not forbid."""
    return joined is True or bool(joined) and any(joined.values())


def _is_file(entry: Entry) -> bool:
    return isinstance(entry, Column) and isinstance(entry.path.field, models.FileField)


def _problems_of_column(entry: Column) -> Iterator[str]:
    field = entry.path.field
    if not is_writable(field):
        kind = type(field).__name__
        yield f"{entry.name!r} is a {kind}, unknown here: name a property that gives plain values."
    if _is_file(entry) and entry.path.relations:
        yield f"{entry.name!r} is another row's file: show it by that model's own resource."
