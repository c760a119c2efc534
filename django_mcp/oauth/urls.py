"""URLs of the authorization server. Include them once, at the root of the URLconf.

Each endpoint answers with and without a trailing slash, and neither redirects to the other. Clients
find the endpoints in the metadata; ``fallback_urls`` has those that clients without it assume.
Pages of other origins may call all of them but the consent page and the list of connected apps.
"""

from __future__ import annotations

from typing import Any

from django.urls import path, re_path, register_converter

from ..runtime.view_limits import closes_connections, limits_body
from ..verifiers.protected_resource import PATH, cors, protected_resource, well_known
from . import metadata
from .authorize import MCPAuthorizationView
from .connected_apps import ConnectionsView
from .register import RegistrationView
from .token_endpoint import RevokeTokenView, TokenView

app_name = "django_mcp_oauth"
register_converter(metadata.MissingOpenID, "missing-openid")
register_converter(metadata.BelowServer, "below-server")
authorize, connections = (
    closes_connections(limits_body(view.as_view()))
    for view in (MCPAuthorizationView, ConnectionsView)
)
register, revoke, token = (
    cors("POST")(closes_connections(limits_body(view.as_view())))
    for view in (RegistrationView, RevokeTokenView, TokenView)
)
urlpatterns: list[Any] = [
    *well_known(metadata.PATH, metadata.authorization_server, "authorization-server"),
    *well_known(PATH, protected_resource, "protected-resource"),
    path("<missing-openid:suffix>", metadata.not_found, name="openid-configuration"),
    path("<below-server:suffix>", metadata.not_found, name="metadata-below-a-server"),
    re_path(r"^oauth/authorize/?$", authorize, name="authorize"),
    re_path(r"^oauth/token/?$", token, name="token"),
    re_path(r"^oauth/revoke/?$", revoke, name="revoke"),
    re_path(r"^oauth/register/?$", register, name="register"),
    re_path(r"^oauth/connections/?$", connections, name="connections"),
]
