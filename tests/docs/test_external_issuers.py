"""The page on external issuers: its verifiers accept tokens, and its numbers are right."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import override_settings

from django_mcp.auth.principal import verifiers
from django_mcp.checks import check_issuers, check_settings
from django_mcp.exceptions import InsufficientScope
from django_mcp.verifiers import fetching, introspection
from django_mcp.verifiers import jwt_tokens as keys
from django_mcp.verifiers.protected_resource import resource
from tests.verifiers.conftest import issuer as issuer
from tests.verifiers.issuer import Issuer

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/external-issuers.md"
OBJECT, SETTINGS, URLS, EMAIL, FIRST, OPAQUE = blocks(PAGE, "python")
NAMED = "https://id.example/realms/shop"


def run(code: str, name: str = "shown", **given: Any) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(given)
    exec(compile(code, str(PAGE), "exec", dont_inherit=True), vars(module))
    return module


@pytest.fixture
def project(issuer, monkeypatch):
    """The settings, URLs and module of the page, with a running issuer."""
    monkeypatch.setenv("INTROSPECTION_SECRET", "s3cret")
    code = "\n".join((OBJECT, EMAIL, FIRST, OPAQUE)).replace(NAMED, issuer.name)
    package, module = ModuleType("shop"), run(code, "shop.tokens")
    package.tokens = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shop", package)
    monkeypatch.setitem(sys.modules, "shop.tokens", module)
    whole = {**settings.DJANGO_MCP, **run(SETTINGS).DJANGO_MCP}
    from django_mcp.auth import principal

    principal._instances.cache_clear()
    principal._groups.cache_clear()
    with override_settings(DJANGO_MCP=whole, ROOT_URLCONF=run(URLS)):
        yield module
    principal._instances.cache_clear()
    principal._groups.cache_clear()


def test_system_checks_pass(project):
    assert [*check_settings(), *check_issuers()] == []
    assert [type(one).__name__ for one in verifiers()] == ["PersonalAccessTokens", "JWTTokens"]


async def test_tokens_of_the_issuer_are_accepted(project, issuer, server, alice):
    aud = resource(server)
    found = await project.keycloak.verify(issuer.token(aud), server)
    assert found.user == alice and found.auth.scopes == {"mcp"}
    assert (await project.company.verify(issuer.opaque("opaque", aud), server)).user == alice
    with pytest.raises(InsufficientScope, match="the scope mcp"):
        await project.keycloak.verify(issuer.token(aud, scope="other"), server)
    assert await project.keycloak.verify(issuer.token(aud, sub="mallory"), server) is None


@pytest.mark.django_db
def test_users_are_found_by_a_verified_email(project):
    user = get_user_model().objects.create_user("bob", email="Bob@example.com")
    said = {"email": "bob@example.com"}
    assert project.by_email(said | {"email_verified": True}) == user
    for verified in ({}, {"email_verified": False}, {"email_verified": "true"}):
        assert project.by_email(said | verified) is None
    assert project.by_email({"email_verified": True}) is None


@pytest.mark.django_db
def test_users_are_created_on_first_use(project):
    made = project.first_seen({"sub": "7"})
    assert project.first_seen({"sub": "7"}) == made and not made.has_usable_password()
    assert made.username == "keycloak-7" and not made.get_all_permissions()


async def test_ambiguous_user_is_rejected(server, db):
    from django_mcp.verifiers import JWTTokens

    people = get_user_model().objects
    for name in ("a", "b"):
        await people.acreate(username=name, email="same@example.com")
    with Issuer() as there:
        verifier = JWTTokens(there.name, user=lambda said: people.get(email="same@example.com"))
        assert await verifier.verify(there.token(resource(server)), server) is None


def test_numbers_of_the_page_are_those_of_the_code():
    told = re.sub(r"\s+", " ", text(PAGE))
    assert "every ten minutes" in told and keys.REFRESH_AFTER_SECONDS == 600
    assert "at most every ten seconds" in told and keys.FETCH_INTERVAL_SECONDS == 10
    assert "good for four hours" in told and keys.MAX_KEY_AGE_SECONDS == 4 * 3600
    assert "after five minutes" in told and introspection.RECHECK_INTERVAL.total_seconds() == 300
    assert "It has five seconds" in told and fetching.TIMEOUT_SECONDS == 5
    assert "256 KB" in told and fetching.MAX_DOCUMENT_BYTES == 256 * 1024
