"""
Pages of the measured project that report how a burst of messages was stored.

They observe the database connections from outside; the package knows nothing of them. `/burst`
reports the last burst and when each group was committed. `/bulk` writes the same rows with
`bulk_create`, and reports how long that takes.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.backends.signals import connection_created
from django.db.models import Max, Min

from benchmarks.mcp import SENT
from benchmarks.peers.bare import respond
from django_mcp.conf import settings
from django_mcp.models import Event, Stream

COMMITTED: list[Transaction] = []  # those that wrote events, in order


@dataclass
class Transaction:
    """A transaction of a connection to the session database."""

    begun: float
    has_events: bool = False
    ended: float = 0.0

    def committed(self) -> None:
        if self.has_events:
            self.ended = time.monotonic()
            COMMITTED.append(self)


def watch(connection: Any, **details: Any) -> None:
    if connection.alias == settings.DATABASE:
        connection.execute_wrappers.append(observe)


def observe(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    connection = context["connection"]
    if connection.in_atomic_block:
        now = time.monotonic()
        hooks = (hook for _, hook, _ in connection.run_on_commit)
        current = next((hook.__self__ for hook in hooks if hasattr(hook, "__self__")), None)
        if current is None:  # a rollback has removed the hooks of the last one
            current = Transaction(now)
            connection.on_commit(current.committed)
        current.has_events |= "INSERT INTO" in sql and Event._meta.db_table in sql
    return execute(sql, params, many, context)


def burst() -> dict[str, Any]:
    """Return the last burst: its stream, when each message was sent, and its groups."""
    events = Event.objects.using(settings.DATABASE)
    stream = events.order_by("-pk").values_list("stream_id", flat=True)[0]
    flushes = events.filter(stream=stream, final=False).values("nonce").order_by()
    ends = flushes.annotate(first=Min("seq"), last=Max("seq")).order_by("first")
    found = [(one["first"], one["last"]) for one in ends]
    mine = COMMITTED[-len(found) - 1 : -1]  # the last transaction wrote the response
    groups = [
        {"first": first, "last": last, "begun": one.begun, "ended": one.ended}
        for (first, last), one in zip(found, mine, strict=True)
    ]
    return {"stream": stream, "sent": SENT, "groups": groups}


def bulk(sizes: list[int]) -> float:
    """Return the seconds to write the rows of the last burst in committed groups of these sizes."""
    alias = settings.DATABASE
    stream = Stream.objects.using(alias).latest("pk")
    found = Event.objects.using(alias).filter(stream=stream, final=False).order_by("seq")
    texts = list(found.values_list("data", flat=True))
    copy = Stream.objects.using(alias).create(session_id=stream.session_id)
    began, end = time.monotonic(), 0
    for size in sizes:
        begin, end = end, end + size
        numbered = enumerate(texts[begin:end], begin + 1)
        rows = [Event(stream=copy, seq=n, data=text, size=len(text)) for n, text in numbered]
        with transaction.atomic(using=alias):
            Event.objects.using(alias).bulk_create(rows)
    took = time.monotonic() - began
    assert copy.pk and end == len(texts), (end, len(texts))
    copy.delete(using=alias)
    return took


def compared() -> dict[str, float]:
    groups = burst()["groups"]
    sizes = [one["last"] - one["first"] + 1 for one in groups]
    return {"in groups": bulk(sizes), "in one": bulk([sum(sizes)])}


PAGES = {"/burst": burst, "/bulk": compared}


def with_burst_pages(application: Any) -> Any:
    """Add the pages to the application."""
    connection_created.connect(watch, dispatch_uid="burst-pages")

    async def answered(scope: Any, receive: Any, send: Any) -> None:
        page = PAGES.get(scope.get("path", ""))
        if page is None:
            await application(scope, receive, send)
        else:
            await respond(json.dumps(await asyncio.to_thread(page)).encode(), send)

    return answered
