"""The page on the OAuth server: a project with its code is an authorization server."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import override_settings

from django_mcp.declarations.server import Server, default_server
from django_mcp.oauth import checks
from django_mcp.oauth import checks as checks_of_surroundings
from django_mcp.oauth import checks as checks_of_urls
from django_mcp.oauth.verifier import OAuthTokens
from tests.oauth.flows import asked, browser, error, issued, query, refresh, registered

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/oauth.md"
REFERENCE = ROOT / "docs/reference/oauth.md"
APPS, SETTINGS, URLS, FALLBACK, MAY, ENDING = blocks(PAGE, "python")
(LOGIN,) = blocks(PAGE, "html")
CHECKS = [
    checks.check_options, checks.check_provider, checks.check_verifier, checks_of_urls.check_urls,
    checks_of_surroundings.check_login,
]  # fmt: skip


def run(code: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), namespace)
    return namespace


@pytest.fixture
def project(db, monkeypatch, tmp_path):
    """The settings and URLs of the page, for the shop of the tests."""
    given = {name: value for name, value in run(SETTINGS).items() if name.isupper()}
    given["DJANGO_MCP"] = {**settings.DJANGO_MCP, **given["DJANGO_MCP"]}
    given.pop("URL")
    urls = ModuleType("shown_urls")
    vars(urls).update(run(URLS))
    people = ModuleType("shown_people")
    vars(people).update(run(MAY))
    monkeypatch.setitem(sys.modules, urls.__name__, urls)
    monkeypatch.setitem(sys.modules, people.__name__, people)
    login = tmp_path / "registration/login.html"
    login.parent.mkdir()
    login.write_text(LOGIN)
    templates = [settings.TEMPLATES[0] | {"DIRS": [tmp_path]}]
    with override_settings(
        ROOT_URLCONF=urls, ALLOWED_HOSTS=["shop.example"], TEMPLATES=templates, **given
    ):
        yield given


def is_accepted(tokens: Any) -> bool:
    return OAuthTokens().lookup(tokens["access_token"], default_server) is not None


def test_apps_are_in_order():
    with override_settings(INSTALLED_APPS=run(APPS)["INSTALLED_APPS"]):
        assert checks.check_apps() == []


def test_system_checks_pass(project):
    assert [message for check in CHECKS for message in check()] == []


def test_users_sign_in_and_consent_and_clients_get_tokens(project):
    agent = registered("dcr")
    alice = get_user_model().objects.create_user("alice")
    sent = browser().get(f"/oauth/authorize?{query(agent)}")
    assert sent["Location"].startswith(project["LOGIN_URL"])
    assert 'name="password"' in browser().get(sent["Location"]).content.decode()
    assert "unverified" in asked(alice, agent).text
    assert is_accepted(issued(alice, agent))


def test_fallback_urls_are_added_to_the_project(project):
    assert browser().get("/register").status_code == 404
    urls = ModuleType("shown_urls_with_fallback")
    vars(urls).update(run(URLS + FALLBACK))
    with override_settings(ROOT_URLCONF=urls):
        assert checks_of_urls.check_urls() == []
        assert browser().get("/register").status_code == 405


def test_may_authorize_function(project):
    may, other = run(MAY)["may_authorize"], Server("inside")
    alice = get_user_model()(username="alice")
    root = get_user_model()(username="root", is_staff=True)
    assert [may(alice, default_server), may(alice, other), may(root, other)] == [True, False, True]
    whole = project["DJANGO_MCP"] | {"OAUTH": {"MAY_AUTHORIZE": "shown_people.may_authorize"}}
    with override_settings(DJANGO_MCP=whole):
        assert checks.check_options() == []
        alice.save()
        assert is_accepted(issued(alice, registered("dcr")))


def test_revocation_of_users_who_left(project):
    agent = registered("dcr")
    alice, bob = (get_user_model().objects.create_user(name) for name in ("alice", "bob"))
    alice.groups.add(Group.objects.create(name="contractors"))
    hers, his = issued(alice, agent), issued(bob, agent)
    run(ENDING)
    assert not is_accepted(hers) and is_accepted(his)
    assert error(refresh(hers["refresh_token"], agent)) == (400, "invalid_grant")


def test_every_check_is_listed():
    sources = (ROOT / "django_mcp/oauth").glob("checks*.py")
    given = {
        one for path in sources for one in re.findall(r'id="(django_mcp_oauth\.\w+)"', text(path))
    }
    page = text(ROOT / "docs/reference/checks.md")
    told = re.findall(r"^\| `(django_mcp_oauth\.\w+)` \| .+ \| .+ \|$", page, re.M)
    assert set(told) == given and len(told) == len(given) > 10


def test_every_requirement_is_listed_once():
    rows = re.findall(r"^\| ([AR]\d+a?b?) \|", text(REFERENCE), re.M)
    expected = [f"A{number}" for number in range(1, 29)]
    expected[8:8] = ["A8a", "A8b"]
    assert rows == expected + [f"R{number}" for number in range(1, 17)]
