"""Host, Origin and CORS checks, which precede the handling of a request."""

from __future__ import annotations

import json

import pytest

from django_mcp.protocol.http_rules import NAMED
from django_mcp.transports.http import security
from tests.http import ELSEWHERE

pytestmark = pytest.mark.django_db
BAD_HOST, BAD_ORIGIN = (400, -32600), (403, -32600)


@pytest.fixture
def send(http):
    """Send ``tools/list`` with changed headers, and return the response."""
    client = http()
    message = client.message("tools/list", {})
    good = client.headers(message)

    def sent(method="POST", scope=None, **changed):
        headers = good | {name.replace("_", "-"): value for name, value in changed.items()}
        return client.send(method, "/mcp", json.dumps(message).encode(), headers, **(scope or {}))

    return sent


# Methods.


@pytest.mark.parametrize(
    "method", ["PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "FOO" * 100, "post"]
)
def test_other_methods_are_405(send, method):
    exchange = send(method)
    assert exchange.status == 405 and exchange.headers["allow"] == "POST, GET, DELETE, OPTIONS"
    assert len(exchange.body) < 300


# Host.


@pytest.mark.parametrize(
    "host",
    [
        "testserver", "TESTSERVER", "testserver:80", "testserver:8000", "testserver.",
        "testserver.:80", "127.0.0.1:1", "localhost",
    ],
)  # fmt: skip
def test_allowed_hosts_are_accepted(send, host):
    assert send(host=host).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "", " ", "evil.example", "evil.example:80", "testserver.evil.example", "evil-testserver",
        "testserver:80:80", "testserver:x", "testserver:-1", "testserver@evil.example",
        "evil.example@testserver", "testserver/evil", "testserver#", "testserver?x",
        "testserver, evil.example", "testserver evil", "testserver\x00", "test\xaderver",
        "\xffestserver", "[::1]", "[testserver]", "testserver..", ".testserver", ":80", "*",
        "0x7f.1", "2130706433", "testserver%2eevil", "http://testserver", "x" * 100_000,
    ],
)  # fmt: skip
def test_other_hosts_are_rejected(send, host):
    exchange = send(host=host)
    assert exchange.refused == (BAD_HOST if len(host) < 1000 else (431, -32600))
    assert len(host) < 8 or host not in exchange.body.decode()
    assert "access-control-allow-origin" not in exchange.headers


def test_request_without_a_host_is_rejected(http):
    client = http()
    pairs = [(b"accept", b"*/*"), (b"content-type", b"application/json"), (b"host", b"")]
    assert client.send("POST", "/mcp", b"{}", pairs).refused == BAD_HOST
    exchange = client.open("POST", "/mcp", b"{}", pairs)
    exchange.scope["headers"].pop()
    assert exchange.wait().refused == BAD_HOST


def test_overlong_hosts_are_not_cached(send, settings):
    settings.ALLOWED_HOSTS = ["*"]
    before = security._is_allowed.cache_info().currsize
    assert send(host="x" * 301).refused == BAD_HOST
    assert send(origin="http://" + "x" * 300).refused == BAD_ORIGIN
    assert security._is_allowed.cache_info().currsize <= before + 1


def test_local_hosts_are_allowed_in_debug_mode_without_allowed_hosts(send, settings):
    settings.ALLOWED_HOSTS = []
    assert send(host="localhost").refused == BAD_HOST
    settings.DEBUG = True
    for host in ("localhost", "a.localhost:8000", "127.0.0.1:80", "[::1]:80"):
        assert send(host=host).status == 200
    assert send(host="testserver").refused == BAD_HOST


def test_forwarded_host_is_used_only_if_configured(send, settings):
    assert send(x_forwarded_host="evil.example").status == 200
    assert send(host="evil.example", x_forwarded_host="testserver").refused == BAD_HOST
    settings.USE_X_FORWARDED_HOST = True
    assert send(host="evil.example", x_forwarded_host="testserver").status == 200
    assert send(x_forwarded_host="evil.example").refused == BAD_HOST
    assert send(x_forwarded_host="testserver, evil.example").refused == BAD_HOST
    assert send(x_forwarded_host="").refused == BAD_HOST


# Origin.


def test_request_without_an_origin_is_accepted_without_cors(send):
    exchange = send()
    assert exchange.status == 200
    assert not [name for name in exchange.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "origin", ["http://testserver", "HTTP://TestServer", "https://shop.example"]
)
def test_own_origins_are_accepted(send, origin):
    """The site's own origins: the host of the request, and ``DJANGO_MCP["URL"]``."""
    exchange = send(origin=origin)
    assert exchange.status == 200
    assert exchange.headers["access-control-allow-origin"] == origin
    assert exchange.headers["vary"] == "origin"
    exposed = exchange.headers["access-control-expose-headers"].split(", ")
    assert {"mcp-session-id", "www-authenticate", "retry-after"} == set(exposed)
    assert "access-control-allow-credentials" not in exchange.headers  # cookies are not used


@pytest.mark.parametrize(
    "origin",
    [
        "", "null", "NULL", "*", "http://evil.example", "https://testserver", "http://testserver:80",
        "http://testserver:8000", "http://testserver.", "http://testserver/", "http://testserver/x",
        "http://testserver, http://evil.example", "http://testserver http://evil.example",
        "http://evil.example#http://testserver", "http://testserver@evil.example", "testserver",
        "//testserver", "file://", "file:///", "data:", "http://", "http://xn--80ak6aa92e.example",
        "http://\xe4.example", "http://[::1", "http://testserver\x00", "https://shop.example.",
        "https://shop.example.evil.example", "https://evil-shop.example", "javascript://testserver",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS"])
def test_other_origins_are_rejected(send, origin, method):
    exchange = send(method, origin=origin)
    assert exchange.refused == BAD_ORIGIN
    assert not [name for name in exchange.headers if name.startswith("access-control")]


def test_origin_must_match_the_port_of_the_host(send):
    assert send(host="testserver:8000", origin="http://testserver:8000").status == 200
    assert send(host="testserver:8000", origin="http://testserver").refused == BAD_ORIGIN
    assert send(host="[::1]:1", origin="http://[::1]:1").refused == BAD_HOST


def test_origin_must_match_the_scheme_of_the_request(send, settings):
    https = {"scope": {"scheme": "https"}}
    assert send(origin="https://testserver", **https).status == 200
    assert send(origin="http://testserver", **https).refused == BAD_ORIGIN
    assert send(origin="https://testserver", x_forwarded_proto="https").refused == BAD_ORIGIN
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert send(origin="https://testserver", x_forwarded_proto="https").status == 200
    assert send(origin="https://testserver", x_forwarded_proto="https, http").status == 200
    assert send(origin="https://testserver", x_forwarded_proto="http").refused == BAD_ORIGIN
    assert send(origin="http://testserver", x_forwarded_proto="http, https").status == 200
    assert send(origin="http://testserver", x_forwarded_proto="https").refused == BAD_ORIGIN
    assert send(origin="http://testserver").status == 200


@pytest.mark.parametrize(
    ("trusted", "origin", "is_trusted"),
    [
        ("https://app.example", "https://app.example", True),
        ("https://app.example", "http://app.example", False),
        ("https://app.example:8443", "https://app.example:8443", True),
        ("https://app.example:8443", "https://app.example", False),
        ("https://*.app.example", "https://a.app.example", True),
        ("https://*.app.example", "https://a.b.app.example", True),
        ("https://*.App.example", "https://A.app.example", True),
        ("https://*.app.example", "https://app.example", True),  # as in Django
        ("https://*.app.example", "http://a.app.example", False),
        ("https://*.app.example", "https://evilapp.example", False),
        ("https://*.app.example", "https://a.app.example.evil.example", False),
        ("https://*.app.example", "https://evil.example/.app.example", False),
        ("https://*.app.example", "https://evil.example?.app.example", False),
        ("https://*.app.example", "https://evil.example\\.app.example", False),
        ("https://*.app.example", "https://evil.example@a.app.example", False),
        ("https://*.app.example", "https://a.app.example:8443", False),
        ("https://*.app.example:8443", "https://a.app.example:8443", True),
        ("https://*", "https://evil.example", False),
        ("*", "https://evil.example", False),
        ("null", "null", False),
        ("vscode-webview://*.app", "vscode-webview://1a2b.app", True),
        ("chrome-extension://abcdef", "chrome-extension://abcdef", True),
    ],
)
def test_csrf_trusted_origins_are_accepted(send, settings, trusted, origin, is_trusted):
    settings.CSRF_TRUSTED_ORIGINS = [trusted]
    exchange = send(origin=origin)
    assert exchange.refused == BAD_ORIGIN if not is_trusted else exchange.status == 200


@pytest.mark.parametrize(
    ("host", "is_trusted"),
    [
        ("evil.example", False), ("evil.example:8000", False), ("localhost.evil.example", False),
        ("10.0.0.1.evil.example", False), ("10.0.0.1", True), ("10.0.0.1:8000", True),
        ("[::1]:8000", True),
    ],
)  # fmt: skip
def test_wildcard_allowed_hosts_does_not_trust_the_host_as_origin(send, settings, host, is_trusted):
    """Attack: DNS rebinding."""
    settings.ALLOWED_HOSTS = ["*"]
    exchange = send(host=host, origin=f"http://{host}")
    assert exchange.refused == BAD_ORIGIN if not is_trusted else exchange.status == 200
    assert send(host=host).status == 200
    assert send(host=host, origin="https://shop.example").status == 200
    settings.ALLOWED_HOSTS = ["*", ".evil.example"]
    assert (send(host="a.evil.example", origin="http://a.evil.example").status) == 200


def test_empty_url_setting_trusts_no_origin(send, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"URL": ""}
    assert send(origin="").refused == BAD_ORIGIN
    assert send(origin="https://shop.example").refused == BAD_ORIGIN


def test_later_rejections_have_cors_headers(send):
    for changed in ({"authorization": "Bearer x"}, {"accept": "text/html"}, {"mcp-name": "x"}):
        exchange = send(origin="http://testserver", **changed)
        assert exchange.status == 200 or exchange.headers["access-control-allow-origin"]


# Preflight requests.


def preflight(send, headers="", method="POST", origin="http://testserver"):
    asked = {"access-control-request-headers": headers} if headers else {}
    return send(
        "OPTIONS", origin=origin, authorization=None,
        **{"access-control-request-method": method}, **asked,
    )  # fmt: skip


def test_preflight_allows_the_headers_of_clients(http, send):
    sent = set(http(revision="2025-11-25").headers()) | {"last-event-id", "mcp-method", "mcp-name"}
    assert len(NAMED) > 3
    exchange = preflight(send, ", ".join(sent))
    assert (exchange.status, exchange.body) == (204, b"")
    assert "content-length" not in exchange.headers
    allowed = exchange.headers["access-control-allow-headers"].split(", ")
    assert sent <= set(allowed) and "*" not in allowed
    assert exchange.headers["access-control-allow-methods"] == "POST, GET, DELETE"
    assert exchange.headers["access-control-allow-origin"] == "http://testserver"
    assert int(exchange.headers["access-control-max-age"]) > 0


@pytest.mark.parametrize("name", ["Mcp-Param-Region", "mcp-param-x.y!", "MCP-PARAM-A_B"])
def test_preflight_allows_parameter_headers(send, name):
    exchange = preflight(send, f"content-type,{name} , mcp-param-other")
    allowed = exchange.headers["access-control-allow-headers"].split(", ")
    assert {name.lower(), "mcp-param-other"} <= set(allowed)


@pytest.mark.parametrize(
    "asked",
    [
        "x-evil",
        "cookie",
        "mcp-param-",
        "mcp-param-a b",
        "mcp-param-a\xff",
        "mcp-param-\x00",
        "*",
        ",,,",
    ],
)
def test_preflight_does_not_allow_other_headers(send, asked):
    plain = preflight(send).headers["access-control-allow-headers"]
    assert preflight(send, asked).headers["access-control-allow-headers"] == plain


def test_preflight_response_is_limited_in_size(send):
    names = ",".join(f"mcp-param-{number}" for number in range(4_000))
    exchange = preflight(send, names)
    assert exchange.status == 204 and len(exchange.headers["access-control-allow-headers"]) < 5_000
    names = ",".join(["mcp-param-same"] * 200)
    allowed = preflight(send, names).headers["access-control-allow-headers"]
    assert allowed.count("same") == 1


def test_preflight_of_another_origin_is_rejected(send):
    exchange = preflight(send, origin="http://evil.example")
    assert exchange.refused == BAD_ORIGIN and "access-control-allow-headers" not in exchange.headers


def test_options_without_preflight_returns_the_methods(send):
    for exchange in (send("OPTIONS"), send("OPTIONS", origin="http://testserver")):
        assert exchange.status == 204 and exchange.headers["allow"] == "POST, GET, DELETE, OPTIONS"
        assert "access-control-allow-headers" not in exchange.headers


def test_preflight_needs_no_token(http, private):
    exchange = http("x", server=private, initialize=False).send(
        "OPTIONS", f"/{private.path}",
        headers={"origin": "http://testserver", "access-control-request-method": "POST"},
    )  # fmt: skip
    assert exchange.status == 204


def test_requests_for_other_paths_are_not_checked(http):
    exchange = http().send("POST", "/other", headers={"host": "evil.example"})
    assert exchange.status == ELSEWHERE
