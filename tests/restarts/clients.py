"""OAuth clients, and what users and administrators do with them in the browser.

The code runs in a ``Shell``, whose project has an authorization server.
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
    """Create a registered client that the user has authorized, and return its access token."""
    client = application(name, registration_source="dcr")
    ClientProfile.objects.create(client_id=client.client_id, source="dcr")
    row, secret = issued(user, client, server)
    refresh(user, client, row)
    return secret


def revoke(name: str, secret: str) -> None:
    """Revoke the token as the client itself does."""
    form = {"token": secret, "client_id": _profile(name).client_id}
    _done(_browser().post("/oauth/revoke", form))


def disconnect(name: str, user: User) -> None:
    form = {"client": _profile(name).client_id}
    _done(_browser(user).post("/oauth/connections", form))


def in_the_admin(name: str, action: str) -> None:
    """Run the admin action ``block`` or ``revoke`` as a superuser."""
    form = {"action": action, "_selected_action": [_profile(name).pk]}
    page = reverse("admin:django_mcp_oauth_clientprofile_changelist")
    root = User.objects.create_superuser(f"root {time.time()}")
    _done(_browser(root).post(page, form, follow=True))


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
