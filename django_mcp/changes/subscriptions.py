"""
Subscriptions of the clients that are connected to this process, and notifications for them.

These clients are open ``subscriptions/listen`` requests and stdio connections. Each is notified of
all changes that are committed after its acknowledgement, in any process. If changes may have been
missed, it is notified as if everything had changed.

``ClientSubscriptions`` has what one client asked for, by ``resources/subscribe`` or
``subscriptions/listen``. The client is notified of a resource if it can see it now or could see it
before the change, because the row may be deleted or hidden now. A notification contains the URI and
no field values. Several changes of one thing become one notification. The acknowledgement of a
listen precedes its notifications (basic/patterns/subscriptions).

``ListenerRegistry`` has the connections, as a follower of the change feed. It reloads their users
and ends those without a valid token before it notifies them. The visibility of changes is queried
once for each principal, however many clients it has.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..calls.callers import reload_valid_principals
from ..calls.execution import surrounded_job
from ..calls.methods import capabilities
from ..calls.throttling import MAX_SUBSCRIPTIONS
from ..calls.visibility import AnyRow, label_in, label_of, visible
from ..declarations.request import Request
from ..exceptions import Busy
from ..protocol.connection import SUBSCRIPTION_ID, Connection, Phase
from ..protocol.jsonrpc import JSON, Id
from ..protocol.revisions import LATEST, Revision, encode_notification
from ..runtime import threads
from ..runtime.runtime import Service, environment
from ..storage import change_log
from ..storage.change_log import ANYTHING
from ..storage.jobs import BROKEN, is_away, run_or_disconnect
from .change_set import ChangeSet, replace_groups_by_members
from .feed import change_feed

if TYPE_CHECKING:
    from ..auth.principal import Principal
    from ..declarations.server import Server

logger = logging.getLogger("django_mcp.storage")
LISTS = ("tools", "prompts", "resources")
FILTERS = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
MAX_LISTENS = 100  # open ``subscriptions/listen`` requests of one connection
MAX_LISTED_URIS = 1_000  # URIs in lists that the client could see, stored for each client
URIS_PER_CHECK = 500  # URIs in one visibility check
LOOKUP_CONCURRENCY = 4  # principals whose visibility is queried at the same time
BUSY_RETRY_SECONDS = 0.5  # until a visibility check is retried
ERROR_RETRY_SECONDS = 5.0  # until a check of principals that failed is repeated
CHECK_POSTPONED = "Notifications postponed, because visibility cannot be checked now: %s"


@dataclass
class ListenRequest:
    """One open ``subscriptions/listen``."""

    filters: JSON  # ``notifications`` of the request
    ended: asyncio.Future[None]
    uris: frozenset[str] = frozenset()

    def wants_list(self, name: str) -> bool:
        return bool(self.filters.get(FILTERS[name]))


class ClientSubscriptions:
    """What one connected client asked for. Used in the event loop of its connection only.

    ``add_changes`` takes all changes of the server and keeps those that concern the client.
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
        self._row_of: dict[str, str] = {}  # the row of each wanted URI, at the last check
        self._uris_of_row: defaultdict[str, set[str]] = defaultdict(set)
        self._visible: set[str] = set()  # wanted URIs that were visible at the last check
        self._listed: dict[str, None] = {}  # URIs in lists that were visible at the last check
        self._principal_key: str | None = None
        self.user = ""
        self._pending = ChangeSet()
        self._is_sending = False

    # Requests of the client.

    def set_principal(self, principal: Principal) -> None:
        """Set the principal. Forget what the one before could see, if it is another."""
        self.user = str(principal.user.pk)
        if principal.key != self._principal_key:
            self._visible.clear()
            self._listed.clear()
            self._principal_key = principal.key

    def subscribe(self, uri: str, row_ref: str = "") -> None:
        """Subscribe to ``uri``, which the principal can see. Raise ``Busy`` at the limit."""
        self._check_limit([uri])
        self._subscribed.add(uri)
        self._set_visible({uri: row_ref})

    def unsubscribe(self, uri: str) -> None:
        self._subscribed.discard(uri)
        self._drop_unused_uris()

    async def listen(
        self, id: Id, filters: JSON, row_refs: Mapping[str, str] | None = None
    ) -> None:
        """Acknowledge a listen request, and return when the client or the server has ended it.

        Raise ``Busy`` at the limits.
        """
        uris = frozenset(filters.get("resourceSubscriptions", ()))
        if len(self._listens) >= MAX_LISTENS:
            raise Busy("There are too many listens.")
        self._check_limit(uris)
        listen = ListenRequest(filters, asyncio.get_running_loop().create_future(), uris)
        self._listens[id] = listen
        self._set_visible({uri: (row_refs or {}).get(uri, "") for uri in uris})
        # No ``await`` between the registration above and the acknowledgement below: a notification
        # in between would precede the acknowledgement.
        try:
            acknowledged = {"notifications": filters, "_meta": {SUBSCRIPTION_ID: id}}
            self._notify(LATEST, "notifications/subscriptions/acknowledged", acknowledged)
            await listen.ended
        finally:
            del self._listens[id]
            self._drop_unused_uris()

    def _check_limit(self, uris: Collection[str]) -> None:
        listened = sum(len(listen.uris) for listen in self._listens.values())
        if len(self._subscribed) + listened + len(uris) > MAX_SUBSCRIPTIONS:
            raise Busy("There are too many subscriptions.")

    def _set_visible(self, row_refs: Mapping[str, str]) -> None:
        self._visible |= row_refs.keys()
        for uri, row_ref in row_refs.items():
            if (before := self._row_of.get(uri)) != row_ref:
                if before is not None:
                    self._leave(uri, before)
                self._row_of[uri] = row_ref
                self._uris_of_row[row_ref].add(uri)

    def _leave(self, uri: str, row_ref: str) -> None:
        self._uris_of_row[row_ref].discard(uri)
        if not self._uris_of_row[row_ref]:
            del self._uris_of_row[row_ref]

    def _drop_unused_uris(self) -> None:
        """Drop the state of URIs that no subscription and no listen request has."""
        wanted = self._subscribed.union(*(listen.uris for _, listen in self._open_listens))
        self._visible &= wanted
        for uri in self._row_of.keys() - wanted:
            self._leave(uri, self._row_of.pop(uri))

    @property
    def is_eager(self) -> bool:
        """Whether the client subscribed to anything, so that frequent polling is worth it.

        Otherwise it gets only the changes of lists that every client gets.
        """
        return bool(self._row_of or self._listens)

    def end_listens(self) -> list[Id]:
        """End every listen: notify the client, and let each request return its result.

        Return the request ids.
        """
        open = [(id, one) for id, one in self._listens.items() if not one.ended.done()]
        for id, listen in open:
            self._notify(LATEST, "notifications/cancelled", {"requestId": id} | _tag(id))
            listen.ended.set_result(None)
        self._drop_unused_uris()
        return [id for id, _ in open]

    # Changes.

    def add_changes(self, changes: ChangeSet) -> bool:
        """Store the changes that concern the client. Return whether the caller must send them.

        False if they do not concern it, or if a running ``send_together`` will include them.
        """
        mine = self._wanted_of(changes)
        if not mine:
            return False
        self._pending.add(mine)
        self._limit_pending()
        must_send, self._is_sending = not self._is_sending, True
        return must_send

    def _limit_pending(self) -> None:
        """Limit the stored URIs of lists: replace the oldest by ``AnyRow`` of their model.

        URIs that the client could see are kept, because it must be notified when they disappear.
        """
        listed = self._pending.listed_uris
        if (over := len(listed) - MAX_LISTED_URIS) > 0:
            known = self._visible.union(self._listed)
            for uri in [one for one in [*listed][:over] if one not in known]:
                label = listed.pop(uri)
                listed[AnyRow(label)] = label

    def _wanted_of(self, changes: ChangeSet) -> ChangeSet:
        lists = [name for name in LISTS if self._wants_list(name)]
        mine = ChangeSet(uris=dict.fromkeys(self._changed_uris(changes)))
        if changes.everything or changes.affects_permissions_of(self.user):
            mine.list_names.update(dict.fromkeys(lists))
            mine.doubted.update(dict.fromkeys(self._row_of))
        mine.list_names.update(dict.fromkeys(name for name in changes.list_names if name in lists))
        if "resources" in lists:
            mine.listed_uris.update(changes.listed_uris)
        return mine

    def _changed_uris(self, changes: ChangeSet) -> Iterable[str]:
        """Return the wanted URIs that may have changed."""
        if changes.everything:
            return list(self._row_of)
        found = _common_keys(changes.uris, self._row_of)
        for row in _common_keys(changes.rows, self._uris_of_row):
            found += self._uris_of_row[row]
        if changes.models:
            found += [uri for uri, at in self._row_of.items() if label_in(at) in changes.models]
        return found

    def pop_pending(self) -> ChangeSet:
        """Remove and return the stored changes."""
        changes, self._pending = self._pending, ChangeSet()
        return changes

    def put_back(self, changes: ChangeSet) -> None:
        """Store changes again that could not be sent, before those that came meanwhile."""
        changes.add(self._pending)
        self._pending = changes

    def finish_sending(self) -> None:
        """Note that no ``send_together`` is running."""
        self._is_sending = False

    def send_visible(self, changes: ChangeSet, visible_now: Mapping[str, str]) -> None:
        """Send notifications of what is visible now or was visible before."""
        for uri in changes.uris:
            if uri in visible_now or uri in self._visible:
                self._notify_updated(uri)
        for uri in changes.doubted.keys() - changes.uris.keys():
            if (uri in visible_now) != (uri in self._visible):
                self._notify_updated(uri)
        if self._update_listed(changes, visible_now):
            changes.list_names["resources"] = None
        for name in changes.list_names:
            self._notify_list_changed(name)
        checked = changes.uris | changes.doubted
        self._visible.difference_update(checked)
        visible = checked.keys() & visible_now.keys() & self._row_of.keys()
        self._set_visible({uri: visible_now[uri] for uri in visible})

    def _update_listed(self, changes: ChangeSet, visible_now: Mapping[str, str]) -> bool:
        """Store which listed URIs are visible now. Return whether the client's list changed."""
        visible_before = self._visible.union(self._listed)
        has_changed = any(
            uri in visible_now or uri in visible_before for uri in changes.listed_uris
        )
        for uri in changes.listed_uris:
            self._listed.pop(uri, None)
            if uri in visible_now:
                self._listed[uri] = None
        _shorten(self._listed)
        return has_changed

    # Notifications.

    def _notify_updated(self, uri: str) -> None:
        params = {"uri": uri}
        if self._is_open and uri in self._subscribed:
            self._notify(self._connection.revision, "notifications/resources/updated", params)
        for id, listen in self._open_listens:
            if uri in listen.uris:
                self._notify(LATEST, "notifications/resources/updated", params | _tag(id))

    def _notify_list_changed(self, name: str) -> None:
        method = f"notifications/{name}/list_changed"
        if self._is_open and name in capabilities(self.server):
            self._notify(self._connection.revision, method, {})
        for id, listen in self._open_listens:
            if listen.wants_list(name):
                self._notify(LATEST, method, _tag(id))

    def _wants_list(self, name: str) -> bool:
        """Whether the client gets changes of this list.

        A client with the ``initialize`` handshake gets them for all lists that the server has.
        """
        if self._is_open and name in capabilities(self.server):
            return True
        return any(listen.wants_list(name) for _, listen in self._open_listens)

    @property
    def _is_open(self) -> bool:
        return self._connection.state.phase is Phase.OPEN

    @property
    def _open_listens(self) -> list[tuple[Id, ListenRequest]]:
        return [(id, one) for id, one in self._listens.items() if not one.ended.done()]

    def _notify(self, revision: Revision, method: str, params: JSON) -> None:
        message = encode_notification(revision, method, params)
        if message is not None:
            self._send(message)


def _shorten(some: dict[str, None]) -> None:
    """Delete the oldest keys beyond ``MAX_LISTED_URIS``."""
    while len(some) > MAX_LISTED_URIS:
        del some[next(iter(some))]


def _common_keys(some: Mapping[str, object], others: Mapping[str, object]) -> list[str]:
    """Return the common keys, by iterating over the smaller mapping."""
    if len(some) > len(others):
        return [one for one in others if one in some]
    return [one for one in some if one in others]


def _tag(id: Id) -> JSON:
    return {"_meta": {SUBSCRIPTION_ID: id}}


# Sending.


async def send_together(
    subscriptions: Sequence[ClientSubscriptions],
    principal: Callable[[], Awaitable[Principal]] | None = None,
    slots: asyncio.Semaphore | None = None,
) -> None:
    """Send the stored changes of clients that share principal, server and host.

    Changes that arrive meanwhile are sent too. Each visibility check takes one of the ``slots``.
    """
    try:
        while changes := [(one, taken) for one in subscriptions if (taken := one.pop_pending())]:
            await _send_pending(changes, principal or subscriptions[0].principal, slots)
    finally:
        for one in subscriptions:
            one.finish_sending()


async def _send_pending(
    changes: list[tuple[ClientSubscriptions, ChangeSet]],
    principal: Callable[[], Awaitable[Principal]],
    slots: asyncio.Semaphore | None,
) -> None:
    uris = dict.fromkeys(
        uri
        for _, change_set in changes
        for uri in (*change_set.uris, *change_set.doubted, *change_set.listed_uris)
    )
    visible_now: Mapping[str, str] = {}
    try:
        if uris:
            # Not held during the pause of ``_postpone``: principals with changes in a database that
            # cannot be reached must not keep the others from being notified.
            async with slots or nullcontext():
                visible_now = await visible_uris(changes[0][0], list(uris), await principal())
    except Exception as error:
        if isinstance(error, Busy) or is_away(error):
            await _postpone(changes, error)
            return
        # The project's code failed, so it is unknown who may see the resources. Changes of lists
        # name no resource and are safe to send.
        logger.exception("Resource notifications not sent: visibility cannot be checked")
        for subscriptions, change_set in changes:
            subscriptions.send_visible(ChangeSet(list_names=change_set.list_names), {})
        return
    for subscriptions, change_set in changes:
        subscriptions.send_visible(change_set, visible_now)


async def _postpone(changes: list[tuple[ClientSubscriptions, ChangeSet]], error: Exception) -> None:
    """Store the changes again, and wait before the next attempt of ``send_together``."""
    logger.log(logging.WARNING if is_away(error) else logging.DEBUG, CHECK_POSTPONED, error)
    for subscriptions, one in changes:
        subscriptions.put_back(one)
    await asyncio.sleep(BUSY_RETRY_SECONDS)


async def visible_uris(
    subscriptions: ClientSubscriptions, uris: Sequence[str], principal: Principal
) -> dict[str, str]:
    """Return the visible ``uris`` with their rows: one query for each model resource."""
    seen: dict[str, str] = {}
    request = Request(principal, subscriptions.server, host=subscriptions.host)
    for start in range(0, len(uris), URIS_PER_CHECK):
        some = uris[start : start + URIS_PER_CHECK]
        seen |= await surrounded_job(request, lambda some=some: visible(request, some))  # type: ignore[misc]
    return seen


# Listeners.

LOCAL_ONLY = "Clients are not notified of changes by other processes: %s"


class ChangeListener(Protocol):
    """One connection that receives notifications."""

    subscriptions: ClientSubscriptions

    @property
    def principal(self) -> Principal | None:
        """The principal that it acts for, or None if ``subscriptions.principal()`` loads it."""
        ...

    def renew(self, principal: Principal) -> None:
        """Set the principal with the reloaded user."""
        ...

    async def is_token_valid(self) -> bool:
        """Whether its token is still valid, if only its verifier can tell."""
        ...

    def end(self) -> None:
        """Close the connection, because its token was revoked or its user is inactive."""
        ...

    def complete(self, id: str) -> None:
        """Notify the client that the page of this elicitation was completed."""
        ...


class ListenerRegistry:
    """The listeners of one event loop, as a follower of the change feed."""

    def __init__(self) -> None:
        # The listeners, with the models that each follows.
        self._listeners: dict[ChangeListener, frozenset[str]] = {}
        self._wanted: Counter[str] = Counter()  # followed models, with the number of listeners
        self._tasks: set[asyncio.Task[None]] = set()
        # A change that concerns many principals must not take all threads of the pool from calls.
        self._slots = asyncio.Semaphore(LOOKUP_CONCURRENCY)

    @property
    def is_following(self) -> bool:
        return bool(self._wanted)

    @property
    def is_eager(self) -> bool:
        return any(listener.subscriptions.is_eager for listener in self._listeners)

    @property
    def models(self) -> Iterable[str]:
        return list(self._wanted)

    # Listeners.

    def add(self, listener: ChangeListener) -> None:
        """Add a listener for the changes that only this process knows of."""
        self._listeners.setdefault(listener, frozenset())
        change_feed().follow_local(self)

    async def follow(self, listener: ChangeListener, models: Collection[str], lists: bool) -> None:
        """Have an added listener follow the logs. From then on it misses no committed change.

        Without a table of changes, or without a database, it gets only changes of this process.
        """
        if not environment().is_shared():
            return
        # The order matters: first the interest, so that changes are recorded, then the cursors,
        # then the listener. In another order it could miss a change or get one from before.
        wanted = {
            ANYTHING,
            *models,
            *(listed_models(listener.subscriptions.server) if lists else ()),
        }
        feed = change_feed()
        try:
            await feed.store_interests(wanted)
        except Busy:
            raise
        except BROKEN:
            if await threads.log.run(change_log.is_possible):
                raise
            logger.warning(LOCAL_ONLY, "the table of changes is missing: run migrate")
            return
        except Exception as error:  # for example, no database is configured
            logger.warning(LOCAL_ONLY, error)
            return
        await feed.catch_up()
        if listener not in self._listeners:  # removed meanwhile, and nothing would remove it again
            return
        # A stdio connection calls ``follow`` again for each subscription.
        before = self._listeners[listener]
        self._listeners[listener] = before | wanted
        self._wanted.update(wanted - before)
        feed.follow(self)

    def remove(self, listener: ChangeListener) -> None:
        self._wanted -= Counter(self._listeners.pop(listener, ()))
        if not self._listeners:
            change_feed().leave_local(self)

    # Changes.

    async def receive(self, server: str, changes: ChangeSet) -> None:
        """Notify the listeners of a server."""
        users = [
            one.subscriptions.user
            for one in self._listeners
            if one.subscriptions.server.name == server
        ]
        if users:
            self.notify(server, await replace_groups_by_members(changes, users))

    def receive_local(self, server: str, changes: ChangeSet) -> None:
        self.notify(server, changes)

    def notify(self, server: str, changes: ChangeSet) -> None:
        theirs = [
            listener for listener in self._listeners if listener.subscriptions.server.name == server
        ]
        for id in changes.completed_elicitations:
            for listener in theirs:
                listener.complete(id)
        to_notify = [listener for listener in theirs if listener.subscriptions.add_changes(changes)]
        if to_notify:
            self._start(self._notify(to_notify))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self, listeners: list[ChangeListener]) -> None:
        """Reload the users, end listeners without a valid token, and notify the others."""
        try:
            fresh, unverified = await self._reload([one for e in listeners if (one := e.principal)])
        except Exception:  # for example of a verifier of the project
            self._retry_later(listeners)
            return
        await asyncio.gather(
            *(self._notify_principal(some, fresh, unverified) for some in _by_principal(listeners))
        )

    async def _notify_principal(
        self,
        listeners: list[ChangeListener],
        fresh: Mapping[object, Principal],
        unverified: Collection[str],
    ) -> None:
        """Notify the listeners of one principal.

        Its token verifier may be slow. Other principals do not wait for it.
        """
        try:
            are_valid = await asyncio.gather(
                *(_renew(listener, fresh, unverified) for listener in listeners)
            )
        except Exception:
            self._retry_later(listeners)
            return
        for listener in (
            listener
            for listener, is_valid in zip(listeners, are_valid, strict=True)
            if not is_valid
        ):
            listener.end()
            listener.subscriptions.finish_sending()
        valid_listeners = [
            listener for listener, is_valid in zip(listeners, are_valid, strict=True) if is_valid
        ]
        await asyncio.gather(
            *(self._notify_group(group) for group in _by_principal(valid_listeners))
        )

    def _retry_later(self, listeners: list[ChangeListener]) -> None:
        """Log the current exception, and notify the listeners later.

        Until then it is unknown whether their tokens are valid. The changes are kept.
        """
        logger.exception("Notifications postponed: principals cannot be checked")
        self._start(self._retry(listeners))

    async def _retry(self, listeners: list[ChangeListener]) -> None:
        await asyncio.sleep(ERROR_RETRY_SECONDS)
        await self._notify([one for one in listeners if one in self._listeners])

    async def _notify_group(self, listeners: list[ChangeListener]) -> None:
        one = listeners[0]

        async def principal() -> Principal:
            return one.principal or await one.subscriptions.principal()

        subscriptions = [listener.subscriptions for listener in listeners]
        await send_together(subscriptions, principal, self._slots)

    async def _reload(
        self, principals: Iterable[Principal]
    ) -> tuple[dict[object, Principal], Collection[str]]:
        """Call ``callers.reload_valid_principals``, and retry while the database is down."""
        wanted = {_visibility_key(one): one for one in principals}
        while wanted:
            try:
                return await threads.lookups.run(run_or_disconnect, reload_valid_principals, wanted)
            except Busy:
                logger.debug("Users of listeners are reloaded later: all threads are busy")
            except BROKEN as error:
                if not is_away(error):
                    raise
                logger.warning(
                    "Notifications postponed, because users cannot be reloaded: %s", error
                )
            await asyncio.sleep(BUSY_RETRY_SECONDS)
        return {}, ()


listener_registry = Service(ListenerRegistry)


def _by_principal(listeners: Iterable[ChangeListener]) -> list[list[ChangeListener]]:
    """Group listeners that can see the same. One without a known principal is alone."""
    found: dict[object, list[ChangeListener]] = defaultdict(list)
    for listener in listeners:
        principal = listener.principal
        found[
            listener
            if principal is None
            else (*_visibility_key(principal), listener.subscriptions.host)
        ].append(listener)
    return list(found.values())


async def _renew(
    listener: ChangeListener, fresh: Mapping[object, Principal], unverified: Collection[str]
) -> bool:
    """Set the listener's reloaded principal. Return whether its token is still valid."""
    if (before := listener.principal) is None:
        return True
    if (reloaded := fresh.get(_visibility_key(before))) is None:
        return False
    listener.renew(reloaded)  # the old user caches permissions that may have changed
    return before.key not in unverified or await listener.is_token_valid()


def _visibility_key(principal: Principal) -> tuple[str, object]:
    """Return a key that differs for principals that may see different things."""
    return principal.key, None if principal.auth is None else principal.auth.scopes


def followed_models(filters: JSON, row_refs: Mapping[str, str]) -> tuple[set[str], bool]:
    """Return the models that a listen request follows, and whether it follows resource lists."""
    models = {label_in(one) for one in row_refs.values() if one}
    return models, bool(filters.get("resourcesListChanged"))


def listed_models(server: Server) -> set[str]:
    """Return the labels of the models whose rows a server lists."""
    return {
        label_of(model)
        for model, theirs in server._catalog.models.items()
        if any(one.listed for one in theirs)
    }
