"""A virtual client: a user with a token, sessions of every revision, and a seed.

It does one thing after the other; concurrency comes from several clients.
"""

from __future__ import annotations

import random

from . import control
from .context import CampaignContext
from .sessions import NEWEST, Session

OLDER = ("2025-06-18", "2025-03-26")


class VirtualClient:
    """A client of the campaign, with its number."""

    def __init__(self, context: CampaignContext, number: int) -> None:
        self.context, self.number = context, number
        self.rng: random.Random = context.rng("person", number)
        self.secret: str | None = None
        self.sessions: list[Session] = []
        self._count = self._opened = 0

    async def arrive(self) -> None:
        """Get an access token."""
        given = await control.ask(self.context, "token", user=f"person-{self.number}")
        self.secret = given["secret"]

    def seed(self) -> str:
        self._count += 1
        return f"{self.context.seed}-{self.number}-{self._count}"

    async def session(self, revision: str | None = None, **options: object) -> Session:
        """Open a session, usually of the newest revision with sessions."""
        if revision is None:
            revision = NEWEST if self.rng.random() < 0.8 else self.rng.choice(OLDER)
        name = f"{self.number}.{self._opened}"
        self._opened += 1
        session = Session(self.context, name, revision, secret=self.secret)
        self.sessions.append(session)
        await session.open()
        return session

    async def current(self, oldest: str = "") -> Session:
        """Return the open session, or sometimes a new one, of a revision that is new enough."""
        living = [one for one in self.sessions if not one.is_ended and one.id]
        able = [one for one in living if one.revision >= oldest]
        if able and self.rng.random() < 0.85:
            return able[-1]
        older = [revision for revision in OLDER if revision >= oldest]
        newest = self.rng.random() < 0.8 or not older
        return await self.session(NEWEST if newest else self.rng.choice(older))

    async def tidy(self, left: int = 3) -> None:
        """End the sessions that are not needed any more."""
        living = [one for one in self.sessions if one.id and not one.is_ended]
        over = living[:-left] if left else living
        self.sessions = living[len(over) :]
        for session in over:
            await session.close()

    async def leave(self) -> None:
        await self.tidy(0)
