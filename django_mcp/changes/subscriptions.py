"""
Subscriptions of clients that are connected to this process, and the notifications for them.

``SubscriptionFilter`` has what one connected client asked for, by ``resources/subscribe`` or
``subscriptions/listen``. The client is notified of a resource if it can see it now or could see it
before the change, because the row may be deleted or hidden now. A notification contains the URI and
no field values. Several changes of one thing become one notification. Clients of the same principal
share one visibility query. The acknowledgement of a listen precedes its notifications
(basic/patterns/subscriptions).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..calls.execution import surrounded_job
from ..calls.methods import capabilities
from ..calls.rate_limits import MAX_SUBSCRIPTIONS
from ..calls.visibility import AnyRow, label_in, visible
from ..declarations.request import Request
from ..exceptions import Busy
from ..protocol.connection import Connection, Phase
from ..protocol.jsonrpc import JSON, Id
from ..protocol.revisions import LATEST, Revision, encode_notification
from ..storage.jobs import is_away
from .change_set import ChangeSet

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp")
LISTS = ("tools", "prompts", "resources")
SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"
FILTERS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
MAX_LISTENS = 100  # open ``subscriptions/listen`` requests of one connection
MAX_LISTED_URIS = 1_000  # URIs in lists that the client could see, stored for each client
URIS_PER_CHECK = 500  # URIs in one visibility check
BUSY_RETRY_SECONDS = 0.5  # until a visibility check is retried
LATER = "Changes are told later: it cannot be looked up now who may see them: %s"


@dataclass
class ListenRequest:
    """One open ``subscriptions/listen``."""

    wanted: JSON
    ended: asyncio.Future[None]
    uris: frozenset[str] = frozenset()

    def wants_list(self, name: str) -> bool:
        return bool(self.wanted.get(FILTERS[name]))


class SubscriptionFilter:
    """What one connected client asked for. Used in the event loop of its connection only.

    ``take`` receives all changes of the server and keeps those that concern the client.
    """

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
        self._listens: dict[Id, ListenRequest] = {}
        self._places: dict[str, str] = {}  # the row of each wanted URI, at the last check
        self._at: defaultdict[str, set[str]] = defaultdict(set)  # the URIs of each row
        self._saw: set[str] = set()  # wanted URIs that were visible at the last check
        self._listed: dict[str, None] = {}  # URIs in lists that were visible at the last check
        self._principal_key: str | None = None
        self.user = ""
        self._news = ChangeSet()
        self._telling = False

    # Requests of the client.

    def recognise(self, principal: Principal) -> None:
        """Set the principal. Forget what the one before could see, if it is another."""
        self.user = str(principal.user.pk)
        if principal.key != self._principal_key:
            self._saw.clear()
            self._listed.clear()
            self._principal_key = principal.key

    def subscribe(self, uri: str, place: str = "") -> None:
        """Subscribe to ``uri``, which the principal can see. Raise ``Busy`` at the limit."""
        self._check_room([uri])
        self._subscribed.add(uri)
        self._see({uri: place})

    def unsubscribe(self, uri: str) -> None:
        self._subscribed.discard(uri)
        self._forget()

    async def listen(self, id: Id, wanted: JSON, places: Mapping[str, str] | None = None) -> None:
        """Acknowledge a listen request, and return when the client or the server has ended it.

        Raise ``Busy`` at the limits.
        """
        uris = frozenset(wanted.get("resourceSubscriptions", ()))
        if len(self._listens) >= MAX_LISTENS:
            raise Busy("There are too many listens.")
        self._check_room(uris)
        listen = ListenRequest(wanted, asyncio.get_running_loop().create_future(), uris)
        self._listens[id] = listen
        self._see({uri: (places or {}).get(uri, "") for uri in uris})
        # No ``await`` between the registration above and the acknowledgement below: a notification
        # in between would precede the acknowledgement.
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
        """Drop the state of URIs that no subscription or listen wants any more."""
        wanted = self._subscribed.union(*(listen.uris for _, listen in self._listening))
        self._saw &= wanted
        for uri in self._places.keys() - wanted:
            self._leave(uri, self._places.pop(uri))

    @property
    def is_eager(self) -> bool:
        """Whether the client subscribed to anything, so that frequent polling is worth it.

        Otherwise it gets only the changes of lists that every client gets.
        """
        return bool(self._places or self._listens)

    def end(self) -> list[Id]:
        """End every listen: notify the client, and let each request return its result.

        Return the request ids.
        """
        open = [(id, one) for id, one in self._listens.items() if not one.ended.done()]
        for id, listen in open:
            self._notify(LATEST, "notifications/cancelled", {"requestId": id} | _tag(id))
            listen.ended.set_result(None)
        self._forget()
        return [id for id, _ in open]

    # Changes.

    def take(self, news: ChangeSet) -> bool:
        """Store the changes that concern the client. Return whether the caller must ``tell`` them.

        False if they do not concern it, or if a running ``tell`` will send them.
        """
        mine = self._wanted_of(news)
        if not mine:
            return False
        self._news.add(mine)
        self._shorten_news()
        begin, self._telling = not self._telling, True
        return begin

    def _shorten_news(self) -> None:
        """Limit the stored URIs of lists: replace the oldest by ``AnyRow`` of their model.

        URIs that the client could see are kept, because it must be told when they disappear.
        """
        listed = self._news.listed
        if (over := len(listed) - MAX_LISTED_URIS) > 0:
            known = self._saw.union(self._listed)
            for uri in [one for one in [*listed][:over] if one not in known]:
                label = listed.pop(uri)
                listed[AnyRow(label)] = label

    def _wanted_of(self, news: ChangeSet) -> ChangeSet:
        lists = [name for name in LISTS if self._wants_list(name)]
        mine = ChangeSet(uris=dict.fromkeys(self._touched(news)))
        if news.everything or news.permits(self.user):
            mine.lists.update(dict.fromkeys(lists))
            mine.doubted.update(dict.fromkeys(self._places))
        mine.lists.update(dict.fromkeys(name for name in news.lists if name in lists))
        if "resources" in lists:
            mine.listed.update(news.listed)
        return mine

    def _touched(self, news: ChangeSet) -> Iterable[str]:
        """Return the wanted URIs that may have changed."""
        if news.everything:
            return list(self._places)
        found = _shared(news.uris, self._places)
        for place in _shared(news.places, self._at):
            found += self._at[place]
        if news.models:
            found += [uri for uri, at in self._places.items() if label_in(at) in news.models]
        return found

    async def tell(self) -> None:
        """Check the visibility of the stored changes, and send the notifications."""
        await tell_together([self])

    def taken(self) -> ChangeSet:
        """Remove and return the stored changes."""
        news, self._news = self._news, ChangeSet()
        return news

    def keep(self, news: ChangeSet) -> None:
        """Store changes again that could not be sent, before those that came meanwhile."""
        news.add(self._news)
        self._news = news

    def told(self) -> None:
        """Note that no ``tell`` is running."""
        self._telling = False

    def pass_on(self, news: ChangeSet, seen: Mapping[str, str]) -> None:
        """Send notifications of what is visible now (``seen``) or was visible before."""
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

    def _saw_listed(self, news: ChangeSet, seen: Mapping[str, str]) -> bool:
        seen_before = self._saw.union(self._listed)
        found = [uri for uri in news.listed if uri in seen or uri in seen_before]
        for uri in news.listed:
            self._listed.pop(uri, None)
            if uri in seen:
                self._listed[uri] = None
        _shorten(self._listed)
        return bool(found)

    # Notifications.

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
        """Whether the client gets changes of this list.

        A client with the ``initialize`` handshake gets them for all lists that the server has.
        """
        if self._is_open and name in capabilities(self.server):
            return True
        return any(listen.wants_list(name) for _, listen in self._listening)

    @property
    def _is_open(self) -> bool:
        return self._connection.state.phase is Phase.OPEN

    @property
    def _listening(self) -> list[tuple[Id, ListenRequest]]:
        return [(id, one) for id, one in self._listens.items() if not one.ended.done()]

    def _notify(self, revision: Revision, method: str, params: JSON) -> None:
        message = encode_notification(revision, method, params)
        if message is not None:
            self._send(message)


def _shorten(some: dict[str, None]) -> None:
    """Delete the oldest keys beyond ``MAX_LISTED_URIS``."""
    while len(some) > MAX_LISTED_URIS:
        del some[next(iter(some))]


def _shared(some: Mapping[str, object], others: Mapping[str, object]) -> list[str]:
    """Return the common keys, by iterating over the smaller mapping."""
    if len(some) > len(others):
        return [one for one in others if one in some]
    return [one for one in some if one in others]


def _tag(id: Id) -> JSON:
    return {"_meta": {SUBSCRIPTION_ID: id}}


# Sending.


async def tell_together(
    those: Sequence[SubscriptionFilter], principal: Callable[[], Awaitable[Principal]] | None = None
) -> None:
    """Send the stored changes of clients that share principal, server and host.

    Changes that arrive meanwhile are sent too.
    """
    try:
        while news := [(one, taken) for one in those if (taken := one.taken())]:
            await _tell(news, principal or those[0].principal)
    finally:
        for one in those:
            one.told()


async def _tell(
    news: list[tuple[SubscriptionFilter, ChangeSet]], principal: Callable[[], Awaitable[Principal]]
) -> None:
    uris = dict.fromkeys(uri for _, one in news for uri in (*one.uris, *one.doubted, *one.listed))
    try:
        seen = await look(news[0][0], list(uris), await principal()) if uris else {}
    except Exception as error:
        if isinstance(error, Busy) or is_away(error):
            await _later(news, error)
            return
        # The project's code failed, so it is unknown who may see the resources. Changes of lists
        # name no resource and are safe to send.
        logger.exception("Changes were not told: nobody knows who may see them")
        for listening, one in news:
            listening.pass_on(ChangeSet(lists=one.lists), {})
        return
    for listening, one in news:
        listening.pass_on(one, seen)


async def _later(news: list[tuple[SubscriptionFilter, ChangeSet]], error: Exception) -> None:
    """Store the changes again, and wait before the next attempt of ``tell_together``."""
    logger.log(logging.WARNING if is_away(error) else logging.DEBUG, LATER, error)
    for listening, one in news:
        listening.keep(one)
    await asyncio.sleep(BUSY_RETRY_SECONDS)


async def look(
    one: SubscriptionFilter, uris: Sequence[str], principal: Principal
) -> dict[str, str]:
    """Return the visible ``uris`` with their rows: one query for each model resource."""
    seen: dict[str, str] = {}
    request = Request(principal, one.server, host=one.host)
    for start in range(0, len(uris), URIS_PER_CHECK):
        some = uris[start : start + URIS_PER_CHECK]
        seen |= await surrounded_job(request, lambda some=some: visible(request, some))  # type: ignore[misc]
    return seen
