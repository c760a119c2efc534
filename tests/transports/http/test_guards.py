"""Host, Origin and CORS: who may come this way at all."""

from __future__ import annotations

import json

import pytest

from django_mcp.protocol.http_rules import NAMED
from django_mcp.transports.http import security
from tests.http import ELSEWHERE

pytestmark = pytest.mark.django_db
BAD_HOST, BAD_ORIGIN = (400, -32600), (403, -32600)


@pytest.fixture
def knock(http):
    """Asks for something harmless by changed headers; the answer."""
    client = http()
    message = client.message("tools/list", {})
    good = client.headers(message)

    def knocked(method="POST", scope=None, **changed):
        headers = good | {name.replace("_", "-"): value for name, value in changed.items()}
        return client.send(method, "/mcp", json.dumps(message).encode(), headers, **(scope or {}))

    return knocked


# Methods.


@pytest.mark.parametrize(
    "method", ["PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "FOO" * 100, "post"]
)
def test_other_methods_are_not_there(knock, method):
    talk = knock(method)
    assert talk.status == 405 and talk.headers["allow"] == "POST, GET, DELETE, OPTIONS"
    assert len(talk.body) < 300


# Host.


@pytest.mark.parametrize(
    "host",
    [
        "testserver", "TESTSERVER", "testserver:80", "testserver:8000", "testserver.",
        "testserver.:80", "127.0.0.1:1", "localhost",
    ],
)  # fmt: skip
def test_hosts_that_are_allowed(knock, host):
    assert knock(host=host).status == 200


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
def test_hosts_that_are_not(knock, host):
    talk = knock(host=host)
    assert talk.refused == (BAD_HOST if len(host) < 1000 else (431, -32600))
    assert len(host) < 8 or host not in talk.body.decode()
    assert "access-control-allow-origin" not in talk.headers


def test_a_request_names_its_host(http):
    client = http()
    pairs = [(b"accept", b"*/*"), (b"content-type", b"application/json"), (b"host", b"")]
    assert client.send("POST", "/mcp", b"{}", pairs).refused == BAD_HOST
    talk = client.open("POST", "/mcp", b"{}", pairs)
    talk.scope["headers"].pop()
    assert talk.wait().refused == BAD_HOST


def test_a_host_as_long_as_no_name_can_be_is_not_kept_in_memory(knock, settings):
    settings.ALLOWED_HOSTS = ["*"]
    before = security._is_allowed.cache_info().currsize
    assert knock(host="x" * 301).refused == BAD_HOST
    assert knock(origin="http://" + "x" * 300).refused == BAD_ORIGIN
    assert security._is_allowed.cache_info().currsize <= before + 1


def test_without_hosts_the_machine_itself_is_allowed_while_debugging(knock, settings):
    settings.ALLOWED_HOSTS = []
    assert knock(host="localhost").refused == BAD_HOST
    settings.DEBUG = True
    for host in ("localhost", "a.localhost:8000", "127.0.0.1:80", "[::1]:80"):
        assert knock(host=host).status == 200
    assert knock(host="testserver").refused == BAD_HOST


def test_a_proxy_is_believed_only_where_the_settings_say_so(knock, settings):
    assert knock(x_forwarded_host="evil.example").status == 200
    assert knock(host="evil.example", x_forwarded_host="testserver").refused == BAD_HOST
    settings.USE_X_FORWARDED_HOST = True
    assert knock(host="evil.example", x_forwarded_host="testserver").status == 200
    assert knock(x_forwarded_host="evil.example").refused == BAD_HOST
    assert knock(x_forwarded_host="testserver, evil.example").refused == BAD_HOST
    assert knock(x_forwarded_host="").refused == BAD_HOST


# Origin.


def test_who_names_no_origin_is_no_browser(knock):
    talk = knock()
    assert talk.status == 200
    assert not [name for name in talk.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    "origin", ["http://testserver", "HTTP://TestServer", "https://shop.example"]
)
def test_own_origins_are_trusted(knock, origin):
    """Our own, by the host of the request and by DJANGO_MCP["URL"]."""
    talk = knock(origin=origin)
    assert talk.status == 200
    assert talk.headers["access-control-allow-origin"] == origin
    assert talk.headers["vary"] == "origin"
    exposed = talk.headers["access-control-expose-headers"].split(", ")
    assert {"mcp-session-id", "www-authenticate", "retry-after"} == set(exposed)
    assert "access-control-allow-credentials" not in talk.headers  # no cookie means anything here


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
def test_other_origins_are_not(knock, origin, method):
    talk = knock(method, origin=origin)
    assert talk.refused == BAD_ORIGIN
    assert not [name for name in talk.headers if name.startswith("access-control")]


def test_an_origin_is_compared_with_the_port_of_the_host(knock):
    assert knock(host="testserver:8000", origin="http://testserver:8000").status == 200
    assert knock(host="testserver:8000", origin="http://testserver").refused == BAD_ORIGIN
    assert knock(host="[::1]:1", origin="http://[::1]:1").refused == BAD_HOST


def test_an_origin_is_compared_with_the_scheme_that_the_client_spoke(knock, settings):
    https = {"scope": {"scheme": "https"}}
    assert knock(origin="https://testserver", **https).status == 200
    assert knock(origin="http://testserver", **https).refused == BAD_ORIGIN
    assert knock(origin="https://testserver", x_forwarded_proto="https").refused == BAD_ORIGIN
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert knock(origin="https://testserver", x_forwarded_proto="https").status == 200
    assert knock(origin="https://testserver", x_forwarded_proto="https, http").status == 200
    assert knock(origin="https://testserver", x_forwarded_proto="http").refused == BAD_ORIGIN
    assert knock(origin="http://testserver", x_forwarded_proto="http, https").status == 200
    assert knock(origin="http://testserver", x_forwarded_proto="https").refused == BAD_ORIGIN
    assert knock(origin="http://testserver").status == 200


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
        ("https://*.app.example", "https://app.example", True),  # as Django has it
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
def test_trusted_origins_are_djangos(knock, settings, trusted, origin, is_trusted):
    settings.CSRF_TRUSTED_ORIGINS = [trusted]
    talk = knock(origin=origin)
    assert talk.refused == BAD_ORIGIN if not is_trusted else talk.status == 200


@pytest.mark.parametrize(
    ("host", "is_trusted"),
    [
        ("evil.example", False), ("evil.example:8000", False), ("localhost.evil.example", False),
        ("10.0.0.1.evil.example", False), ("10.0.0.1", True), ("10.0.0.1:8000", True),
        ("[::1]:8000", True),
    ],
)  # fmt: skip
def test_where_any_host_is_allowed_its_origin_proves_nothing(knock, settings, host, is_trusted):
    """Attack: a name of the attacker's that resolves to this machine by the time it is asked."""
    settings.ALLOWED_HOSTS = ["*"]
    talk = knock(host=host, origin=f"http://{host}")
    assert talk.refused == BAD_ORIGIN if not is_trusted else talk.status == 200
    assert knock(host=host).status == 200
    assert knock(host=host, origin="https://shop.example").status == 200
    settings.ALLOWED_HOSTS = ["*", ".evil.example"]
    assert (knock(host="a.evil.example", origin="http://a.evil.example").status) == 200


def test_no_url_is_no_origin(knock, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"URL": ""}
    assert knock(origin="").refused == BAD_ORIGIN
    assert knock(origin="https://shop.example").refused == BAD_ORIGIN


def test_refusals_that_come_later_may_be_read_by_the_page(knock):
    for changed in ({"authorization": "Bearer x"}, {"accept": "text/html"}, {"mcp-name": "x"}):
        talk = knock(origin="http://testserver", **changed)
        assert talk.status == 200 or talk.headers["access-control-allow-origin"]


# What a browser asks first.


def preflight(knock, headers="", method="POST", origin="http://testserver"):
    asked = {"access-control-request-headers": headers} if headers else {}
    return knock(
        "OPTIONS", origin=origin, authorization=None,
        **{"access-control-request-method": method}, **asked,
    )  # fmt: skip


def test_a_browser_may_send_what_clients_send(http, knock):
    sent = set(http(revision="2025-11-25").headers()) | {"last-event-id", "mcp-method", "mcp-name"}
    assert len(NAMED) > 3
    talk = preflight(knock, ", ".join(sent))
    assert (talk.status, talk.body) == (204, b"")
    assert "content-length" not in talk.headers
    allowed = talk.headers["access-control-allow-headers"].split(", ")
    assert sent <= set(allowed) and "*" not in allowed
    assert talk.headers["access-control-allow-methods"] == "POST, GET, DELETE"
    assert talk.headers["access-control-allow-origin"] == "http://testserver"
    assert int(talk.headers["access-control-max-age"]) > 0


@pytest.mark.parametrize("name", ["Mcp-Param-Region", "mcp-param-x.y!", "MCP-PARAM-A_B"])
def test_a_browser_may_send_a_tools_own_headers(knock, name):
    talk = preflight(knock, f"content-type,{name} , mcp-param-other")
    allowed = talk.headers["access-control-allow-headers"].split(", ")
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
def test_a_browser_may_not_send_what_it_likes(knock, asked):
    plain = preflight(knock).headers["access-control-allow-headers"]
    assert preflight(knock, asked).headers["access-control-allow-headers"] == plain


def test_what_is_asked_for_is_bounded(knock):
    names = ",".join(f"mcp-param-{number}" for number in range(4_000))
    talk = preflight(knock, names)
    assert talk.status == 204 and len(talk.headers["access-control-allow-headers"]) < 5_000
    names = ",".join(["mcp-param-same"] * 200)
    allowed = preflight(knock, names).headers["access-control-allow-headers"]
    assert allowed.count("same") == 1


def test_other_origins_may_send_nothing(knock):
    talk = preflight(knock, origin="http://evil.example")
    assert talk.refused == BAD_ORIGIN and "access-control-allow-headers" not in talk.headers


def test_who_only_asks_for_options_is_told_the_methods(knock):
    for talk in (knock("OPTIONS"), knock("OPTIONS", origin="http://testserver")):
        assert talk.status == 204 and talk.headers["allow"] == "POST, GET, DELETE, OPTIONS"
        assert "access-control-allow-headers" not in talk.headers


def test_a_browser_may_ask_where_nothing_is_public(http, private):
    talk = http("x", server=private, initialize=False).send(
        "OPTIONS", f"/{private.path}",
        headers={"origin": "http://testserver", "access-control-request-method": "POST"},
    )  # fmt: skip
    assert talk.status == 204


def test_what_is_not_ours_is_not_guarded(http):
    talk = http().send("POST", "/other", headers={"host": "evil.example"})
    assert talk.status == ELSEWHERE
