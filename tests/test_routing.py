"""Routing: paths and prefixes of the servers, and what is passed on to Django."""

from __future__ import annotations

import pytest
from django.core.asgi import get_asgi_application
from django.test import override_settings
from django.urls import set_script_prefix

import django_mcp as mcp
from django_mcp.declarations import server as declared
from django_mcp.exceptions import Misdeclared
from django_mcp.routing import as_asgi, mount, path_below_mount
from tests.http import ELSEWHERE, HttpClient, Site, elsewhere

pytestmark = pytest.mark.django_db


@pytest.fixture
def several():
    """Servers at paths of several kinds, each with a tool that tells its server's name."""
    paths = {"one": "one", "deep": "a/b/c", "root": "", "odd": "/mcp two/", "h\xe9": "m\xe9p"}
    made = [mcp.Server(name, path=path) for name, path in paths.items()]
    for server in made:

        @server.tool(permission=mcp.PUBLIC, read_only=True)
        async def name(request: mcp.Request) -> str:
            return str(request.server.name)

    yield {server.name: server for server in made}
    for server in made:
        declared._servers.pop(server.name, None)


def named(client, path, **scope):
    """The name of the server at a path; None where there is none."""
    message = client.message("tools/call", {"name": "name", "arguments": {}})
    exchange = client.post(message, path=path, scope=scope).wait()
    if exchange.status == ELSEWHERE:
        return None
    return exchange.messages[0]["result"]["content"][0]["text"]


# Paths.


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/one", "one"), ("/one/", "one"), ("/a/b/c", "deep"), ("/a/b/c/", "deep"), ("/", "root"),
        ("", "root"), ("/mcp two", "odd"), ("/m\xe9p", "h\xe9"), ("/One", None), ("/one//", None),
        ("//one", None), ("/one/x", None), ("/a/b", None), ("/a", None), ("/oneone", None),
        ("/one/../one", None), ("/./one", None), ("/one;x", None), ("/one\x00", None),
        ("/a//b/c", None), ("/one ", None),
    ],
)  # fmt: skip
def test_each_server_is_served_at_its_path(several, path, name):
    with HttpClient() as client:
        assert named(client, path) == name


def test_default_server_is_served_at_mcp():
    with HttpClient() as client:
        for path in ("/mcp", "/mcp/"):
            message = client.message("tools/list", {})
            assert client.post(message, path=path).wait().status == 200


def test_query_string_is_not_part_of_the_path(several):
    with HttpClient() as client:
        assert named(client, "/one", query_string=b"x=/two") == "one"


def test_trailing_slash_is_not_redirected():
    """A client would not send its token or its body to the new location."""
    with Site() as site:
        for path in ("/mcp", "/mcp/"):
            assert site.send("GET", path).status == 406


# Prefixes.


@pytest.mark.parametrize(
    ("root", "path", "name"),
    [
        # A server that leaves the prefix in the path, as ASGI says, and one that takes it away.
        ("/app", "/app/one", "one"), ("/app", "/app/one/", "one"), ("/app", "/one", "one"),
        ("/app/", "/app/one", "one"), ("app", "/one", "one"), ("/", "/one", "one"),
        ("/app", "/app", "root"), ("/app", "/app/", "root"), ("/app", "/application/one", None),
        ("/app", "/appone", None), ("/one", "/one/one", "one"), ("/one", "/one", "root"),
        ("/app", "/other/one", None), ("/a/b", "/a/b/a/b/c", "deep"), ("", "/app/one", None),
    ],
)  # fmt: skip
def test_servers_are_served_below_the_root_path(several, root, path, name):
    with HttpClient() as client:
        assert named(client, path, root_path=root) == name


def test_force_script_name_precedes_the_server_path(several):
    with HttpClient() as client, override_settings(FORCE_SCRIPT_NAME="/forced"):
        assert named(client, "/forced/one", root_path="/app") == "one"
        assert named(client, "/one", root_path="/app") == "one"
        assert named(client, "/app/one", root_path="/app") is None
    set_script_prefix("/")


def test_scope_without_root_path_is_accepted():
    assert path_below_mount({"type": "http", "path": "/mcp/"}) == "/mcp/"


# Django.


def test_other_paths_are_passed_to_django(several):
    django = get_asgi_application()
    with Site(mount(django), strict=False) as site:
        exchange = site.send("GET", "/nothing/here")
        assert exchange.status == 404 and b"Not Found" in exchange.body


async def test_other_protocols_are_passed_on():
    seen = []

    async def other(scope, receive, send):
        seen.append(scope["type"])

    await mount(other)({"type": "websocket", "path": "/mcp", "root_path": ""}, None, None)
    assert seen == ["websocket"]


# Starting.


def test_misdeclared_server_does_not_start(server):
    @server.tool(permission=mcp.PUBLIC)
    def wrong(request, amount: "nothing of the kind") -> str:  # noqa: F722
        return ""

    with pytest.raises(Misdeclared):
        mount(elsewhere)
    with pytest.raises(Misdeclared):
        as_asgi(server)


async def test_lifespan_events_are_answered():
    sent = []
    events = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}, None]

    async def receive():
        return events.pop(0)

    async def send(message):
        sent.append(message["type"])

    await mount(elsewhere)({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert events == [None]
