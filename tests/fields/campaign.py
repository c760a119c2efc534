"""Declare, check, list, read, search, filter, order and write one field class.

Where ``manage.py check`` reports an error, it must name the field. What it accepts must work. So
the result of a step is "yes" or "no", and everything else fails the test.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.db import models

import django_mcp as mcp
from django_mcp.declarations.schemas import violations
from django_mcp.declarations.server import Server
from django_mcp.testing import Client

from . import mcp as registered
from .cases import NOTHING, Case
from .models import MODELS, Target

ODD = "no such value"
STEPS = ("shown", "searched", "filtered", "ordered", "written")


@dataclass(frozen=True)
class Result:
    """The result of a case: the JSON of a value, and "yes" or "no" for each step."""

    example: str
    steps: tuple[str, ...]

    def row(self, case: Case) -> str:
        """Return the line of the table in the documentation."""
        example = f"`{self.example}`" if self.example else ""
        return f"| `{case.name}` | {example} | {' | '.join(self.steps)} |"


class TargetResource(mcp.ModelResource):
    fields = ["label"]


class Trial:
    """The steps of one case."""

    def __init__(self, case: Case, user: Any) -> None:
        self.case, self.user, self.model = case, user, MODELS[case.id]
        self.rows: list[Any] = []

    def run(self) -> Result:
        if not self._accepts():
            return Result("", ("no",) * len(STEPS))
        Target.objects.bulk_create(Target(pk=key, label=f"target {key}") for key in (1, 2))
        self._add_clusters()
        for value in self.case.stored:
            self.rows.append(self._row(value))
        values = self._shown()
        steps = (
            "yes", self._searched(values), self._filtered(values), self._ordered(), self._written()
        )  # fmt: skip
        example = self.case.shown[0] if self.case.example is NOTHING else self.case.example
        return Result(json.dumps(example, ensure_ascii=False), steps)

    # Declaration.

    def _client(self, **options: Any) -> Client:
        server = self._server(**options)
        assert [str(message) for message in server.check()] == []
        return Client(self.user, server=server)

    def _server(self, **options: Any) -> Server:
        names = ["label", self.case.attribute, *self.case.also]
        given = {"fields": names, "listed": True, **options}
        server = Server(f"trial-{next(NUMBERS)}")
        server.register(self.model, type("Trial", (mcp.ModelResource,), given))
        for model in {Target, *self._led_to()} - {self.model}:
            server.register(model, type("Led", (TargetResource,), {"fields": ["pk"]}))
        return server

    def _led_to(self) -> Iterator[type[models.Model]]:
        field = self.case.make and self.model._meta.get_field(self.case.attribute)
        related = getattr(field, "related_model", None)
        if isinstance(related, type) and related.__module__ == self.model.__module__:
            yield related

    def _accepts(self, **options: Any) -> bool:
        """Return whether ``check`` accepts the declaration.

        If not, its messages must name the field.
        """
        wrong = [str(message) for message in self._server(**options).check()]
        for text in wrong:
            assert repr(self.case.attribute) in text or f".{self.case.attribute} " in text, text
            assert "cannot be resolved" not in text, text
        return not wrong

    # Rows.

    def _add_clusters(self) -> None:
        if "Cluster" in {model.__name__ for model in self._led_to()}:
            for model in self._led_to():
                model._default_manager.bulk_create(model(pk=key) for key in (3, 4))

    def _row(self, value: Any) -> Any:
        value = value() if callable(value) else value
        name = self.case.attribute
        row = self.model(label="x")
        if value is NOTHING:
            row.save()
            self._relate(row)
            return row
        if name == "pk":
            row.one, row.two = value
        elif name == "_order" or self._comes_later:
            row.save()
        if self._comes_later:
            getattr(row, name).set(value)
        else:
            setattr(row, name, value)
        row.save()
        self._relate(row)
        return row

    def _relate(self, row: Any) -> None:
        """Let another row refer to this one, with the key that the case expects."""
        if not self.case.name.startswith("reverse "):
            return
        field = self.model._meta.get_field(self.case.attribute)
        key = len(self.rows) + 1
        other = field.related_model(pk=key)
        if field.many_to_many:
            other.save()
            other.parents.add(row)
        else:
            setattr(other, field.field.name, row)
            other.save()

    @property
    def _comes_later(self) -> bool:
        if self.case.make is None:
            return False
        return bool(self.model._meta.get_field(self.case.attribute).many_to_many)

    def _shown(self) -> list[Any]:
        """Return the values of both rows, which must be equal in lists, reads and searches."""
        with self._client(filter_fields=["label"]) as client:
            schema = client.server._catalog.tools[self._search]._output.schema
            assert len(client.resources()) >= len(self.rows)
            read = [client.read(row).data for row in self.rows]
            found = self._found(client, label="x")
        for each, wanted in zip(read, self.case.shown, strict=True):
            assert each in found
            value = each[self.case.attribute]
            given = None if value is None else _without_uri(value)
            assert wanted is NOTHING or self._same(given, wanted), value
        whole = {"results": found}
        assert violations(schema, whole) == []
        return [each[self.case.attribute] for each in read]

    @property
    def _search(self) -> str:
        return f"search_{self.model._meta.model_name}"

    def _found(self, client: Client, **asked: Any) -> list[Any]:
        return list(client.call(self._search, **asked).data["results"])

    # Steps.

    def _searched(self, values: list[Any]) -> str:
        if not self._accepts(search_fields=[self.case.attribute]):
            return "no"
        name = self.case.attribute
        with self._client(search_fields=[name]) as client:
            assert self._found(client, query="no such text") == []
            text = values[0][0] if isinstance(values[0], list) else values[0]
            found = self._found(client, query=text)
            part = self._found(client, query=text[: len(text) // 2 + 1])
        assert [each[name] for each in found] == [values[0]]
        assert values[0] in [each[name] for each in part]
        return "yes"

    def _filtered(self, values: list[Any]) -> str:
        if not self._accepts(filter_fields=[self.case.attribute]):
            return "no"
        name = self.case.attribute
        with self._client(filter_fields=[name]) as client:
            schema = client.server._catalog.tools[self._search]._definition()["inputSchema"]
            for value in values:
                asked = self._filter_for(value, schema["properties"])
                assert violations(schema, asked) == []
                found = self._found(client, **asked)
                assert found and all(each[name] == value for each in found)
            argument = next(iter(self._filter_for(values[0], schema["properties"])))
            odd = client.call(self._search, **{argument: ODD})
            assert not odd.bugs and (odd.is_error or odd.data["results"] == []), odd
        return "yes"

    def _filter_for(self, value: Any, properties: dict[str, Any]) -> dict[str, Any]:
        """Return the argument of a search that finds ``value``."""
        name = self.case.attribute
        if value is None:
            return {f"{name}__isnull": True}
        if f"{name}__overlap" in properties:  # an array or a range
            return {f"{name}__overlap": value}
        return {f"{name}__in": value} if isinstance(value, list) else {name: value}

    def _ordered(self) -> str:
        name = self.case.attribute
        if not self._accepts(ordering=[name]):
            return "no"
        with self._client(ordering=[name], filter_fields=["label"]) as client:
            first = client.call(self._search, label="x", limit=1).data
            cursor = first["next_cursor"]
            second = client.call(self._search, label="x", limit=1, cursor=cursor).data
        assert first["results"] != second["results"] and len(second["results"]) == 1
        return "yes"

    def _written(self) -> str:
        name = self.case.attribute
        options: dict[str, Any] = {"operations": ["create", "update"]}
        if not self._accepts(**options):
            return "no"
        with self._client(**options) as client:
            model = self.model._meta.model_name
            tools = {tool["name"]: tool["inputSchema"] for tool in client.tools()}
            create, update = tools[f"create_{model}"], tools[f"update_{model}"]
            # Every model must be writable: at least its label is changed.
            row = self.rows[0]
            changed = client.call(f"update_{model}", **{model: row, "label": "y"}).data
            assert changed["label"] == "y"
            if name not in create["properties"]:
                assert name not in update["properties"]
                return "no"
            self._write(client, create, update)
        return "yes"

    def _write(self, client: Client, create: Any, update: Any) -> None:
        name, model = self.case.attribute, self.model._meta.model_name
        assert self.case.given[0] is not NOTHING
        for row in self.rows:  # unique values can be used again
            row.delete()
        given = {"label": "z", name: self.case.given[0]}
        assert violations(create, given) == []
        odd = client.call(f"create_{model}", **{"label": "z", name: ODD})
        assert not odd.bugs, odd
        self.model._default_manager.all().delete()
        made = client.call(f"create_{model}", **given).data
        assert self._fits(made[name], 0), made
        if name not in update["properties"]:
            return
        key = {model: made["_uri"]}
        for at in (1, 1, 0):  # the second update changes nothing
            again = client.call(f"update_{model}", **key, **{name: self.case.given[at]}).data
            assert self._fits(again[name], at), again
            assert client.read(made["_uri"]).data[name] == again[name]

    def _fits(self, value: Any, at: int) -> bool:
        wanted = self.case.shown[at]
        return wanted is NOTHING or self._same(_without_uri(value), wanted)

    @staticmethod
    def _same(given: Any, wanted: Any) -> bool:
        if isinstance(wanted, dict) and wanted.keys() == {"name", "size"}:
            return bool(given["size"] == wanted["size"])  # the storage may change the name
        return bool(given == wanted)


def _numbers() -> Iterator[int]:
    number = 0
    while True:
        yield (number := number + 1)


NUMBERS = _numbers()


def _without_uri(value: Any) -> Any:
    """Return the JSON of a file without its URI, which contains the key of the row."""
    if isinstance(value, dict) and "uri" in value:
        return {key: part for key, part in value.items() if key != "uri"}
    return value


__all__ = ["Result", "Trial", "registered"]
