"""HTTP requests for JSON documents, metadata of issuers, and deduplication of concurrent requests.

``fetch_json`` is the one function by which this package sends an HTTP request. Redirects are not
followed, and long responses are rejected. One deadline covers the TLS handshake, the head and the
body, however slowly they arrive. The caller decides which addresses the connection may use: URLs
that a client names need more care than URLs in the project's settings.

``fetch`` gets a JSON object from a URL of the project's settings or of the issuer's metadata. It
uses https, or http to this machine. Errors contain nothing that was sent or received.

``Discovery`` finds endpoints in the issuer's metadata (RFC 8414; OpenID Discovery). A document that
names another issuer is rejected.

``RunningRequests`` runs one request per name and event loop. Other callers wait for the same
result, for ``WAIT_SECONDS`` seconds at most. The number of concurrent requests is limited. ``Busy``
means that a token cannot be verified now. It does not mean that the token is invalid.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from typing import Any, Generic, TypeVar
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from ..exceptions import Busy
from ..runtime import threads
from ..runtime.runtime import Service
from ..runtime.thread_pools import JobResult

TIMEOUT_SECONDS = 5.0
MIN_TIMEOUT_SECONDS = 0.001  # a socket timeout of 0 would mean a non-blocking socket
MAX_DOCUMENT_BYTES = 262_144
CHUNK_BYTES = 16_384
MAX_URL_LENGTH = 1_000  # characters
URL = re.compile(r"https?://[A-Za-z0-9._~:/?\[\]!$&'()*+,;=%-]+")  # no "@": no user information
JSON_MEDIA_TYPE = re.compile(r"application/(?:[a-z0-9!#$&^_.-]+\+)?json")
# Some issuers reject the User-Agent of Python's library.
HEADERS = {
    "Accept": "application/json, application/*+json",
    "Connection": "close",
    "User-Agent": "django-modelcontext",
}
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# Connects to a host and port within a number of seconds.
Connect = Callable[[tuple[str, int], float], socket.socket]


class FetchError(Exception):
    """There is no usable response. The message is for the log, and contains no secrets."""


def fetch_json(
    connection: HTTPConnection,
    target: str,
    *,
    connect: Connect,
    ends: float,
    max_bytes: int,
    form: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[dict[str, Any], HTTPMessage]:
    """Return the JSON object at a path, and the headers of the response. Blocks until ``ends``.

    It is a GET, or a POST of ``form``. ``ends`` is a monotonic time. ``connect`` decides which
    address the connection uses; the certificate is verified for the connection's host.

    Raise ``FetchError`` for a response that cannot be used, and ``OSError``, ``HTTPException`` or
    ``ValueError`` if there is none.
    """
    with ExitStack() as stack:

        def connect_in_time(address: tuple[str, int], *_: Any) -> socket.socket:
            made = connect(address, max(ends - time.monotonic(), MIN_TIMEOUT_SECONDS))
            stack.enter_context(_shut_down_at(ends, made))
            return made

        connection._create_connection = connect_in_time  # type: ignore[attr-defined]
        stack.enter_context(closing(connection))
        all_headers = {**HEADERS, **(headers or {})}
        if form is None:
            connection.request("GET", target, headers=all_headers)
        else:
            all_headers["Content-Type"] = "application/x-www-form-urlencoded"
            connection.request("POST", target, urlencode(form), all_headers)
        response = stack.enter_context(connection.getresponse())
        return _read(response, ends, max_bytes), response.headers


@contextmanager
def _shut_down_at(ends: float, connected: socket.socket) -> Iterator[None]:
    """Shut a connection down at ``ends``, if the block has not ended before.

    The timeout of a socket is not enough, because it restarts with every byte. The duplicate of the
    socket stays usable when ``ssl`` takes the original over for the handshake.
    """
    with closing(connected.dup()) as duplicate:
        timer = threading.Timer(max(ends - time.monotonic(), 0), _shut_down, [duplicate])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()  # the descriptor may be another connection's once it is closed


def _shut_down(duplicate: socket.socket) -> None:
    try:
        duplicate.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side has closed it already
        return


def _read(response: HTTPResponse, ends: float, max_bytes: int) -> dict[str, Any]:
    if response.status != 200:
        raise FetchError(f"the response has status {response.status}")
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not JSON_MEDIA_TYPE.fullmatch(media_type):
        raise FetchError("the response is not JSON")
    body = b""
    while chunk := response.read1(CHUNK_BYTES):
        body += chunk
        if len(body) > max_bytes:
            raise FetchError(f"the response has more than {max_bytes} bytes")
    if time.monotonic() >= ends:
        raise FetchError("the response did not arrive in time")
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise FetchError("the response is not a JSON object")
    return found


# URLs of the project's settings, and of issuers' metadata.


def is_safe(url: Any) -> bool:
    """Whether a URL uses https, or stays on this machine."""
    if not isinstance(url, str) or len(url) > MAX_URL_LENGTH or not URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or host in LOOPBACK)


def fetch(
    url: str, form: Mapping[str, str] | None = None, authorization: str = ""
) -> dict[str, Any]:
    """Return the JSON object at a URL, by GET, or by POST of ``form``. Raise ``FetchError``.

    ``authorization`` is the header's value. It is sent only with a form. The call blocks.
    """
    if not is_safe(url):
        raise FetchError("its URL is not https")
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        found, _ = fetch_json(
            _connection(parts), target, connect=socket.create_connection,
            ends=time.monotonic() + TIMEOUT_SECONDS, max_bytes=MAX_DOCUMENT_BYTES,
            form=form, headers={"Authorization": authorization} if form else {},
        )  # fmt: skip
    except (OSError, HTTPException, ValueError) as error:
        # Not the text of other errors: it may quote the response.
        reason = getattr(error, "strerror", None) or ""
        raise FetchError(f"{type(error).__name__} {reason}".strip()) from None
    return found


def _connection(parts: SplitResult) -> HTTPConnection:
    """Return the connection to a URL's host, through the https proxy of the environment if any."""
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "http":
        return HTTPConnection(host, port)
    # Here, because system checks import this module at each start, and fetch nothing.
    from urllib.request import getproxies, proxy_bypass

    proxy = None if host in LOOPBACK or proxy_bypass(host) else getproxies().get("https")
    if not proxy:
        return HTTPSConnection(host, port, context=_tls())
    proxy_url = urlsplit(proxy if "://" in proxy else f"//{proxy}")
    connection = HTTPSConnection(proxy_url.hostname or "", proxy_url.port, context=_tls())
    connection.set_tunnel(host, port, _proxy_authorization(proxy_url))
    return connection


def _proxy_authorization(proxy_url: SplitResult) -> dict[str, str]:
    if proxy_url.username is None:
        return {}
    credentials = f"{unquote(proxy_url.username)}:{unquote(proxy_url.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}"}


@cache
def _tls() -> ssl.SSLContext:
    """Return the TLS context. It is cached, because loading the system's certificates is slow."""
    return ssl.create_default_context()


METADATA_CACHE_SECONDS = 3600.0  # seconds for which metadata is cached


class Discovery:
    """The metadata of ``issuer``, fetched when it is needed. Call it in a thread: it blocks."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self._cached: tuple[dict[str, Any], float] | None = None

    def endpoint(self, member: str) -> str:
        """Return the URL of a member of the metadata, or raise ``FetchError``."""
        found = self._document().get(member)
        if not isinstance(found, str) or not is_safe(found):
            raise FetchError(f"its metadata has no {member} that is safe")
        return found

    def _document(self) -> dict[str, Any]:
        cached = self._cached
        if cached is None or time.monotonic() - cached[1] > METADATA_CACHE_SECONDS:
            cached = self._cached = (self._fetch_document(), time.monotonic())
        return cached[0]

    def _fetch_document(self) -> dict[str, Any]:
        error = FetchError("it has no metadata")
        for url in _metadata_urls(self.issuer):
            try:
                document = fetch(url)
            except FetchError as failure:
                error = failure
                continue
            if document.get("issuer") == self.issuer:
                return document
            error = FetchError("its metadata is another issuer's")
        raise error


def _metadata_urls(issuer: str) -> Iterator[str]:
    """Yield the URLs at which the metadata may be.

    OpenID appends the well-known path to the issuer (Discovery, 4.1). OAuth inserts it before the
    issuer's path (RFC 8414, 3.1).
    """
    parts = urlsplit(issuer)
    yield f"{issuer.rstrip('/')}/.well-known/openid-configuration"
    path = parts.path.rstrip("/")
    yield f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}"


T = TypeVar("T")
WAIT_SECONDS = 10.0  # seconds that a caller waits
MAX_CONCURRENT_REQUESTS = 32  # concurrent requests of different names
CANNOT_VERIFY = "The token cannot be verified at the moment."
TasksByName = dict[str, "asyncio.Task[JobResult[T]]"]


class RunningRequests(Generic[T]):
    """The running requests of each event loop, by name."""

    def __init__(self) -> None:
        self._tasks: Service[TasksByName[T]] = Service(dict)

    async def run(self, name: str, function: Callable[[], T]) -> T:
        """Run ``function`` in a thread, or wait for the running call of the same name.

        Return what it returns, or raise what it raises. Raise ``Busy`` after ``WAIT_SECONDS``
        seconds, or if ``MAX_CONCURRENT_REQUESTS`` requests are running. A timeout does not stop the
        call.
        """
        task = self.begin(name, function)
        done, _ = await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if not done:
            raise Busy(CANNOT_VERIFY)
        return task.result().get()

    def begin(self, name: str, function: Callable[[], T]) -> asyncio.Task[JobResult[T]]:
        """Start ``function`` without waiting for it, or return the running call of the same name.

        Raise ``Busy`` if ``MAX_CONCURRENT_REQUESTS`` requests are running.
        """
        running = self._tasks()
        if (task := running.get(name)) is None:
            if len(running) >= MAX_CONCURRENT_REQUESTS:
                raise Busy(CANNOT_VERIFY)
            task = running[name] = asyncio.get_running_loop().create_task(_job_result(function))
            task.add_done_callback(lambda done: running.pop(name, None))
        return task


async def _job_result(function: Callable[[], T]) -> JobResult[T]:
    """Return the result or the error of ``function``.

    It does not raise: all callers may have timed out, and asyncio would log the error.
    """
    try:
        loop = asyncio.get_running_loop()
        return JobResult(await loop.run_in_executor(threads.issuers, function))
    except Exception as error:
        return JobResult(error=error)
