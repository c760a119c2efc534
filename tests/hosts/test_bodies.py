"""Long and slow bodies at the OAuth endpoints, under real ASGI servers."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pytest

from django_mcp.runtime.view_limits import MAX_SECONDS
from tests.oauth.site import APPLICATION, Site
from tests.servers import Served

pytestmark = pytest.mark.slow
LONG = 300_000_000  # bytes
# daphne receives a whole body before it calls the application: a proxy has to limit it.
SERVERS = ("granian", "hypercorn", "uvicorn")


@pytest.fixture(params=SERVERS)
def port(request, tmp_path) -> Iterator[int]:
    site = Site(tmp_path)
    served = Served(
        request.param, site.folder, application=APPLICATION, port=site.port, **site.environ
    )
    with served:
        yield site.port


def start_request(port: int, length: int) -> socket.socket:
    """Return a connection with the headers of a request, but no body."""
    made = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = (
        f"POST /oauth/token HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {length}\r\n"
        "Content-Type: application/x-www-form-urlencoded\r\n\r\n"
    )
    made.sendall(head.encode())
    return made


def test_long_body_is_rejected_before_it_is_sent(port):
    with start_request(port, LONG) as made:
        assert made.recv(1_000).startswith(b"HTTP/1.1 413")


def test_slow_body_is_rejected_in_time(port):
    with start_request(port, 100) as made:
        made.sendall(b"grant_type=")
        began = time.monotonic()
        assert made.recv(1_000).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < MAX_SECONDS + 5
