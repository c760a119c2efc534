"""Standalone streams of a session, which have no end and are resumed."""

from __future__ import annotations

from .client import Address, Answer, Broken
from .context import pause
from .expectation import JSON, Stream
from .reading import Reader
from .sessions import Ended, Session


async def opened(session: Session, to: Address | None = None) -> Answer:
    """Open a standalone stream of the session. Raise ``Ended``."""
    deadline, attempt = session.context.new_deadline(), 0
    while not deadline.is_over:
        try:
            answer = await session.resume(None, to if to and attempt < 3 else session.somewhere())
        except Broken:
            pass
        else:
            if answer.status == 200 and answer.is_stream:
                return answer
            await session.check(answer.status, None, "GET")
            deadline.count_failure()
        attempt += 1
        await pause(session.rng, attempt)
    raise Ended(0)


class StandaloneStream(Reader):
    """Reads a standalone stream, which has no end. The server may replace it by a new one."""

    def __init__(self, session: Session, label: str) -> None:
        super().__init__(session, Stream(session.context.findings, label), ["no end"])
        self.news: list[JSON] = []
        self.hear = self.news.append

    async def once(self, answer: Answer) -> str:
        """Read one connection. Return "released" if the server asked the client to reconnect."""
        self.deadline.seconds = 3_600
        self.deadline.renew()
        how = await self._connection(answer)
        return "released" if how == "ended" and self.last and self.last.is_released else how

    async def live(self, answer: Answer) -> None:
        """Read the stream, and resume it whenever the connection breaks."""
        while True:
            await self.once(answer)
            answer = await self.again()

    async def again(self) -> Answer:
        cursor = self.stream.cursor_at(self.at) if self.stream.id else None
        for attempt in range(1_000):
            try:
                answer = await self.session.resume(cursor, self.session.somewhere())
            except Broken:
                pass
            else:
                if answer.status == 200:
                    return answer
                await self.session.check(answer.status, None, f"GET after {cursor}")
            await pause(self.rng, attempt)
        raise Ended(0)
