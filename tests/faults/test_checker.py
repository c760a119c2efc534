"""The checker reports every deviation of a stream with its kind, and nothing else."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from .checker.calls import Attempt, ExpectedCall, judge
from .checker.client import Address, Broken, request
from .checker.context import CampaignContext, Deadline
from .checker.expectation import Reading, RequestMessages, Stream, compare
from .checker.faults import Faults
from .checker.findings import Findings
from .checker.reading import Ending, Reader
from .checker.scenarios import SCENARIOS
from .checker.sessions import Session
from .checker.sse import Event
from .checker.words import LOST, ROLLED_BACK, TRIMMED, spoken, word
from .project import words as others

CHECKER = Path(__file__).parent / "checker"
COUNT, SEED = 5, "1-2-3.0"
JSON = dict[str, Any]


@pytest.fixture
def findings() -> Findings:
    return Findings(7)


@pytest.fixture
def session(findings) -> Session:
    here = Address("127.0.0.1", 1, "/mcp")
    return Session(CampaignContext(here, [here], 7, 2.0, "postgres", "none", 1.0, findings), "one")


def wrong(findings: Findings) -> dict[str, int]:
    return {kind: count for kind, count in findings.totals.items() if count}


def progress(number: int, token: str = "t1", seed: str = SEED) -> JSON:
    params = {"progressToken": token, "progress": number + 1, "message": word(seed, number)}
    return {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}


def response(text: str, id: int = 1) -> JSON:
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}


def whole(final: str | None = None) -> list[JSON]:
    said = [progress(number) for number in range(COUNT)]
    return [*said, response(word(SEED, "final") if final is None else final)]


def strike(session: Session, kind: str, worker: str = "http://127.0.0.1:1/mcp") -> None:
    expected = {"fault": kind, "at": "struck", "worker": worker, "id": f"f{time.monotonic()}"}
    session.context.faults.take(json.dumps(expected).encode())


def events(messages: Sequence[JSON], first: int = 1) -> list[Event]:
    return [
        Event(json.dumps(message), f"4-{number}") for number, message in enumerate(messages, first)
    ]


def read(stream: Stream, found: Sequence[Event], after: int = 0) -> Reading:
    """Read events by one connection."""
    reading = Reading(stream, after)
    for event in found:
        reading.take(event)
    reading.end()
    return reading


def judged(
    session: Session, stream: Stream, *, ending: Ending = Ending.ANSWERED, **wanted: Any
) -> str:
    asked = ExpectedCall(**{"tool": "recite", "seed": "1-2-3", "count": COUNT} | wanted)
    return judge(session, Attempt(asked, 1, SEED, stream), ending)


# Event ids.


def test_complete_stream_has_no_findings(findings):
    stream = Stream(findings, "x")
    read(stream, [Event("", "4-0", retry=500), *events(whole())])
    assert wrong(findings) == {} and stream.messages() == whole()
    assert findings.counts["events"] == COUNT + 2


def test_stream_over_several_connections_has_no_findings(findings):
    stream, found = Stream(findings, "x"), events(whole())
    read(stream, [Event("", "4-0"), *found[:2]])
    read(stream, [Event("", "4-2-2"), *found[2:4], Event("", "4-4-3", retry=1)], after=2)
    read(stream, [Event("", "4-4-4"), *found[4:]], after=4)
    assert wrong(findings) == {} and stream.messages() == whole()


DROPPED: Callable[[list[Event]], list[Event]] = lambda found: [*found[:2], *found[3:]]  # noqa: E731
FAULTS = {
    "an event is missing": (DROPPED, "lost"),
    "an event comes twice": (lambda found: [*found[:3], found[2], *found[3:]], "duplicated"),
    "an event comes again later": (lambda found: [*found, found[1]], "duplicated"),
    "two events are swapped": (
        lambda found: [found[0], found[2], found[1], *found[3:]], "disordered"),
    "the first is missing": (lambda found: found[1:], "lost"),
    "an event of another stream": (
        lambda found: [*found[:2], Event("{}", "5-3"), *found[2:]], "wrong"),
    "an event has no id": (lambda found: [*found, Event("{}")], "wrong"),
    "an id that is none": (lambda found: [*found, Event("{}", "4-x")], "wrong"),
    "an empty event has the id of another": (
        lambda found: [Event("", "4-0"), Event("", "4-0"), *found], "duplicated"),
    "the cursor goes back": (lambda found: [*found, Event("", "4-1")], "wrong"),
    "the cursor goes ahead": (lambda found: [*found, Event("", "4-9")], "lost"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_wrong_event_ids_are_classified(findings, name):
    change, kind = FAULTS[name]
    read(Stream(findings, "x"), change(events(whole())))
    assert wrong(findings) == {kind: 1}, findings.found


def test_repetition_after_resumption_is_duplicated(findings):
    stream, found = Stream(findings, "x"), events(whole())
    read(stream, found[:3])
    read(stream, found[2:], after=3)
    assert wrong(findings) == {"duplicated": 1}


def test_gap_after_resumption_is_lost(findings):
    stream, found = Stream(findings, "x"), events(whole())
    read(stream, found[:3])
    read(stream, found[4:], after=3)
    assert wrong(findings) == {"lost": 1}


def test_different_text_for_the_same_id_is_wrong(findings):
    stream, found = Stream(findings, "x"), events(whole())
    read(stream, found)
    read(stream, events(whole("something else")), after=0)
    assert wrong(findings) == {"wrong": 1}


def test_empty_event_for_an_older_client_is_wrong(findings):
    reading = Reading(Stream(findings, "x"), 0, primes=False)
    reading.take(Event("", "4-0"))
    assert wrong(findings) == {"wrong": 1}


def test_pruned_events_are_excused_by_an_error_response(findings):
    error = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": f"It {TRIMMED}"}}
    for forgets, expected in ((True, {}), (False, {"lost": 1})):
        stream = Stream(findings, "x")
        stream.may_be_trimmed = forgets
        read(stream, [Event("", "4-2"), Event(json.dumps(error), "4-6")], after=2)
        assert wrong(findings) == expected


@pytest.mark.parametrize(
    ("forgets", "began", "expected"),
    [(True, [], {}), (False, [], {"lost": 1}), (True, [Event("{}", "4-3")], {"lost": 1})],
    ids=["forgotten", "not forgotten", "later"],
)
def test_pruned_events_are_excused_only_before_the_response(findings, forgets, began, expected):
    stream, answer = Stream(findings, "x"), {"jsonrpc": "2.0", "id": 1, "result": {}}
    stream.may_be_trimmed = forgets
    read(stream, [Event("", "4-2"), *began, Event(json.dumps(answer), "4-6")], after=2)
    assert wrong(findings) == expected and stream.is_trimmed is not bool(expected)


@pytest.mark.parametrize(
    ("forgets", "later", "expected"),
    [
        (True, f"It {TRIMMED}", {}),
        (False, f"It {TRIMMED}", {"wrong": 1}),
        (True, "b", {"wrong": 1}),
    ],
)
def test_changed_event_is_excused_only_by_pruning(findings, forgets, later, expected):
    stream = Stream(findings, "x")
    stream.may_be_trimmed = forgets
    stream.keep(4, "a")
    stream.keep(4, later)
    assert wrong(findings) == expected


# Texts.


def test_complete_call_is_a_success(session, findings):
    stream = Stream(findings, "x")
    read(stream, events(whole()))
    assert judged(session, stream) == "success" and wrong(findings) == {}


SAID = {
    "a word was never written": ([0, 1, 3, 4], {"lost": 1}),
    "a word was written twice": ([0, 1, 1, 2, 3, 4], {"duplicated": 1, "disordered": 1}),
    "two words were swapped": ([0, 2, 1, 3, 4], {"disordered": 2}),
    "it began anew": ([0, 1, 2, 0, 1, 2, 3, 4], {"duplicated": 1, "disordered": 1}),
}


@pytest.mark.parametrize("name", SAID)
def test_wrong_texts_with_correct_ids_are_classified(session, findings, name):
    """The ids are correct, but the event log is not."""
    numbers, expected = SAID[name]
    said = [progress(number) for number in numbers]
    stream = Stream(findings, "x")
    read(stream, events([*said, response(word(SEED, "final"))]))
    judged(session, stream)
    assert wrong(findings) == expected, findings.found


def test_text_of_another_call_is_wrong(session, findings):
    stream = Stream(findings, "x")
    messages = whole()
    messages[2]["params"]["message"] = word("another", 2)
    read(stream, events(messages))
    judged(session, stream)
    assert wrong(findings) == {"wrong": 1, "lost": 1}


def test_missing_response_is_lost(session, findings):
    stream = Stream(findings, "x")
    read(stream, events(whole()[:-1]))
    assert judged(session, stream, ending=Ending.OVER) == "silence"
    assert wrong(findings) == {"lost": 1}


def test_second_response_is_duplicated(session, findings):
    stream = Stream(findings, "x")
    read(stream, events([*whole(), whole()[-1]]))
    judged(session, stream)
    assert wrong(findings) == {"duplicated": 1}


def test_message_after_the_response_is_disordered(session, findings):
    stream = Stream(findings, "x")
    messages = whole()
    read(stream, events([*messages[:4], messages[5], messages[4]]))
    judged(session, stream)
    assert wrong(findings) == {"disordered": 1}


def test_different_response_is_wrong(session, findings):
    stream = Stream(findings, "x")
    read(stream, events(whole("something else")))
    assert judged(session, stream) == "wrong" and wrong(findings) == {"wrong": 1}


def test_missing_last_text_is_lost(findings):
    wanted = spoken("s", 4)
    assert compare(findings, "x", wanted, wanted)
    assert not compare(findings, "x", wanted, wanted[:3])
    assert wrong(findings) == {"lost": 1}


def test_messages_of_other_requests_are_ignored():
    expected = RequestMessages([progress(0, "t2"), response("x", 2), progress(0)], 1, "t1")
    assert (len(expected.said), expected.responses, expected.rises) == (1, [], True)


async def served(session: Session, *found: Event, after: int = 0) -> Reader:
    """Read a stream from a minimal server, and return the reader."""
    blocks = (f"id: {event.id}\ndata: {event.data}\n\n" for event in found)
    body = "".join(blocks).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    head += b"content-length: %d\r\n\r\n" % len(body)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head + body)
        writer.close()
        await writer.wait_closed()
        over.set()

    over = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        here = Address("127.0.0.1", server.sockets[0].getsockname()[1], "/mcp")
        reader = Reader(session, Stream(session.context.findings, "x"), [1])
        reader.at = after
        await reader.read(await request(here, "GET", {}))
        await asyncio.wait_for(over.wait(), 5)
        return reader


async def test_messages_of_other_requests_on_a_stream_are_wrong(session, findings):
    await served(session, Event("", "4-0"), *events(whole()))
    assert wrong(findings) == {}
    others = [progress(0, "t2"), response("x", 2), *whole()]
    await served(session, Event("", "4-0"), *events(others))
    assert wrong(findings) == {"wrong": 2}


PRUNES = [((), {"lost": 1}), (("begin", "end"), {"lost": 1}), (("begin",), {})]


@pytest.mark.parametrize(("expected", "found"), PRUNES, ids=["never", "before", "meanwhile"])
async def test_pruning_before_the_stream_began_excuses_nothing(session, findings, expected, found):
    """Otherwise a server that resumes only with the response would always be excused."""
    for at in expected:
        session.context.faults.take(json.dumps({"fault": "prune", "at": at, "id": "f1"}).encode())
    reader = await served(session, Event("", "4-2"), *events(whole()[-1:], 9), after=2)
    assert wrong(findings) == found and reader.stream.is_trimmed is not bool(found)


# Effects.


EFFECTS = [
    (ROLLED_BACK, "act", "postgres", 0, {}),
    (ROLLED_BACK, "act", "postgres", 1, {"wrong": 1}),
    (LOST, "act", "sqlite", 1, {}),
    (LOST, "act", "sqlite", 0, {}),
    (LOST, "act", "postgres", 0, {"wrong": 1}),
    (LOST, "steps", "postgres", 2, {"duplicated": 1}),
    (None, "act", "postgres", 1, {}),
    (None, "act", "postgres", 0, {"lost": 1}),
    (None, "act", "postgres", 2, {"duplicated": 1}),
    (None, "put", "sqlite", 2, {}),
]


@pytest.mark.parametrize(("said", "tool", "database", "times", "expected"), EFFECTS)
def test_effects_must_match_the_response(session, findings, said, tool, database, times, expected):
    session.context.database = database
    strike(session, "kill")
    stream = Stream(findings, "x")
    read(stream, events(whole(said)))
    judged(session, stream, tool=tool, effects=("",))
    findings.compare_effects({SEED: times} if times else {})
    assert wrong(findings) == expected, findings.found


def test_cancelled_call_with_an_effect_is_wrong(session, findings):
    issued = Attempt(ExpectedCall("act", "s", effects=("",)), 1, SEED, Stream(findings, "x"))
    issued.is_cancelled = True
    judge(session, issued, Ending.OVER)
    findings.compare_effects({SEED: 1})
    assert wrong(findings) == {"wrong": 1}


def test_read_only_call_is_excused_only_after_three_deaths(session, findings):
    for deaths, expected in ((3, {}), (2, {"wrong": 1})):
        stream = Stream(findings, "x")
        read(stream, events(whole(LOST)))
        session.context.faults = Faults()
        issued = Attempt(ExpectedCall("recite", "s", count=COUNT), 1, SEED, stream)
        for _ in range(deaths):
            strike(session, "kill")
        judge(session, issued, Ending.ANSWERED)
        findings.compare_effects({})
        assert wrong(findings) == expected


HERE, ELSEWHERE = "http://127.0.0.1:1/mcp", "http://127.0.0.1:2/mcp"
SILENCES = {
    "meanwhile": ([(HERE, -1.0, 1.0)], {}),
    "since before it began": ([(HERE, -9.0, 0.1)], {}),
    "never": ([], {"wrong": 1}),
    "of another worker": ([(ELSEWHERE, -1.0, 1.0)], {"wrong": 1}),
    "over before it began": ([(HERE, -9.0, -5.5)], {"wrong": 1}),
    "begun after its end": ([(HERE, 1.0, 4.0)], {"wrong": 1}),
}


def silent(session: Session, worker: str, began: float, ended: float) -> None:
    expected = {
        "fault": "silence",
        "at": "struck",
        "worker": worker,
        "began": began,
        "ended": ended,
    }
    session.context.faults.take(json.dumps(expected).encode())


@pytest.mark.parametrize("name", SILENCES)
@pytest.mark.parametrize("said", [ROLLED_BACK, "something else"])
def test_lost_lease_is_excused_by_a_heartbeat_pause_during_the_call(session, findings, name, said):
    """The worker reports a pause when it is over, which may be after the response."""
    found, expected = SILENCES[name]
    session.context.workers = [Address.of(HERE), Address.of(ELSEWHERE)]
    stream, now = Stream(findings, "x"), time.monotonic()
    read(stream, events(whole(said)))
    place, wanted = Address.of(HERE), ExpectedCall("act", "1-2-3", count=COUNT)
    judge(session, Attempt(wanted, 1, SEED, stream, now - 5.0, place=place), Ending.ANSWERED)
    for worker, began, ended in found:
        silent(session, worker, now + began, now + ended)
    findings.compare_effects({})
    assert wrong(findings) == (expected if said == ROLLED_BACK else {"wrong": 1})


def test_heartbeat_pause_during_an_outage_is_no_second_death(session, findings):
    """A call that may run again is lost only by three deaths."""
    now = time.monotonic()
    strike(session, "database")
    for _ in range(3):
        silent(session, HERE, now - 1.0, now + 1.0)
    assert len(session.context.faults.deaths(now - 5.0)) == 1
    silent(session, HERE, now - 9.0, now - 6.0)
    assert len(session.context.faults.deaths(now - 7.0)) == 2


def test_time_since_an_outage_is_known_if_it_was_the_only_fault(session):
    faults, here, since = session.context.faults, Address.of(HERE), time.monotonic()
    assert faults.seconds_since_outage(since, here) is None
    faults.take(b'{"fault": "database", "at": "struck", "id": "f1"}')
    assert faults.seconds_since_outage(since, here) == 0
    faults.take(b'{"fault": "database", "at": "end", "id": "f1"}')
    assert (
        faults.seconds_since_outage(since, here) > 0
        and faults.seconds_since_outage(time.monotonic(), here) is None
    )
    strike(session, "kill", ELSEWHERE)
    assert (
        faults.seconds_since_outage(since, here) > 0 and faults.seconds_since_outage(since) is None
    )


def test_heartbeat_pause_excuses_no_other_error(session, findings):
    now = time.monotonic()
    silent(session, HERE, now - 1.0, now)
    assert not session.context.was_faulty(now - 5.0) and not session.context.faults.affected(
        now - 5.0
    )


def test_heartbeat_pause_excuses_nothing_without_faults(session, findings):
    session.context.is_quiet = True
    stream, now = Stream(findings, "x"), time.monotonic()
    silent(session, HERE, now - 1.0, now + 1.0)
    read(stream, events(whole(ROLLED_BACK)))
    judged(session, stream, tool="act")
    findings.compare_effects({})
    assert wrong(findings) == {"wrong": 1}


# Other checks.


def test_deadline_is_extended_up_to_a_limit():
    deadline = Deadline(10)
    deadline.count_failure()
    assert 9 < deadline.left <= 10 and not deadline.is_over


def test_faults_are_read_from_lines():
    faults = Faults()
    faults.take(b"nonsense\n")
    faults.take(b'{"fault": "prune", "at": "begin"}\n')
    faults.take(b'{"fault": "prune", "at": "end"}\n')
    assert (faults.prunes, faults.deaths(0)) == (1, []) and not faults.affected(0)


def test_checker_and_project_compute_the_same_texts():
    for seed in ("1-2-3.0", "ü", ""):
        for part in (0, 17, "final", "question 3"):
            assert word(seed, part) == others.word(seed, part)


def test_every_class_of_the_checker_has_a_scenario():
    named = {name for one in SCENARIOS.values() for name in one.classes.split()}
    assert named == {*"acdgijlmnrstuwxyz", "listen", "orm", "sse"}


ALLOWED = {"tests.faults.checker", *sys.stdlib_module_names}


def imported(path: Path) -> set[str]:
    """The modules that a file imports from elsewhere."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            depth = len(path.relative_to(CHECKER).parts)
            assert node.level <= depth, f"{path}: it imports from outside of the checker"
            found |= {(node.module or "").split(".")[0]} if not node.level else set()
    return found


def test_checker_imports_only_the_standard_library():
    for path in CHECKER.rglob("*.py"):
        assert imported(path) <= ALLOWED, path


def test_checker_loads_no_module_of_the_server():
    """Also not indirectly."""
    code = (
        "import sys; import tests.faults.checker.__main__; "
        "print([m for m in sys.modules if m.split('.')[0] in ('django', 'django_mcp', 'mcp')"
        " or m.startswith('tests.faults.project')])"
    )
    root = CHECKER.parent.parent.parent
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert (found.stdout.strip(), found.returncode) == ("[]", 0), found.stderr


# HTTP client.


async def answered(*pieces: bytes) -> list[Any]:
    """Return what the client reads from a response that arrives in these pieces."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        writer.close()
        await writer.wait_closed()
        served.set()

    served = asyncio.Event()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        try:
            answer = await request(Address("127.0.0.1", port, "/"), "GET", {})
            return [answer.status, await answer.body()]
        except Broken as broken:
            return [type(broken).__name__, broken.sent]
        finally:
            await asyncio.wait_for(served.wait(), 5)


HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
ANSWERS = [
    ((HEAD, b"3\r\nabc\r\n", b"2;x=y\r\nde\r\n0\r\n\r\n"), [200, b"abcde"]),
    ((HEAD + b"3\r\na", b"bc\r", b"\n0\r\n\r\n"), [200, b"abc"]),
    ((HEAD, b"3\r\nabc\r\n"), ["Broken", True]),
    ((HEAD, b"5\r\nabc"), ["Broken", True]),
    ((b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",), [200, b"abc"]),
    ((b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc",), ["Broken", True]),
    ((b"HTTP/1.1 405 No\r\ncontent-length: 0\r\n\r\n",), [405, b""]),
    ((b"HTTP/1.1 200 OK\r\n",), ["Broken", True]),
]


@pytest.mark.parametrize(("pieces", "found"), ANSWERS)
async def test_broken_response_is_distinguished_from_a_complete_one(pieces, found):
    assert await answered(*pieces) == found


async def test_failed_connection_has_not_sent_the_request():
    with pytest.raises(Broken) as broken:
        await request(Address("127.0.0.1", 1, "/"), "POST", {}, b"{}")
    assert not broken.value.sent


def test_missing_and_repeated_notifications_of_effects_are_reported(findings):
    findings.record_reported_effect("one", "note a", 2)
    findings.record_reported_effect("other", "note b", 2)
    assert findings.checked_effects == {"note a", "note b"}
    findings.compare_effects({"note a": 2, "note b": 1})
    assert findings.totals == {"duplicated": 1} and "other" in findings.found["duplicated"][0]
