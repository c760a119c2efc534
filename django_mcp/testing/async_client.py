"""
``AsyncClient``: a test client for a user, a protocol revision and a transport.

An exception in the server's code is raised as itself, as Django's test client does. Errors that the
protocol reports are returned as results with assertions. ``client.Client`` has the same methods for
synchronous tests.

By default a client has all capabilities, uses the newest revision, and sends no token that would
narrow the user's permissions.

For each run of a call, the user object is copied without its permission cache, so permissions are
looked up as in a new request. Copying costs no query, so a test can count a tool's queries. Changes
that the test makes on its own user object are seen. Changes by ``update()`` are seen after
``refresh_from_db()``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypedDict, TypeVar, Unpack

from asgiref.sync import sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from pydantic_core import to_jsonable_python

from ..auth.principal import Auth, Principal, anonymous
from ..declarations.fields.keys import key_text, key_value
from ..declarations.model_resources import ModelResource
from ..declarations.server import default_server, server_named
from ..protocol.jsonrpc import ResourceNotFound
from ..protocol.revisions import LATEST
from .environment import are_connections_free
from .peers import DEFAULT_LEVEL, Caller, Log, Peer, Progress
from .results import Answer, Listed, Prompted, ReadResult, Result, RpcError, recorded
from .snapshots import assert_matches, canonical
from .wires import JSON, HttpWire

if TYPE_CHECKING:
    from pathlib import Path

    from ..declarations.server import Server

# The default capabilities of a client: all that exist.
EVERYTHING: JSON = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {"listChanged": True},
}


class Options(TypedDict, total=False):
    """Options of a client beside its user. ``acting_as`` keeps those that are not given."""

    server: Server | str  # a server or its name; by default the default server
    scopes: Iterable[str] | None  # of its token; None: no token, and full permissions
    revision: str  # by default the newest
    transport: str  # "memory", "http" or "stdio"
    capabilities: JSON | None  # of the client; None: all
    answers: Mapping[str, Any] | None  # to questions: see ``answers``
    log_level: str  # the lowest level of log messages to receive
    raise_exceptions: bool  # whether an exception in the server's code is raised
    seconds: float  # timeout of a request
    application: Any  # for "http": an ASGI application; by default the server's endpoint


DEFAULTS: Options = {
    "server": default_server, "scopes": None, "revision": LATEST.name, "transport": "memory",
    "capabilities": None, "answers": None, "log_level": DEFAULT_LEVEL, "raise_exceptions": True,
    "seconds": 30, "application": None,
}  # fmt: skip


def principal_of(user: Any, scopes: Iterable[str] | None) -> Principal:
    """Return the principal of ``user``. None is anonymous. ``scopes`` of None means no token."""
    found = anonymous().user if user is None else _copy_user(user)
    return Principal(found, None if scopes is None else Auth(frozenset(scopes)))


def _copy_user(user: Any) -> Any:
    """Return a copy of the user. Authentication backends cache permissions on the user object."""
    if not isinstance(user, Model):
        return user
    values = {
        field.attname: user.__dict__[field.attname]
        for field in user._meta.concrete_fields
        if field.attname in user.__dict__
    }
    return type(user).from_db(user._state.db, list(values), list(values.values()))


# Arguments, as a client would send them. A row becomes the key that the server's schema uses.


def as_json(server: Server, value: Any) -> Any:
    """Return ``value`` as JSON. Raise ``TypeError`` if that is not possible."""

    def other(one: Any) -> Any:
        if isinstance(one, Model):
            return key_value(one, _lookup(server, one))
        if isinstance(one, QuerySet):
            return list(one)
        if hasattr(one, "__str__") and type(one).__name__ == "__proxy__":  # a lazy translation
            return str(one)
        raise TypeError(f"{one!r} is nothing that a client can send.")

    return to_jsonable_python(value, fallback=other)


def as_text(server: Server, value: Any) -> str:
    """Return ``value`` as the text of a prompt's argument."""
    if isinstance(value, Model):
        return key_text(value, _lookup(server, value))
    found = as_json(server, value)
    return found if isinstance(found, str) else json.dumps(found)


def as_uri(server: Server, thing: Any) -> str:
    """Return the URI of a row of a registered model, or the given URI."""
    if isinstance(thing, Model):
        return server.ready().resource_of(type(thing))._uri_of(thing)
    return str(thing)


def _lookup(server: Server, row: Model) -> str:
    resource = _resource(server, row)
    return "pk" if resource is None else resource._lookup


def _resource(server: Server, row: Model) -> ModelResource | None:
    try:
        return server.ready().resource_of(type(row))
    except (ImproperlyConfigured, ValueError):
        # A tool may take the key of a row whose model is not registered.
        return None


A = TypeVar("A", bound=Answer)
T = TypeVar("T")
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"


class AsyncClient:
    """A client of one of the project's servers, in this process.

    ``user`` is the user it acts as, None for anonymous. ``options`` are those of ``Options``. It
    connects on its first use, and is an async context manager. Raise ``TypeError`` or
    ``ValueError`` for an unknown option.
    """

    def __init__(self, user: Any = None, **options: Unpack[Options]) -> None:
        if unknown := sorted(set(options) - set(DEFAULTS)):
            raise TypeError(f"There is no option {', '.join(unknown)}; see Options.")
        self.user, self.options = user, options
        given: Any = DEFAULTS | options
        self.raise_exceptions: bool = given.pop("raise_exceptions")
        self._scopes = given.pop("scopes")
        server, capabilities, answers = (
            given.pop(k) for k in ("server", "capabilities", "answers")
        )
        self._peer = Peer(
            server_named(server) if isinstance(server, str) else server,
            self._principal,
            self._caller(),
            capabilities=EVERYTHING if capabilities is None else capabilities,
            answers=answers or {},
            **given,
        )
        self._listens: dict[str, asyncio.Task[Any]] = {}
        self._others: list[AsyncClient] = []

    def _caller(self) -> Caller:
        """Return the function that calls the test's functions.

        It calls them in a thread, because they may use the ORM.
        """
        return lambda function, *args: sync_to_async(function)(*args)

    async def _principal(self) -> Principal:
        return principal_of(self.user, self._scopes)

    def acting_as(self, user: Any, **options: Unpack[Options]) -> Self:
        """Return another client for ``user``, with this one's options updated by ``options``."""
        changed: Options = {**self.options, **options}
        made = type(self)(user, **changed)
        self._others.append(made)
        return made

    # Connecting.

    async def open(self) -> Self:
        """Connect now. Raise ``Misdeclared``, or ``RpcError`` if the server refuses."""
        await self._peer.open()
        return self

    async def close(self) -> None:
        """Disconnect this client and all clients made by ``acting_as``."""
        for other in self._others:
            await other.close()
        for listen in self._listens.values():
            listen.cancel()
        await self._peer.close()
        await self._rest()

    async def __aenter__(self) -> Self:
        try:
            return await self.open()
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, kind: object, *details: object) -> None:
        try:
            await self.close()
        except Exception:
            if kind is None:  # the exception of the block is more useful
                raise

    async def _rest(self) -> None:
        while not are_connections_free():  # noqa: ASYNC110 - jobs in threads set no asyncio event
            await asyncio.sleep(0.001)

    # Requests.

    async def call(self, tool: str, /, **arguments: Any) -> Result:
        """Call a tool, answer its questions, and return the result. Rows may be passed for keys."""
        given = as_json(self.server, arguments)
        params = {"name": tool, "arguments": given}
        return await self._ask(Result, f"The tool {tool}", "tools/call", params)

    def start(self, tool: str, /, **arguments: Any) -> asyncio.Task[Result]:
        """Start a call in a task. Cancelling the task cancels the call."""
        return self._peer.spawn(self.call(tool, **arguments))

    async def read(self, thing: Any) -> ReadResult:
        """Return the contents of a resource, by URI or by a row of a registered model."""
        uri = as_uri(self.server, thing)
        return await self._ask(ReadResult, uri, "resources/read", {"uri": uri})

    async def prompt(self, name: str, /, **arguments: Any) -> Prompted:
        """Return the messages of a prompt."""
        given = {key: as_text(self.server, value) for key, value in arguments.items()}
        params = {"name": name, "arguments": given}
        return await self._ask(Prompted, f"The prompt {name}", "prompts/get", params)

    async def _ask(self, kind: type[A], subject: str, method: str, params: JSON) -> A:
        raw, error = {}, None  # type: JSON, RpcError | None
        with recorded() as record:
            try:
                raw = await self._peer.request(method, params)
            except RpcError as refused:
                error = refused
            finally:
                await self._rest()
        if record.bugs and self.raise_exceptions:
            raise record.bugs[0]
        return kind(subject, raw, error, record)

    async def complete(
        self, name: str, argument: str, text: str = "", /, **before: str
    ) -> list[str]:
        """Return completions of ``text`` for an argument of a prompt or of a URI template.

        ``before`` are arguments that are already filled in. Raise ``RpcError``.
        """
        by_uri = {"type": "ref/resource", "uri": name}
        ref = by_uri if ":" in name else {"type": "ref/prompt", "name": name}
        context = {"context": {"arguments": before}} if before else {}
        params = {"ref": ref, "argument": {"name": argument, "value": text}} | context
        found = await self.request("completion/complete", **params)
        values: list[str] = found["completion"]["values"]
        return values

    async def request(self, method: str, **params: Any) -> JSON:
        """Return the raw result of any request. Raise ``RpcError``."""
        try:
            return await self._peer.request(method, params)
        finally:
            await self._rest()

    async def info(self) -> JSON:
        """Return the server's name, capabilities and instructions."""
        await self.open()
        return self._peer.opened or await self.request("server/discover")

    # Lists. Each raises ``RpcError``.

    async def tools(self) -> Listed:
        """Return the tools that this client may use, from all pages."""
        return await self._all("tools/list", "tools")

    async def resources(self) -> Listed:
        """Return the resources that are listed for this client, from all pages."""
        return await self._all("resources/list", "resources")

    async def templates(self) -> Listed:
        """Return the URI templates of resources, from all pages."""
        return await self._all("resources/templates/list", "resourceTemplates")

    async def prompts(self) -> Listed:
        """Return the prompts that this client may use, from all pages."""
        return await self._all("prompts/list", "prompts")

    async def _all(self, method: str, member: str) -> Listed:
        found, cursor = Listed(), {}  # type: Listed, JSON
        while True:
            page = await self.request(method, **cursor)
            found += page[member]
            if "nextCursor" not in page:
                return found
            cursor = {"cursor": page["nextCursor"]}

    async def catalog(self) -> JSON:
        """Return all lists of this client: ``tools``, ``resources``, ``templates``, ``prompts``."""
        has = (await self.info()).get("capabilities", {})
        found: JSON = {"tools": [], "resources": [], "templates": [], "prompts": []}
        for kind in found:
            if ("resources" if kind == "templates" else kind) in has:
                found[kind] = await getattr(self, kind)()
        return canonical(found)

    async def assert_catalog(self, path: str | Path) -> None:
        """Assert that the catalog equals the file at ``path``: see ``snapshots.assert_matches``."""
        assert_matches(await self.catalog(), path)

    # Questions and notifications.

    def answers(self, **given: Any) -> Self:
        """Set answers to later questions: values, or functions, which may be async.

        ``elicit``: a dict, the value of a form's only field, ``DECLINE`` or ``CANCEL``, or a
        function of (message, schema) that returns one of these. ``visit``: ``True``, ``DECLINE`` or
        ``CANCEL`` for a page to open, or a function of (message, url). ``sample``: a text, a result
        as a dict, or a function of (messages). ``roots``: a list of URIs, or a function. Raise
        ``TypeError``.
        """
        self._peer.answers.give(**given)
        return self

    @property
    def server(self) -> Server:
        """The server that it connects to."""
        return self._peer.server

    @property
    def asked(self) -> list[JSON]:
        """The server's questions so far, each with ``method`` and ``params``."""
        return self._peer.asked

    @property
    def progress(self) -> list[Progress]:
        """The progress notifications of calls."""
        return self._peer.progress

    @property
    def logs(self) -> list[Log]:
        """The log messages of calls."""
        return self._peer.logs

    @property
    def notifications(self) -> list[JSON]:
        """All other notifications, as received."""
        return self._peer.notifications

    # Subscriptions.

    async def subscribe(self, *things: Any) -> None:
        """Subscribe to changes of resources, by URI or row. Raise ``RpcError``."""
        await self._hear()
        for uri in (as_uri(self.server, thing) for thing in things):
            if self._peer.revision.handshake:
                await self.request("resources/subscribe", uri=uri)
            else:
                await self._listen(uri, {"resourceSubscriptions": [uri]})

    async def unsubscribe(self, *things: Any) -> None:
        """Cancel subscriptions to resources."""
        for uri in (as_uri(self.server, thing) for thing in things):
            if self._peer.revision.handshake:
                await self.request("resources/unsubscribe", uri=uri)
            elif listen := self._listens.pop(uri, None):
                listen.cancel()
                await asyncio.wait([listen])
                await self._peer.arrive()

    async def listen(self) -> None:
        """Subscribe to changes of the lists of tools, prompts and resources."""
        await self._hear()
        if not self._peer.revision.handshake:
            kinds = ("tools", "prompts", "resources")
            await self._listen("", {f"{kind}ListChanged": True for kind in kinds})

    async def _hear(self) -> None:
        await self.open()
        await self._peer.wire.hear()

    async def _listen(self, key: str, wanted: JSON) -> None:
        """Keep a ``subscriptions/listen`` request open. Return when it is acknowledged."""
        listen = self._peer.spawn(self._hold_listen(wanted))
        self._listens[key] = listen
        found = await self.until(lambda: listen.done() or self._take_acknowledgement())
        if found is True:
            listen.result()  # raises the reason
        elif key and key not in found.get("resourceSubscriptions", ()):
            listen.cancel()
            raise RpcError({"code": ResourceNotFound.code, "message": f"Resource not found: {key}"})

    async def _hold_listen(self, wanted: JSON) -> None:
        await self._peer.request("subscriptions/listen", {"notifications": wanted})

    def _take_acknowledgement(self) -> Any:
        for notification in self.notifications:
            if notification["method"] == ACKNOWLEDGED:
                self.notifications.remove(notification)
                return notification["params"]["notifications"] or {"nothing": True}
        return None

    async def until(self, condition: Callable[[], T], seconds: float = 10) -> T:
        """Return the value of ``condition`` as soon as it is true. Raise ``TimeoutError``.

        It is evaluated after each received message.
        """
        try:
            return await self._peer.until(condition, seconds)
        finally:
            await self._rest()

    async def wait_for(self, method: str, *, seconds: float = 10, **params: Any) -> JSON:
        """Return the first notification of ``method`` that has these ``params``.

        Raise ``TimeoutError`` after ``seconds``.
        """

        def found() -> JSON | None:
            for notification in self.notifications:
                given = notification.get("params", {})
                if notification["method"] == method and params.items() <= given.items():
                    return notification
            return None

        notification = await self.until(found, seconds)
        assert notification is not None
        return notification

    async def wait_for_update(self, thing: Any, *, seconds: float = 10) -> JSON:
        """Return the notification that a resource changed, by URI or row.

        Raise ``TimeoutError`` after ``seconds``.
        """
        uri = as_uri(self.server, thing)
        return await self.wait_for(UPDATED, uri=uri, seconds=seconds)

    # Broken connections, over http.

    async def drop(self) -> int:
        """Drop every connection, as if the network failed. Return how many were open."""
        return await self._http().drop()

    async def resume(self) -> None:
        """Resume dropped streams after the last event that was read (``Last-Event-ID``)."""
        await self._http().resume()

    @contextmanager
    def dropping(self, after: int = 1) -> Iterator[None]:
        """Drop each connection after ``after`` messages and resume it on another connection.

        Raise ``AssertionError`` if no connection was dropped: a plain JSON response has no events.
        """
        wire = self._http()
        before, wire.drop_after = wire.drops, after
        try:
            yield
        finally:
            wire.drop_after = None
        if wire.drops == before:
            raise AssertionError(
                f"No connection was dropped: no stream had {after} messages. A call is streamed "
                "when it says something, asks, or is durable."
            )

    def _http(self) -> HttpWire:
        if not isinstance(self._peer.wire, HttpWire):
            raise TypeError('Only connections over HTTP can be dropped: transport="http".')
        return self._peer.wire
