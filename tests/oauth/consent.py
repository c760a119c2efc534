"""A person at the authorization endpoint: what they are sent there with, and what they answer."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from django.test import override_settings
from oauth2_provider.views import AuthorizationView, RevokeTokenView, TokenView

from django_mcp.oauth import dot_settings

from . import flows
from .conftest import CHALLENGE, REDIRECT, URL

AUTHORIZE = "/oauth/authorize"
RESOURCE = f"{URL}/mcp"
FRESH = {"ALWAYS_RELOAD_OAUTHLIB_CORE": True}  # each view has one of its own, of these settings
SITE = "https://agent.example/callback"
ALLOW, CANCEL = {"allow": "true"}, {"allow": "false"}


@pytest.fixture(autouse=True)
def fresh_cores():
    """What a view made of the settings of one test is not another's."""
    with override_settings(OAUTH2_PROVIDER=dot_settings(URL, **FRESH)):
        yield
    forget_cores()


def forget_cores():
    """django-oauth-toolkit keeps on the class what it made of the settings of one test."""
    for view in (AuthorizationView, TokenView, RevokeTokenView):
        if "_oauthlib_core" in vars(view):
            del view._oauthlib_core


def query(client: Any, **over: Any) -> dict[str, Any]:
    """A request as a client makes it; what is None is left out."""
    asked = {
        "response_type": "code", "client_id": client.client_id, "redirect_uri": REDIRECT,
        "state": "xyz", "code_challenge": CHALLENGE, "code_challenge_method": "S256",
        "resource": RESOURCE, "scope": "mcp", **over,
    }  # fmt: skip
    return {name: value for name, value in asked.items() if value is not None}


def url(client: Any, **over: Any) -> str:
    return f"{AUTHORIZE}?{urlencode(query(client, **over), doseq=True)}"


def told(response: Any) -> dict[str, str]:
    """What a client is told by a redirect, each once. Fails where it is no redirect."""
    assert response.status_code == 302, response.content.decode()
    found = parse_qs(urlsplit(response["Location"]).query, strict_parsing=True)
    assert all(len(values) == 1 for values in found.values()), found
    return {name: values[0] for name, values in found.items()}


def registered(source: str = "dcr", **over: Any) -> Any:
    """A client that came by itself, and is answered on the device or at its site."""
    return flows.registered(source, **{"redirect_uris": f"{REDIRECT} {SITE}", **over})
