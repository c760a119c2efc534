"""Requests to the authorization endpoint, and the answers of a user."""

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
FRESH = {"ALWAYS_RELOAD_OAUTHLIB_CORE": True}  # each view has its own core, with these settings
SITE = "https://agent.example/callback"
ALLOW, CANCEL = {"allow": "true"}, {"allow": "false"}


@pytest.fixture(autouse=True)
def fresh_cores():
    """Keep the core that a view makes of the settings of one test from other tests."""
    with override_settings(OAUTH2_PROVIDER=dot_settings(URL, **FRESH)):
        yield
    forget_cores()


def forget_cores():
    """Delete the cores that django-oauth-toolkit caches on its view classes."""
    for view in (AuthorizationView, TokenView, RevokeTokenView):
        if "_oauthlib_core" in vars(view):
            del view._oauthlib_core


def query(client: Any, **over: Any) -> dict[str, Any]:
    """Return the parameters of a client's request, without those that are None."""
    asked = {
        "response_type": "code", "client_id": client.client_id, "redirect_uri": REDIRECT,
        "state": "xyz", "code_challenge": CHALLENGE, "code_challenge_method": "S256",
        "resource": RESOURCE, "scope": "mcp", **over,
    }  # fmt: skip
    return {name: value for name, value in asked.items() if value is not None}


def url(client: Any, **over: Any) -> str:
    return f"{AUTHORIZE}?{urlencode(query(client, **over), doseq=True)}"


def told(response: Any) -> dict[str, str]:
    """Return the query of a redirect, in which each parameter occurs once."""
    assert response.status_code == 302, response.content.decode()
    found = parse_qs(urlsplit(response["Location"]).query, strict_parsing=True)
    assert all(len(values) == 1 for values in found.values()), found
    return {name: values[0] for name, values in found.items()}


def registered(source: str = "dcr", **over: Any) -> Any:
    """Return a self-registered client with a loopback redirect URI and one of its site."""
    return flows.registered(source, **{"redirect_uris": f"{REDIRECT} {SITE}", **over})
