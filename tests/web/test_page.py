"""The server page: contents by visitor, escaping, headers, login links and middleware."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import django
import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import path
from django.utils.translation import gettext_lazy

import django_mcp as mcp
from django_mcp.declarations.server import default_server
from django_mcp.models import Token
from django_mcp.routing import mount
from django_mcp.web.clients import CLIENTS
from tests.calls import around
from tests.http import Site, elsewhere
from tests.settings import MIDDLEWARE, TEMPLATES

from .conftest import Seen

pytestmark = pytest.mark.usefixtures("shared_db")
MALICIOUS_TEXT = "<script>alert(1)</script>\"'&lt;{{ 7 }}{% x %}--></title></style>"

urlpatterns = [path("<path:anything>/", lambda request, anything: HttpResponse("everything"))]


@pytest.fixture
def malicious_server(server):
    """A server whose every text is an attack."""
    server.title = server.description = server.instructions = server.version = MALICIOUS_TEXT
    server.website = "https://x.example/?" + MALICIOUS_TEXT
    server.icons = [mcp.Icon("data:image/svg+xml," + MALICIOUS_TEXT)]
    server.public_name, server.page = "a\"b<c>'d", mcp.PUBLIC

    @server.tool(permission=mcp.PUBLIC, title=MALICIOUS_TEXT, description=MALICIOUS_TEXT)
    def tool(request: mcp.Request, text: str = MALICIOUS_TEXT) -> None: ...

    @server.register
    class Written(mcp.Tool):
        permission = mcp.PUBLIC
        description = MALICIOUS_TEXT
        icons = [mcp.Icon("data:image/svg+xml," + MALICIOUS_TEXT)]
        input_schema = {
            "type": "object",
            "properties": {
                MALICIOUS_TEXT: {
                    "type": "string",
                    "description": MALICIOUS_TEXT,
                    "default": MALICIOUS_TEXT,
                }
            },
        }
        output_schema = {
            "type": "object",
            "properties": {MALICIOUS_TEXT: {"enum": [MALICIOUS_TEXT, "b"]}},
        }

        def handle(self, request: mcp.Request, **arguments: Any) -> dict[str, Any]:
            return {}

    return server


# Contents.


def test_page_shows_the_title_description_version_and_icon(server, browse):
    server.title, server.description = "Books", "All of them.\nAnd\nmore.\n\nEach once."
    server.version, server.website = "3.1", "https://books.example"
    server.icons = [mcp.Icon("data:image/png;base64,AA==")]

    @server.tool(permission=mcp.PUBLIC)
    def lend(request: mcp.Request) -> None:
        """Lend a book."""

    seen = browse().visit(server)
    assert "<title>Books</title>" in seen.html and "<h1>Books</h1>" in seen.html
    assert "<p>All of them. And more.</p>\n\n<p>Each once.</p>" in seen.html
    assert "version 3.1" in seen.text
    assert "https://books.example" in seen.links
    assert "data:image/png;base64,AA==" in seen.all("src")


def test_title_falls_back_to_the_name_of_the_server(server, browse):
    assert "<h1>a test&#x27;s own</h1>" in browse().visit(server).html


def test_page_shows_how_to_connect_each_client(browse, settings):
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "URL": "https://shop.example/"}
    seen = browse().visit(headers={"host": "testserver"})  # "django": settings have no module now
    assert "https://shop.example/mcp" in seen.text and "testserver" not in seen.html
    for client in CLIENTS:
        assert f"<h3>{client.name}</h3>" in seen.html
        snippet = client.snippet("django", url="https://shop.example/mcp")
        assert " ".join(snippet.text.split()) in seen.text


def test_deep_links_contain_no_token(browse, alice):
    Token.make(alice, "tests")
    seen = browse(alice).visit()
    cursor, vscode = (link for link in seen.links if not link.startswith(("/", "#", "https:")))
    shown = json.loads(b64decode(parse_qs(urlsplit(cursor).query)["config"][0]))
    assert shown["url"] == "https://shop.example/mcp" and "YOUR_TOKEN" in str(shown)
    asked = json.loads(unquote(vscode.removeprefix("vscode:mcp/install?")))
    assert asked["url"] == "https://shop.example/mcp" and asked["inputs"][0]["password"] is True


def test_tools_are_described_with_hints_and_arguments(browse, alice):
    text = browse(alice).visit().text
    assert "refund may delete or overwrite Refund a paid invoice, wholly or in part." in text
    assert "amount optional number above 0" in text
    assert "reason text Why, in a few words." in text
    assert "search_invoice Search invoices only reads" in text


def test_many_tools_have_unique_anchors(server, browse):
    for number in range(200):

        def tool(request: mcp.Request, text: str) -> dict[str, int]:
            """Do one of many things."""
            return {}

        server.tool(permission=mcp.PUBLIC, name=f"tool_{number}")(tool)
    seen = browse().visit(server)
    ids = seen.all("id")
    assert len(ids) == len(set(ids))
    assert sum(one.startswith("tool-") for one in ids) == 200
    assert "Tools 200" in seen.text
    assert len(seen.html) < 400_000


# Contents by visitor.


def test_anonymous_visitor_sees_only_public_declarations(browse, alice):
    seen = browse().visit()
    catalog = default_server._catalog
    for thing in (*catalog.tools.values(), *catalog.prompts.values()):
        assert (f"<code>{thing.name}</code>" in seen.html) == thing._is_public, thing.name
    for resource in (*catalog.resources.values(), *catalog.templates.values()):
        assert (f">{resource.uri}<" in seen.html) == (resource._is_public and resource.listed)
    assert "alice" not in seen.html


def test_user_sees_what_they_may_use(browse, alice, bob):
    hers, his = browse(alice).visit(), browse(bob).visit()
    assert "Signed in as alice" in hers.text and "Signed in as bob" in his.text
    assert hers.entry("tool-refund") and not his.entry("tool-refund")
    assert "refund" not in his.html
    assert hers.entry("model-resource-invoice") and his.entry("model-resource-invoice")


def test_inactive_user_is_anonymous(browse, alice):
    browser = browse(alice)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    seen = browser.visit()
    assert not seen.entry("tool-refund") and "alice" not in seen.html


def test_authorization_header_is_ignored(browse, alice):
    secret = Token.make(alice, "tests")[1]
    seen = browse().visit(headers={"authorization": f"Bearer {secret}"})
    assert not seen.entry("tool-refund") and "alice" not in seen.html


def test_page_contains_no_tokens(browse, alice):
    token, secret = Token.make(alice, "tests")
    alice.is_staff = alice.is_superuser = True
    alice.save()
    seen = browse(alice).visit()
    assert secret not in seen.html and token.prefix not in seen.html
    assert "sessionid" not in seen.html and "csrf" not in seen.html


def test_instructions_are_shown_to_users_who_may_use_something(server, browse, alice):
    server.instructions = "Speak softly."

    @server.tool
    def whisper(request: mcp.Request) -> None: ...

    assert "Speak softly." not in browse().visit(server).text
    assert "Speak softly." in browse(alice).visit(server).text


def test_permission_checks_run_inside_around(browse, alice, settings):
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "AROUND": ["tests.calls.around.recorded"]}
    around.seen.clear()
    browse(alice).visit()
    assert around.seen and all(passed.request.user == alice for passed in around.seen)
    assert not any(passed.is_open or passed.error for passed in around.seen)


# Empty pages.


def test_server_without_declarations(server, browse):
    seen = browse().visit(server)
    assert "Nothing is declared yet" in seen.text and "mcp.py" in seen.text


def test_server_without_declarations_for_the_visitor(server, browse, alice):
    @server.tool(permission="shop.nobody_may")
    def secret_tool(request: mcp.Request) -> None: ...

    seen = browse().visit(server)
    assert "Nothing here is public" in seen.text and "secret_tool" not in seen.html
    seen = browse(alice).visit(server)
    assert "You have no access to anything here" in seen.text and "secret_tool" not in seen.html


@pytest.mark.parametrize(
    ("debug", "url", "is_told"),
    [(True, {}, True), (False, {}, False), (True, {"URL": "https://shop.example"}, False)],
)
def test_missing_url_setting_is_explained_with_debug(browse, settings, debug, url, is_told):
    settings.DEBUG, settings.DJANGO_MCP = (
        debug,
        {"DATABASE": settings.DJANGO_MCP["DATABASE"], **url},
    )
    seen = browse().visit(headers={"host": "127.0.0.1:8000"})
    assert ('"URL": "http://127.0.0.1:8000"' in seen.text) == is_told
    assert is_told or "127.0.0.1" not in seen.html


def test_sse_url_is_shown_if_enabled(server, browse):
    assert "HTTP+SSE" not in browse().visit(server).text
    server.sse = True
    assert "/mcp/a%20test's%20own/sse" in browse().visit(server).text


# Permission of the page.


def test_page_can_be_disabled(server, browse):
    server.page = None
    exchange = browse().ask(f"/{server.path}")
    assert exchange.status == 401 and exchange.headers["content-type"] == "application/json"


@pytest.mark.parametrize("page", [mcp.AUTHENTICATED, "shop.change_invoice", lambda request: True])
def test_page_with_a_permission_redirects_to_the_login(server, browse, alice, page, settings):
    server.page = page
    settings.ROOT_URLCONF = "tests.admin.urls"
    exchange = browse().ask(f"/{server.path}")
    assert exchange.status == 302
    assert exchange.headers["location"] == "/admin/login/?next=/mcp/a%2520test%27s%2520own"
    assert browse(alice).visit(server)


def test_user_without_the_permission_gets_403(server, browse, bob):
    server.page = "shop.change_invoice"
    assert browse(bob).ask(f"/{server.path}").status == 403
    assert browse().ask(f"/{server.path}").status == 403  # there is no login page


# Attacks.


def test_declared_texts_are_escaped(malicious_server, browse, alice):
    for seen in (browse().visit(malicious_server), browse(alice).visit(malicious_server)):
        assert {"script", "x"}.isdisjoint(tag for tag, _ in seen.tags)
        assert sum(tag == "title" for tag, _ in seen.tags) == 1
        assert sum(tag == "style" for tag, _ in seen.tags) == 1
        assert "<script>alert(1)</script>" in seen.text and "{{ 7 }}" in seen.text


def test_username_is_escaped(server, browse, db):
    user = User.objects.create_user("<b>'\"&")
    seen = browse(user).visit(server)
    assert "Signed in as <b>'\"&" in seen.text
    assert ("b", {}) not in seen.tags


@pytest.mark.parametrize(
    "templates",
    [
        [],
        [{**TEMPLATES[0], "OPTIONS": {"autoescape": False, "string_if_invalid": "<b>"}}],
        [{**TEMPLATES[0], "APP_DIRS": False}],
    ],
    ids=["none", "without escaping", "without those of apps"],
)
def test_template_settings_do_not_change_the_page(malicious_server, browse, templates):
    usual = browse().visit(malicious_server).html
    with override_settings(TEMPLATES=templates):
        assert browse().visit(malicious_server).html == usual


def test_project_can_override_the_stylesheet(browse, tmp_path, settings):
    folder = tmp_path / "django_mcp"
    folder.mkdir()
    (folder / "page.css").write_text("body { color: teal }")
    settings.TEMPLATES = [{**TEMPLATES[0], "DIRS": [tmp_path]}]
    seen = browse().visit()
    assert "<style>body { color: teal }</style>" in seen.html
    assert digest("body { color: teal }") in seen.exchange.headers["content-security-policy"]


def digest(style):
    return b64encode(hashlib.sha256(style.encode()).digest()).decode()


def test_security_headers(browse):
    seen = browse().visit()
    headers = seen.exchange.headers
    style = re.search("<style>(.*)</style>", seen.html, re.S)[1]
    assert headers["content-security-policy"] == (
        f"default-src 'none'; style-src 'sha256-{digest(style)}'; img-src 'self' data: https:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    assert {"no-store", "private"} <= set(headers["cache-control"].split(", "))
    assert {"Accept", "Cookie"} <= set(headers["vary"].split(", "))
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "same-origin"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-robots-tag"] == "noindex, nofollow"
    assert not {"set-cookie", "access-control-allow-origin"} & set(headers)


def test_signed_in_visitor_can_sign_out(browse, alice, settings):
    settings.ROOT_URLCONF = "tests.admin.urls"
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.csrf.CsrfViewMiddleware"]
    assert (
        "Sign out" not in browse(alice).visit().text
    )  # the logout view of the admin is only for staff
    alice.is_staff = True
    alice.save()
    browser = browse(alice)
    seen = browser.visit()
    form = next(found for tag, found in seen.tags if tag == "form")
    fields = {found["name"]: found["value"] for tag, found in seen.tags if tag == "input"}
    client = Client(enforce_csrf_checks=True)
    for cookie in (browser.cookie, seen.exchange.headers["set-cookie"].split(";")[0]):
        name, _, value = cookie.partition("=")
        client.cookies[name] = value
    assert client.post(form["action"], {"next": fields["next"]}).status_code == 403
    answer = client.post(form["action"], fields, headers={"origin": "http://testserver"})
    assert (answer.status_code, answer.headers["location"]) == (302, "/mcp")
    assert "Signed in" not in browser.visit().text


def test_page_runs_and_fetches_nothing(browse, alice):
    seen = browse(alice).visit()
    assert {"script", "iframe", "object", "form", "base"}.isdisjoint(tag for tag, _ in seen.tags)
    assert not [name for _, found in seen.tags for name in found if name.startswith("on")]
    assert not seen.all("style")
    assert not [src for src in seen.all("src") if not src.startswith("data:")]


# Login, URLs and middleware.


@pytest.mark.parametrize(
    ("urls", "login", "expected"),
    [
        ("tests.urls", None, None),
        ("tests.admin.urls", None, "/admin/login/?next=/mcp"),
        ("tests.admin.urls", "no_such_name", "/admin/login/?next=/mcp"),
        ("tests.web.urls", None, "/accounts/login/?next=/mcp"),
        ("tests.web.urls", "sign_in", "/sign-in/?next=/mcp"),
        ("tests.urls", "/elsewhere/?a=b", "/elsewhere/?a=b&next=/mcp"),
        ("tests.urls", "https://sso.example/in", "https://sso.example/in?next=/mcp"),
    ],
)
def test_login_link(browse, settings, urls, login, expected):
    settings.ROOT_URLCONF = urls
    if login:
        settings.LOGIN_URL = login
    seen = browse().visit(path="/mcp", query_string=b"next=//evil.example")
    found = [link for link in seen.links if "next=" in link]
    assert found == ([expected] if expected else [])
    assert "evil.example" not in seen.html


def test_signed_in_visitor_gets_a_link_to_connected_apps(browse, settings, alice):
    words, way = "Connected apps", "/oauth/connections"
    settings.ROOT_URLCONF = "tests.web.urls"
    assert words not in browse(alice).visit().text  # a project without the page
    settings.ROOT_URLCONF = "tests.oauth.urls"
    seen = browse(alice).visit()
    assert words in seen.text and way in seen.links
    assert words not in browse().visit().text


def test_staff_get_links_to_the_admin(browse, settings, alice):
    settings.ROOT_URLCONF = "tests.admin.urls"
    make, command = "/admin/django_mcp/token/add/", "mcp_token create --user alice"
    seen = browse(alice).visit()
    assert not {"/admin/", make} & set(seen.links) and command in seen.text
    alice.is_staff = True
    alice.save()
    seen = browse(alice).visit()
    assert "/admin/" in seen.links and make not in seen.links and command in seen.text
    alice.user_permissions.add(Permission.objects.get(codename="add_token"))
    seen = browse(alice).visit()
    assert {"/admin/", make} <= set(seen.links) and command not in seen.text


@pytest.mark.parametrize(
    ("path", "root"), [("/app/mcp", "/app"), ("/app/mcp/", "/app"), ("/mcp", "/app")]
)
def test_urls_below_a_root_path(browse, settings, path, root):
    settings.ROOT_URLCONF = "tests.web.urls"
    seen = browse().visit(path=path, root_path=root)
    assert "https://shop.example/app/mcp" in seen.text
    (login,) = (link for link in seen.links if "next=" in link)
    assert login.removesuffix("/") == "/accounts/login/?next=/app/mcp"


def test_commands_are_not_shown_to_anonymous_visitors(browse, settings, alice):
    assert "manage.py" not in browse().visit().html
    assert "manage.py" in browse(alice).visit().html
    settings.DEBUG = True
    assert "mcp_token create --user NAME" in browse().visit().text


def test_urls_below_force_script_name(browse, settings):
    settings.FORCE_SCRIPT_NAME = "/app"
    assert "https://shop.example/app/mcp" in browse().visit(path="/app/mcp").text


def test_urls_with_non_ascii_characters_are_percent_encoded(browse, server):
    server.path = "büro/mcp two"
    assert "https://shop.example/b%C3%BCro/mcp%20two" in browse().visit(server).text


def requires(name):
    return [*MIDDLEWARE, name]


def test_login_required_middleware(browse, settings, alice):
    settings.MIDDLEWARE = requires("django.contrib.auth.middleware.LoginRequiredMiddleware")
    exchange = browse().ask()
    assert (exchange.status, exchange.headers["location"]) == (302, "/accounts/login/?next=/mcp")
    assert browse(alice).visit()


def test_project_without_session_middleware(browse, settings):
    settings.MIDDLEWARE = []
    seen = browse().visit()
    assert "Signed in" not in seen.text and not seen.entry("tool-refund")


def test_project_with_a_catch_all_view(browse, settings):
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware", *MIDDLEWARE]
    settings.ROOT_URLCONF = __name__
    for address in ("/mcp", "/mcp/"):
        assert "The shop" in browse().visit(path=address).text


def test_translated_title(browse, settings, server):
    settings.MIDDLEWARE = requires("django.middleware.locale.LocaleMiddleware")
    server.title = gettext_lazy("Monday")
    seen = browse().visit(server, headers={"accept-language": "nl"})
    assert "<h1>maandag</h1>" in seen.html
    assert '<html lang="en">' in seen.html  # the language of the page's own texts


def test_middleware_does_not_replace_the_content_security_policy(browse, settings):
    settings.MIDDLEWARE = requires("tests.web.test_page.policy")
    assert (
        browse()
        .visit()
        .exchange.headers["content-security-policy"]
        .startswith("default-src 'none'")
    )


def policy(get_response):
    """A middleware that sets a policy unless the view has set one, as Django's does."""

    def middleware(request):
        response = get_response(request)
        response.headers.setdefault("Content-Security-Policy", "default-src *")
        return response

    return middleware


def test_cache_middleware_does_not_share_the_page(browse, settings, alice, bob):
    """The page is nobody's but the visitor's, and of the moment."""
    cache = "django.middleware.cache.{}CacheMiddleware"
    settings.MIDDLEWARE = [cache.format("Update"), *MIDDLEWARE, cache.format("FetchFrom")]
    assert "Signed in as alice" in browse(alice).visit().text
    for browser in (browse(bob), browse()):
        assert "alice" not in browser.visit().html


@pytest.mark.skipif(django.VERSION < (6, 0), reason="Django 6.0 has such a middleware")
def test_csp_middleware_of_django_keeps_our_policy(browse, settings):
    settings.MIDDLEWARE = requires("django.middleware.csp.ContentSecurityPolicyMiddleware")
    settings.SECURE_CSP = {"default-src": ["https://x.example"]}
    found = browse().visit().exchange.headers["content-security-policy"]
    assert found.startswith("default-src 'none'") and "x.example" not in found


def test_broken_middleware_is_a_logged_500(browse, settings, caplog):
    settings.MIDDLEWARE = requires("tests.no.such.middleware")
    with Site(mount(elsewhere), strict=False) as site:
        exchange = site.send("GET", "/mcp", headers={"accept": "text/html"})
    assert exchange.refused == (500, -32603)
    assert "tests.no" in caplog.text and b"tests.no" not in exchange.body


def test_page_works_with_atomic_requests(browse, settings, alice):
    connections["default"].settings_dict["ATOMIC_REQUESTS"] = True
    try:
        assert browse(alice).visit().entry("tool-refund")
    finally:
        connections["default"].settings_dict["ATOMIC_REQUESTS"] = False


def test_head_request_has_the_same_headers(browse, alice):
    browser = browse(alice)
    whole, head = browser.ask(), browser.ask(method="HEAD")
    assert head.status == 200 and head.body == b""
    assert head.headers == whole.headers | {"expires": head.headers["expires"]}


def test_disconnected_visitor_logs_nothing(browse, caplog):
    exchange = browse().site.open("GET", "/mcp", headers={"accept": "text/html"})
    exchange.leave()
    exchange.until(lambda: exchange.over)
    assert not caplog.records


def test_visit_writes_nothing(browse, alice):
    browser = browse(alice)
    before = list(User.objects.values())
    for _ in range(2):
        assert "set-cookie" not in browser.visit().exchange.headers
    assert list(User.objects.values()) == before


def test_page_parser_rejects_misnested_tags():
    class Talked:
        body = b"<p><b>x</p></b>"

    with pytest.raises(AssertionError):
        Seen(Talked())
