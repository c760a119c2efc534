"""A client of HTTP+SSE: one stream, and an address for POST requests.

An accepted request is answered on the stream once, even if its worker dies. The stream can be
resumed at any worker; each connection starts with the same address.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict

from .calls import Attempt, ExpectedCall, judge, made
from .client import Broken
from .context import CampaignContext, pause
from .expectation import JSON, OLD_ID, Reading, RequestMessages, Stream
from .reading import Ending, Plan
from .sessions import Session
from .sse import Event
from .standalone_stream import StandaloneStream, opened

OLDEST = "2024-11-05"


class Addressed(Reading):
    """One connection. Its first event must be the address for POST requests."""

    def __init__(self, line: Line) -> None:
        super().__init__(line.stream, line.at)
        self._line = line

    def take(self, event: Event) -> tuple[int, JSON] | None:
        is_first, self.marks = not self.marks, self.marks + 1
        if is_first != (event.name == "endpoint"):
            self._add_finding(
                "wrong", f"{event.name} as the first or a later event: {event.data[:100]}"
            )
        if event.name != "endpoint":
            return super().take(event)
        self._begin(event)
        return None

    def _begin(self, event: Event) -> None:
        self.retry = event.retry
        number, session = self.stream.place(event.id), self._line.session
        if number != self.at or event.data != (session.path or event.data):
            self._add_finding(
                "wrong", f"{number} at {event.data} after {self.at} at {session.path}"
            )
        session.path = event.data
        self._line.is_addressed.set()


class Line(StandaloneStream):
    """The only stream of a session. It never ends, and its events are not pruned."""

    can_be_trimmed = False

    def __init__(self, session: Session) -> None:
        label = f"{session.name} line"
        super().__init__(session, label)
        self.stream = Stream(session.context.findings, label, OLD_ID)
        self.is_addressed, self.is_settled = asyncio.Event(), asyncio.Event()
        self.answered: defaultdict[int, asyncio.Event] = defaultdict(asyncio.Event)
        self.hear = self._keep
        self.ids: set[int] = set()

    def _reading(self) -> Reading:
        return Addressed(self)

    def _is_ours(self, message: JSON) -> bool:
        if message.get("method") == "notifications/progress":
            return message["params"].get("progressToken") in {f"t{id}" for id in self.ids}
        return "method" in message or message.get("id") in self.ids

    def _keep(self, message: JSON) -> None:
        if "method" in message:
            return
        if "protocolVersion" in (message.get("result") or {}):
            self.is_settled.set()
        self.answered[message["id"]].set()


class LegacySseClient(Session):
    """A client that supports only HTTP+SSE."""

    def __init__(self, context: CampaignContext, name: str, secret: str | None) -> None:
        super().__init__(context, name, OLDEST, secret=secret)
        self.line = Line(self)
        self.line.plan = Plan.drawn(self.rng, size=4_000)
        self._living: asyncio.Task[None] | None = None

    def next_id(self) -> int:
        id = super().next_id()
        self.line.ids.add(id)
        return id

    async def open(self, to: object = None) -> None:
        """Open the stream and initialize the session. Raise ``Ended``."""
        self._living = asyncio.create_task(self.line.live(await opened(self)))
        await self._until(self.line.is_addressed, "an address")
        message = {
            "jsonrpc": "2.0", "id": self.next_id(), "method": "initialize",
            "params": {
                "protocolVersion": OLDEST, "capabilities": {},
                "clientInfo": {"name": "older", "version": "1"},
            },
        }  # fmt: skip
        await self.say(message)
        await self._until(self.line.is_settled, "the answer to initialize")
        await self.notify("notifications/initialized")

    async def close(self) -> None:
        self.is_ended = True
        if self._living is not None:
            self._living.cancel()
            (ended,) = await asyncio.gather(self._living, return_exceptions=True)
            if not isinstance(ended, asyncio.CancelledError):
                self.context.findings.add("wrong", f"{self.name}: its stream ended: {ended!r}")
        with contextlib.suppress(Exception):
            await self.repeated("DELETE", None, {200, 202, 204})
        messages = self.line.stream.messages()
        for id in self.line.ids:
            self._judge(id, RequestMessages(messages, id, f"t{id}"))

    def _judge(self, id: int, told: RequestMessages) -> None:
        """Report further responses and messages after the response that was judged."""
        if len(told.responses) > 1:
            self.context.findings.add("duplicated", f"{self.name}: {len(told.responses)} to {id}")
        if told.after or not told.rises:
            self.context.findings.add("disordered", f"{self.name}: of {id}, after its response")

    async def _until(self, event: asyncio.Event, what: str) -> bool:
        """Wait for the event within the deadline. Return whether it happened."""
        deadline = self.context.new_deadline()
        with self.context.waiting(lambda: f"{self.name} waits for {what}: {self.line.state}"):
            while not event.is_set() and not deadline.is_over:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), max(0.1, deadline.left))
                deadline.count_failure()
        if not event.is_set():
            self.context.findings.add("hanging", f"{self.name}: {what}; {self.line.state}")
        return event.is_set()

    # A call.

    async def perform(self, wanted: ExpectedCall) -> None:
        """Send the call until it is accepted, and wait for its response. Raise ``Ended``."""
        deadline = self.context.new_deadline()
        for attempt in range(1_000):
            issued = made(self, wanted, attempt)
            issued.stream, issued.place = self.line.stream, self.somewhere()
            self.context.findings.counts["calls"] += 1
            most = await self._posted(issued)
            if most is None:
                came = await self._until(self.line.answered[issued.id], issued.label)
                judge(self, issued, Ending.ANSWERED if came else Ending.HANGING)
                return
            issued.expect(self, 0, most, "a POST of which nobody knows whether it was accepted")
            deadline.count_failure()
            if deadline.is_over:
                break
            await pause(self.rng, attempt)
        self.context.findings.add("hanging", f"{wanted.tool} {wanted.seed}: nobody takes it")

    async def _posted(self, issued: Attempt) -> int | None:
        """Send the call. Return None if it was accepted, else how often it may have run."""
        try:
            answer = await self.post(issued.message(), issued.place)
            said = await answer.json()
        except Broken as broken:
            return int(broken.sent)
        if answer.status == 202:
            return None
        await self.check(answer.status, said, f"POST of {issued.label}")
        return int(answer.status not in (429, 503))
