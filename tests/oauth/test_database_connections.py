"""Requests close their database connection, whatever ``CONN_MAX_AGE`` says."""

from __future__ import annotations

import pytest
from asgiref.testing import ApplicationCommunicator
from django.core.handlers.asgi import ASGIHandler
from django.db import connections
from django.db.backends.signals import connection_created

from django_mcp.web.page import PageASGIHandler

BODY = b'{"client_name": "x", "redirect_uris": ["http://127.0.0.1:1/"]}'
SESSION = "x" * 32  # an unknown session, which is looked up


@pytest.fixture
def opened_connections(shared_db, monkeypatch):
    """Collect the connections that requests open, with CONN_MAX_AGE None."""
    monkeypatch.setitem(connections.settings["default"], "CONN_MAX_AGE", None)
    found = []

    def note(connection, **kwargs):
        found.append(connection)

    connection_created.connect(note)
    yield found
    connection_created.disconnect(note)
    for one in found:
        one.inc_thread_sharing()
        one.close()


async def request_status(handler, method: str, path: str, body: bytes = b"") -> int:
    headers = {
        "host": "shop.example", "content-type": "application/json",
        "cookie": f"sessionid={SESSION}",
    }  # fmt: skip
    scope = {
        "type": "http", "method": method, "path": path, "query_string": b"client_id=unknown",
        "scheme": "https", "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        "client": ("192.0.2.1", 1),
    }  # fmt: skip
    running = ApplicationCommunicator(handler, scope)
    await running.send_input({"type": "http.request", "body": body})
    status = (await running.receive_output(10))["status"]
    await running.receive_output(10)
    await running.wait(10)
    return int(status)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/oauth/register", 201),
        ("POST", "/oauth/token", 400),
        ("POST", "/oauth/revoke", 400),
        ("GET", "/oauth/authorize", 302),
        ("GET", "/oauth/connections", 302),
    ],
)
@pytest.mark.django_db(transaction=True)
async def test_endpoint_closes_the_connection_of_its_request(
    opened_connections, method, path, status
):
    body = BODY if path == "/oauth/register" else b""
    assert await request_status(ASGIHandler(), method, path, body) == status
    assert all(one.connection is None for one in opened_connections)
    assert opened_connections or path != "/oauth/register"


@pytest.mark.django_db(transaction=True)
async def test_server_page_closes_the_connection_of_its_request(opened_connections, server):
    assert await request_status(PageASGIHandler(server), "GET", "/mcp") == 200
    assert opened_connections and all(one.connection is None for one in opened_connections)
