"""
Verification of opaque tokens by token introspection at an external issuer (RFC 7662).

The token is sent only in the body of a POST to the issuer. Responses are cached for some seconds by
the token's digest. If the issuer does not respond, ``Busy`` is raised and no token is accepted.
Tokens that plainly belong to another issuer, and those that this site issued, are not sent to it.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import threading
import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import router
from django.db.models import Model
from django.utils import timezone

from ..exceptions import Busy
from ..runtime import threads
from .external_tokens import (
    Claims,
    ExternalTokens,
    FindUser,
    TokenRejected,
    checked_url,
    expiry,
    is_foreign,
)
from .fetching import CANNOT_VERIFY, Discovery, FetchError, RunningRequests, fetch

if TYPE_CHECKING:
    from ..declarations.server import Server

MAX_CACHED_RESPONSES = 1_000  # cached responses
MAX_CACHE_SECONDS = 60.0
# Open streams and calls are verified again after this time, also if the token has no expiry.
RECHECK_INTERVAL = timedelta(minutes=5)
logger = logging.getLogger("django_mcp.oauth")


class IntrospectedTokens(ExternalTokens):
    """The ``TokenVerifier`` for tokens that are verified by introspection at one issuer.

    ``client_id`` and ``client_secret`` authenticate this project at the introspection endpoint.
    ``issuer``, ``user``, ``audience``, ``scopes`` and ``advertised_scopes`` are as for
    ``JWTTokens``. The claims are the issuer's response. Set ``endpoint`` if the issuer's metadata
    does not contain it. A response is cached for ``memory`` seconds (0 to 60), so a revoked token
    stays valid that long.

    Put it at the end of ``VERIFIERS``, because it sends every token to the issuer that no verifier
    before it knows. Raise ``ImproperlyConfigured`` for wrong arguments. ``verify`` raises ``Busy``
    if the issuer does not respond.
    """

    def __init__(
        self,
        issuer: str,
        *,
        client_id: str,
        client_secret: str,
        user: FindUser,
        audience: str | None = None,
        scopes: Collection[str] = (),
        advertised_scopes: Sequence[str] | None = None,
        endpoint: str | None = None,
        memory: float = 5.0,
    ) -> None:
        super().__init__(
            issuer,
            user=user,
            audience=audience,
            scopes=scopes,
            advertised_scopes=advertised_scopes,
        )
        if not (client_id and client_secret) or not 0 <= memory <= MAX_CACHE_SECONDS:
            raise ImproperlyConfigured(
                "client_id and client_secret are required, and memory must be 0 to 60."
            )
        self._endpoint = checked_url(endpoint, "endpoint") if endpoint is not None else None
        self._authorization = _basic_authorization(client_id, client_secret)
        self._discovery, self._memory = Discovery(issuer), IntrospectionCache(memory)
        self._requests: RunningRequests[dict[str, Any]] = RunningRequests()

    async def _read_claims(self, token: str) -> tuple[dict[str, Any], datetime] | None:
        if is_foreign(token, self.issuer):
            return None
        response = await self._response_for(token)
        if response.get("active") is not True:
            return None
        now = timezone.now()
        ends = expiry(response) if "exp" in response else now + RECHECK_INTERVAL
        if ends <= now:
            raise TokenRejected("it has expired")
        return response, min(ends, now + RECHECK_INTERVAL)

    def _rejection_reason(self, claims: Claims, server: Server) -> str | None:
        if claims.get("iss", self.issuer) != self.issuer:
            return "it is another issuer's"
        return super()._rejection_reason(claims, server)

    async def _response_for(self, token: str) -> dict[str, Any]:
        digest = hashlib.sha256(token.encode()).hexdigest()
        if (cached := self._memory.get(digest)) is not None:
            return cached
        # Do not send a token of this site to the issuer, even one that our own verifier has just
        # rejected: it may be valid at another server or API.
        if await threads.lookups.run(is_issued_here, token, digest):
            return {"active": False}
        # Another request may have been answered while this one looked that up.
        if (cached := self._memory.get(digest)) is not None:
            return cached
        try:
            return await self._requests.run(digest, lambda: self._ask_issuer(token, digest))
        except FetchError as error:
            logger.warning("Token introspection failed: issuer=%s error=%s", self.issuer, error)
            raise Busy(CANNOT_VERIFY) from None

    def _ask_issuer(self, token: str, digest: str) -> dict[str, Any]:
        """Ask the issuer, and cache the response. Blocks; it runs in a thread."""
        form = {"token": token, "token_type_hint": "access_token"}
        endpoint = self._endpoint or self._discovery.endpoint("introspection_endpoint")
        sent_at = time.monotonic()
        response = fetch(endpoint, form, self._authorization)
        self._memory.store(digest, response, sent_at)
        return response


def is_issued_here(token: str, digest: str) -> bool:
    """Whether this site issued this secret, of whatever kind or state.

    A client may send an authorization code, a refresh token or a device code as a bearer token by
    mistake. The issuer could redeem it. ``digest`` is its SHA-256.
    """
    if not apps.is_installed("oauth2_provider"):
        return False
    from oauth2_provider import models

    stored: list[tuple[type[Model], dict[str, str]]] = [
        (models.get_access_token_model(), {"token_checksum": digest}),
        (models.get_refresh_token_model(), {"token_checksum": digest}),
        (models.get_grant_model(), {"code": token}),
        (models.get_device_grant_model(), {"device_code": token}),
    ]
    if apps.is_installed("django_mcp.oauth"):
        # The row of a redeemed code is deleted. Redeeming it again would revoke its tokens.
        stored.append((apps.get_model("django_mcp_oauth", "RedeemedCode"), {"digest": digest}))
    # Use the primary database: a lagging replica does not have a token that was just issued.
    return any(
        model._default_manager.using(router.db_for_write(model)).filter(**lookup).exists()
        for model, lookup in stored
    )


def _basic_authorization(client_id: str, secret: str) -> str:
    """Return the Basic authorization header, with both parts form-encoded (RFC 6749, 2.3.1)."""
    credentials = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    return f"Basic {base64.b64encode(credentials.encode()).decode()}"


class IntrospectionCache:
    """A cache of responses by token digest. They expire ``seconds`` after the request was sent.

    It holds ``MAX_CACHED_RESPONSES`` responses, and drops the oldest first.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._responses: dict[str, tuple[dict[str, Any], float]] = {}
        # Threads store responses at the same time: two must not delete the same oldest one.
        self._lock = threading.Lock()

    def get(self, digest: str) -> dict[str, Any] | None:
        response, sent_at = self._responses.get(digest, (None, 0.0))
        return response if time.monotonic() - sent_at < self._seconds else None

    def store(self, digest: str, response: dict[str, Any], sent_at: float) -> None:
        with self._lock:
            self._responses.pop(digest, None)
            self._responses[digest] = response, sent_at
            while len(self._responses) > MAX_CACHED_RESPONSES:
                del self._responses[next(iter(self._responses))]
