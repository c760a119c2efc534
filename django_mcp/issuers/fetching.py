"""
JSON from an issuer, by URLs that whoever runs the project named.

Rule: https, or http to this very machine; nothing that is redirected, long, or slow. The time is
that of all of it, at whatever pace it comes. What is sent or got is in no error.
"""

from __future__ import annotations

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
from typing import Any
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

SECONDS = 5.0
LONGEST = 262_144  # bytes
PIECE = 16_384  # bytes
LONGEST_URL = 1_000  # characters
URL = re.compile(r"https?://[A-Za-z0-9._~:/?\[\]!$&'()*+,;=%-]+")  # nobody's name or password
JSON = re.compile(r"application/(?:[a-z0-9!#$&^_.-]+\+)?json")
# Some issuers turn away what names itself as Python's library does.
HEADERS = {"Accept": "application/json, application/*+json", "User-Agent": "django-modelcontext"}
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


class Unanswered(Exception):
    """An issuer does not say what it should. In words for the log, without secrets."""


def is_safe(url: Any) -> bool:
    """Whether what is told there is told by its host, and read by nobody on the way."""
    if not isinstance(url, str) or len(url) > LONGEST_URL or not URL.fullmatch(url):
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
    """The object there, by GET, or POST of a form; or ``Unanswered``. It takes its thread."""
    if not is_safe(url):
        raise Unanswered("there is no safe way to its URL")
    data = None if form is None else urlencode(form).encode()
    request = Request(url, data, HEADERS | ({"Authorization": authorization} if form else {}))
    ends = time.monotonic() + SECONDS
    try:
        with _on_time() as opener, closing(opener.open(request, timeout=SECONDS)) as response:
            return _read(response, ends)
    except HTTPError as error:
        error.close()
        raise Unanswered(f"it answers by {error.code}") from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", "")
        raise Unanswered(f"{type(error).__name__} {why}".strip()) from None


def _read(response: Any, ends: float) -> dict[str, Any]:
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if response.status != 200 or not JSON.fullmatch(media_type):
        raise Unanswered("it does not answer by JSON")
    body = b""
    while piece := response.read1(PIECE):
        body += piece
        if len(body) > LONGEST:
            raise Unanswered(f"it answers by more than {LONGEST} bytes")
        if time.monotonic() >= ends:
            raise Unanswered(f"it takes more than {SECONDS} seconds")
    return _parsed(body)


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unanswered("it answers by no JSON object")
    return found


# Lines. No handler follows redirects, or opens anything but these.


@contextmanager
def _on_time() -> Iterator[OpenerDirector]:
    """Cuts lines when the time is over: the timeout of a socket begins anew with every byte."""
    lines: list[HTTPConnection] = []
    timer = threading.Timer(SECONDS, _cut, [lines])
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
        except OSError:  # the other side was faster
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
    """Made once: to read the certificates of a machine takes long."""
    return ssl.create_default_context()
