"""What a fault explains is excused, and nothing else: not by another fault, or by one elsewhere."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from .checker.calls import Issued, Wanted, judge, perform
from .checker.client import Address
from .checker.expectation import Reading, Stream
from .checker.faults import AFTER, GRACE, KEPT, Faults
from .checker.ledger import ENOUGH, SOME, Ledger
from .checker.reading import Ending, Reader
from .checker.scenarios import asking, cancelling, news, reciting
from .checker.sessions import Session
from .checker.sse import Event
from .checker.standing import Standing
from .checker.words import AWAY, CUT_OFF, LOST, MASKED, ROLLED_BACK, word
from .checker.world import Patience, World

HERE, OTHER = Address("127.0.0.1", 1, "/mcp"), Address("127.0.0.1", 2, "/mcp")
FRONT = Address("127.0.0.1", 3, "/mcp")
JSON = dict[str, Any]


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(7)


def session_of(ledger: Ledger, database: str = "postgres") -> Session:
    world = World(FRONT, [HERE, OTHER], 7, 3.0, database, "none", 1.0, ledger)
    world.faults = Faults(database)
    return Session(world, "one")


@pytest.fixture
def session(ledger) -> Session:
    return session_of(ledger)


def wrong(ledger: Ledger) -> dict[str, int]:
    return {kind: count for kind, count in ledger.totals.items() if count}


def told(
    faults: Faults, fault: str, at: str, worker: Address | None = None, id: str = "f1"
) -> None:
    url = worker and f"http://{worker}{worker.path}"
    faults.take(json.dumps({"fault": fault, "at": at, "worker": url, "id": id}).encode())


def strike(faults: Faults, *kinds: str, worker: Address = HERE) -> None:
    for number, kind in enumerate(kinds):
        told(faults, kind, "struck", worker, f"f{number}")


def response(text: str, id: int = 1) -> JSON:
    return {"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}


def issued_of(session: Session, tool: str, text: str = "", **wanted: Any) -> Issued:
    asked = Wanted(tool, "s", **{"effects": ("",)} | wanted)
    issued = Issued(asked, 1, "s.0", Stream(session.world.ledger, "x"), place=HERE)
    issued.plain = [response(text)] if text else []
    return issued


# What struck it.


CASES = [
    # Nothing at all; something that is no reason.
    ("act", ROLLED_BACK, "postgres", (), 1),
    ("act", LOST, "sqlite", (), 1),
    ("ask", LOST, "postgres", (), 1),
    ("survey", ROLLED_BACK, "postgres", (), 1),
    ("steps", CUT_OFF, "postgres", (), 1),
    ("put", MASKED, "postgres", (), 1),
    ("act", ROLLED_BACK, "postgres", ("redis", "clock", "prune"), 1),
    # Its worker, or the database.
    ("act", ROLLED_BACK, "postgres", ("kill",), 0),
    ("act", ROLLED_BACK, "postgres", ("suspend",), 0),
    ("act", MASKED, "postgres", ("database",), 0),
    ("act", LOST, "sqlite", ("kill",), 0),
    ("steps", CUT_OFF, "postgres", ("commit",), 0),
    # Who is told to end lets the calls end first.
    ("act", ROLLED_BACK, "postgres", ("stop",), 1),
    # Where the transaction holds the outcome it is known.
    ("act", LOST, "postgres", ("kill",), 1),
    # What may run again does so, twice.
    ("put", LOST, "sqlite", ("kill",), 1),
    ("put", LOST, "sqlite", ("kill",) * 3, 0),
    ("transact", ROLLED_BACK, "postgres", ("kill", "kill"), 1),
    ("transact", ROLLED_BACK, "postgres", ("kill", "kill", "kill"), 0),
    ("transact", LOST, "sqlite", ("kill",), 0),
    ("put", AWAY, "postgres", ("kill",), 1),
    ("put", AWAY, "postgres", ("database",), 0),
    # SQLite has one writer, who is waited for, but not for ever.
    ("act", AWAY, "postgres", (), 1),
    ("act", AWAY, "sqlite", (), 0),
    ("act", "what nobody says", "postgres", ("kill", "database"), 1),
]


@pytest.mark.parametrize(("tool", "text", "database", "kinds", "count"), CASES)
def test_an_outcome_is_excused_by_what_explains_it(ledger, tool, text, database, kinds, count):
    session = session_of(ledger, database)
    issued = issued_of(session, tool, text)
    strike(session.world.faults, *kinds)
    judge(session, issued, Ending.ANSWERED)
    assert wrong(ledger) == ({"wrong": count} if count else {}), ledger.found
    assert sum(ledger.excused.values()) == 1 - count


def test_what_strikes_another_worker_excuses_nothing(session, ledger):
    issued = issued_of(session, "act", ROLLED_BACK)
    strike(session.world.faults, "kill", worker=OTHER)
    judge(session, issued, Ending.ANSWERED)
    assert wrong(ledger) == {"wrong": 1}


@pytest.mark.parametrize("is_asked", [False, True])
def test_whoever_works_on_it_may_have_been_struck(session, ledger, is_asked):
    """It came through the front; or was asked, and goes on where the answer arrived."""
    issued = issued_of(session, "ask", LOST)
    issued.place = HERE if is_asked else FRONT
    if is_asked:
        question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}
        issued.stream.keep(1, json.dumps(question))
    strike(session.world.faults, "kill", worker=OTHER)
    judge(session, issued, Ending.ANSWERED)
    assert wrong(ledger) == {}


def test_what_is_long_over_excuses_nothing():
    faults, now = Faults(), time.monotonic()
    strike(faults, "kill")
    assert faults.concern(now, HERE) and not faults.concern(now + AFTER["kill"] + 1, HERE)
    told(faults, "database", "struck", id="f9")
    assert faults.concern(now + 100)
    told(faults, "database", "end", id="f9")
    assert not faults.concern(now + 100) and faults.concern(now)


def test_what_was_ordered_excuses_nothing_before_it_strikes():
    faults, now = Faults(), time.monotonic()
    for kind in ("kill", "stop", "pause", "suspend", "database", "commit"):
        told(faults, kind, "begin", HERE)
        told(faults, kind, "end")
    assert not faults.concern(now - 100) and faults.deaths(now - 100) == []


def test_what_strikes_as_it_is_forgotten_is_over_at_once():
    faults, now = Faults(), time.monotonic()
    told(faults, "pause", "end")
    told(faults, "pause", "struck", HERE)
    assert faults.concern(now, HERE) and not faults.concern(now + 100, HERE)
    for number in range(2 * KEPT):
        told(faults, "pause", "end", id=f"g{number}")
    assert len(faults._over) == KEPT and not faults._open


@pytest.mark.parametrize("database", ["postgres", "sqlite"])
@pytest.mark.parametrize(("tool", "text"), [("act", ROLLED_BACK), ("put", MASKED)])
def test_where_nothing_strikes_any_more_nothing_is_excused(ledger, tool, text, database):
    session = session_of(ledger, database)
    strike(session.world.faults, "database", "kill")
    session.world.is_quiet = True
    judge(session, issued_of(session, tool, text), Ending.ANSWERED)
    assert wrong(ledger) == {"wrong": 1} and not session.world.struck(0)


async def test_who_waits_for_quiet_hears_that_the_machine_stands_still():
    faults = Faults()
    faults.noticed(time.monotonic() - 1, time.monotonic())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(faults.calm(5.0), 0.1)


def test_a_lock_that_is_held_strikes_all_who_share_one_file():
    for database, is_common in (("sqlite", True), ("postgres", False)):
        faults, now = Faults(database), time.monotonic()
        told(faults, "suspend", "struck", HERE)
        assert faults.concern(now, OTHER) is is_common


def test_a_machine_that_stands_still_strikes_all():
    faults, now = Faults(), time.monotonic()
    faults.noticed(now, now + 0.3)
    assert not faults.concern(now, HERE)
    faults.noticed(now, now + 1.0)
    assert faults.concern(now, HERE) and faults.deaths(now, OTHER) == [now]


def test_who_was_told_to_end_has_some_seconds():
    faults, now = Faults(), time.monotonic()
    strike(faults, "stop")
    assert not faults.concern(now, HERE)
    faults._strikes[0].began -= GRACE
    assert faults.concern(now, HERE)


def test_deaths_count_from_the_first_that_concerned_it():
    faults, now = Faults(), time.monotonic()
    strike(faults, "kill", worker=OTHER)
    assert faults.deaths(now, HERE) == []
    strike(faults, "kill", worker=HERE)
    strike(faults, "kill", worker=OTHER)
    assert len(faults.deaths(now, HERE)) == 2


def test_who_goes_on_does_not_hang_but_not_for_ever():
    patience = Patience(10)
    patience._until -= 9
    assert patience.left < 2
    patience.renew()
    assert patience.left > 9 and patience.strikes == 0
    patience._hard = time.monotonic()
    patience.renew()
    assert patience.is_over


def test_who_is_refused_without_a_fault_waits_in_vain():
    struck: list[float] = []
    patience = Patience(10, lambda since: any(at >= since for at in struck))
    patience._until -= 9
    patience.strike()
    assert patience.left < 2 and patience.strikes == 1
    struck.append(time.monotonic())
    patience.strike()
    assert patience.left > 9
    patience._until -= 9
    patience.strike()
    assert patience.left < 2


# A server that excuses itself all the time.


def test_each_tool_has_its_share_of_success(ledger):
    for number in range(ENOUGH):
        ledger.ended("act", "success" if number % 5 == 0 else "rolled back", is_quiet=False)
        ledger.ended("put", "success" if number % 4 == 0 else "away", is_quiet=False)
    ledger.ended("ask", "rolled back", is_quiet=True)
    ledger.weigh(3.0)
    assert wrong(ledger) == {"wrong": 1} and "act: 4 successes of 20" in ledger.found["wrong"][0]
    assert ledger.report()["shares"]["put"] == [5, 20]
    assert ledger.report()["quiet"] == {"ask: rolled back": 1}


def test_a_tool_that_is_run_again_succeeds_more_often(ledger):
    for number in range(ENOUGH):
        ledger.ended("act", "success" if number % 3 == 0 else "rolled back", is_quiet=False)
        ledger.ended("put", "success" if number % 3 == 0 else "away", is_quiet=False)
    ledger.weigh(3.0, ("put",))
    assert wrong(ledger) == {"wrong": 1} and "put: 7 successes" in ledger.found["wrong"][0]


def test_takeovers_are_in_time(ledger):
    ledger.takeovers = [5.0] * SOME
    ledger.weigh(3.0)
    assert wrong(ledger) == {}
    ledger.takeovers = [5.0] * SOME + [20.0] * 2 * SOME
    ledger.weigh(3.0)
    assert wrong(ledger) == {"wrong": 1}


def test_a_takeover_is_measured_from_the_one_death_that_explains_it(session, ledger):
    issued = issued_of(session, "act", ROLLED_BACK)
    strike(session.world.faults, "kill")
    judge(session, issued, Ending.ANSWERED)
    assert len(ledger.takeovers) == 1 and 0 <= ledger.takeovers[0] < 1
    strike(session.world.faults, "database")
    judge(session, issued, Ending.ANSWERED)
    assert len(ledger.takeovers) == 1


async def test_where_nothing_strikes_there_is_no_error_of_the_server(session, ledger):
    await session.check(500, None, "a POST")
    assert wrong(ledger) == {}
    session.world.is_quiet = True
    await session.check(503, None, "a POST")
    await session.check(500, None, "a POST")
    assert wrong(ledger) == {"wrong": 1}


# Against a server of a few lines.


async def serving(statuses: list[tuple[int, Any]], work: Any) -> Any:
    """What ``work`` makes of a server that gives these answers, the last one from then on."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().splitlines() if line.startswith(b"content-length")]
        asked = await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)
        status, said = statuses.pop(0) if len(statuses) > 1 else statuses[0]
        body = json.dumps(said(json.loads(asked)) if callable(said) else said).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n" % status)
        writer.write(b"content-length: %d\r\n\r\n" % len(body) + body)
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        place = Address("127.0.0.1", server.sockets[0].getsockname()[1], "/mcp")
        found = await asyncio.wait_for(work(place), 20)
        await asyncio.sleep(0)
        return found


async def test_who_is_refused_has_done_nothing(session, ledger):
    """A 503 that came after the effect is a lie."""

    def done(asked: JSON) -> JSON:
        return response(word(asked["params"]["arguments"]["seed"], "final"), asked["id"])

    async def work(place: Address) -> None:
        session.places = [place]
        await perform(session, Wanted("act", "s", effects=("",)))

    await serving([(503, {"error": {}}), (200, done)], work)
    ledger.settle({"s.0": 1, "s.1": 1})
    assert wrong(ledger) == {"wrong": 1} and "s.0" in ledger.found["wrong"][0]


async def test_a_server_that_refuses_without_a_fault_hangs(session, ledger):
    issued = issued_of(session, "act")
    issued.stream.id = "4"
    reader = Reader(session, issued.stream, [1])
    reader.patience = Patience(0.5, session.world.struck)

    async def work(place: Address) -> Ending:
        session.places = [place]
        return await asyncio.wait_for(reader.read(None), 3 * reader.patience.seconds)

    assert await serving([(503, {"error": {}})], work) is Ending.HANGING
    assert wrong(ledger) == {"hanging": 1}


@pytest.mark.parametrize(("more", "is_new"), [({"method": "ping"}, True), ({"result": {}}, False)])
async def test_a_request_that_is_made_again_is_another(session, more, is_new):
    """The first may be worked on still; an answer is to the same question."""
    ids: list[int] = []

    def noted(asked: JSON) -> JSON:
        ids.append(asked["id"])
        return {}

    async def work(place: Address) -> None:
        session.places = [place]
        await session.repeated("POST", {"id": 77} | more, {200})

    await serving([(503, noted), (503, noted), (200, noted)], work)
    assert ids[0] == 77 and len(set(ids)) == (3 if is_new else 1)


NEWS = {"jsonrpc": "2.0", "method": "notifications/resources/updated"}


@pytest.mark.parametrize(
    ("message", "before", "arrives"),
    [
        (NEWS | {"params": {"uri": "news://me"}}, 0, True),
        (NEWS | {"params": {"uri": "news://me"}}, 1, False),
        (NEWS | {"params": {"uri": "news://you"}}, 0, False),
        (NEWS | {"method": "notifications/message", "params": {"data": "news://me"}}, 0, False),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping"}, 0, False),
    ],
    ids=["its own", "told before", "another's", "a word", "a ping"],
)
async def test_news_are_what_was_announced(session, monkeypatch, message, before, arrives):
    monkeypatch.setattr(news, "HEARD", 0.1)
    reader = Standing(session, "x")
    reader.news.append(message)
    assert await news._arrived(reader, before, news.Topic("news", "announce", "g", "me")) is arrives


async def test_an_answer_that_a_late_cancel_lost_is_missed(session, ledger):
    issued = issued_of(session, "act")
    issued.stream.place("4-1")
    issued.stream.keep(1, json.dumps(response("x")))

    async def work(place: Address) -> None:
        session.places = [place]
        await cancelling._is_kept(session, issued)

    await serving([(405, None)], work)
    assert wrong(ledger) == {"lost": 1}


# Cancels, questions, twins.


class Somebody:
    def __init__(self, session: Session) -> None:
        self.world = session.world


CANCELS = [
    (Ending.ANSWERED, 0.3, {"wrong": 1}),  # it had still to sleep for 0.7 s
    (Ending.ANSWERED, 0.95, {}),
    (Ending.OVER, 0.3, {}),
]


@pytest.mark.parametrize(("ending", "after", "found"), CANCELS)
def test_a_cancel_that_was_taken_in_time_has_won(session, ledger, ending, after, found):
    issued = issued_of(session, "act")
    issued.cancelled = issued.began + after
    cancelling._judge_cancel(Somebody(session), issued, ending, 1.0)  # type: ignore[arg-type]
    assert wrong(ledger) == found


WITHDRAWN = [(1, 2.5, {}), (0, 2.5, {"lost": 1}), (2, 2.5, {"duplicated": 1}),
             (1, 1.0, {"wrong": 1}), (1, 15.0, {"wrong": 1})]  # fmt: skip


@pytest.mark.parametrize(("times", "took", "found"), WITHDRAWN)
def test_a_question_is_withdrawn_once_when_its_time_is_over(session, ledger, times, took, found):
    issued = issued_of(session, "doubt")
    question = {"jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": {}}
    params = {"requestId": "q"}
    word = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}
    for number, message in enumerate([question, *[word] * times], 1):
        issued.stream.keep(number, json.dumps(message))
    asking._judge_doubt(Somebody(session), issued, took)  # type: ignore[arg-type]
    assert wrong(ledger) == found


TWINS = [
    ((Ending.TAKEN, Ending.ANSWERED), True, {}, 1),
    ((Ending.ANSWERED, Ending.TAKEN), True, {"wrong": 1}, 0),
    ((Ending.ANSWERED, Ending.ANSWERED), True, {"wrong": 1}, 0),
    ((Ending.ANSWERED, Ending.TAKEN), False, {}, 0),
]


@pytest.mark.parametrize(("endings", "in_turn", "found", "observed"), TWINS)
async def test_the_older_of_two_gives_way(session, ledger, endings, in_turn, found, observed):
    issued = issued_of(session, "recite", effects=())
    issued.plain = [response(word("s.0", "final"))]
    twins = _read_once(session, issued)
    await reciting._judge_twins(Somebody(session), session, issued, twins, endings, in_turn)  # type: ignore[arg-type]
    assert wrong(ledger) == found and ledger.classes["l"]["observed"] == observed


async def test_which_of_two_is_the_later_is_not_told_where_a_fault_struck(session, ledger):
    issued = issued_of(session, "recite", effects=())
    issued.plain = [response(word("s.0", "final"))]
    strike(session.world.faults, "suspend")
    endings, twins = (Ending.ANSWERED, Ending.TAKEN), _read_once(session, issued)
    await reciting._judge_twins(Somebody(session), session, issued, twins, endings, True)  # type: ignore[arg-type]
    assert wrong(ledger) == {}


async def test_what_two_left_unread_is_read_by_a_third(session, ledger):
    """Both gave way to an attempt that was heard late; nothing of the stream may be lost."""
    issued = issued_of(session, "recite", effects=())
    twins = _read_once(session, issued)
    issued.stream.id = "4"

    async def work(place: Address) -> None:
        session.places = [place]
        await reciting._judge_twins(
            Somebody(session), session, issued, twins, (Ending.TAKEN, Ending.TAKEN), False,  # type: ignore[arg-type]
        )  # fmt: skip

    await serving([(405, None)], work)
    assert wrong(ledger) == {"lost": 1}


def _read_once(session: Session, issued: Issued) -> tuple[Reader, ...]:
    twins = tuple(Reader(session, issued.stream) for _ in range(2))
    for twin in twins:
        twin.readings.append(Reading(issued.stream))
    return twins


def test_several_responses_may_come_as_one_event(ledger):
    stream = Stream(ledger, "x")
    Reading(stream).take(Event(json.dumps([response("x", 1), response("y", 2)]), "4-1"))
    assert [one["id"] for one in stream.messages()] == [1, 2]
