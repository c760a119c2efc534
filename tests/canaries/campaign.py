"""
Execution of attempts, with and without hidden rows, and the search for leaks in all output.

Whatever is sent, logged or stored contains no canary that the attacker did not send himself. The
same attempt gets the same response, byte for byte, whether hidden rows exist or not. Where rows are
named by their keys, the same queries are executed.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any
from unittest import mock

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.db import connection, reset_queries
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from tests.client import RpcError
from tests.rollback import rolled_back

from .attempts import Attempt
from .change_delivery import deliver_after_attempt, deliver_changes, held
from .clients import FRAMING, MADE_UP, visited
from .dataset import CANARIES, HIDDEN, MARKER, VISIBLE, without
from .exposed import BUGS
from .models import Paper

JSON = dict[str, Any]
CORE = re.compile(rf"(?:{'|'.join(CANARIES)})[\w-]*")
FOUND = re.compile(rf"[\w.:/-]*(?:{'|'.join(CANARIES)})[\w.-]*")
LITERAL = re.compile(r"'(?:[^']|'')*'|\s*-?\b\d+\b")
OWN = re.compile(
    "^(RELEASE |ROLLBACK TO )?SAVEPOINT|django_mcp_"
)  # random names; checked only where they fit
Connected = Callable[[], Any]  # makes a client


class Leak(AssertionError):
    """A canary was found in the output."""


@dataclass
class Seen:
    """The output of an attempt."""

    sent: list[Any] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)


def campaign(connected: Connected, attempts: Sequence[Attempt]) -> None:
    """Try ``attempts`` with clients that ``connected`` makes. Raises ``Leak``."""
    with mock.patch("django.core.signing.time.time", return_value=1_800_000_000.0):
        with rolled_back():
            here = _tried(connected, attempts)
        with without():
            there = _tried(connected, attempts)
    left = ""
    for attempt, one, other in zip(attempts, here, there, strict=True):
        left += attempt.left
        _look(attempt, one, attempt.text + left)
        _tell(attempt, "has other answers", _comparable(one.sent), _comparable(other.sent))
        if attempt.kind == "keyed":
            _tell(attempt, "asks otherwise", one.queries, other.queries)


def _comparable(sent: Sequence[Any]) -> list[str]:
    """Return what was sent, without random values and framing."""
    lines = (line for one in sent for line in _lines(one))
    return sorted(MADE_UP.sub("...", line) for line in lines if line and not FRAMING.match(line))


def _lines(sent: Any) -> list[str]:
    return sent.splitlines() if isinstance(sent, str) else [json.dumps(sent)]


def _tell(attempt: Attempt, what: str, ours: list[str], theirs: list[str]) -> None:
    for one, other in zip_longest(ours, theirs):
        if one != other:
            raise Leak(f"{attempt} {what}:\n{one}\nand without what is hidden:\n{other}")


def _tried(connected: Connected, attempts: Sequence[Attempt]) -> list[Seen]:
    """Execute attempts and return their outputs, after checking the stored rows."""
    with connected() as client, held():
        if client.revision.handshake:
            client.request("resources/subscribe", uri=MARKER)
        seen = [_observed(client, attempt) for attempt in attempts]
    said = "".join(attempt.text for attempt in attempts)
    for row in _stored():
        for found in FOUND.findall(row):
            if not _is_said(found, said):
                raise Leak(f"{found!r} was stored: {row}")
    return seen


def _stored() -> Iterator[str]:
    """Iterate over all rows of the package."""
    for model in (*apps.get_app_config("django_mcp").get_models(), LogEntry):
        for row in model._default_manager.values():
            yield f"{model.__name__}: {row}"


def _observed(client: Any, attempt: Attempt) -> Seen:
    seen, before = Seen(), len(client.received)
    reset_queries()  # of which only so many are kept
    with _log(seen.logged), CaptureQueriesContext(connection) as captured:
        TRIED[attempt.kind](client, attempt)
        deliver_after_attempt(client)
    seen.sent = client.received[before:]
    asked = (query["sql"] for query in captured)
    seen.queries = [_plain(sql) for sql in asked if not OWN.search(sql)]
    return seen


def _plain(sql: str) -> str:
    """Return a query without the values of saved rows, which vary."""
    return LITERAL.sub("?", sql) if sql.startswith(("INSERT", "UPDATE")) else sql


@contextmanager
def _log(found: list[str]) -> Iterator[None]:
    """Capture all log records except Django's log of queries."""
    listener = logging.Handler()
    listener.emit = lambda record: found.append(_FORMAT.format(record))  # type: ignore[method-assign]
    listener.addFilter(lambda record: record.name != "django.db.backends")
    root, package = logging.getLogger(), logging.getLogger("django_mcp")
    levels = root.level, package.level
    for logger in (root, package):
        logger.setLevel(logging.DEBUG)
    root.addHandler(listener)
    try:
        yield
    finally:
        root.removeHandler(listener)
        root.setLevel(levels[0])
        package.setLevel(levels[1])


_FORMAT = logging.Formatter("%(name)s %(message)s")


def _look(attempt: Attempt, seen: Seen, said: str) -> None:
    logged = [] if attempt.params.get("name") in BUGS else seen.logged
    for where, text in (("sent", json.dumps(seen.sent)), ("logged", "\n".join(logged))):
        for found in FOUND.findall(text):
            if not _is_said(found, said):
                raise Leak(f"{attempt} brought out {found!r}, which was {where}: {text}")


def _is_said(found: str, said: str) -> bool:
    """Return whether a text is the attacker's own input."""
    core = CORE.search(found)
    return core is not None and core[0].rstrip("-_.") in said


# How each kind is tried.


def _request(client: Any, method: str, params: JSON) -> JSON | None:
    try:
        result: JSON = client.request(method, **params)
    except RpcError:
        return None
    return result


def _keyed(client: Any, attempt: Attempt) -> None:
    _request(client, attempt.method, attempt.params)


def _paged(client: Any, attempt: Attempt) -> None:
    """Read all pages: their number is information, too."""
    params, cursor = attempt.params, None
    for _ in range(12):
        asked = _after(params, cursor)
        result = _request(client, attempt.method, asked)
        cursor = _next(result or {})
        if cursor is None:
            return


def _after(params: JSON, cursor: str | None) -> JSON:
    """Read all pages from ``cursor`` on."""
    if cursor is None:
        return params
    if "arguments" not in params:
        return params | {"cursor": cursor}
    return params | {"arguments": params["arguments"] | {"cursor": cursor}}


def _next(result: JSON) -> str | None:
    found: str | None = result.get("nextCursor")
    return found or result.get("structuredContent", {}).get("next_cursor")


def _cursor(client: Any, attempt: Attempt) -> None:
    """Use the cursor of a search, changed, or with another search."""
    cursor = _next(_request(client, "tools/call", attempt.params) or {}) or "x"
    bent = {"next": cursor, "other": cursor, "cut": cursor[:-3], "forged": "WyIxIl0:1:x"}
    params = attempt.params
    if attempt.method == "other":
        params = params | {"arguments": {"limit": 3, "ordering": "-amount"}}
    _request(client, "tools/call", _after(params, bent[attempt.method]))


def _listen(client: Any, attempt: Attempt) -> None:
    """Subscribe, change all rows, hidden ones first, and collect the notifications."""
    with _subscribed(client, attempt.params["uris"]):
        for keys in (HIDDEN, VISIBLE):
            with TestCase.captureOnCommitCallbacks(execute=True):
                for paper in Paper.objects.filter(pk__in=keys).order_by("pk"):
                    paper.save()
            deliver_changes(client)


@contextmanager
def _subscribed(client: Any, uris: Sequence[str]) -> Iterator[None]:
    if client.revision.handshake:  # sessions are notified of lists and of the marker
        for uri in uris:
            _request(client, "resources/subscribe", {"uri": uri})
        yield
        for uri in uris:
            _request(client, "resources/unsubscribe", {"uri": uri})
        return
    told = len(client.notes)
    wanted = {"resourceSubscriptions": [*uris, MARKER], "resourcesListChanged": True}
    started = client.start("subscriptions/listen", notifications=wanted)
    client.until(lambda: len(client.notes) > told)
    yield
    client.stop(started)


def _asked(client: Any, attempt: Attempt) -> None:
    """Answer one question with a guess, and no others."""
    answers = iter([{"action": "accept", "content": {"paper": attempt.method}}])
    client.answers = {"elicitation/create": lambda params: next(answers, {"action": "decline"})}
    _request(client, "tools/call", attempt.params)


def _visit(client: Any, attempt: Attempt) -> None:
    user = client.visitor if attempt.method == "alice" else None
    client.received += visited(user, client.server, **attempt.params)


TRIED: dict[str, Callable[[Any, Attempt], None]] = {
    "keyed": _keyed, "paged": _paged, "cursor": _cursor, "listen": _listen,
    "asked": _asked, "visit": _visit,
}  # fmt: skip
