"""
Tokens of the embedded authorization server, at the endpoint.

Rule: a token is good for the servers that it names, and for no other; what names none is good for
none, and neither is what was given for the project's other APIs. One query tells all: the token,
its user, its client, and whether that is blocked. Why a token is refused is for the log alone.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone
from oauth2_provider.models import (
    AbstractApplication,
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
)
from oauth2_provider.settings import oauth2_settings

from ..principal import Auth, LookupVerifier, Principal, key_parts
from ..uses import Uses
from .conf import settings
from .metadata import resource_metadata_url
from .models import ClientProfile, Source
from .resources import canonical, resource
from .scopes import default_scopes

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1
AT_ONCE = 200  # principals in one query


class OAuthTokens(LookupVerifier):
    """The ``TokenVerifier`` of tokens that ``django_mcp.oauth`` issues."""

    def lookup(self, token: str, server: Server) -> Principal | None:
        row = _row(token) if TOKEN.fullmatch(token) else None
        if row is None:
            return None
        if wrong := _wrong(row, server, timezone.now()):
            logger.info("OAuth access token %s was refused: %s", row.pk, wrong)
            return None
        if row.last_noted is not None:  # None: nothing is kept of this client
            uses.note(row.application.client_id, row.last_noted)
        auth = Auth(frozenset(row.scope.split()), row.application, expires=row.expires)
        return Principal(_user(row), auth)

    def challenge(self, server: Server) -> dict[str, str]:
        return {
            "resource_metadata": resource_metadata_url(server),
            "scope": " ".join(default_scopes()),
        }

    def standing(self, keys: Collection[str]) -> dict[str, bool]:
        """Of these principals, those of clients: whether their user still lets that one in."""
        named = {key: found for key in keys if (found := _named(key))}
        pairs = sorted(set(named.values()))
        stands = {
            pair
            for at in range(0, len(pairs), AT_ONCE)
            for pair in _standing(pairs[at : at + AT_ONCE])
        }
        return {key: pair in stands for key, pair in named.items()}


# One token.


def _row(token: str) -> Any:
    """One query. Whom the project's default manager hides may not come in."""
    checksum = hashlib.sha256(token.encode()).hexdigest()
    noted = _profiles().values(moment=Coalesce("last_used", "created"))
    found = (
        get_access_token_model()
        .objects.select_related("user", "application__user")
        .filter(token_checksum=checksum)
        .annotate(is_blocked=Exists(_blocked()), last_noted=Subquery(noted[:1]))
    )
    users = get_user_model()._default_manager.all()
    return next(iter((found.filter(_of(users)) if users.query.where else found)[:1]), None)


def _profiles() -> QuerySet[ClientProfile]:
    """What is kept of the client of a row."""
    return ClientProfile.objects.filter(client_id=OuterRef("application__client_id"))


def _blocked() -> QuerySet[ClientProfile]:
    return _profiles().filter(blocked__isnull=False)


def _of(users: QuerySet[Any]) -> Q:
    """Of rows, those of these users: a client's own where there is nobody else."""
    return Q(user__in=users) | Q(user=None, application__user__in=users)


def _wrong(row: Any, server: Server, now: datetime) -> str | None:
    """Why a token is not valid on ``server``. Clients are not told."""
    if row.application is None or row.is_blocked:
        return "its client is blocked, or no more"
    if row.expires <= now:
        return "expired"
    return _wrong_use(row, server) or _wrong_user(_user(row))


def _wrong_use(row: Any, server: Server) -> str | None:
    scopes = set(row.scope.split())
    if oauth2_settings.DCR_REGISTRATION_SCOPE in scopes:
        return "it is for a registration"
    if resource(server) not in map(canonical, row.resource or ()):
        return f"not for {server.name!r}"
    return None if scopes & settings.SCOPES.keys() else "it has none of our scopes"


def _wrong_user(user: Any) -> str | None:
    return None if user is not None and user.is_active else "its user may not sign in"


def _user(row: Any) -> Any:
    """Whom it speaks for.

    A token without a user speaks for the one to whom the client itself belongs, if that was given
    it to act on its own; who only registered a client for others is not its user.
    """
    client = row.application
    on_its_own = client.authorization_grant_type == AbstractApplication.GRANT_CLIENT_CREDENTIALS
    by_hand = client.registration_source == Source.MANUAL
    return row.user or (client.user if on_its_own and by_hand else None)


# All that is open.


def _named(key: str) -> tuple[str, str] | None:
    """The user and the application that a principal's key names.

    What cannot be keys of theirs is some other verifier's.
    """
    user, application, token = key_parts(key) or ("", "", "")
    if token or not _is_key(get_application_model(), application):
        return None
    return (user, application) if _is_key(get_user_model(), user) else None


def _is_key(model: Any, text: str) -> bool:
    key = model._meta.pk
    try:
        key.run_validators(key.to_python(text))
    except ValidationError:
        return False
    return bool(text)


def _standing(pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Of these users and applications, those between whom something still holds. One query.

    An access token or a refresh token that was not revoked: that it has expired is no matter.
    """
    tokens = _holding(get_access_token_model().objects.all(), pairs)
    refresh = _holding(get_refresh_token_model().objects.filter(revoked=None), pairs)
    return {(str(user or owner), str(pk)) for user, owner, pk in tokens.union(refresh)}


def _holding(rows: Any, pairs: Collection[tuple[str, str]]) -> Any:
    users = _active().filter(pk__in={user for user, _ in pairs})
    applications = {application for _, application in pairs}
    found = rows.filter(_of(users), ~Exists(_blocked()), application__in=applications)
    return found.order_by().values_list("user", "application__user", "application")


def _active() -> QuerySet[Any]:
    """Who may sign in, as far as the database knows."""
    model = get_user_model()
    try:
        model._meta.get_field("is_active")
    except FieldDoesNotExist:
        return model._default_manager.all()
    return model._default_manager.filter(is_active=True)


def _used(client_ids: Collection[Any]) -> None:
    ClientProfile.objects.filter(client_id__in=client_ids).update(last_used=timezone.now())


uses = Uses(_used)
