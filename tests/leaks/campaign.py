"""Execution of attempts in both worlds, and the comparison of the results.

A leak is a canary in a response or in the log, a response that differs between the worlds, or a
different number of queries. More queries take more time, which the caller can measure. The time
itself is not compared, because it depends on what else the machine does.
"""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from django.db import connection, reset_queries
from django.db.models.signals import pre_save
from django.test.utils import CaptureQueriesContext

from tests.canaries.clients import MADE_UP, Pipe
from tests.client import RpcError
from tests.rollback import rolled_back

from .attempts import Attempt, Fuzzer, call, generic, of_protocol, systematic
from .schema import APP, CANARY, Schema

FOUND = re.compile(CANARY)
UNCOUNTED = re.compile("^(RELEASE |ROLLBACK TO )?SAVEPOINT|django_mcp_")
MAX_PAGES = 8


class Leak(AssertionError):
    """A hidden row or value is in the output, or changed it."""


class Seen:
    """What one attempt produced: messages, log lines and queries."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.logged: list[str] = []
        self.queries: list[str] = []


class Campaign:
    """Attempts by the user alice on one server."""

    def __init__(self, schema: Schema, servers: Any, bridge: str, alice: Any) -> None:
        self.schema, self._server, self._alice = schema, servers[bridge], alice
        self._is_generic = bridge.startswith("generic")
        # Generic tools take the arguments of each model's own tools.
        own = servers["models"] if self._is_generic else self._server
        with Pipe(alice, own, "2026-07-28") as client:
            self.tools = client.all("tools/list", "tools")

    def _client(self, user: Any = None) -> Any:
        return Pipe(user or self._alice, self._server, "2026-07-28")

    def attempts(self, chance: Any, number: int) -> list[Attempt]:
        """Return ``number`` attempts: at most half of them systematic, the others random."""
        planned = [*systematic(self.schema, self.tools)]
        if "models" in self._server.name:
            planned += of_protocol(self.schema)
        fuzzer = Fuzzer(self.schema, self.tools, chance)
        fuzzer.cursors = self._cursors_of_mallory()
        chance.shuffle(planned)
        planned = planned[: number // 2]
        planned += [fuzzer.attempt() for _ in range(number - len(planned))]
        chance.shuffle(planned)
        return [generic(one) for one in planned] if self._is_generic else planned

    def every(self) -> list[Attempt]:
        """Return all systematic attempts."""
        found = [*systematic(self.schema, self.tools)]
        found += of_protocol(self.schema) if "models" in self._server.name else []
        return [generic(one) for one in found] if self._is_generic else found

    def visible_rows(self) -> dict[str, list[int]]:
        """Return the keys of the rows that the bridge's lists show to alice."""
        found = {}
        with self._client() as client:
            for table in self.schema.tables:
                tool = next(
                    one["name"] for one in self.tools
                    if one["name"] in (f"search_{table.name}", f"list_{table.name}",
                                       f"list_rows_{table.name}")
                )  # fmt: skip
                before = len(client.received)
                _request(client, generic(call(tool)) if self._is_generic else call(tool))
                shown = [_data(one["result"]) for one in client.received[before:] if "id" in one]
                rows = [row for page in shown for row in page.get("results") or page["items"]]
                keys = [
                    row.get("id") or row.get("_key") or row["_uri"].split("/")[-1] for row in rows
                ]
                found[table.name] = sorted(int(key) for key in keys)
        return found

    def _cursors_of_mallory(self) -> list[str]:
        mallory = type(self._alice)._default_manager.get(username="mallory")
        found = []
        with self._client(mallory) as client:
            for tool in self.tools:
                if "cursor" in tool["inputSchema"].get("properties", {}):
                    first = call(tool["name"], limit=1)
                    first = generic(first) if self._is_generic else first
                    shown = client.request(first.method, **first.params)["structuredContent"]
                    found += [shown["next_cursor"]] if "next_cursor" in shown else []
        return found

    def run(self, attempts: Sequence[Attempt]) -> None:
        """Make ``attempts`` in both worlds. Raise ``Leak`` if one reveals something."""
        with mock.patch("django.core.signing.time.time", return_value=1_800_000_000.0):
            with self.schema.world(hidden=True):
                here = self._tried(attempts)
            with self.schema.world(hidden=False):
                there = self._tried(attempts)
        for attempt, one, other in zip(attempts, here, there, strict=True):
            self._compare(attempt, one, other)

    def _compare(self, attempt: Attempt, one: Seen, other: Seen) -> None:
        for where in ("sent", "logged"):
            for found in FOUND.findall("\n".join(getattr(one, where))):
                if found not in attempt.text:
                    raise Leak(f"{attempt} revealed {found!r}: {getattr(one, where)}")
        if one.sent != other.sent:
            pairs = itertools.zip_longest(one.sent, other.sent)
            first = next(pair for pair in pairs if pair[0] != pair[1])
            raise Leak(f"{attempt}: with hidden rows\n{first[0]}\nand without them\n{first[1]}")
        if len(one.queries) != len(other.queries) and not self._reads_on(attempt):
            listed = "\n".join([*one.queries, "and without:", *other.queries])
            raise Leak(f"{attempt}: queries with hidden rows, and without them:\n{listed}")

    def _reads_on(self, attempt: Attempt) -> bool:
        """Whether the server reads further rows because ``has_object_permission`` removed some.

        Then the number of queries may differ between the worlds.
        """
        by_object = self.schema.tables[0].name
        named = attempt.params.get("name") or json.dumps(attempt.params.get("ref"))
        if named == "search_rows":
            named = f"search_{attempt.params['arguments']['model']}"
        return "models" in self._server.name and (
            named in (f"search_{by_object}", f"find_similar_{by_object}")
            or attempt.method in ("resources/list",)
            or (attempt.method == "completion/complete" and by_object in named)
        )  # fmt: skip

    def _tried(self, attempts: Sequence[Attempt]) -> list[Seen]:
        with self._client() as client:
            return [self._observed(client, attempt) for attempt in attempts]

    def _observed(self, client: Any, attempt: Attempt) -> Seen:
        seen, before = Seen(), len(client.received)
        reset_queries()
        with (
            rolled_back(), _same_keys(), _log(seen.logged), CaptureQueriesContext(connection) as ran
        ):  # fmt: skip
            _request(client, attempt)
        seen.queries = [q["sql"] for q in ran.captured_queries if not UNCOUNTED.search(q["sql"])]
        for message in client.received[before:]:
            message.pop("id", None)  # counts the requests, of which one world may have fewer
            seen.sent.append(MADE_UP.sub("...", json.dumps(message, ensure_ascii=False)))
        return seen


def _data(result: Any) -> Any:
    """Return the data of a result. A command writes them as text."""
    text = result["content"][0]["text"]
    return result.get("structuredContent") or json.loads(text)


def _request(client: Any, attempt: Attempt) -> None:
    params, page = attempt.params, 1
    for _ in range(MAX_PAGES):
        try:
            result = client.request(attempt.method, **params)
        except RpcError:
            return
        if not attempt.pages:
            return
        shown = result.get("structuredContent") or {}
        cursor = result.get("nextCursor")
        if cursor:
            params = params | {"cursor": cursor}
        elif "next_cursor" in shown:
            more, given = {"cursor": shown["next_cursor"]}, params["arguments"]
            if "model" in given:  # a generic tool
                more = {"arguments": given["arguments"] | more}
            params = params | {"arguments": given | more}
        elif shown.get("next") or shown.get("pages", 0) > page or shown.get("count", 0) > 3 * page:
            page += 1
            params = params | {"arguments": params["arguments"] | {"page": page}}
        else:
            return


@contextmanager
def _same_keys() -> Iterator[None]:
    """Give new rows the same primary keys in both worlds, on every database."""
    numbers = itertools.count(9001)

    def numbered(sender: Any, instance: Any, **kwargs: Any) -> None:
        if sender._meta.app_label == APP and instance.pk is None:
            instance.pk = next(numbers)

    pre_save.connect(numbered)
    try:
        yield
    finally:
        pre_save.disconnect(numbered)


class MessageList(logging.Handler):
    """Appends the message of each log record to a list."""

    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.DEBUG)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(record.getMessage())


@contextmanager
def _log(found: list[str]) -> Iterator[None]:
    """Collect the messages of the log, without tracebacks and without Django's log of queries."""
    listener = MessageList(found)
    listener.addFilter(lambda record: record.name != "django.db.backends")
    loggers = [logging.getLogger(), logging.getLogger("django_mcp")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
    loggers[0].addHandler(listener)
    try:
        yield
    finally:
        loggers[0].removeHandler(listener)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
