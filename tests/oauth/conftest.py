"""A shop with a public URL and an authorization server, a user, and clients."""

from __future__ import annotations

import base64
import hashlib

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import override_settings
from oauth2_provider.models import get_application_model

URL = "https://shop.example"
REDIRECT = "http://127.0.0.1:7777/callback"
VERIFIER = "v" * 64
CHALLENGE = (
    base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).decode().rstrip("=")
)
MCP = {"URL": URL, "VERIFIERS": ["django_mcp.oauth.verifier.OAuthTokens"]}


@pytest.fixture(autouse=True)
def in_public():
    """The settings of the project, with the include at the root of its URLs."""
    with override_settings(
        DJANGO_MCP={**settings.DJANGO_MCP, **MCP}, ROOT_URLCONF="tests.oauth.urls",
        ALLOWED_HOSTS=["shop.example"], SECURE_PROXY_SSL_HEADER=None,
    ):  # fmt: skip
        yield


@pytest.fixture
def web(client):
    """A browser that uses the host of the shop and HTTPS."""
    client.defaults |= {"SERVER_NAME": "shop.example", "wsgi.url_scheme": "https"}
    return client


@pytest.fixture
def alice(db):
    return get_user_model().objects.create_user("alice", password="secret")


@pytest.fixture
def public_client(db):
    """A public client that was registered manually."""
    return get_application_model().objects.create(
        name="Agent", client_type="public", authorization_grant_type="authorization-code",
        redirect_uris=REDIRECT, client_secret="never told", hash_client_secret=False,
    )  # fmt: skip
