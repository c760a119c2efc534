"""Event ids that are invalid, of other sessions, too large, or of ended or pruned streams."""

from __future__ import annotations

import asyncio

from .. import control
from ..calls import ExpectedCall, judge, made, perform
from ..client import Broken
from ..context import pause
from ..expectation import JSON
from ..reading import Ending, Plan, Reader
from ..sessions import LATER, NEWEST, Ended, Session
from ..virtual_client import VirtualClient

WAITING = 20.0  # seconds for somebody to forget what is over


async def status(session: Session, cursor: str, what: str, wanted: int) -> bool:
    """Return whether a GET with that cursor gets the expected status."""
    deadline, attempt = session.context.new_deadline(), 0
    while not deadline.is_over:
        try:
            answer = await session.resume(cursor, session.somewhere())
            answer.cut(reset=False)
        except Broken:
            answer = None
        if answer is not None and answer.status not in LATER:
            if answer.status != wanted:
                found = f"{session.name}: a GET after {what} ({cursor}): {answer.status}"
                session.context.findings.add("wrong", f"{found}, not {wanted}")
            return answer.status == wanted
        attempt += 1
        await pause(session.rng, attempt)
    return False


async def unknown(person: VirtualClient) -> None:
    """A cursor that the session never had gets 400. The cursor of a stream that ended gets 405."""
    context, rng = person.context, person.rng
    mine, other = await person.session(NEWEST), await person.session(NEWEST)
    wanted = ExpectedCall("fail", person.seed(), {"count": 2, "seconds": 0}, 2)
    wanted.is_error = True
    ending, issued = await perform(mine, wanted)
    if ending is Ending.ANSWERED and issued.stream.id is not None:
        stream, last = issued.stream.id, issued.stream.last
        told = await status(mine, f"{stream}-{last + rng.randrange(1, 99)}", "its end", 400)
        context.findings.count_fault("d", injected=1, observed=int(told))
        told = await status(other, f"{stream}-{rng.randrange(last)}", "another's stream", 400)
        context.findings.count_fault("i", injected=1, observed=int(told))
        told = await status(mine, issued.stream.cursor, "all there was", 405)
        context.findings.count_fault("d", injected=1, observed=int(told))
    made_up = rng.choice(
        ("9999999999-1", "nonsense", "1-", "-1", "0-0", "1-1-1", "1-99999999999999")
    )
    told = await status(mine, made_up, "a made-up id", 400)
    context.findings.count_fault("d", injected=1, observed=int(told))
    await mine.close()
    await other.close()


async def trimmed(person: VirtualClient) -> None:
    """The stream ends and is pruned while its reader is disconnected."""
    context, session = person.context, await person.session(NEWEST)
    wanted = ExpectedCall("recite", person.seed(), {"count": 20, "seconds": 0.5}, 20)
    issued = made(session, wanted)
    try:
        answer = await session.post(issued.message())
    except Broken:
        return
    if answer.status != 200 or not answer.is_stream:
        return answer.cut(reset=True)
    reader = Reader(session, issued.stream, [issued.id])
    reader.plan = Plan(leave=lambda: issued.stream.last >= 3)
    issued.reader = reader
    if await reader.read(answer) is not Ending.LEFT:
        return
    await asyncio.sleep(1)
    await _forgotten(person)
    reader.plan = Plan()
    before = context.findings.classes["c"]["observed"]
    ending = await reader.read(None)
    # What was forgotten with its answer may leave nothing but that it is over.
    judge(session, issued, ending)
    context.findings.counts["trimmed"] += context.findings.classes["c"]["observed"] > before


async def _forgotten(person: VirtualClient) -> None:
    context = person.context
    count, end = context.faults.prunes, min(WAITING, max(0.0, context.seconds_left))
    for _ in range(int(end / 0.2)):
        if context.faults.prunes > count:
            return await asyncio.sleep(1.5)
        if context.stopping.is_set():
            break
        await asyncio.sleep(0.2)
    if context.stopping.is_set():  # nobody does it any more
        context.findings.count_fault("c", injected=1)
        context.faults.take(b'{"fault": "prune", "at": "begin", "id": "mine"}')
        try:
            await control.ask(context, "forget")
        finally:
            context.faults.take(b'{"fault": "prune", "at": "end", "id": "mine"}')


async def deleted(person: VirtualClient) -> None:
    """End the session while its stream is read: the stream ends, and requests get 404."""
    context, rng, session = person.context, person.rng, await person.session(NEWEST)
    tool = rng.choice(("recite", "act"))  # which writes after five seconds, and ends after ten
    effects = ("",) if tool == "act" else ()
    arguments = {"count": 200, "seconds": 20}
    issued = made(session, ExpectedCall(tool, person.seed(), arguments, 200, effects))
    try:
        answer = await session.post(issued.message(), rng.choice(context.workers))
    except Broken:
        return
    if answer.status != 200 or not answer.is_stream:
        return answer.cut(reset=True)
    reader = Reader(session, issued.stream, [issued.id])
    issued.reader = reader
    reading = asyncio.create_task(reader.read(answer))
    await asyncio.sleep(rng.uniform(0.1, 1.0))
    open_then = bool(issued.stream.texts) and answer.is_open
    await session.close()
    ending = await reading
    kind = judge(session, issued, ending)
    if kind in ("gone", "silence") and (context.is_strict or not context.was_faulty(issued.began)):
        issued.expect(session, 0, 0, "the end of its session")
    gone = await status(session, f"{issued.stream.id}-0", "the end of its session", 404)
    seen = open_then and gone and ending is Ending.GONE
    context.findings.count_fault("t", injected=1, observed=int(seen))
    await _is_gone(session)


async def _is_gone(session: Session) -> None:
    ping: JSON = {"jsonrpc": "2.0", "id": 77, "method": "ping"}
    for attempt in range(5):
        try:
            answer = await session.post(ping)
            said = await answer.json()
        except Broken:
            await pause(session.rng, attempt)
            continue
        if answer.status == 404 or answer.status not in LATER:
            try:
                await session.check(answer.status, said, "ping after the end")
            except Ended:
                return
