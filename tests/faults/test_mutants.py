"""The mutants have their deliberate defect, and only that."""

from __future__ import annotations

import re

import pytest
from django.conf import settings
from django.db import connections

from django_mcp.models import Change
from django_mcp.storage import change_log, event_log, streams
from tests.storage.rows import call, session

from .project import mutants

COUNT = 3 * mutants.EVERY


async def sent(name: str, chunk: int, method: str = "POST") -> list[int]:
    """Send events in chunks of some bytes, and return the numbers of those that arrive."""
    events = b"".join(
        b'id: 1-%d\ndata: {"method":"notifications/progress"}\n\n' % number
        for number in range(COUNT)
    )
    final = b'id: 1-%d\ndata: {"id":1,"result":{}}\n\n' % COUNT

    async def application(scope, receive, send):
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        whole = events + final
        for at in range(0, len(whole), chunk):
            body = whole[at : at + chunk]
            await send({"type": "http.response.body", "body": body, "more_body": True})

    arrived = b""

    async def send(message):
        nonlocal arrived
        arrived += message.get("body", b"")

    await mutants.mutated(application, name)({"method": method}, None, send)
    return [int(number) for number in re.findall(rb"id: [0-9a-f]+-(\d+)", arrived)]


ALL = list(range(COUNT + 1))


@pytest.mark.parametrize("chunk", [7, 1000, 10**6])
async def test_mutants_on_the_wire_drop_repeat_or_swap_events(chunk):
    assert await sent("", chunk) == ALL
    dropped, twice, swapped = [await sent(name, chunk) for name in ("drop", "twice", "swap")]
    for name in ("resume", "told-twice"):
        assert await sent(name, chunk) == ALL
    assert await sent("resume", chunk, "GET") == ALL[-1:]
    assert len(dropped) == len(ALL) - 3 and dropped == sorted(set(dropped))
    assert len(twice) == len(ALL) + 3 and sorted(set(twice)) == ALL and twice == sorted(twice)
    assert sorted(swapped) == ALL and swapped != ALL


async def test_mutants_do_not_change_other_responses():
    async def application(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"notifications/"})

    arrived = []

    async def send(message):
        arrived.append(message.get("body"))

    await mutants.mutated(application, "drop")({}, None, send)
    assert arrived == [None, b"notifications/"]


WORDS = [f'{{"method":"notifications/progress","params":{{"progress":{n}}}}}' for n in range(4)]
KEPT = {
    "": WORDS,
    "drop": WORDS,
    "log-drop": [WORDS[0], mutants.NOTHING, *WORDS[2:]],
    "log-twice": [WORDS[0], WORDS[0], *WORDS[2:]],
    "log-swap": [WORDS[1], WORDS[0], *WORDS[2:]],
}


@pytest.mark.django_db
@pytest.mark.parametrize("name", KEPT)
def test_mutants_of_the_log_store_wrong_texts_with_correct_ids(name, monkeypatch):
    monkeypatch.setattr(mutants.EventCorruption, "statements", iter(range(mutants.OFTEN, 100)))
    log = connections[settings.DJANGO_MCP["DATABASE"]]
    monkeypatch.setattr(log, "execute_wrappers", mutants.among_statements(name))
    stream, other = (streams.open(session(), calls=[call()]) for _ in range(2))
    event_log.append(other.pk, WORDS[:1])
    event_log.append(stream.pk, WORDS)
    assert event_log.read(stream.pk, 0) == [*enumerate(KEPT[name], 1)]
    assert event_log.read(other.pk, 0) == [(1, WORDS[0])]


@pytest.mark.django_db
def test_mutant_of_changes_stores_no_row_reference(monkeypatch):
    kept = []
    for name in ("", "untold"):
        with monkeypatch.context() as patch:
            patch.setattr(
                connections["default"], "execute_wrappers", mutants.among_statements(name)
            )
            change_log.record("default", (change_log.ROW, {"shop.tag": {"pk": "1"}}))
        kept.append(Change.objects.using("default").latest("pk").subject)
    assert kept == [{"shop.tag": {"pk": "1"}}, {}]


def test_every_mutant_has_a_class_and_scenarios():
    somewhere = {*mutants.ON_THE_WIRE, *mutants.IN_THE_LOG, *mutants.IN_CHANGES}
    assert mutants.MUTANTS.keys() == somewhere == mutants.TRIED.keys()
    assert set(mutants.MUTANTS.values()) == {"lost", "duplicated", "disordered"}
