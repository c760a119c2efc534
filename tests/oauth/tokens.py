"""Make tokens as the authorization server stores them, without its endpoints."""

from __future__ import annotations

import secrets
import uuid
from datetime import timedelta
from typing import Any

from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
    set_token_value,
)

from django_mcp.verifiers.protected_resource import resource

HOUR = timedelta(hours=1)


def application(name: str = "Agent", **fields: Any) -> Any:
    """Return a manually registered client."""
    given = {
        "client_type": "public", "authorization_grant_type": "authorization-code",
        "redirect_uris": "http://127.0.0.1:7777/callback", "client_secret": "never told",
        "hash_client_secret": False,
    }  # fmt: skip
    return get_application_model().objects.create(name=name, **(given | fields))


def issued(user: Any, client: Any, *servers: Any, **fields: Any) -> tuple[Any, str]:
    """Return a row and its secret: for these servers, or for the URIs in ``resource``."""
    given = {
        "scope": "mcp", "expires": timezone.now() + HOUR,
        "resource": [resource(server) for server in servers],
    }  # fmt: skip
    row, secret = get_access_token_model()(user=user, application=client), secrets.token_urlsafe(24)
    set_token_value(row, secret)
    for name, value in (given | fields).items():
        setattr(row, name, value)
    row.save()
    return row, secret


def refresh(user: Any, client: Any, token: Any = None, **fields: Any) -> Any:
    """Return a refresh token for an access token."""
    row = get_refresh_token_model()(
        user=user, application=client, access_token=token, token_family=uuid.uuid4(), **fields
    )
    set_token_value(row, secrets.token_urlsafe(24))
    row.save()
    return row
