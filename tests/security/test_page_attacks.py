"""Attacks through the server page and through browsers that are signed in."""

from __future__ import annotations

import json
import time

import pytest

import django_mcp as mcp
from django_mcp.protocol import http_rules
from tests.web.conftest import CHROMIUM, browse

__all__ = ["browse"]
pytestmark = pytest.mark.usefixtures("shared_db")
BOTH = "application/json, text/event-stream"
LIST = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/list",
    "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "x", "version": "1"},
    }},
}  # fmt: skip
NEWEST = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}


def list_tools(browser, **headers):
    """Send tools/list, as another page may send it from a signed-in browser."""
    told = {"accept": BOTH, "content-type": "application/json", **NEWEST, **headers}
    return browser.ask(method="POST", headers=told, body=json.dumps(LIST).encode())


def test_session_cookie_does_not_authenticate_mcp_requests(browse, alice):
    """Otherwise any web page could act as a signed-in visitor."""
    hers, nobodys = list_tools(browse(alice)), list_tools(browse())
    assert hers.status == nobodys.status == 200
    names = [
        [one["name"] for one in exchange.messages[-1]["result"]["tools"]]
        for exchange in (hers, nobodys)
    ]
    assert names[0] == names[1] and "refund" not in names[0]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_form_content_type_is_rejected(browse, alice, kind):
    assert list_tools(browse(alice), **{"content-type": kind}).status == 415


def test_page_answers_only_get_and_head(browse, alice):
    browser = browse(alice)
    for method in ("POST", "DELETE", "PUT", "OPTIONS", "TRACE", "PATCH"):
        for path in ("/mcp", "/mcp/"):
            exchange = browser.ask(path, method, body=b"{}")
            assert b"alice" not in exchange.body, method
            assert exchange.headers.get("content-type", "")[:9] != "text/html"


ODD_PATHS = (
    "//mcp",
    "/mcp//",
    "/./mcp",
    "/x/../mcp",
    "/mcp/x",
    "/MCP",
    "/mcp;x",
    "/mcp%2f",
    "/mcp\n",
)


def test_page_is_served_only_at_its_path(browse, alice):
    browser = browse(alice)
    for path in ODD_PATHS:
        assert b"alice" not in browser.ask(path).body, path


@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "testserver:x", ""])
def test_unknown_host_is_rejected(browse, alice, settings, host):
    settings.ALLOWED_HOSTS = ["testserver"]
    exchange = browse(alice).ask(headers={"host": host})
    assert exchange.status == 400 and b"alice" not in exchange.body


def test_host_is_not_repeated_on_the_page(browse, alice, settings):
    settings.ALLOWED_HOSTS, settings.USE_X_FORWARDED_HOST = ["*"], True
    exchange = browse(alice).ask(
        headers={"host": "evil.example", "x-forwarded-host": "evil.example"}
    )
    assert exchange.status == 200 and b"evil" not in exchange.body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_request_of_another_origin_is_rejected(browse, alice, method):
    browser = browse(alice)
    for origin in ("https://evil.example", "null", "http://testserver.evil"):
        exchange = browser.ask(method=method, headers={"origin": origin})
        assert exchange.status == 403 and b"alice" not in exchange.body
        assert "access-control-allow-origin" not in exchange.headers


NO_PAGES = (f"{CHROMIUM}, text/event-stream", "application/json", "*/*", "text/html;q=0", "", None)


def test_mcp_clients_do_not_get_the_page(browse, alice):
    browser = browse(alice)
    for accept in NO_PAGES:
        exchange = browser.ask(headers={"accept": accept})
        assert b"alice" not in exchange.body and exchange.status != 200, accept


@pytest.mark.parametrize(
    "website", ["javascript:alert(1)", "data:text/html,x", "//evil", "jAvaScript:1"]
)
def test_unsafe_website_is_not_linked(server, browse, website):
    server.website, server.page = website, mcp.PUBLIC
    assert website not in browse().visit(server).links


@pytest.mark.parametrize(
    "value",
    ["text/html," * 6000, "text/html;" * 6000, ("a/b;q=" + "0" * 50 + ",") * 1000, '"' * 60_000,
     'text/html;a="' + "\\" * 60_000, " " * 60_000, "," * 60_000, "a/" * 30_000],
    ids=lambda value: value[:12],
)  # fmt: skip
def test_malicious_accept_header_is_parsed_quickly(value):
    began = time.process_time()
    http_rules.takes_page(value)
    http_rules.accepts(value)
    assert time.process_time() - began < 1


def test_many_cookies_do_not_break_the_page(browse, alice):
    cookies = "; ".join(f"a{number}=b" for number in range(3000))
    exchange = browse().ask(headers={"cookie": cookies})
    assert exchange.status in (200, 400, 431) and b"alice" not in exchange.body
