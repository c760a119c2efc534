"""HTTP requests to an issuer, its metadata, and deduplication of concurrent requests.

``fetch`` gets a JSON object from a URL of the project's settings or of the issuer's metadata. It
uses https, or http to this machine. Redirects and long responses are rejected. One timeout covers
the whole request, however slowly data arrives. Errors contain nothing that was sent or received.

``Discovery`` finds endpoints in the issuer's metadata (RFC 8414; OpenID Discovery). A document that
names another issuer is rejected.

``RunningRequests`` runs one request per name and event loop. Other callers wait for the same
result, for ``WAIT_SECONDS`` seconds at most. The number of concurrent requests is limited. ``Busy``
means that a token cannot be verified now. It does not mean that the token is invalid.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache, partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, Generic, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
    getproxies,
)

from ..exceptions import Busy
from ..runtime import threads
from ..runtime.runtime import Service
from ..runtime.thread_pools import Outcome

TIMEOUT_SECONDS = 5.0
MAX_DOCUMENT_BYTES = 262_144  # bytes
CHUNK_BYTES = 16_384  # bytes
MAX_URL_LENGTH = 1_000  # characters
URL = re.compile(r"https?://[A-Za-z0-9._~:/?\[\]!$&'()*+,;=%-]+")  # no "@": no user information
JSON = re.compile(r"application/(?:[a-z0-9!#$&^_.-]+\+)?json")
# Some issuers reject the User-Agent of Python's library.
HEADERS = {"Accept": "application/json, application/*+json", "User-Agent": "django-modelcontext"}
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class IssuerUnavailable(Exception):
    """An issuer did not give a usable response. The message is for the log, without secrets."""


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
    """Return the JSON object at a URL, by GET, or by POST of ``form``. Raise ``IssuerUnavailable``.

    ``authorization`` is the header's value. It is sent only with a form. The call blocks.
    """
    if not is_safe(url):
        raise IssuerUnavailable("there is no safe way to its URL")
    data = None if form is None else urlencode(form).encode()
    request = Request(url, data, HEADERS | ({"Authorization": authorization} if form else {}))
    ends = time.monotonic() + TIMEOUT_SECONDS
    try:
        with (
            _on_time() as opener,
            closing(opener.open(request, timeout=TIMEOUT_SECONDS)) as response,
        ):
            return _read(response, ends)
    except HTTPError as error:
        error.close()
        raise IssuerUnavailable(f"it answers by {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", "")
        raise IssuerUnavailable(f"{type(error).__name__} {why}".strip()) from None


def _read(response: Any, ends: float) -> dict[str, Any]:
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if response.status != 200 or not JSON.fullmatch(media_type):
        raise IssuerUnavailable("it does not answer by JSON")
    body = b""
    while piece := response.read1(CHUNK_BYTES):
        body += piece
        if len(body) > MAX_DOCUMENT_BYTES:
            raise IssuerUnavailable(f"it answers by more than {MAX_DOCUMENT_BYTES} bytes")
        if time.monotonic() >= ends:
            raise IssuerUnavailable(f"it takes more than {TIMEOUT_SECONDS} seconds")
    return _parsed(body)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise IssuerUnavailable("it answers by no JSON object")
    return found


# Connections. The opener has no handlers for redirects and for schemes other than http and https.


@contextmanager
def _on_time() -> Iterator[OpenerDirector]:
    """Yield an opener whose connections are shut down after ``TIMEOUT_SECONDS``.

    The timeout of a socket is not enough, because it restarts with every byte.
    """
    lines: list[HTTPConnection] = []
    timer = threading.Timer(TIMEOUT_SECONDS, _cut, [lines])
    timer.daemon = True
    timer.start()
    try:
        yield _opener(lines)
    finally:
        timer.cancel()


def _cut(lines: list[HTTPConnection]) -> None:
    for line in lines:
        try:
            if line.sock is not None:
                line.sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side has closed it already
            continue


def _opener(lines: list[HTTPConnection]) -> OpenerDirector:
    opener = OpenerDirector()
    proxies = {scheme: url for scheme, url in getproxies().items() if scheme == "https"}
    for handler in (ProxyHandler(proxies), _Plain(lines), _Secure(lines),
                    HTTPErrorProcessor(), HTTPDefaultErrorHandler()):  # fmt: skip
        opener.add_handler(handler)
    return opener


class _Plain(HTTPHandler):
    def __init__(self, lines: list[HTTPConnection]) -> None:
        super().__init__()
        self._lines = lines

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(_noted(HTTPConnection, self._lines), req)


class _Secure(HTTPSHandler):
    def __init__(self, lines: list[HTTPConnection]) -> None:
        super().__init__(context=_trusted())
        self._lines = lines

    def https_open(self, req: Request) -> HTTPResponse:
        made = partial(HTTPSConnection, context=_trusted())
        return self.do_open(_noted(made, self._lines), req)


def _noted(make: Callable[..., HTTPConnection], lines: list[HTTPConnection]) -> Any:
    def made(host: str, **options: Any) -> HTTPConnection:
        lines.append(make(host, **options))
        return lines[-1]

    return made


@cache
def _trusted() -> ssl.SSLContext:
    """Return the TLS context. It is cached, because loading the system's certificates is slow."""
    return ssl.create_default_context()


METADATA_CACHE_SECONDS = 3600.0  # seconds for which metadata is cached


class Discovery:
    """The metadata of ``issuer``, fetched when it is needed. Call it in a thread: it blocks."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self._kept: tuple[dict[str, Any], float] | None = None

    def endpoint(self, member: str) -> str:
        """Return the URL of a member of the metadata, or raise ``IssuerUnavailable``."""
        found = self._document().get(member)
        if not isinstance(found, str) or not is_safe(found):
            raise IssuerUnavailable(f"its metadata has no {member} that is safe")
        return found

    def _document(self) -> dict[str, Any]:
        kept = self._kept
        if kept is None or time.monotonic() - kept[1] > METADATA_CACHE_SECONDS:
            kept = self._kept = (self._fetched(), time.monotonic())
        return kept[0]

    def _fetched(self) -> dict[str, Any]:
        error = IssuerUnavailable("it has no metadata")
        for place in _places(self.issuer):
            try:
                document = fetch(place)
            except IssuerUnavailable as failure:
                error = failure
                continue
            if document.get("issuer") == self.issuer:
                return document
            error = IssuerUnavailable("its metadata is another issuer's")
        raise error


def _places(issuer: str) -> Iterator[str]:
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
UNKNOWN = "What this token is good for cannot be told just now."
Way = dict[str, "asyncio.Task[Outcome[T]]"]


class RunningRequests(Generic[T]):
    """The running requests of each event loop, by name."""

    def __init__(self) -> None:
        self._under_way: Service[Way[T]] = Service(dict)

    async def run(self, name: str, function: Callable[[], T]) -> T:
        """Run ``function`` in a thread, or wait for the running call of the same name.

        Return what it returns, or raise what it raises. Raise ``Busy`` after ``WAIT_SECONDS``
        seconds, or if ``MAX_CONCURRENT_REQUESTS`` requests are running. A timeout does not stop the
        call.
        """
        task = self.begin(name, function)
        done, _ = await asyncio.wait({task}, timeout=WAIT_SECONDS)
        if not done:
            raise Busy(UNKNOWN)
        return task.result().get()

    def begin(self, name: str, function: Callable[[], T]) -> asyncio.Task[Outcome[T]]:
        """Start ``function`` without waiting for it, or return the running call of the same name.

        Raise ``Busy`` if ``MAX_CONCURRENT_REQUESTS`` requests are running.
        """
        way = self._under_way()
        if (task := way.get(name)) is None:
            if len(way) >= MAX_CONCURRENT_REQUESTS:
                raise Busy(UNKNOWN)
            task = way[name] = asyncio.get_running_loop().create_task(_outcome(function))
            task.add_done_callback(lambda done: way.pop(name, None))
        return task


async def _outcome(function: Callable[[], T]) -> Outcome[T]:
    """Return the result or the error of ``function``.

    It does not raise: all callers may have timed out, and asyncio would log the error.
    """
    try:
        loop = asyncio.get_running_loop()
        return Outcome(await loop.run_in_executor(threads.issuers, function))
    except Exception as error:
        return Outcome(error=error)
