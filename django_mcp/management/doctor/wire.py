"""
One HTTP request as the doctor sends it, and what came back.

Rule: no redirect is followed, no more is read than was asked for, and there is an end
to every wait: whoever answers may be anybody.
"""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

LARGEST = 1_000_000  # bytes of a body


class Unreachable(Exception):
    """There was no answer. ``hint`` says what may be wrong."""

    def __init__(self, words: str, hint: str) -> None:
        super().__init__(words)
        self.hint = hint


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes
    seconds: float  # until the status came
    silent: bool = False  # whether nothing came, for as long as it was waited

    @property
    def kind(self) -> str:
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Wire:
    """Sends requests to one URL, each on a connection of its own."""

    def __init__(self, url: str, seconds: float) -> None:
        self.url, self.seconds = url, seconds
        self.parts: SplitResult = urlsplit(url)

    def ask(
        self,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None = None,
        *,
        path: str | None = None,
        first: bool = False,
    ) -> Answer:
        """The answer; with ``first``, no more of its body than comes first.

        Raises ``Unreachable``.
        """
        began = time.monotonic()
        with self._connected() as (connection, expired):
            connection.request(method, path or self.parts.path or "/", body, dict(headers))
            response = connection.getresponse()
            seconds = time.monotonic() - began
            named = {name.lower(): value for name, value in response.getheaders()}
            read = b""
            try:
                read = response.read1(LARGEST) if first else response.read(LARGEST)
            except (OSError, ValueError, http.client.HTTPException):
                if not first:
                    raise
            return Answer(response.status, named, read, seconds, silent=expired.is_set())

    @contextmanager
    def _connected(self) -> Iterator[tuple[http.client.HTTPConnection, threading.Event]]:
        """A connection that is cut when the time is over, whatever it waits for."""
        expired = threading.Event()
        connection = self._connection()
        timer = None
        try:
            connection.connect()
            timer = threading.Timer(self.seconds, _cut, (connection.sock, expired))
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
        return made(self.parts.hostname or "", self.parts.port, timeout=self.seconds)


def _cut(connected: socket.socket, expired: threading.Event) -> None:
    expired.set()
    with suppress(OSError):
        # Of the socket below TLS: what reads it in another thread is to see an end.
        socket.socket.shutdown(connected, socket.SHUT_RDWR)


def _unreachable(
    error: Exception, parts: SplitResult, expired: bool, seconds: float
) -> Unreachable:
    where = parts.netloc
    if expired or isinstance(error, TimeoutError):
        return Unreachable(
            f"{where} did not answer within {seconds:g} seconds.",
            "Is something else listening there, or a firewall in between?",
        )
    for kind, words, hint in KINDS:
        if isinstance(error, kind):
            return Unreachable(words.format(where=where, error=error), hint)
    return Unreachable(f"{where} cannot be reached: {error}", "Look at the server and its log.")


# Narrower kinds first.
KINDS: tuple[tuple[type[Exception], str, str], ...] = (
    (
        ssl.SSLCertVerificationError,
        "The certificate of {where} is not trusted: {error}",
        "Clients check it too. Is the chain complete, and the name right?",
    ),
    (ssl.SSLError, "{where} speaks no TLS that can be used: {error}", "Is it http:// instead?"),
    (socket.gaierror, "The name {where} is not known.", "Look at the name, and at the DNS."),
    (
        ConnectionRefusedError,
        "Nothing listens at {where}.",
        "Start the ASGI server, and look at its address and port.",
    ),
    (
        ConnectionError,
        "{where} closed the connection.",
        "Is it https:// instead, or has the server ended? Its log may say why.",
    ),
    (
        http.client.HTTPException,
        "What answers at {where} speaks no HTTP ({error}).",
        "Another program listens on this port.",
    ),
)
