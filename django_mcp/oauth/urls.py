"""The endpoints, for one ``include`` at the root of the project's URLs.

Rule: each is there with and without a slash at its end, and no request is redirected to the other.
Older clients that know no metadata look at the root. Pages of other origins may ask all of
it but the pages where people agree, and see what they agreed to.
"""

from __future__ import annotations

from typing import Any

from django.urls import path, re_path, register_converter

from ..protected.cors import cors
from ..protected.metadata import PATTERN, protected_resource
from . import metadata
from .authorize import MCPAuthorizationView
from .disconnecting import ConnectionsView
from .issuing import RevokeTokenView, TokenView
from .register import RegistrationView

app_name = "django_mcp_oauth"
register_converter(metadata.NoOpenID, "no-openid")
register_converter(metadata.BelowServer, "below-server")
authorize = MCPAuthorizationView.as_view()
register, revoke, token = (
    cors("POST")(view.as_view()) for view in (RegistrationView, RevokeTokenView, TokenView)
)
urlpatterns: list[Any] = [
    re_path(
        r"^\.well-known/oauth-authorization-server(?P<suffix>/.*)?\Z",
        metadata.authorization_server,
        name="authorization-server",
    ),
    re_path(PATTERN, protected_resource, name="protected-resource"),
    path("<no-openid:suffix>", metadata.nothing, name="openid-configuration"),
    path("<below-server:suffix>", metadata.nothing, name="metadata-below-a-server"),
    re_path(r"^oauth/authorize/?$", authorize, name="authorize"),
    re_path(r"^oauth/token/?$", token, name="token"),
    re_path(r"^oauth/revoke/?$", revoke, name="revoke"),
    re_path(r"^oauth/register/?$", register, name="register"),
    re_path(r"^oauth/connections/?$", ConnectionsView.as_view(), name="connections"),
    re_path(r"^authorize/?$", authorize, name="authorize-at-root"),
    re_path(r"^token/?$", token, name="token-at-root"),
    re_path(r"^register/?$", register, name="register-at-root"),
]
