"""
What a client wants to be told of: its subscriptions and its listens, over one pipe.

Rule: told is only what was asked for, to who may see it at that moment or saw
it before (it may be gone, or another's now), and never more than that it
changed; of many changes of one thing the last is told. Who sees the same is
looked up once, however many they are. The acknowledgement of a listen comes before
anything it brings (basic/patterns/subscriptions).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..declare.requests import Request
from ..delivery.jobs import is_away
from ..exceptions import Busy
from ..protocol.connection import Connection, Phase
from ..protocol.jsonrpc import JSON, Id
from ..protocol.revisions import LATEST, Revision, encode_notification
from .announcements import LISTS
from .bulletins import Bulletin
from .places import AnyRow, label_in
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
MAX_LISTED = 1_000  # addresses in lists that are remembered, because the client saw them
AT_ONCE = 500  # addresses in one look
BUSY_PAUSE = 0.5  # seconds until a look at what is visible is tried again
LATER = "Changes are told later: it cannot be looked up now who may see them: %s"


@dataclass
class Listen:
    """One open ``subscriptions/listen``."""

    wanted: JSON
    ended: asyncio.Future[None]
    uris: frozenset[str] = frozenset()

    def wants_list(self, name: str) -> bool:
        return bool(self.wanted.get(FILTERS[name]))


class Listening:
    """What one client is told of; ``take`` is given all that changes."""

    def __init__(
        self,
        server: Server,
        connection: Connection,
        principal: Callable[[], Awaitable[Principal]],
        send: Callable[[JSON], None],
        host: str | None = None,
    ) -> None:
        self.server, self._connection, self.principal = server, connection, principal
        self._send, self.host = send, host
        self._subscribed: set[str] = set()
        self._listens: dict[Id, Listen] = {}
        self._places: dict[str, str] = {}  # where what is wanted was, when last seen
        self._at: defaultdict[str, set[str]] = defaultdict(set)
        self._saw: set[str] = set()  # what the principal could see when it was last looked at
        self._listed: dict[str, None] = {}  # what of the lists it could
        self._principal_key: str | None = None
        self.user = ""
        self._news = Bulletin()
        self._telling = False

    # What the client asks for.

    def recognise(self, principal: Principal) -> None:
        """Whoever is no longer the same has seen nothing yet."""
        self.user = str(principal.user.pk)
        if principal.key != self._principal_key:
            self._saw.clear()
            self._listed.clear()
            self._principal_key = principal.key

    def subscribe(self, uri: str, place: str = "") -> None:
        """Tell of changes of ``uri``, which the principal can see. Raises ``Busy``."""
        self._check_room([uri])
        self._subscribed.add(uri)
        self._see({uri: place})

    def unsubscribe(self, uri: str) -> None:
        self._subscribed.discard(uri)
        self._forget()

    async def listen(self, id: Id, wanted: JSON, places: Mapping[str, str] | None = None) -> None:
        """Acknowledge, and stay until the listen is ended from either side."""
        uris = frozenset(wanted.get("resourceSubscriptions", ()))
        if len(self._listens) >= MAX_LISTENS:
            raise Busy("There are too many listens.")
        self._check_room(uris)
        listen = Listen(wanted, asyncio.get_running_loop().create_future(), uris)
        self._listens[id] = listen
        self._see({uri: (places or {}).get(uri, "") for uri in uris})
        try:
            acknowledged = {"notifications": wanted, "_meta": {SUBSCRIPTION_ID: id}}
            self._notify(LATEST, "notifications/subscriptions/acknowledged", acknowledged)
            await listen.ended
        finally:
            del self._listens[id]
            self._forget()

    def _check_room(self, uris: Collection[str]) -> None:
        listened = sum(len(listen.uris) for listen in self._listens.values())
        if len(self._subscribed) + listened + len(uris) > MAX_SUBSCRIPTIONS:
            raise Busy("There are too many subscriptions.")

    def _see(self, seen: Mapping[str, str]) -> None:
        self._saw |= seen.keys()
        for uri, place in seen.items():
            if (before := self._places.get(uri)) != place:
                if before is not None:
                    self._leave(uri, before)
                self._places[uri] = place
                self._at[place].add(uri)

    def _leave(self, uri: str, place: str) -> None:
        self._at[place].discard(uri)
        if not self._at[place]:
            del self._at[place]

    def _forget(self) -> None:
        """What nobody asks for any more."""
        wanted = self._subscribed.union(*(listen.uris for _, listen in self._listening))
        self._saw &= wanted
        for uri in self._places.keys() - wanted:
            self._leave(uri, self._places.pop(uri))

    @property
    def is_eager(self) -> bool:
        """Whether it was asked for anything, and not only what every client is told."""
        return bool(self._places or self._listens)

    def end(self) -> list[Id]:
        """Close every listen: say so, and let each bring its complete result."""
        open = [(id, one) for id, one in self._listens.items() if not one.ended.done()]
        for id, listen in open:
            self._notify(LATEST, "notifications/cancelled", {"requestId": id} | _tag(id))
            listen.ended.set_result(None)
        self._forget()
        return [id for id, _ in open]

    # What changed.

    def take(self, news: Bulletin) -> bool:
        """Keep news until they are told, once; whether somebody must begin to ``tell``."""
        mine = self._wanted_of(news)
        if not mine:
            return False
        self._news.add(mine)
        self._shorten_news()
        begin, self._telling = not self._telling, True
        return begin

    def _shorten_news(self) -> None:
        """Of too much that lists show, the oldest are any rows of their models, unless known."""
        listed = self._news.listed
        if (over := len(listed) - MAX_LISTED) > 0:
            known = self._saw.union(self._listed)
            for uri in [one for one in [*listed][:over] if one not in known]:
                label = listed.pop(uri)
                listed[AnyRow(label)] = label

    def _wanted_of(self, news: Bulletin) -> Bulletin:
        lists = [name for name in LISTS if self._wants_list(name)]
        mine = Bulletin(uris=dict.fromkeys(self._touched(news)))
        if news.everything or news.permits(self.user):
            mine.lists.update(dict.fromkeys(lists))
            mine.doubted.update(dict.fromkeys(self._places))
        mine.lists.update(dict.fromkeys(name for name in news.lists if name in lists))
        if "resources" in lists:
            mine.listed.update(news.listed)
        return mine

    def _touched(self, news: Bulletin) -> Iterable[str]:
        """Of what is wanted that which may have changed."""
        if news.everything:
            return list(self._places)
        found = _shared(news.uris, self._places)
        for place in _shared(news.places, self._at):
            found += self._at[place]
        if news.models:
            found += [uri for uri, at in self._places.items() if label_in(at) in news.models]
        return found

    async def tell(self) -> None:
        """Pass on what was taken to what asked for it and may know of it."""
        await tell_together([self])

    def taken(self) -> Bulletin:
        """What is to be told now."""
        news, self._news = self._news, Bulletin()
        return news

    def keep(self, news: Bulletin) -> None:
        """It could not be told yet."""
        news.add(self._news)
        self._news = news

    def told(self) -> None:
        self._telling = False

    def pass_on(self, news: Bulletin, seen: Mapping[str, str]) -> None:
        """Tell what of it the principal sees now, or saw before: a row may have gone."""
        for uri in news.uris:
            if uri in seen or uri in self._saw:
                self._update(uri)
        for uri in news.doubted.keys() - news.uris.keys():
            if (uri in seen) != (uri in self._saw):
                self._update(uri)
        if self._saw_listed(news, seen):
            news.lists["resources"] = None
        for name in news.lists:
            self._change(name)
        looked = news.uris | news.doubted
        self._saw.difference_update(looked)
        self._see({uri: seen[uri] for uri in looked if uri in seen and uri in self._places})

    def _saw_listed(self, news: Bulletin, seen: Mapping[str, str]) -> bool:
        seen_before = self._saw.union(self._listed)
        found = [uri for uri in news.listed if uri in seen or uri in seen_before]
        for uri in news.listed:
            self._listed.pop(uri, None)
            if uri in seen:
                self._listed[uri] = None
        _shorten(self._listed)
        return bool(found)

    # What is sent.

    def _update(self, uri: str) -> None:
        params = {"uri": uri}
        if self._is_open and uri in self._subscribed:
            self._notify(self._connection.revision, "notifications/resources/updated", params)
        for id, listen in self._listening:
            if uri in listen.uris:
                self._notify(LATEST, "notifications/resources/updated", params | _tag(id))

    def _change(self, name: str) -> None:
        method = f"notifications/{name}/list_changed"
        if self._is_open and name in capabilities(self.server):
            self._notify(self._connection.revision, method, {})
        for id, listen in self._listening:
            if listen.wants_list(name):
                self._notify(LATEST, method, _tag(id))

    def _wants_list(self, name: str) -> bool:
        """Clients with a handshake get changes of the lists there are."""
        if self._is_open and name in capabilities(self.server):
            return True
        return any(listen.wants_list(name) for _, listen in self._listening)

    @property
    def _is_open(self) -> bool:
        return self._connection.state.phase is Phase.OPEN

    @property
    def _listening(self) -> list[tuple[Id, Listen]]:
        return [(id, one) for id, one in self._listens.items() if not one.ended.done()]

    def _notify(self, revision: Revision, method: str, params: JSON) -> None:
        message = encode_notification(revision, method, params)
        if message is not None:
            self._send(message)


def _shorten(some: dict[str, None]) -> None:
    """Forget the oldest of what is too much to remember."""
    while len(some) > MAX_LISTED:
        del some[next(iter(some))]


def _shared(some: Mapping[str, object], others: Mapping[str, object]) -> list[str]:
    """Keys of both, looked for in whichever has more."""
    if len(some) > len(others):
        return [one for one in others if one in some]
    return [one for one in some if one in others]


def _tag(id: Id) -> JSON:
    return {"_meta": {SUBSCRIPTION_ID: id}}


# Telling.


async def tell_together(
    those: Sequence[Listening], principal: Callable[[], Awaitable[Principal]] | None = None
) -> None:
    """Tell clients of one principal, one server and one host what each has taken."""
    try:
        while news := [(one, taken) for one in those if (taken := one.taken())]:
            await _tell(news, principal or those[0].principal)
    finally:
        for one in those:
            one.told()


async def _tell(
    news: list[tuple[Listening, Bulletin]], principal: Callable[[], Awaitable[Principal]]
) -> None:
    uris = dict.fromkeys(uri for _, one in news for uri in (*one.uris, *one.doubted, *one.listed))
    try:
        seen = await look(news[0][0], list(uris), await principal()) if uris else {}
    except Exception as error:
        if isinstance(error, Busy) or is_away(error):
            await _later(news, error)
            return
        logger.exception("Changes were not told: nobody knows who may see them")
        for listening, one in news:
            listening.pass_on(Bulletin(lists=one.lists), {})
        return
    for listening, one in news:
        listening.pass_on(one, seen)


async def _later(news: list[tuple[Listening, Bulletin]], error: Exception) -> None:
    logger.log(logging.WARNING if is_away(error) else logging.DEBUG, LATER, error)
    for listening, one in news:
        listening.keep(one)
    await asyncio.sleep(BUSY_PAUSE)


async def look(one: Listening, uris: Sequence[str], principal: Principal) -> dict[str, str]:
    """What of it the principal sees now: one query for each model resource."""
    seen: dict[str, str] = {}
    request = Request(principal, one.server, host=one.host)
    for start in range(0, len(uris), AT_ONCE):
        some = uris[start : start + AT_ONCE]
        seen |= await surrounded_job(request, lambda some=some: visible(request, some))  # type: ignore[misc]
    return seen
