"""
The embedded authorization server: OAuth 2.1 on django-oauth-toolkit.

``dot_settings`` is for the project's settings module, so this package imports no models.

Authorization, with the user's consent:

- ``authorize``: the authorization endpoint and its consent page
- ``authorization_request``: validation of its requests, and what the page shows
- ``scope_grants``: the scopes that a client may request, and the users that it may act for
- ``connected_apps``: the page on which users revoke clients and tokens

Tokens:

- ``token_endpoint``: the token endpoint and the revocation endpoint
- ``validators``: the ``OAuth2Validator`` behind both
- ``grants``: authorization codes and refresh tokens, which a client exchanges for an access token
- ``client_authentication``: how a client proves who it is
- ``resource_indicators``: the server that a token is for
- ``upstream_accounts``: tokens that end with an account at an upstream identity provider
- ``revocation``: revoke tokens when a client, a user or a permission changes
- ``verifier``: verify access tokens in requests to MCP servers

Clients:

- ``client_registry``: find the client of a request
- ``client_metadata``: validation of what a client says about itself
- ``client_metadata_documents``: clients whose id is the URL of their metadata
- ``register``: dynamic client registration
- ``registration_limits``: limits on clients that register themselves

The rest of the app:

- ``apps``, ``models``, ``admin``, ``checks``, ``conf``: as in other Django apps
- ``activity``: counts per day of what clients did for users
- ``metadata``: authorization server metadata
- ``urls``, ``fallback_urls``: the URLs of the endpoints, and those for clients without metadata
"""

from .conf import dot_settings as dot_settings

__all__ = ["dot_settings"]
