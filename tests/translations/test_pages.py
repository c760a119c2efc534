"""The pages of users and administrators are translated completely.

In each language, no text of a page may be an English string of the catalog. The same check of the
English pages shows that they contain many.
"""

from __future__ import annotations

from datetime import date, timedelta
from html.parser import HTMLParser

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import User
from django.test import Client, RequestFactory, override_settings
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import get_language, override

import django_mcp as mcp
from django_mcp.models import Approval, Switch, Token
from django_mcp.oauth.models import Activity, Consent
from tests.admin.conftest import recorded_session  # noqa: F401
from tests.oauth.conftest import MCP, URL
from tests.oauth.consent import fresh_cores, registered, url  # noqa: F401
from tests.settings import DJANGO_MCP, MIDDLEWARE
from tests.web.conftest import browse  # noqa: F401
from tools import messages

from .test_catalogs import PLACEHOLDERS, forms
from .test_marked import OURS

pytestmark = [
    pytest.mark.usefixtures("shared_db", "several_languages"),
    pytest.mark.parametrize("language", messages.languages()),
]
LOCALE = "django.middleware.locale.LocaleMiddleware"


@pytest.fixture
def several_languages():
    settings = override_settings(
        MIDDLEWARE=[*MIDDLEWARE, LOCALE],
        DJANGO_MCP={**DJANGO_MCP, **MCP},
        ALLOWED_HOSTS=["shop.example", "testserver"],
    )
    with settings, override(get_language()):  # the test's thread keeps the language of requests
        yield


class Page(HTMLParser):
    """The texts of a page, including the attributes that browsers show."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: set[str] = set()
        self.elements: list[str] = []
        self.language = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append(tag)
        if tag == "html":
            self.language = given["lang"]
        names = ["title", "alt", "aria-label", "placeholder"]
        if tag == "input" and given.get("type") == "submit":
            names.append("value")
        self.add(*(given[name] for name in names if name in given))

    def handle_data(self, data: str) -> None:
        if self.elements[-1:] not in (["style"], ["script"]):
            self.add(data)

    def add(self, *texts: str) -> None:
        self.texts |= {" ".join(text.split()).casefold() for text in texts}


def fragments(text: object) -> set[str]:
    """Return a string, or the parts between its placeholders and tags that have several words."""
    found = set()
    for form in forms(text):
        parts = [" ".join(part.split()).casefold() for part in PLACEHOLDERS.split(form)]
        found |= {part for part in parts if " " in part or len(parts) == 1}
    return found - {""}


def english_texts(page: Page, language: str) -> set[str]:
    """Return the texts of a page that are English, according to the catalog of ``language``."""
    catalog = [message for message in messages.read(language) if message.id]
    english = {part for message in catalog for part in fragments(message.id)}
    english -= {part for message in catalog for part in fragments(message.string)}
    english -= {
        str(model._meta.verbose_name_plural).casefold()
        for model in apps.get_models()  # the admin's navigation names models of other apps
        if model._meta.app_label not in OURS
    }
    sentences = [part for part in english if part.count(" ") > 2]
    return {
        text
        for text in page.texts
        if text in english or any(sentence in text for sentence in sentences)
    }


def check(client: Client, address: str, language: str, least: int) -> None:
    """Compare a page in English and in ``language``. English has ``least`` strings or more."""
    english = Page(client.get(address, headers={"accept-language": "en"}).content.decode())
    translated = Page(client.get(address, headers={"accept-language": language}).content.decode())
    assert len(english_texts(english, language)) >= least, address
    assert english_texts(translated, language) == set(), address
    assert translated.language == language


@pytest.fixture
def visitor(client, alice):
    """Alice's browser, at the host of the shop."""
    client.defaults |= {"SERVER_NAME": "shop.example", "wsgi.url_scheme": "https"}
    client.force_login(alice)
    return client


@pytest.fixture
def agent(alice):
    """A client with which everything of the page of connected apps is shown."""
    agent = registered("dcr", name="Agent")
    Consent.objects.create(
        user=alice, client_id=agent.client_id, resource=f"{URL}/mcp", scopes=["read"],
        redirect_host="agent.example",
    )  # fmt: skip
    for method in ("tools/call", "resources/read", "prompts/get"):
        Activity.objects.create(
            key=method, user=alice, client_id=agent.client_id, server="default", method=method,
            name="x", count=2, at=timezone.now(),
        )  # fmt: skip
    return agent


@pytest.mark.urls("tests.oauth.urls")
def test_consent_page(visitor, agent, language):
    check(visitor, url(agent), language, 12)
    check(visitor, url(agent, redirect_uri="https://other.example"), language, 3)  # an error


@pytest.mark.urls("tests.oauth.urls")
def test_page_of_connected_apps(visitor, agent, alice, language):
    check(visitor, "/oauth/connections", language, 3)
    Token.make(alice, "laptop", expires=timezone.now() + timedelta(days=1))
    check(visitor, "/oauth/connections", language, 8)


def test_page_at_the_endpoint(server, browse, alice, language):  # noqa: F811
    server.page = mcp.PUBLIC

    @server.tool(destructive=True, open_world=True, permission=mcp.PUBLIC)
    def refund(request: mcp.Request, days: list[date] | None = None) -> dict[str, int]:
        """X"""

    @server.resource("notes://{n}")
    def note(request: mcp.Request, n: int) -> str:
        """X"""

    @server.prompt
    def greet(request: mcp.Request) -> str:
        """X"""

    for user, least in ((alice, 20), (None, 12)):
        pages = [
            Page(browse(user).visit(server, headers={"accept-language": one}).html)
            for one in ("en", language)
        ]
        assert len(english_texts(pages[0], language)) >= least
        assert english_texts(pages[1], language) == set()
        assert any("list of dates or nothing" in text for text in pages[0].texts)
        assert not any("list of" in text or "nothing" in text for text in pages[1].texts)
        assert pages[1].language == language


@pytest.mark.urls("tests.admin.urls")
def test_admin(recorded_session, agent, alice, language):  # noqa: F811
    Token.make(alice, "laptop")
    Switch.objects.create(server="default", thing="", by=alice)
    Approval.objects.create(
        server="default", tool="refund", permission="shop.approve", user=alice, digest="x",
        expires=timezone.now() + timedelta(days=1),
    )  # fmt: skip
    client = Client()
    request = RequestFactory().get("/")
    request.user = User.objects.create_superuser("root", password="x")
    client.force_login(request.user)
    check(client, reverse("admin:index"), language, 8)
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label in OURS:
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
            check(client, reverse(f"{name}_changelist"), language, 3)
            rows = model_admin.get_queryset(request)
            if not model._meta.proxy and (row := rows.first()):  # the inspector has no rows
                check(client, reverse(f"{name}_change", args=[row.pk]), language, 3)
    for name in (
        "token_add",
        "switch_add",
        "switch_decisions",
        "control_room",
        "auditentry_by_day",
    ):
        check(client, reverse(f"admin:django_mcp_{name}"), language, 3)
