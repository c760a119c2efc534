"""Standalone streams of a session: two at once, and notifications from other workers."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from .. import control
from ..calls import ExpectedCall, perform
from ..client import Address
from ..expectation import JSON
from ..reading import Plan
from ..sessions import NEWEST, Session
from ..standalone_stream import StandaloneStream, opened
from ..virtual_client import VirtualClient

TOGETHER = 10.0  # seconds in which neither of two streams may end
TRIES = 8  # until something has changed, or news have come
HEARD = 20.0  # seconds in which news arrive; what comes later is lost
SLOW = 5  # leases more, for what was saved: some of those who tell it may die


async def two(person: VirtualClient) -> None:
    """Open two standalone streams. Neither must close the other."""
    context, session = person.context, await person.session(NEWEST)
    here = person.rng.choice(context.workers)
    await control.spare(context, here, TOGETHER + 3)
    began = time.monotonic()
    readers, tasks = [], []
    for number in range(2):
        reader = StandaloneStream(session, f"{session.name} GET {number}")
        readers.append(reader)
        tasks.append(asyncio.create_task(reader.once(await opened(session, here))))
    done, _ = await asyncio.wait(tasks, timeout=TOGETHER, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        if task.result() == "ended":
            what = (
                f"{session.name}: one of two streams ended after {time.monotonic() - began:.1f} s"
            )
            context.findings.add("wrong", what)
    context.findings.count_fault("x", injected=1, observed=int(not done))
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await session.close()


class Topic(NamedTuple):
    """The URI to subscribe to, the tool that changes it, and how the notification is recognized."""

    scheme: str
    tool: str
    shows: str
    who: str

    @property
    def uri(self) -> str:
        return f"{self.scheme}://{self.who}"


async def hear(person: VirtualClient) -> None:
    """Announce a change at another worker, while the stream is read or disconnected."""
    session = await person.session(NEWEST)
    await _hear(person, session, Topic("news", "announce", "g", session.name.replace(".", "-")))


async def save(person: VirtualClient) -> None:
    """Save a row at another worker, in a transaction, with the ORM only."""
    session = await person.session(NEWEST)
    topic = Topic("note", "jot", "orm", session.name.replace(".", "-"))
    for _ in range(TRIES):  # until there is a row
        wanted = ExpectedCall("jot", person.seed(), {"who": topic.who})
        _, issued = await perform(session, wanted, Plan())
        if issued.kind == "success":
            return await _hear(person, session, topic)


async def _hear(person: VirtualClient, session: Session, topic: Topic) -> None:
    context, rng = person.context, person.rng
    if not await _subscribed(session, topic.uri):
        return
    here = rng.choice(context.workers)
    reader = StandaloneStream(session, f"{session.name} {topic.scheme}")
    living = asyncio.create_task(reader.live(await opened(session, here)))
    speaker = await person.session(NEWEST)
    try:
        for is_away in (False, True, False):
            await _round(person, speaker, reader, living, topic, here, is_away)
            if is_away:
                living = asyncio.create_task(reader.live(await reader.again()))
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
    if topic.tool == "jot":
        times = sum(is_of(one, topic) for one in reader.news)
        context.findings.record_reported_effect(reader.stream.label, f"note {topic.who}", times)
    await session.close()


async def _subscribed(session: Session, uri: str) -> bool:
    message = {
        "jsonrpc": "2.0", "id": session.next_id(), "method": "resources/subscribe",
        "params": {"uri": uri},
    }  # fmt: skip
    began = time.monotonic()
    _, said = await session.repeated("POST", message, {200})
    # Whether the row may be seen is asked of the project's database, which may be away.
    if "error" in (said or {}) and not session.context.was_faulty(
        began, kinds={"database", "commit"}
    ):
        session.context.findings.add("wrong", f"{session.name}: subscribe: {said}")
    return said is not None and "result" in said


async def _round(
    person: VirtualClient, speaker: Session, reader: StandaloneStream, living: asyncio.Task[None],
    topic: Topic, here: Address, is_away: bool,
) -> None:  # fmt: skip
    """Change something at another worker than the one that opened the stream."""
    context = person.context
    if is_away:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
    for _ in range(TRIES):
        began, before = time.monotonic(), len(reader.news)
        wanted = ExpectedCall(topic.tool, person.seed(), {"who": topic.who})
        _, issued = await perform(
            speaker, wanted, Plan(), to=context.another_worker(person.rng, here)
        )
        if is_away:
            living = asyncio.create_task(reader.live(await reader.again()))
        # A save that was answered was committed with its change: no fault takes that back.
        is_sure = topic.tool == "jot" and issued.kind == "success"
        seconds = HEARD + (SLOW * context.lease if is_sure else 0)
        arrived = await _arrived(reader, before, topic, seconds)
        if is_away:
            living.cancel()
            await asyncio.gather(living, return_exceptions=True)
        if arrived:
            context.findings.count_fault(topic.shows, injected=1, observed=1)
            return
        context.findings.counts["news told again"] += 1
        if is_sure or not context.was_faulty(began):
            context.findings.add("lost", f"{reader.session.name}: news of {topic.uri} ({is_away=})")
            return
    context.findings.count_fault(topic.shows, injected=1)


async def _arrived(
    reader: StandaloneStream, before: int, topic: Topic, seconds: float = HEARD
) -> bool:
    """Return whether the change was notified, and not before it was announced."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if any(is_of(one, topic) for one in reader.news[before:]):
            return True
        await asyncio.sleep(0.05)
    return False


def is_of(one: JSON, topic: Topic) -> bool:
    """Whether the message is a notification of this change."""
    told = (one.get("method"), one.get("params", {}).get("uri"))
    return told == ("notifications/resources/updated", topic.uri)
