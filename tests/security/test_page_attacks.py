"""What an attacker tries by way of the page, and of the browsers that have been there."""

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


def asked(browser, **headers):
    """A list of tools, as a page may send it from a browser that is signed in."""
    told = {"accept": BOTH, "content-type": "application/json", **NEWEST, **headers}
    return browser.ask(method="POST", headers=told, body=json.dumps(LIST).encode())


def test_a_cookie_lets_nobody_in(browse, alice):
    """Else every page of the web could act as whoever has visited ours."""
    hers, nobodys = asked(browse(alice)), asked(browse())
    assert hers.status == nobodys.status == 200
    names = [
        [one["name"] for one in talk.messages[-1]["result"]["tools"]] for talk in (hers, nobodys)
    ]
    assert names[0] == names[1] and "refund" not in names[0]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", None])
def test_a_form_of_another_page_is_no_message(browse, alice, kind):
    assert asked(browse(alice), **{"content-type": kind}).status == 415


def test_the_page_is_looked_at_and_no_more(browse, alice):
    browser = browse(alice)
    for method in ("POST", "DELETE", "PUT", "OPTIONS", "TRACE", "PATCH"):
        for path in ("/mcp", "/mcp/"):
            talk = browser.ask(path, method, body=b"{}")
            assert b"alice" not in talk.body, method
            assert talk.headers.get("content-type", "")[:9] != "text/html"


ODD = ("//mcp", "/mcp//", "/./mcp", "/x/../mcp", "/mcp/x", "/MCP", "/mcp;x", "/mcp%2f", "/mcp\n")


def test_no_other_path_is_the_page(browse, alice):
    browser = browse(alice)
    for path in ODD:
        assert b"alice" not in browser.ask(path).body, path


@pytest.mark.parametrize("host", ["evil.example", "testserver.evil.example", "testserver:x", ""])
def test_a_host_of_somebody_elses_is_refused(browse, alice, settings, host):
    settings.ALLOWED_HOSTS = ["testserver"]
    talk = browse(alice).ask(headers={"host": host})
    assert talk.status == 400 and b"alice" not in talk.body


def test_no_host_is_repeated(browse, alice, settings):
    settings.ALLOWED_HOSTS, settings.USE_X_FORWARDED_HOST = ["*"], True
    talk = browse(alice).ask(headers={"host": "evil.example", "x-forwarded-host": "evil.example"})
    assert talk.status == 200 and b"evil" not in talk.body


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_no_page_of_another_origin_looks_at_it(browse, alice, method):
    browser = browse(alice)
    for origin in ("https://evil.example", "null", "http://testserver.evil"):
        talk = browser.ask(method=method, headers={"origin": origin})
        assert talk.status == 403 and b"alice" not in talk.body
        assert "access-control-allow-origin" not in talk.headers


NO_PAGES = (f"{CHROMIUM}, text/event-stream", "application/json", "*/*", "text/html;q=0", "", None)


def test_a_client_is_shown_no_page(browse, alice):
    browser = browse(alice)
    for accept in NO_PAGES:
        talk = browser.ask(headers={"accept": accept})
        assert b"alice" not in talk.body and talk.status != 200, accept


@pytest.mark.parametrize(
    "website", ["javascript:alert(1)", "data:text/html,x", "//evil", "jAvaScript:1"]
)
def test_a_website_is_one(server, browse, website):
    server.website, server.page = website, mcp.PUBLIC
    assert website not in browse().visit(server).links


@pytest.mark.parametrize(
    "value",
    ["text/html," * 6000, "text/html;" * 6000, ("a/b;q=" + "0" * 50 + ",") * 1000, '"' * 60_000,
     'text/html;a="' + "\\" * 60_000, " " * 60_000, "," * 60_000, "a/" * 30_000],
    ids=lambda value: value[:12],
)  # fmt: skip
def test_no_accept_is_slow_to_read(value):
    began = time.process_time()
    http_rules.takes_page(value)
    http_rules.acceptable("POST", value)
    assert time.process_time() - began < 1


def test_a_visitor_with_a_thousand_cookies_is_a_visitor(browse, alice):
    cookies = "; ".join(f"a{number}=b" for number in range(3000))
    talk = browse().ask(headers={"cookie": cookies})
    assert talk.status in (200, 400, 431) and b"alice" not in talk.body
