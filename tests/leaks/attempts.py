"""Attempts of an attacker who knows the models, derived from the schemas of the tools.

``systematic`` tries each hidden column with each lookup, and the key of each row. ``Fuzzer`` fills
the arguments of a tool at random, with values and keys of hidden and of visible rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from .schema import KINDS, Schema, Table

JSON = dict[str, Any]
LOOKUPS = ["", "__startswith", "__gte", "__lt", "__isnull", "__in", "__contains"]
RELATIONS = ("parent", "parent_id", "links")  # ninja adds _id
GENERIC = {
    "search": "search_rows", "aggregate": "aggregate_rows",
    **dict.fromkeys(("create", "update", "delete"), "write_row"),
}  # fmt: skip
ODD: list[Any] = [
    "", "%", "'", '"', "\\", "0", -1, 1e300, 2**63, "null", "\0", "é" * 500, None, [], {}, True,
    "1 OR 1=1", "__all__", [None], {"pk": 1}, "9" * 400,
]  # fmt: skip


@dataclass(frozen=True)
class Attempt:
    """One request. ``pages`` says whether to read all pages of the result."""

    method: str
    params: JSON
    pages: bool = False

    @property
    def text(self) -> str:
        """The attacker's own input, which responses may repeat."""
        return json.dumps(self.params, default=str, ensure_ascii=False)


def call(name: str, **arguments: Any) -> Attempt:
    pages = "limit" in arguments or name.startswith(("search_", "list_"))
    return Attempt("tools/call", {"name": name, "arguments": arguments}, pages)


def generic(attempt: Attempt) -> Attempt:
    """Return the call of a generic tool that does what this call of a model's own tool does."""
    verb, _, model = attempt.params.get("name", "").partition("_")
    given: JSON = {"model": model, "arguments": attempt.params.get("arguments")}
    if attempt.method != "tools/call" or verb not in GENERIC:
        return attempt
    if GENERIC[verb] == "write_row":
        given["operation"] = verb
    return Attempt("tools/call", {"name": GENERIC[verb], "arguments": given}, attempt.pages)


def table_of(schema: Schema, tool: JSON) -> Table:
    return next(one for one in schema.tables if tool["name"].endswith(f"_{one.name}"))


def written(value: Any) -> Any:
    """Return a value as it is written in JSON."""
    return value if isinstance(value, bool | int | float | dict) else str(value)


def guesses(table: Table, kind: str, key: int) -> list[Any]:
    """Return values of the hidden and of the visible row ``key``, and prefixes of hidden values."""
    secret, plain = KINDS[kind].secret(key), KINDS[kind].plain(key)
    return [
        written(secret),
        written(plain),
        written(KINDS[kind].secret(key + 40)),
        "kanary",
        "1907",
    ]


# Systematic attempts.


def systematic(schema: Schema, tools: list[JSON]) -> Iterator[Attempt]:
    """Yield attempts that succeed if one protection has a bug."""
    yield Attempt("tools/list", {}, pages=True)
    for tool in tools:
        table, properties = table_of(schema, tool), tool["inputSchema"].get("properties", {})
        required = tool["inputSchema"].get("required", [])
        keys = [*table.hidden_keys, *table.visible_keys[:2], 999]
        if named := _key_argument(tool, table):
            others = {n: "x" for n in required if n != named}
            for key in keys:
                yield call(tool["name"], **others, **{named: _as_key(properties[named], key)})
            for relation in RELATIONS:
                for linked in _links(table, properties[relation]) if relation in properties else ():
                    row = _as_key(properties[named], table.visible_keys[0])
                    yield call(tool["name"], **{named: row, relation: linked})
        if "limit" in properties or "page_size" in properties:
            size = "limit" if "limit" in properties else "page_size"
            for number in (1, 2, 4):
                yield call(tool["name"], **{size: number})
        if "ordering" in properties or not required:
            for name in [*table.hidden, table.owner, table.tenant, "origin"]:
                yield call(tool["name"], ordering=name)
                yield call(tool["name"], ordering=f"-{name}")
        if "similar_to" in properties:
            yield from _similar(tool["name"], table, properties["similar_to"])
        elif "query" in properties:
            yield from _searched(tool["name"], table)
        if not required:
            yield from _smuggled(tool["name"], table)
            yield from _filtered(tool["name"], table, properties)


def _searched(name: str, table: Table) -> Iterator[Attempt]:
    """Yield searches for words of hidden rows, of hidden columns, and of all rows."""
    row = table.visible_keys[0] + 40  # of which the hidden columns have this number
    for text in ("kanary", "word other", "other word word", f"kanary-{row:02}", f'"kanary {row}"'):
        yield call(name, query=text)
        yield call(name, query=text, limit=2)


def _similar(name: str, table: Table, key: JSON) -> Iterator[Attempt]:
    for text in ("kanary", "a longer text"):
        for limit in (1, 2, 20):
            yield call(name, query=text, limit=limit)
    for row in [*table.hidden_keys, *table.visible_keys, 999]:
        yield call(name, similar_to=_as_key(key, row), limit=3)


def _smuggled(name: str, table: Table) -> Iterator[Attempt]:
    for column, kind in table.hidden.items():
        for lookup in LOOKUPS:
            value: Any = written(KINDS[kind].secret(table.visible_keys[0] + 40))
            if lookup in ("__startswith", "__contains"):
                value = str(value)[:4]
            value = True if lookup == "__isnull" else [value] if lookup == "__in" else value
            yield call(name, **{column + lookup: value})
    yield call(name, **{f"{table.tenant}__title__startswith": "kan"})
    yield call(name, **{table.owner: 2})
    yield call(name, query="kanary")
    yield call(name, search="kanary")
    yield call(name, contains="%")
    yield call(name, everything=True)


def _filtered(name: str, table: Table, properties: JSON) -> Iterator[Attempt]:
    yield call(name)
    for argument, schema in properties.items():
        for column, kind in table.shown.items():
            if argument.startswith(column):
                for key in table.hidden_keys[:3]:
                    value = written(KINDS[kind].secret(key))
                    yield call(
                        name, **{argument: [value] if schema.get("type") == "array" else value}
                    )
        if argument.split("__")[0] in RELATIONS and table.target:
            for key in [*table.target.hidden_keys[:4], table.target.visible_keys[0], 999]:
                yield call(name, **{argument: [key] if schema.get("type") == "array" else key})
    if "measures" in properties:
        measured = list(properties["measures"]["items"].get("enum", ["count"]))
        yield call(name, measures=measured[:10])
        for column in [*table.hidden, "origin", table.tenant, table.owner]:
            yield call(name, measures=[f"{column}__max"])
            yield call(name, group_by=[column])
        for column in properties.get("group_by", {}).get("items", {}).get("enum", []):
            yield call(name, group_by=[column])


def _key_argument(tool: JSON, table: Table) -> str:
    properties = tool["inputSchema"].get("properties", {})
    for name in ("_key", "_keys", "_uri", "pk", "id", "row", table.name, "instance"):
        if name in properties and name in tool["inputSchema"].get("required", []):
            return name
    return ""


def _as_key(schema: JSON, key: int) -> Any:
    if schema.get("type") == "array":
        return [key]
    return str(key) if schema.get("type") == "string" else key


def _links(table: Table, schema: JSON) -> list[Any]:
    """Return a link to each hidden row, to one visible row and, in a list, to no row."""
    assert table.target is not None
    keys = [*table.target.hidden_keys, table.target.visible_keys[0]]
    links: list[Any] = [_as_key(schema, key) for key in keys]
    return [*links, []] if schema.get("type") == "array" else links


def of_protocol(schema: Schema) -> Iterator[Attempt]:
    """Yield attempts with resources, completion, prompts and lists, which need no tool."""
    for method in ("prompts/list", "resources/list", "resources/templates/list"):
        yield Attempt(method, {}, pages=True)
    for table in schema.tables:
        uri = f"model://leaks/{table.name}/"
        for key in [*table.hidden_keys, *table.visible_keys, 999, "1%00", "x"]:
            yield Attempt("resources/read", {"uri": f"{uri}{key}"})
            yield Attempt(
                "prompts/get", {"name": f"review_{table.name}", "arguments": {"row": str(key)}}
            )
        for text in ["", "1", "2", "kanary", "word", "k"]:
            for ref, argument in (
                ({"type": "ref/resource", "uri": f"{uri}{{pk}}"}, "pk"),
                ({"type": "ref/prompt", "name": f"review_{table.name}"}, "row"),
            ):
                given = {"name": argument, "value": text}
                yield Attempt("completion/complete", {"ref": ref, "argument": given})


# Random attempts.


class Fuzzer:
    """Makes random calls of the tools of one bridge."""

    def __init__(self, schema: Schema, tools: list[JSON], chance: Random) -> None:
        self._schema, self._tools, self._chance = schema, tools, chance
        self.cursors: list[str] = []  # of another user

    def attempt(self) -> Attempt:
        chance = self._chance
        tool = chance.choice(self._tools)
        table, schema = table_of(self._schema, tool), tool["inputSchema"]
        properties = schema.get("properties", {})
        some = chance.random()
        names = [
            name for name in properties
            if name in schema.get("required", []) or chance.random() < some * 0.5
        ]  # fmt: skip
        arguments = {name: self._value(table, name, properties[name]) for name in names}
        if chance.random() < 0.2:
            column = chance.choice([*table.hidden, table.tenant, table.owner, "origin"])
            kind = table.hidden.get(column, "integer")
            guessed = chance.choice(guesses(table, kind, chance.choice(table.hidden_keys)))
            arguments[column + chance.choice(LOOKUPS)] = guessed
        if arguments and chance.random() < 0.15:
            arguments[chance.choice([*arguments])] = chance.choice(ODD)
        return call(tool["name"], **arguments)

    def _value(self, table: Table, name: str, schema: JSON) -> Any:
        chance = self._chance
        if name == "cursor":
            return chance.choice([*self.cursors, "WyIxIl0:1:x", ""])
        if options := schema.get("anyOf") or schema.get("oneOf"):
            return self._value(table, name, chance.choice(options))
        if "enum" in schema:
            return chance.choice(schema["enum"])
        kind = schema.get("type")
        kind = chance.choice(kind) if isinstance(kind, list) else kind
        if kind == "array":
            inner = schema.get("items", {})
            return [self._value(table, name, inner) for _ in range(chance.randint(0, 3))]
        if kind == "object":
            return {
                inner: self._value(table, inner, one)
                for inner, one in schema.get("properties", {}).items()
            }
        if kind == "boolean":
            return chance.random() < 0.5
        if kind == "null":
            return None
        if name in ("limit", "page", "page_size"):
            return chance.choice([1, 2, 3, 5, 100])
        return self._guess(table, name, kind)

    def _guess(self, table: Table, name: str, kind: Any) -> Any:
        chance = self._chance
        column = next((one for one in table.shown if name.split("__")[0].startswith(one)), None)
        if column is not None:
            found = guesses(table, table.shown[column], chance.choice(table.hidden_keys))
        elif kind == "string":
            found = ["kanary", "word", "word 01", "k", chance.choice(table.hidden_keys)]
            target = (table.target or table) if name in RELATIONS else table
            found += [f"model://leaks/{target.name}/{key}" for key in target.hidden_keys[:3]]
        else:
            target = (table.target or table) if name in RELATIONS else table
            found = [*target.hidden_keys, *target.visible_keys, 999]
        value = chance.choice(found)
        if kind == "string":
            return str(value)
        if kind in ("integer", "number") and not isinstance(value, int | float):
            return chance.choice([*table.hidden_keys, *table.visible_keys])
        return value
