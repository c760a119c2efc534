"""System checks of verifiers for tokens of other issuers."""

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


def find_no_user(claims):
    return None


SIGNED = JWTTokens(NAME, user=find_no_user)
ASKED = IntrospectedTokens(NAME, user=find_no_user, client_id="a", client_secret="b")


class urls_of_verifiers:
    urlpatterns = [path("", include("django_mcp.verifiers.urls"))]


class urls_of_oauth:
    urlpatterns = [path("", include("django_mcp.oauth.urls"))]


class urls_without_metadata:
    urlpatterns: list[object] = []


class urls_with_catch_all:
    urlpatterns = [
        path("<path:rest>", find_no_user),
        path("", include("django_mcp.verifiers.urls")),
    ]


def check_ids(*verifiers, urls=urls_of_verifiers):
    with given(VERIFIERS=list(verifiers)), override_settings(ROOT_URLCONF=urls):
        messages = check_issuers()
    assert all(message.hint for message in messages)
    return [message.id for message in messages]


@pytest.mark.parametrize("urls", [urls_of_verifiers, urls_of_oauth])
def test_documented_configuration_has_no_messages(urls):
    assert check_ids(PERSONAL, f"{HERE}.SIGNED", f"{HERE}.ASKED", urls=urls) == []


def test_project_without_other_issuers_has_no_messages():
    assert (
        check_ids(PERSONAL, urls=urls_without_metadata)
        == check_ids("no.where", urls=urls_without_metadata)
        == []
    )
    with override_settings(DJANGO_MCP={}):
        assert check_issuers() == []
    with override_settings(DJANGO_MCP=7):
        assert check_issuers() == []


@pytest.mark.parametrize("urls", [urls_without_metadata, urls_with_catch_all])
def test_missing_metadata_urls_are_a_warning(urls):
    assert check_ids(f"{HERE}.SIGNED", urls=urls) == ["django_mcp.W170"]


class OldName:
    async def verify(self, token, server):
        return None

    def standing(self, keys):
        return {}


class BothNames(OldName):
    def still_valid(self, keys):
        return {}


def test_verifier_with_the_old_name_of_still_valid_is_a_warning():
    assert check_ids(f"{HERE}.OldName") == ["django_mcp.W172"]
    assert check_ids(f"{HERE}.BothNames") == []


@pytest.mark.parametrize("after", [PERSONAL, f"{HERE}.SIGNED"])
def test_introspection_before_another_verifier_is_an_error(after):
    assert check_ids(f"{HERE}.ASKED", after) == ["django_mcp.E171"]
    assert check_ids(after, f"{HERE}.ASKED", f"{HERE}.ASKED") == []


def test_message_contains_the_configuration_error(monkeypatch):
    def unsafe():
        return JWTTokens("http://id.example", user=find_no_user)

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
def test_missing_jwcrypto_error_names_the_extra_to_install():
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], cwd=ROOT, capture_output=True, text=True, check=False
    )
    told = 'jwcrypto is not installed: pip install "django-modelcontext[jwt]"\n'
    assert done.stdout == told, done
