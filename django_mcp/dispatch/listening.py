"""
What a client wants to be told of: its subscriptions and its listens, over one pipe.

Rule: told is only what was asked for, to who may see it at that moment or saw
it before (it may be gone, or another's now), and never more than that it
changed; of many changes of one thing the last is told. The acknowledgement of a listen comes before
anything it brings (basic/patterns/subscriptions).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..declare.requests import Request
from ..exceptions import Busy
from ..protocol.connection import Connection, Phase
from ..protocol.jsonrpc import JSON, Id
from ..protocol.revisions import LATEST, Revision, encode_notification
from .announcements import Announcement
from .presentation import capabilities
from .running import surrounded_job
from .visibility import visible

if TYPE_CHECKING:
    from ..declare.servers import Server
    from ..principal import Principal

logger = logging.getLogger("django_mcp")
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
FILTERS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
MAX_LISTENS, MAX_SUBSCRIPTIONS = 100, 10_000
BUSY_PAUSE = 0.5  # seconds until a look at what is visible is tried again


@dataclass
class Listen:
    """One open ``subscriptions/listen``."""

    wanted: JSON
    ended: asyncio.Future[None]
    uris: frozenset[str] = frozenset()

    def wants(self, news: Announcement) -> bool:
        if news.kind == "updated":
            return news.subject in self.uris
        return bool(self.wanted.get(FILTERS[news.subject]))


class Listening:
    """What one client is told of; ``hear`` is given every announcement."""

    def __init__(
        self,
        server: Server,
        connection: Connection,
        principal: Callable[[], Awaitable[Principal]],
        send: Callable[[JSON], None],
        host: str | None = None,
    ) -> None:
        self._server, self._connection, self._principal = server, connection, principal
        self._send, self._host = send, host
        self._subscribed: set[str] = set()
        self._listens: dict[Id, Listen] = {}
        self._saw: set[str] = set()  # what the principal could see when it was last looked at
        self._principal_key: str | None = None
        self._news: dict[Announcement, None] = {}
        self._telling = False

    # What the client asks for.

    def recognise(self, principal: Principal) -> None:
        """Whoever is no longer the same has seen nothing yet."""
        if principal.key != self._principal_key:
            self._saw.clear()
            self._principal_key = principal.key

    def subscribe(self, uri: str) -> None:
        """Tell of changes of ``uri``, which the principal can see. Raises ``Busy``."""
        self._check_room([uri])
        self._subscribed.add(uri)
        self._saw.add(uri)

    def unsubscribe(self, uri: str) -> None:
        self._subscribed.discard(uri)
        self._saw &= self._wanted()

    async def listen(self, id: Id, wanted: JSON) -> None:
        """Acknowledge, and stay until the listen is ended from either side."""
        uris = frozenset(wanted.get("resourceSubscriptions", ()))
        if len(self._listens) >= MAX_LISTENS:
            raise Busy("There are too many listens.")
        self._check_room(uris)
        listen = Listen(wanted, asyncio.get_running_loop().create_future(), uris)
        self._listens[id] = listen
        self._saw |= uris
        try:
            acknowledged = {"notifications": wanted, "_meta": {SUBSCRIPTION_ID: id}}
            self._notify(LATEST, "notifications/subscriptions/acknowledged", acknowledged)
            await listen.ended
        finally:
            del self._listens[id]
            self._saw &= self._wanted()

    def _check_room(self, uris: Collection[str]) -> None:
        listened = sum(len(listen.uris) for listen in self._listens.values())
        if len(self._subscribed) + listened + len(uris) > MAX_SUBSCRIPTIONS:
            raise Busy("There are too many subscriptions.")

    def _wanted(self) -> set[str]:
        return self._subscribed.union(*(listen.uris for listen in self._listens.values()))

    def end(self) -> list[Id]:
        """Close every listen: say so, and let each bring its complete result."""
        open = [(id, one) for id, one in self._listens.items() if not one.ended.done()]
        for id, listen in open:
            self._notify(LATEST, "notifications/cancelled", {"requestId": id} | _tag(id))
            listen.ended.set_result(None)
        return [id for id, _ in open]

    # What is announced.

    def take(self, news: Announcement) -> bool:
        """Keep news until they are told, once; whether somebody must begin to ``tell``."""
        if not (self._told_without_listen(news) or self._hearing(news)):
            return False
        self._news[news] = None
        begin, self._telling = not self._telling, True
        return begin

    async def tell(self) -> None:
        """Pass on what was taken, in that order, to what asked for it and may know of it."""
        try:
            while self._news:
                news, self._news = list(self._news), {}
                await self._tell(news)
        finally:
            self._telling = False

    async def _tell(self, news: list[Announcement]) -> None:
        uris = {one.subject for one in news if one.kind == "updated"}
        try:
            known = await self._known(uris) if uris else set()
        except Busy:
            self._news = dict.fromkeys(news) | self._news
            await asyncio.sleep(BUSY_PAUSE)
            return
        except Exception:
            logger.exception("Changes were not told: nobody knows who may see them")
            known = set()
        for one in news:
            if one.kind == "list_changed" or one.subject in known:
                self._pass_on(one)

    async def _known(self, uris: set[str]) -> set[str]:
        """Those of ``uris`` that the principal sees now, or saw before: a row may have gone."""
        principal = await self._principal()
        request = Request(principal, self._server, host=self._host)
        seen = await surrounded_job(request, lambda: visible(request, uris))
        known = seen | (self._saw & uris)
        self._saw = (self._saw - uris) | (seen & self._wanted())
        return known

    def _pass_on(self, news: Announcement) -> None:
        method, params = _notification(news)
        if self._told_without_listen(news):
            self._notify(self._connection.revision, method, params)
        for id in self._hearing(news):
            self._notify(LATEST, method, params | _tag(id))

    def _hearing(self, news: Announcement) -> list[Id]:
        open = ((id, one) for id, one in self._listens.items() if not one.ended.done())
        return [id for id, listen in open if listen.wants(news)]

    def _told_without_listen(self, news: Announcement) -> bool:
        """Clients with a handshake get changes of the lists there are, and what they asked for."""
        if self._connection.state.phase is not Phase.OPEN:
            return False
        told = capabilities(self._server) if news.kind == "list_changed" else self._subscribed
        return news.subject in told

    def _notify(self, revision: Revision, method: str, params: JSON) -> None:
        message = encode_notification(revision, method, params)
        if message is not None:
            self._send(message)


def _tag(id: Id) -> JSON:
    return {"_meta": {SUBSCRIPTION_ID: id}}


def _notification(news: Announcement) -> tuple[str, JSON]:
    if news.kind == "updated":
        return "notifications/resources/updated", {"uri": news.subject}
    return f"notifications/{news.subject}/list_changed", {}
