"""What ``manage.py check`` says of issuers elsewhere."""

from __future__ import annotations

import subprocess
import sys

import pytest
from django.test import override_settings
from django.urls import include, path

from django_mcp.auth import principal
from django_mcp.checks import check_issuers, check_settings
from django_mcp.verifiers import IntrospectedTokens, JWTTokens
from tests.servers import ROOT
from tests.storage.rows import given

NAME = "https://id.example"
PERSONAL = "django_mcp.verifiers.PersonalAccessTokens"
HERE = "tests.verifiers.test_checks"


def nobody(claims):
    return None


SIGNED = JWTTokens(NAME, user=nobody)
ASKED = IntrospectedTokens(NAME, user=nobody, client_id="a", client_secret="b")


class with_ours:
    urlpatterns = [path("", include("django_mcp.verifiers.urls"))]


class with_oauth:
    urlpatterns = [path("", include("django_mcp.oauth.urls"))]


class with_nothing:
    urlpatterns: list[object] = []


class with_another:
    urlpatterns = [path("<path:rest>", nobody), path("", include("django_mcp.verifiers.urls"))]


def found(*verifiers, urls=with_ours):
    with given(VERIFIERS=list(verifiers)), override_settings(ROOT_URLCONF=urls):
        messages = check_issuers()
    assert all(message.hint for message in messages)
    return [message.id for message in messages]


@pytest.mark.parametrize("urls", [with_ours, with_oauth])
def test_nothing_is_wrong(urls):
    assert found(PERSONAL, f"{HERE}.SIGNED", f"{HERE}.ASKED", urls=urls) == []


def test_who_names_no_issuer_is_told_nothing():
    assert found(PERSONAL, urls=with_nothing) == found("no.where", urls=with_nothing) == []
    with override_settings(DJANGO_MCP={}):
        assert check_issuers() == []
    with override_settings(DJANGO_MCP=7):
        assert check_issuers() == []


@pytest.mark.parametrize("urls", [with_nothing, with_another])
def test_clients_that_are_told_of_no_issuer(urls):
    assert found(f"{HERE}.SIGNED", urls=urls) == ["django_mcp.W170"]


class OldName:
    async def verify(self, token, server):
        return None

    def standing(self, keys):
        return {}


class BothNames(OldName):
    def still_valid(self, keys):
        return {}


def test_verifier_with_the_old_name_of_still_valid_is_a_warning():
    assert found(f"{HERE}.OldName") == ["django_mcp.W172"]
    assert found(f"{HERE}.BothNames") == []


@pytest.mark.parametrize("after", [PERSONAL, f"{HERE}.SIGNED"])
def test_tokens_that_are_shown_to_others(after):
    assert found(f"{HERE}.ASKED", after) == ["django_mcp.E171"]
    assert found(after, f"{HERE}.ASKED", f"{HERE}.ASKED") == []


def test_what_is_unsafe_is_told_by_its_words(monkeypatch):
    def unsafe():
        return JWTTokens("http://id.example", user=nobody)

    monkeypatch.setattr(f"{HERE}.SIGNED", type("Made", (), {"__new__": lambda cls: unsafe()}))
    principal._instances.cache_clear()
    with given(VERIFIERS=[f"{HERE}.SIGNED"]):
        (message,) = check_settings()
    assert message.id == "django_mcp.E096" and "it must be an https URL" in message.msg


WITHOUT = """
import sys
sys.modules["jwcrypto"] = None
from django.core.exceptions import ImproperlyConfigured
from django.conf import settings
settings.configure()
import django_mcp.verifiers as issuers
assert issuers.IntrospectedTokens
try:
    issuers.JWTTokens
except ImproperlyConfigured as error:
    print(error)
"""


@pytest.mark.slow
def test_without_jwcrypto_it_is_said_what_to_install():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    told = 'jwcrypto is not installed: pip install "django-modelcontext[jwt]"\n'
    assert done.stdout == told, done
