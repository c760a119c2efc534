"""``request.http``: a Django request with the public URL and the user, without client data."""

import pytest
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest

import django_mcp as mcp
from django_mcp.declarations.server import Server

from .helpers import make_request


@pytest.fixture
def hosts(settings):
    settings.ALLOWED_HOSTS = ["shop.example", "other.example", "[::1]"]
    return settings


def http_request_at(settings, url):
    settings.DJANGO_MCP = {"URL": url}
    return make_request().http


def test_http_request_has_the_user_and_path(alice, hosts):
    http = make_request(alice).http
    assert isinstance(http, HttpRequest) and http.user is alice
    assert http.method == "GET" and http.path == "/mcp" and http.get_full_path() == "/mcp"


def test_http_request_without_a_user_is_anonymous(hosts):
    assert make_request().http.user.is_anonymous


def test_http_request_has_the_public_url(hosts):
    http = make_request(host=None).http
    assert http.get_host() == "shop.example" and http.is_secure() and http.get_port() == "443"
    assert http.build_absolute_uri("/x") == "https://shop.example/x"
    plain = http_request_at(hosts, "http://other.example:8000")
    assert plain.build_absolute_uri() == "http://other.example:8000/mcp"
    assert not plain.is_secure() and plain.get_port() == "8000"
    assert http_request_at(hosts, "http://other.example").get_port() == "80"


def test_http_request_may_have_another_host(hosts):
    assert (
        make_request(host="other.example").http.build_absolute_uri() == "https://other.example/mcp"
    )
    six = make_request(host="[::1]:8443").http
    assert six.get_host() == "[::1]:8443" and six.get_port() == "8443"
    assert six.META["SERVER_NAME"] == "::1"


def test_host_that_is_not_allowed_raises(hosts):
    with pytest.raises(DisallowedHost):
        make_request(host="evil.example").http.get_host()


def test_http_request_has_the_path_of_its_server(hosts):
    server = Server("for http", path="/mcp/billing/")
    assert make_request(server=server).http.path == "/mcp/billing"


def test_http_request_contains_no_data_of_the_client(alice, hosts):
    request = make_request(alice, meta={"secret": "x"}, client_info={"name": "x"})
    http = request.http
    assert http.body == b"" and http.POST == {} and http.GET == {} and http.COOKIES == {}
    assert "HTTP_AUTHORIZATION" not in http.META and "Authorization" not in http.headers
    assert dict(http.headers) == {"Host": "shop.example"}
    assert not hasattr(http, "session")


def test_http_request_is_created_once_on_first_use(alice):
    request = make_request(alice)
    assert "http" not in vars(request)
    assert request.http is request.http


def test_mcp_request_is_not_an_http_request():
    assert not issubclass(mcp.Request, HttpRequest) and not hasattr(make_request(), "session")
