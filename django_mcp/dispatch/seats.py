"""
What the methods may change about the client of a session: rows (``runs.Session``).

Rule: what is changed is changed for every process, before the method answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..delivery import sessions
from ..delivery.jobs import surely
from ..models import Session
from ..protocol.jsonrpc import Id, MethodNotFound
from . import news


class Seat:
    """The place of one client, whose token has these scopes just now."""

    def __init__(self, session: Session, scopes: list[str] | None = None) -> None:
        self.session, self._scopes = session, scopes

    def log_level(self) -> str | None:
        return self.session.log_level

    async def set_log_level(self, level: str) -> None:
        await surely(sessions.set_log_level, self.session, level)

    async def subscribe(self, uri: str, place: str) -> None:
        await surely(sessions.subscribe, self.session, uri, place, self._scopes)
        if place:
            await news.interest(place)

    async def unsubscribe(self, uri: str) -> None:
        await surely(sessions.unsubscribe, self.session, uri)

    async def listen(self, id: Id, wanted: dict[str, Any], places: Mapping[str, str]) -> None:
        raise MethodNotFound("A session has no listens.")


class Nobody:
    """Who has no session yet, and so nothing to change."""

    async def set_log_level(self, level: str) -> None:
        raise MethodNotFound("There is no session yet.")

    async def subscribe(self, uri: str, place: str) -> None:
        raise MethodNotFound("There is no session yet.")

    async def listen(self, id: Id, wanted: dict[str, Any], places: Mapping[str, str]) -> None:
        raise MethodNotFound("There is no session yet.")

    unsubscribe = set_log_level
