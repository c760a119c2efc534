"""Limits of request bodies: long and slow bodies are rejected before Django reads them."""

from __future__ import annotations

import asyncio
import json

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from django.urls import include, path, resolve

from django_mcp.routing import mount
from django_mcp.runtime import view_limits as bodies
from django_mcp.runtime.view_limits import MAX_BYTES


def upload(request):
    """A view of the project that accepts large bodies."""
    return HttpResponse(len(request.read()))


urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("register/", upload),
    path("oauth/upload", upload),
    path("photos", upload),
]
CHUNK = b"x" * 50_000


class Sender:
    """A client that sends chunks for as long as they are read, up to a number."""

    def __init__(self, chunks: int, *, stalls: bool = False, length: int | None = None) -> None:
        self.chunks, self.stalls, self.read, self.length = chunks, stalls, 0, length
        self.status, self.body, self.headers = 0, b"", {}
        self.answered = asyncio.Event()

    async def receive(self):
        if self.read == self.chunks:
            if not self.stalls or self.answered.is_set():
                await self.answered.wait()
                return {"type": "http.disconnect"}
            await self.answered.wait()
        self.read += 1
        more = self.stalls or self.read < self.chunks
        return {"type": "http.request", "body": CHUNK, "more_body": more}

    async def send(self, message):
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                self.answered.set()

    async def post(self, where: str, **scope) -> Sender:
        headers = [(b"host", b"shop.example"), (b"content-type", b"application/json")]
        if self.length is not None:
            headers.append((b"content-length", str(self.length).encode()))
        whole = {
            "type": "http", "method": "POST", "path": where, "query_string": b"",
            "scheme": "https", "headers": headers, **scope,
        }  # fmt: skip
        with override_settings(ROOT_URLCONF=__name__):
            await mount(ASGIHandler())(whole, self.receive, self.send)
        return self


ENDPOINTS = ["/oauth/register", "/oauth/token/", "/oauth/revoke", "/oauth/authorize",
             "/oauth/connections", "/.well-known/oauth-authorization-server",
             "/mcp/.well-known/openid-configuration"]  # fmt: skip


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_long_body_is_rejected_before_it_is_read(endpoint):
    """T10: hundreds of megabytes on disk for each request of a stranger."""
    sender = await Sender(6_000).post(endpoint)  # 300 MB
    assert sender.status == 413 and sender.read == 2
    assert json.loads(sender.body)["error"] == "invalid_request"
    assert sender.headers[b"connection"] == b"close"


async def test_body_with_a_long_content_length_is_not_read():
    sender = await Sender(1, length=MAX_BYTES + 1).post("/oauth/token")
    assert (sender.status, sender.read) == (413, 0)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_slow_body_is_rejected(endpoint, monkeypatch):
    monkeypatch.setattr(bodies, "MAX_SECONDS", 0.05)
    sender = await Sender(1, stalls=True).post(endpoint)
    assert sender.status == 408


@pytest.mark.django_db(transaction=True)
async def test_body_within_the_limits_reaches_the_view():
    sender = await Sender(1, length=len(CHUNK)).post("/oauth/register")
    assert sender.status == 400 and b"invalid_client_metadata" in sender.body


@pytest.mark.parametrize("page", ["/register/", "/oauth/upload", "/photos"])
async def test_views_of_the_project_accept_bodies_of_any_length(page):
    sender = await Sender(10).post(page)
    assert (sender.status, sender.body) == (200, b"500000")


async def test_limit_applies_below_a_root_path():
    sender = await Sender(6_000).post("/shop/oauth/token", root_path="/shop")
    assert sender.status == 413


async def test_view_is_not_called_if_the_client_disconnects():
    sender = Sender(0)
    sender.answered.set()
    await sender.post("/oauth/register")
    assert sender.status == 0


async def test_http_2_response_has_no_connection_header():
    sender = await Sender(6_000).post("/oauth/token", http_version="2")
    assert sender.status == 413 and b"connection" not in sender.headers


class UnreadableBody:
    """A request body that fails the test when it is read."""

    def read(self, *args):
        raise AssertionError("The body was read.")


VIEW_PATHS = ["/oauth/register", "/oauth/token", "/oauth/revoke", "/oauth/authorize",
            "/oauth/connections"]  # fmt: skip


# Gunicorn passes on numbers that begin with zeros, and digits of other scripts.
LENGTHS = [f"{MAX_BYTES + 1}", "0" * 15 + f"{MAX_BYTES + 1}", f"+{MAX_BYTES + 1}", "9" * 20, "²"]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("endpoint", VIEW_PATHS)
def test_long_body_is_rejected_under_wsgi(endpoint, length):
    request = RequestFactory().post(endpoint)
    request.META["CONTENT_LENGTH"] = length
    request._stream = UnreadableBody()
    view, _, _ = resolve(endpoint)
    assert view(request).status_code == 413
