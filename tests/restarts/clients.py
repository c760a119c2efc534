"""Clients of the authorization server, and what people do with them in their browsers.

For the process of a ``Hand``, whose project has an authorization server.
"""

from __future__ import annotations

import time
from typing import Any

from django.contrib.auth.models import User
from django.test import Client as Browser
from django.urls import reverse
from oauth2_provider.models import get_application_model

from django_mcp import server
from django_mcp.oauth.models import ClientProfile
from tests.oauth.tokens import application, issued, refresh


def connected(user: User, name: str) -> str:
    """The token of a client that registered itself and was let in by a person."""
    client = application(name, registration_source="dcr")
    ClientProfile.objects.create(client_id=client.client_id, source="dcr")
    row, secret = issued(user, client, server)
    refresh(user, client, row)
    return secret


def revoke(name: str, secret: str) -> None:
    """As the client itself does."""
    told = {"token": secret, "client_id": _profile(name).client_id}
    _done(_browser().post("/oauth/revoke", told))


def disconnect(name: str, user: User) -> None:
    told = {"client": _profile(name).client_id}
    _done(_browser(user).post("/oauth/connections", told))


def in_the_admin(name: str, action: str) -> None:
    """What somebody does who may do everything: ``block`` or ``revoke``."""
    told = {"action": action, "_selected_action": [_profile(name).pk]}
    page = reverse("admin:django_mcp_oauth_clientprofile_changelist")
    root = User.objects.create_superuser(f"root {time.time()}")
    _done(_browser(root).post(page, told, follow=True))


def _profile(name: str) -> ClientProfile:
    client = get_application_model().objects.get(name=name)
    return ClientProfile.objects.get(client_id=client.client_id)


def _browser(user: User | None = None) -> Browser:
    found = Browser(SERVER_NAME="127.0.0.1")
    if user is not None:
        found.force_login(user)
    return found


def _done(response: Any) -> None:
    assert response.status_code == 200, response.content
