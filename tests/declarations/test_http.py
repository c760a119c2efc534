"""The `HttpRequest` made of a request: the public URL and the user, nothing of the wire."""

import pytest
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest

import django_mcp as mcp
from django_mcp.declarations.server import Server

from .world import asked


@pytest.fixture
def hosts(settings):
    settings.ALLOWED_HOSTS = ["shop.example", "other.example", "[::1]"]
    return settings


def at(settings, url):
    settings.DJANGO_MCP = {"URL": url}
    return asked().http


def test_it_is_a_request_of_the_user(alice, hosts):
    http = asked(alice).http
    assert isinstance(http, HttpRequest) and http.user is alice
    assert http.method == "GET" and http.path == "/mcp" and http.get_full_path() == "/mcp"


def test_nobody_is_anonymous(hosts):
    assert asked().http.user.is_anonymous


def test_it_is_at_the_public_url(hosts):
    http = asked(host=None).http
    assert http.get_host() == "shop.example" and http.is_secure() and http.get_port() == "443"
    assert http.build_absolute_uri("/x") == "https://shop.example/x"
    plain = at(hosts, "http://other.example:8000")
    assert plain.build_absolute_uri() == "http://other.example:8000/mcp"
    assert not plain.is_secure() and plain.get_port() == "8000"
    assert at(hosts, "http://other.example").get_port() == "80"


def test_it_may_be_at_another_host(hosts):
    assert asked(host="other.example").http.build_absolute_uri() == "https://other.example/mcp"
    six = asked(host="[::1]:8443").http
    assert six.get_host() == "[::1]:8443" and six.get_port() == "8443"
    assert six.META["SERVER_NAME"] == "::1"


def test_hosts_are_allowed_or_not(hosts):
    with pytest.raises(DisallowedHost):
        asked(host="evil.example").http.get_host()


def test_it_is_of_its_server(hosts):
    server = Server("for http", path="/mcp/billing/")
    assert asked(server=server).http.path == "/mcp/billing"


def test_nothing_of_the_wire_leaks_into_it(alice, hosts):
    request = asked(alice, meta={"secret": "x"}, client_info={"name": "x"})
    http = request.http
    assert http.body == b"" and http.POST == {} and http.GET == {} and http.COOKIES == {}
    assert "HTTP_AUTHORIZATION" not in http.META and "Authorization" not in http.headers
    assert dict(http.headers) == {"Host": "shop.example"}
    assert not hasattr(http, "session")


def test_it_is_made_once_and_only_when_it_is_wanted(alice):
    request = asked(alice)
    assert "http" not in vars(request)
    assert request.http is request.http


def test_a_request_is_no_http_request():
    assert not issubclass(mcp.Request, HttpRequest) and not hasattr(asked(), "session")
