"""
Findings of ``mcp_doctor``, and the HTTP requests with which it checks a server.

A problem prevents clients from connecting, or gives access to clients that must not have it. A
warning becomes a problem later or affects some clients. Both have a hint what to do.

``ProbeClient`` sends one request per connection. It follows no redirect, reads a bounded number of
bytes, and has a timeout for every wait. A response may come from any program, so nothing about its
size, format or encoding is assumed.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

from django.core.checks import INFO, WARNING, CheckMessage

from ...protocol import http_rules
from ...protocol.connection import META_PREFIX
from ...protocol.revisions import LATEST, REVISIONS

JSON = dict[str, Any]
BOTH = "application/json, text/event-stream"
SESSIONS = max(name for name, one in REVISIONS.items() if one.handshake)
CLIENT_INFO = {"name": "mcp_doctor", "version": "1"}


def request(method: str, params: JSON | None = None, id: int | None = 1) -> bytes:
    """Return a message of a revision with sessions. Without an ``id`` it is a notification."""
    message: JSON = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        message["id"] = id
    if params is not None:
        message["params"] = params
    return json.dumps(message).encode()


def stateless_request(method: str) -> bytes:
    """Return a request of the newest revision, which has no session."""
    meta = {"protocolVersion": LATEST.name, "clientCapabilities": {}, "clientInfo": CLIENT_INFO}
    return request(method, {"_meta": {META_PREFIX + key: value for key, value in meta.items()}})


def stateless_headers(method: str = "server/discover") -> dict[str, str]:
    """Return the headers of a request of the newest revision."""
    return json_headers() | {http_rules.PROTOCOL_VERSION: LATEST.name, http_rules.METHOD: method}


def json_headers() -> dict[str, str]:
    return {"Content-Type": "application/json", "Accept": BOTH}


DISCOVER = stateless_request("server/discover")
INITIALIZE = request(
    "initialize", {"protocolVersion": SESSIONS, "capabilities": {}, "clientInfo": CLIENT_INFO}
)


def message(body: bytes) -> JSON:
    """Return the response in a body of JSON, or the last one in a stream. Empty if none."""
    text = body.decode("utf-8", "replace").replace("\r\n", "\n")
    found: JSON = {}
    for candidate in [text, *_data(text)]:
        try:
            read = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(read, dict) and read.get("jsonrpc") == "2.0" and "method" not in read:
            found = read
    return found


def _data(text: str) -> list[str]:
    """Return the data of the events in a stream."""
    blocks = (block.split("\n") for block in text.split("\n\n"))
    marked = ([line[5:].strip() for line in lines if line[:5] == "data:"] for lines in blocks)
    return ["\n".join(lines) for lines in marked if lines]


def is_response(body: bytes) -> bool:
    """Whether the body is a JSON-RPC response."""
    return bool(message(body))


def result(body: bytes) -> JSON:
    found = message(body).get("result")
    return found if isinstance(found, dict) else {}


def error(body: bytes) -> JSON:
    found = message(body).get("error")
    return found if isinstance(found, dict) else {}


def count_tools(number: int, more: str = "") -> str:
    return f"{number}{more} tool{'' if number == 1 else 's'}"


MAX_BODY_BYTES = 1_000_000


class Unreachable(Exception):
    """There was no response. ``hint`` says what may be wrong."""

    def __init__(self, words: str, hint: str, *, is_timeout: bool = False) -> None:
        super().__init__(words)
        self.hint, self.is_timeout = hint, is_timeout


@dataclass(frozen=True)
class ProbeResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float  # until the status line was received
    silent: bool = False  # whether the timeout expired while reading
    own_address: str = ""  # this machine's address on the connection

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class ProbeClient:
    """Send requests to one URL, each on its own connection, from ``source`` if given."""

    def __init__(self, url: str, seconds: float, source: str | None = None) -> None:
        self.url, self.seconds, self._source = url, seconds, source
        self.parts: SplitResult = urlsplit(url)

    def ask(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        path: str | None = None,
        first: bool = False,
    ) -> ProbeResponse:
        """Return the response. With ``first``, read only the first part of its body.

        Raise ``Unreachable``.
        """
        began = time.monotonic()
        with self._open_connection() as (connection, expired):
            own = connection.sock.getsockname()[0]
            connection.request(method, path or self.parts.path or "/", body, dict(headers))
            response = connection.getresponse()
            seconds = time.monotonic() - began
            lower = {name.lower(): value for name, value in response.getheaders()}
            read = b""
            try:
                read = response.read1(MAX_BODY_BYTES) if first else response.read(MAX_BODY_BYTES)
            except (OSError, ValueError, http.client.HTTPException):
                if not first:
                    raise
            return ProbeResponse(response.status, lower, read, seconds, expired.is_set(), own)

    def own_address(self) -> str:
        """Return this machine's address on a connection to the server. Raise ``Unreachable``."""
        with self._open_connection() as (connection, _):
            return str(connection.sock.getsockname()[0])

    @contextmanager
    def _open_connection(self) -> Iterator[tuple[http.client.HTTPConnection, threading.Event]]:
        """Yield a connection that is shut down after ``seconds``, whatever it waits for.

        A socket timeout alone would not end a response that arrives byte by byte.
        """
        expired = threading.Event()
        connection = self._connection()
        timer = None
        try:
            connection.connect()
            timer = threading.Timer(self.seconds, _shut_down, (connection.sock, expired))
            timer.daemon = True
            timer.start()
            yield connection, expired
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise _unreachable(error, self.parts, expired.is_set(), self.seconds) from None
        finally:
            if timer:
                timer.cancel()
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        made = (
            http.client.HTTPSConnection
            if self.parts.scheme == "https"
            else http.client.HTTPConnection
        )
        source = (self._source, 0) if self._source else None
        host = self.parts.hostname or ""
        return made(host, self.parts.port, timeout=self.seconds, source_address=source)


def _shut_down(connected: socket.socket, expired: threading.Event) -> None:
    expired.set()
    with suppress(OSError):
        # Shut down the socket below TLS, so that a read in another thread ends.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _unreachable(
    error: Exception, parts: SplitResult, expired: bool, seconds: float
) -> Unreachable:
    where = parts.netloc
    if expired or isinstance(error, TimeoutError):
        return Unreachable(
            f"{where} did not answer within {seconds:g} seconds.",
            "Another program may listen there, or a firewall may block the connection.",
            is_timeout=True,
        )
    for kind, words, hint in KINDS:
        if isinstance(error, kind):
            return Unreachable(words.format(where=where, error=error), hint)
    return Unreachable(f"{where} cannot be reached: {error}", "Check the server and its log.")


# Subclasses first: the first match is used.
KINDS: tuple[tuple[type[Exception], str, str], ...] = (
    (
        ssl.SSLCertVerificationError,
        "The certificate of {where} is not trusted: {error}",
        "Clients verify it too. Is the chain complete, and the host name right?",
    ),
    (ssl.SSLError, "TLS to {where} failed: {error}", "Is it http:// instead?"),
    (socket.gaierror, "The host name {where} cannot be resolved.", "Check the name and the DNS."),
    (
        ConnectionRefusedError,
        "Nothing listens at {where}.",
        "Start the ASGI server, and check its address and port.",
    ),
    (
        ConnectionError,
        "{where} closed the connection.",
        "Is it https:// instead, or has the server stopped? Its log may say why.",
    ),
    (
        http.client.HTTPException,
        "The response of {where} is not HTTP ({error}).",
        "Another program listens on this port.",
    ),
)


Level = Literal["ok", "note", "warning", "problem"]


@dataclass(frozen=True)
class Finding:
    """The result of a check. ``part`` is the group of checks, such as "the database"."""

    level: Level
    words: str
    hint: str = ""
    part: str = ""


Findings = Iterator[Finding]


def ok(words: str) -> Finding:
    return Finding("ok", words)


def note(words: str, hint: str = "") -> Finding:
    return Finding("note", words, hint)


def warning(words: str, hint: str) -> Finding:
    return Finding("warning", words, hint)


def problem(words: str, hint: str) -> Finding:
    return Finding("problem", words, hint)


def findings_from_checks(messages: Iterable[CheckMessage]) -> Findings:
    """Yield system check messages as findings."""
    for message in messages:
        if message.is_silenced():
            continue
        words, _, _ = str(message).partition("\n\tHINT:")
        hint = message.hint or "manage.py check shows it too."
        if message.level > WARNING:
            yield problem(words, hint)
        else:
            yield note(words, hint) if message.level <= INFO else warning(words, hint)


def run_safely(check: Callable[[], Findings], what: str) -> Findings:
    """Yield the findings of ``check``. An exception becomes a finding, so the next check runs."""
    try:
        yield from check()
    except Exception as error:  # checks run the project's code, which may raise anything
        words = f"{type(error).__name__}: {error}".rstrip(": ")
        yield problem(f"{what} cannot be checked: {words}", "Fix this error first.")
