"""One HTTP request and its response over ASGI, with size limits, timeouts and backpressure.

``Exchange`` limits the size and the time of everything that a client sends while it arrives. A
response is started once and ended once. Code that rejects a request raises ``RequestRejected``. The
task that answers a request is cancelled when the client disconnects, when its token is revoked, and
at the end of a shutdown. All of it runs in the event loop.

``Backpressure`` makes a stream wait for a slow client, so that unsent data does not fill the
memory. Of the supported servers only daphne buffers without a limit instead of letting ``send``
wait. Its Twisted connection says when its buffer is full.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ...calls.callers import revocation_checker
from ...changes.permission_rechecks import permission_rechecker
from ...conf import project
from ...protocol import http_rules
from ...protocol.jsonrpc import Id, InvalidRequest, Overloaded, ProtocolError, encode
from ...protocol.revisions import LATEST_HANDSHAKE, encode_error
from ...runtime.address_probe import REQUEST_HEADER as ADDRESS_PROBE
from .shutdown import RETRY_AFTER_HEADERS, SHUTTING_DOWN_ERROR, draining

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from ...declarations.server import Server
    from ...models import Session

logger = logging.getLogger("django_mcp.sessions")


class Backpressure:
    """Backpressure for one request of daphne: a Twisted push producer, by duck typing."""

    def __init__(self, request: Any) -> None:
        self._request, self._open = request, asyncio.Event()
        self._open.set()
        request.registerProducer(self, True)

    async def ready(self) -> None:
        """Wait until the connection takes more data, or is closed."""
        await self._open.wait()

    def close(self) -> None:
        """Unregister, because nothing more is written."""
        if self._request.channel is not None:  # the connection is still open
            self._request.unregisterProducer()

    # What Twisted calls, in the loop.

    def pauseProducing(self) -> None:  # noqa: N802
        self._open.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        self._open.set()

    stopProducing = resumeProducing  # noqa: N815 - the connection was lost


def flow_of(send: Any) -> Backpressure | None:
    """Return the ``Backpressure`` for daphne's ``send``, or None if the server's ``send`` waits."""
    request: Any = send.args[0] if isinstance(send, partial) and send.args else None
    if not hasattr(request, "registerProducer"):
        return None
    is_free = request.channel is not None and request.producer is None
    return Backpressure(request) if is_free else None


Pairs = Iterable[tuple[bytes, bytes]]
Application = Callable[[Any, Any, Any], Awaitable[None]]
MAX_HEADERS, MAX_HEADERS_SIZE = 200, 65_536
# The headers that are read. A header that occurs twice is rejected, except lists.
SINGLE = (
    "host", "origin", "accept", "content-type", "content-encoding", "content-length",
    "authorization", "access-control-request-method", "x-forwarded-host",
    ADDRESS_PROBE, http_rules.PROTOCOL_VERSION, http_rules.SESSION_ID, http_rules.LAST_EVENT_ID,
)  # fmt: skip
_NAMES = {name.encode(): name for name in SINGLE}
# Lists may come in several lines (RFC 9110, 5.3).
_LISTS = frozenset(("accept", "x-forwarded-host"))
NOTHING: tuple[tuple[bytes, bytes], ...] = ()
# For responses that leave the body unread: the connection cannot serve another request.
CLOSE = ((b"connection", b"close"),)
BODY_SECONDS = 15.0  # after which a request body times out
MAX_SKIPPED_BYTES, SKIP_SECONDS = 65_536, 1.0  # limits for reading the rest of an ignored body
# No proxy may cache an error.
REFUSAL = (b"cache-control", b"no-store")


class RequestRejected(Exception):
    """The request is rejected with an HTTP status, headers and a JSON-RPC error.

    ``error`` may be a string, which becomes the message of an ``InvalidRequest``.
    """

    def __init__(
        self,
        status: int,
        error: ProtocolError | str | None = None,
        headers: Pairs = NOTHING,
    ) -> None:
        self.error = InvalidRequest(error) if isinstance(error, str) else error
        super().__init__(status, self.error)
        self.status, self.headers = status, tuple(headers)


class ClientDisconnected(Exception):
    """The client disconnected before the request or the response was complete."""


class Exchange:
    """One HTTP request to ``server``, and its response.

    ``authentication.identify`` sets ``principal`` and ``session``. Create it in the task that
    answers the request.
    """

    principal: Principal
    session: Session | None = None
    no_session: RequestRejected | None = None  # the error, if the request names an invalid session
    kept_owner: str | None = None  # the principal's key, once a stream has dropped the principal
    # Callbacks for the start of a shutdown, for the end of its grace period, and for a revoked
    # token or permission.
    when_ending: Callable[[], object] | None = None
    when_late: Callable[[], object] | None = None
    when_revoked: Callable[[], object] | None = None
    # Asks the running call to stop. It is called before its task is cancelled, because a
    # cancellation does not reach code in a thread.
    stop: Callable[[], object] | None = None
    size = 0  # bytes of the body, as far as received
    begun = ended = False  # the response
    gone = False  # whether the client has disconnected
    is_revoked = False  # whether the work was cancelled because the token was revoked
    at_work = False  # whether a call may have begun, so that a retry could repeat its effect
    watcher: asyncio.Task[None] | None = None  # waits for the disconnect, if the work lasts
    _is_read = _is_too_slow = False  # the body
    _body_timer: asyncio.TimerHandle | None = None
    _cuts = 0  # how often ``cancel`` has cancelled the task
    _flow: Backpressure | None = None

    def __init__(self, server: Server, scope: Mapping[str, Any], receive: Any, send: Any) -> None:
        self.server, self.scope = server, scope
        self.received = time.monotonic()
        self._receive, self._send = receive, send
        # The first request installs the signal handlers. A server without ASGI lifespan calls
        # nothing earlier.
        self.open_requests = draining()
        task = asyncio.current_task()
        assert task is not None, "ASGI servers call an application in a task."
        self._task = task
        self.method: str = scope["method"]
        self.headers = read_headers(scope["headers"])
        self.revision_header = self.headers.get(http_rules.PROTOCOL_VERSION)
        self.session_id = self.headers.get(http_rules.SESSION_ID)
        self.host: str | None = None
        self.cors: tuple[tuple[bytes, bytes], ...] = NOTHING

    @property
    def remote(self) -> str:
        """The client's address, as the ASGI server reports it; "" if there is none."""
        client = self.scope.get("client")
        return str(client[0]) if client else ""

    # The request.

    async def body(self) -> bytes:
        """Return the whole body.

        Raise ``RequestRejected`` if it is too large or too slow, or ``ClientDisconnected``.
        """
        length, limit = self.headers.get("content-length", "0"), project.DATA_UPLOAD_MAX_MEMORY_SIZE
        if not (length.isascii() and length.isdigit()) or len(length) > 15:
            raise RequestRejected(400, "Content-Length is no number.", CLOSE)
        if limit is not None and int(length) > limit:
            raise RequestRejected(413, "The body is too large.", CLOSE)
        parts: list[bytes] = []
        self.open_requests.first_checks.join(self)
        try:
            while not self._is_read:
                message = await self._receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                if part := message.get("body"):
                    parts.append(part)
                    self.size += len(part)
                if limit is not None and self.size > limit:
                    raise RequestRejected(413, "The body is too large.", CLOSE)
                self._is_read = not message.get("more_body")
        except asyncio.CancelledError:
            # Not if something else has cancelled the task too.
            if self._is_too_slow and self._task.uncancel() == 0:
                raise RequestRejected(408, "The body took too long.", CLOSE) from None
            raise
        finally:
            self.open_requests.first_checks.leave(self)
            if self._body_timer is not None:
                self._body_timer.cancel()
        return b"".join(parts)

    def tick(self) -> None:
        """Time the body, or wait for a disconnect: called once (``OpenRequests.first_checks``).

        Most bodies and most work end before, and need no timer and no task of their own.
        """
        self.open_requests.first_checks.leave(self)
        loop = asyncio.get_running_loop()
        if not self._is_read:
            self._body_timer = loop.call_later(BODY_SECONDS, self._stop_reading)
            return
        revocation_checker().start_if_needed()
        # Only for streams: a call of a POST is followed once it has lasted a while.
        if self.method == "GET":
            permission_rechecker().start_if_needed()
        self.watcher = loop.create_task(self._watch())

    def _stop_reading(self) -> None:
        self._is_too_slow = True
        self._task.cancel()

    async def _watch(self) -> None:
        """Cancel the work when the client disconnects."""
        try:
            await self.left()
        except Exception:
            logger.exception("The connection of a client failed; its call is stopped")
            self.gone = True
        self.cancel()

    async def left(self) -> None:
        """Wait until the client disconnects. Call it only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone = True

    # The response of another ASGI application.

    async def hand_over(self, application: Application) -> None:
        """Let an ASGI application answer the request; it receives an empty body."""
        await self.body()
        first = iter(({"type": "http.request", "body": b"", "more_body": False},))

        async def receive() -> Any:
            return next(first, None) or await self._receive()

        await application(self.scope, receive, self._relay)

    async def _relay(self, message: dict[str, Any]) -> None:
        """Send one ASGI message of that application's response."""
        self.begun = True
        if message["type"] == "http.response.body":
            data, is_last = message.get("body", b""), not message.get("more_body")
            await self._write(data, last=is_last)
            return
        try:
            await self._send(message)
        except OSError:
            raise ClientDisconnected from None

    # The methods of an ``OpenRequest``: a revoked token or a shutdown stops the work.

    @property
    def owner(self) -> str:
        """The key of the principal, "" for an anonymous client."""
        return self.principal.key if self.kept_owner is None else self.kept_owner

    def revoke(self) -> None:
        if self.when_revoked is not None:
            self.when_revoked()
        else:
            self.is_revoked = True
            self.cancel()

    def shut_down(self) -> None:
        if self.when_ending is not None:
            self.when_ending()

    def respond_or_stop(self) -> None:
        if self.when_late is not None:
            self.when_late()
        else:
            self.cancel()

    def cancel(self) -> None:
        """Cancel the task that answers the request."""
        if self.stop is not None:
            self.stop()
        self._cuts += 1
        self._task.cancel()

    def is_cut(self) -> bool:
        """Whether only ``cancel`` has cancelled the task. Undo these cancellations."""
        if not self._cuts:
            return False
        while self._cuts:
            self._cuts -= 1
            self._task.uncancel()
        return not self._task.cancelling()

    def survives(self) -> bool:
        """Whether only ``cancel`` has cancelled the task, and the client waits for a response.

        Undo the cancellations if so.
        """
        return not self.is_revoked and not self.gone and self.is_cut()

    def check_shutdown(self, about: Id | None = None) -> None:
        """Raise ``RequestRejected`` (503) during shutdown: no call begins any more.

        ``about`` is the id of the JSON-RPC request.
        """
        if self.open_requests.is_shutting_down:
            error = Overloaded(str(SHUTTING_DOWN_ERROR), data=SHUTTING_DOWN_ERROR.data, about=about)
            raise RequestRejected(503, error, (*RETRY_AFTER_HEADERS, *CLOSE))

    # The response. These raise ``ClientDisconnected`` if the server reports that the client has
    # disconnected.

    async def json(self, status: int, message: Any = None, headers: Pairs = NOTHING) -> None:
        """Send a JSON-RPC message, or a list of them as a batch, or an empty body if None."""
        await self.text(status, "" if message is None else encode(message), headers)

    async def text(self, status: int, text: str, headers: Pairs = NOTHING) -> None:
        """Send a message that is encoded as JSON already."""
        body = text.encode()
        given = [*(http_rules.JSON_HEADERS if body else NOTHING), *headers, *self.cors]
        if status != 204:
            given.append((b"content-length", b"%d" % len(body)))
        if self.method == "HEAD":
            body = b""  # RFC 9110, 9.3.2
        self.begun = True
        try:
            await self._send({"type": "http.response.start", "status": status, "headers": given})
            self.ended = True
            await self._send({"type": "http.response.body", "body": body, "more_body": False})
        except OSError:
            raise ClientDisconnected from None

    async def refuse(self, refused: RequestRejected) -> None:
        """Send an error response; if a response has begun already, only end it.

        Do nothing if the client has disconnected.
        """
        with suppress(ClientDisconnected):
            if not self.begun:
                if self._has_unread_body() and CLOSE[0] not in refused.headers:
                    await self._skip()
                headers = (*refused.headers, REFUSAL)
                if not str(self.scope.get("http_version", "1.1")).startswith("1"):
                    headers = tuple(one for one in headers if one not in CLOSE)  # RFC 9113, 8.2.2
                await self.json(refused.status, _error(refused), headers)
            elif not self.ended:
                await self.end()

    def _has_unread_body(self) -> bool:
        """Whether the request has a body that was not read to its end."""
        names = {name for name, _ in self.scope["headers"]}
        length = self.headers.get("content-length", "0")
        has_body = b"transfer-encoding" in names or length.strip("0") != ""
        return has_body and not self._is_read and b"expect" not in names

    async def _skip(self) -> None:
        """Read and drop the rest of a body, up to the limits of bytes and time.

        Servers close a connection on which a body is left unread. A client that still sends
        might never read the answer, and it could not use the connection again.
        """
        size = 0
        with suppress(TimeoutError):
            async with asyncio.timeout(SKIP_SECONDS):
                while size < MAX_SKIPPED_BYTES and not self._is_read:
                    message = await self._receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    size += len(message.get("body", b""))
                    self._is_read = not message.get("more_body")

    async def start_sse(self) -> None:
        self.begun = True
        headers = [*http_rules.SSE_HEADERS, *self.cors]
        try:
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        except OSError:
            raise ClientDisconnected from None
        self._flow = flow_of(self._send)

    async def write(self, data: bytes) -> None:
        """Write a part of a stream, and wait until the connection takes more."""
        await self._write(data)
        if self._flow is not None:
            await self._flow.ready()

    async def end(self) -> None:
        if self._flow is not None:
            self._flow.close()
        await self._write(b"", last=True)

    async def _write(self, data: bytes, *, last: bool = False) -> None:
        self.ended = last
        data = b"" if self.method == "HEAD" else data  # RFC 9110, 9.3.2
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": not last})
        except OSError:
            raise ClientDisconnected from None


def _error(refused: RequestRejected) -> dict[str, Any] | None:
    if refused.error is None:
        return None
    about = {} if refused.error.about is None else {"id": refused.error.about}
    return {"jsonrpc": "2.0"} | about | {"error": encode_error(LATEST_HANDSHAKE, refused.error)}


def read_headers(raw: Pairs) -> dict[str, str]:
    """Return the headers in ``SINGLE``, by name.

    Raise ``RequestRejected`` for duplicates or too many.
    """
    found: dict[str, str] = {}
    count = size = 0
    for name, value in raw:
        count += 1
        size += len(name) + len(value)
        key = _NAMES.get(name)
        if key is None:
            continue
        text = value.decode("latin-1").strip(" \t")
        if key in found and key not in _LISTS:
            raise RequestRejected(400, f"The header {key} is repeated.")
        found[key] = f"{found[key]}, {text}" if key in found else text
    if count > MAX_HEADERS or size > MAX_HEADERS_SIZE:
        raise RequestRejected(431, "There are too many headers, or they are too large.")
    return found
