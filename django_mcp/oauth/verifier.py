"""
Tokens of the embedded authorization server, at the endpoint.

Rule: a token is good for the servers that it names, and for no other; what names none is good for
none, and neither is what was given for the project's other APIs. One query tells all: the token,
its user, its client, and whether that is blocked. Why a token is refused is for the log alone.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db.models import Exists, QuerySet
from django.utils import timezone
from oauth2_provider.models import (
    AbstractApplication,
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
)
from oauth2_provider.settings import oauth2_settings

from ..principal import Auth, LookupVerifier, Principal, key_parts
from ..protected.metadata import challenge
from ..protected.names import canonical, resource
from ..scopes import offered
from ..uses import Uses
from . import bindings
from .activity import uses as theirs
from .conf import issuer
from .models import ClientProfile, Source
from .rows import Found, blocked, find, of
from .scopes import default_scopes

if TYPE_CHECKING:
    from ..declare.servers import Server

logger = logging.getLogger("django_mcp")
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1
HOLDERS = ("user", "application__user", "application")
AT_ONCE = 200  # principals in one query


class OAuthTokens(LookupVerifier):
    """The ``TokenVerifier`` of tokens that ``django_mcp.oauth`` issues."""

    @property
    def issuer(self) -> str:
        return issuer()

    @property
    def asked(self) -> list[str]:
        return default_scopes()

    def lookup(self, token: str, server: Server) -> Principal | None:
        row = find(token) if TOKEN.fullmatch(token) else None
        if row is None:
            return None
        if wrong := _wrong(row, server, timezone.now()):
            logger.info("OAuth access token %s was refused: %s", row.pk, wrong)
            return None
        if row.last_noted is not None:  # None: nothing is kept of this client
            uses.note(row.application.client_id, row.last_noted)
            theirs.note((_user(row).pk, row.application.client_id))
        auth = Auth(frozenset(row.scope.split()), row.application, expires=row.expires)
        return Principal(_user(row), auth)

    def challenge(self, server: Server) -> dict[str, str]:
        return challenge(server, self.asked)

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

    def applications(self, keys: Collection[str]) -> dict[str, Any]:
        """Of these principals, those of clients: the client, with its user."""
        named = {key: found[1] for key in keys if (found := _named(key))}
        wanted = sorted(set(named.values()))
        rows = get_application_model().objects.select_related("user")
        clients = {
            str(pk): row
            for at in range(0, len(wanted), AT_ONCE)
            for pk, row in rows.in_bulk(wanted[at : at + AT_ONCE]).items()
        }
        return {key: clients.get(pk) for key, pk in named.items()}


# One token.


def _wrong(row: Found, server: Server, now: datetime) -> str | None:
    """Why a token is not valid on ``server``. Clients are not told."""
    if row.application is None or row.is_blocked:
        return "its client is blocked, or no more"
    if row.expires <= now:
        return "expired"
    return _wrong_use(row, server) or _wrong_user(_user(row)) or _wrong_account(row)


def _wrong_use(row: Found, server: Server) -> str | None:
    scopes = set(row.scope.split())
    if oauth2_settings.DCR_REGISTRATION_SCOPE in scopes:
        return "it is for a registration"
    if resource(server) not in map(canonical, row.resource or ()):
        return f"not for {server.name!r}"
    return None if scopes & offered().keys() else "it has none of our scopes"


def _wrong_user(user: Any) -> str | None:
    return None if user is not None and user.is_active else "its user may not sign in"


def _wrong_account(row: Found) -> str | None:
    """A machine has signed in nowhere."""
    if row.account is None and _is_machine(row):
        return None
    return bindings.wrong(_user(row), row.account, row.checked)


def _is_machine(row: Found) -> bool:
    grant = row.application.authorization_grant_type
    return bool(grant == AbstractApplication.GRANT_CLIENT_CREDENTIALS)


def _user(row: Found) -> Any:
    """Whom it speaks for.

    A token without a user speaks for the one to whom the client itself belongs, if that was given
    it to act on its own; who only registered a client for others is not its user.
    """
    by_hand = row.application.registration_source == Source.MANUAL
    return row.user or (row.owner if _is_machine(row) and by_hand else None)


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
    refresh = _of(get_refresh_token_model().objects.filter(revoked=None), pairs)
    bindings.look_after(refresh.values("token_family"))
    tokens = _of(get_access_token_model().objects.all(), pairs)
    tokens = bindings.known(tokens, "refresh_token__token_family").values_list(*HOLDERS)
    refresh = bindings.known(refresh, "token_family").values_list(*HOLDERS)
    return {(str(user or owner), str(pk)) for user, owner, pk in tokens.union(refresh)}


def _of(rows: Any, pairs: Collection[tuple[str, str]]) -> Any:
    users = _active().filter(pk__in={user for user, _ in pairs})
    applications = {application for _, application in pairs}
    found = rows.filter(of(users), ~Exists(blocked()), application__in=applications)
    return found.order_by()


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
