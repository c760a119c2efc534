"""Verification of access tokens that the embedded authorization server issued.

A token is valid at the servers that its ``resource`` names, and nowhere else. A token without a
resource, or one for the project's other APIs, is valid at no server. The reason of a rejection is
logged and never sent to the client.

One SQL statement reads the tokens of concurrent requests, with their users, their clients and
whether these are blocked. It is compiled once, or each time if a manager of the project filters
rows, because such a filter may depend on the time. Users that the project's default manager hides
are rejected.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.utils import timezone
from oauth2_provider.models import (
    AbstractApplication,
    get_access_token_model,
    get_application_model,
    get_refresh_token_model,
)
from oauth2_provider.settings import oauth2_settings

from ..auth.last_used import LastUsedTimes
from ..auth.principal import Auth, Principal, RowVerifier, key_parts
from ..conf import settings as mcp
from ..storage.compiled_queries import column_names, fetch, instance
from ..verifiers.protected_resource import canonical, challenge, resource
from . import upstream_accounts
from .activity import consent_uses
from .conf import issuer, settings
from .models import ClientProfile, Source, TokenBinding
from .scope_grants import default_scopes

if TYPE_CHECKING:
    from ..declarations.server import Server

TOKEN_COLUMNS = ("pk", "scope", "expires", "resource")  # columns of the token
BINDING = ("account", "checked")  # columns of its binding, if the project has an ``Upstream``
NEVER = datetime(1970, 1, 1, tzinfo=UTC)  # last use of a client that was never used


class FoundToken(NamedTuple):
    """An access token's row with its user, client and binding.

    ``user`` is the user that the token was issued for, ``owner`` the user of its client.
    ``client_last_used`` is the last use of the client, or None if it has no ``ClientProfile``.
    """

    pk: Any
    scope: str
    expires: datetime
    resource: Any
    user: Any
    application: Any
    owner: Any
    is_blocked: bool
    client_last_used: datetime | None
    account: str | None = None  # upstream account that it is bound to
    checked: datetime | None = None  # time of the last successful check of that account


def _querysets(token_model: Any, user_model: Any) -> tuple[QuerySet[Any], QuerySet[Any]]:
    return token_model.objects.all(), user_model._default_manager.all()


def profiles() -> QuerySet[ClientProfile]:
    """Return the profile of a token's client, as a subquery over ``OuterRef``."""
    return ClientProfile.objects.filter(client_id=OuterRef("application__client_id"))


def blocked() -> QuerySet[ClientProfile]:
    return profiles().filter(blocked__isnull=False)


def owned_by(users: QuerySet[Any]) -> Q:
    """Filter for tokens of these users. A token without a user belongs to its client's user."""
    return Q(user__in=users) | Q(user=None, application__user__in=users)


# The query, and the objects that are made of its rows.


def _by_checksum(
    checksums: Sequence[str], token_model: Any, user_model: Any, with_binding: bool
) -> QuerySet[Any]:
    all_tokens, visible_users = _querysets(token_model, user_model)
    tokens = all_tokens.filter(token_checksum__in=checksums)
    if visible_users.query.where:
        tokens = tokens.filter(owned_by(visible_users))
    tokens = tokens.annotate(
        is_blocked=Exists(blocked()), has_profile=Exists(profiles()),
        last_used=Subquery(profiles().values("last_used")[:1]),
    )  # fmt: skip
    names = ["token_checksum", *_selected_columns(), "is_blocked", "has_profile", "last_used"]
    if with_binding:
        tokens = tokens.annotate(**_binding_columns())
        names += BINDING
    rows: QuerySet[Any] = tokens.values_list(*names)
    return rows


def _binding_columns() -> dict[str, Any]:
    rows = TokenBinding.objects.filter(family=OuterRef("refresh_token__token_family"))
    return {name: Subquery(rows.values(name)[:1]) for name in BINDING}


@cache
def _related() -> dict[str, type[models.Model]]:
    """Return the models that are joined to the token, by lookup."""
    user = get_user_model()
    return {"user": user, "application": get_application_model(), "application__user": user}


def _selected_columns() -> Iterator[str]:
    yield from TOKEN_COLUMNS
    for lookup, model in _related().items():
        yield from (f"{lookup}__{name}" for name in column_names(model))


def _make_found_token(
    alias: str, row: Sequence[Any] | None, related: Sequence[type[models.Model]]
) -> FoundToken | None:
    if row is None:
        return None
    values = iter(row)
    token_values: list[Any] = [next(values) for _ in TOKEN_COLUMNS]
    objects: Iterator[Any] = (instance(model, alias, values) for model in related)
    user, application, owner = objects
    if owner is not None:
        # Fills the cache of the foreign key: no further query. An assignment would ask the routers.
        application._meta.get_field("user").set_cached_value(application, owner)
    is_blocked, has_profile, last_used, *binding = values
    client_last_used = last_used or NEVER if has_profile else None
    return FoundToken._make(
        (
            *token_values,
            user,
            application,
            owner,
            is_blocked,
            client_last_used,
            *(binding or (None, None)),
        )
    )


logger = logging.getLogger("django_mcp.oauth")
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1
OWNER_COLUMNS = ("user", "application__user", "application")
PAIRS_PER_QUERY = 200  # principals in one query


class OAuthTokens(RowVerifier):
    """The ``TokenVerifier`` for tokens that ``django_mcp.oauth`` issues."""

    token_format = TOKEN

    @property
    def issuer(self) -> str:
        return issuer()

    @property
    def advertised_scopes(self) -> list[str]:
        return default_scopes()

    def find(self, tokens: Sequence[str]) -> list[FoundToken | None]:
        """Return the row of each token, or None if there is none. Runs one query.

        A token that occurs twice gets two rows, because the project's code may change their users.
        """
        models = get_access_token_model(), get_user_model()
        all_tokens, visible_users = _querysets(*models)
        is_constant = not (all_tokens.query.where or visible_users.query.where)
        alias = all_tokens.db
        checksums = [hashlib.sha256(token.encode()).hexdigest() for token in tokens]
        rows = fetch(
            alias, _by_checksum, checksums, *models, settings.UPSTREAM is not None,
            is_constant=is_constant,
        )  # fmt: skip
        related = tuple(_related().values())
        return [_make_found_token(alias, row, related) for row in rows]

    def principal_of(self, row: FoundToken, server: Server) -> Principal | None:
        """Return the principal of a token's row; None if the token is not valid at ``server``."""
        user: Any = _user(row) if row.application is not None else None
        scopes = frozenset(row.scope.split())
        if reason := _rejection_reason(row, user, scopes, server):
            logger.info("OAuth access token rejected: token=%s reason=%s", row.pk, reason)
            return None
        if row.client_last_used is not None:  # None: the client has no profile to update
            client_uses.note(row.application.client_id, row.client_last_used)
            consent_uses.note((user.pk, row.application.client_id))
        return Principal(user, Auth(scopes, row.application, expires=row.expires))

    def challenge(self, server: Server) -> dict[str, str]:
        return challenge(server, self.advertised_scopes)

    def still_valid(self, keys: Collection[str]) -> dict[str, bool]:
        """Return whether the user and client of each key still have a valid token between them.

        Keys of other verifiers' principals are left out. Runs queries.
        """
        pairs = {key: pair for key in keys if (pair := _user_and_client(key))}
        unique = sorted(set(pairs.values()))
        valid = {
            pair
            for start in range(0, len(unique), PAIRS_PER_QUERY)
            for pair in _pairs_with_token(unique[start : start + PAIRS_PER_QUERY])
        }
        return {key: pair in valid for key, pair in pairs.items()}

    def applications(self, keys: Collection[str]) -> dict[str, Any]:
        """Return the client of each key, with its user loaded; None if it was deleted.

        Keys of other verifiers' principals are left out. Runs queries.
        """
        pks = {key: pair[1] for key in keys if (pair := _user_and_client(key))}
        unique = sorted(set(pks.values()))
        rows = get_application_model().objects.select_related("user")
        clients = {
            str(pk): row
            for start in range(0, len(unique), PAIRS_PER_QUERY)
            for pk, row in rows.in_bulk(unique[start : start + PAIRS_PER_QUERY]).items()
        }
        return {key: clients.get(pk) for key, pk in pks.items()}


# Checks of tokens.


def _rejection_reason(
    row: FoundToken, user: Any, scopes: frozenset[str], server: Server
) -> str | None:
    """Return why a token is not valid at ``server``, for the log only; None if it is valid."""
    if row.application is None or row.is_blocked:
        return "its client is blocked or was deleted"
    if row.expires <= timezone.now():
        return "expired"
    if oauth2_settings.DCR_REGISTRATION_SCOPE in scopes:
        return "it is for a registration"
    if resource(server) not in map(canonical, row.resource or ()):
        return f"not for {server.name!r}"
    if scopes.isdisjoint(mcp.SCOPES):
        return "it has none of our scopes"
    if user is None or not user.is_active:
        return "its user may not sign in"
    if settings.UPSTREAM is None:
        return None
    # Tokens of the client credentials grant have no upstream account.
    if row.account is None and _is_machine(row):
        return None
    return upstream_accounts.rejection_reason(user, row.account, row.checked)


def _is_machine(row: FoundToken) -> bool:
    grant = row.application.authorization_grant_type
    return bool(grant == AbstractApplication.GRANT_CLIENT_CREDENTIALS)


def _user(row: FoundToken) -> Any:
    """Return the user that the token acts as, or None.

    A token without a user acts as its client's user, but only if the client was registered by hand
    for the client credentials grant. The user of any other client has only registered it, and its
    tokens must not act as them.
    """
    by_hand = row.application.registration_source == Source.MANUAL
    return row.user or (row.owner if _is_machine(row) and by_hand else None)


# Checks for all open streams and calls.


def _user_and_client(key: str) -> tuple[str, str] | None:
    """Return the keys of the user and the application in a principal's key.

    Return None if they are no valid primary keys: then the principal is another verifier's.
    """
    user, application, token = key_parts(key) or ("", "", "")
    if token or not _is_valid_pk(get_application_model(), application):
        return None
    return (user, application) if _is_valid_pk(get_user_model(), user) else None


def _is_valid_pk(model: Any, text: str) -> bool:
    field = model._meta.pk
    try:
        field.run_validators(field.to_python(text))
    except ValidationError:
        return False
    return bool(text)


def _pairs_with_token(pairs: Collection[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the pairs of user and application that have a token which is not revoked.

    Expired tokens count, because a stream or call outlives the expiry of its token. One query.
    """
    refresh = _tokens_of_pairs(get_refresh_token_model().objects.filter(revoked=None), pairs)
    upstream_accounts.queue_early_checks(refresh.values("token_family"))
    tokens = _tokens_of_pairs(get_access_token_model().objects.all(), pairs)
    tokens = upstream_accounts.exclude_outdated(tokens, "refresh_token__token_family")
    refresh = upstream_accounts.exclude_outdated(refresh, "token_family")
    found = tokens.values_list(*OWNER_COLUMNS).union(refresh.values_list(*OWNER_COLUMNS))
    return {(str(user or owner), str(client)) for user, owner, client in found}


def _tokens_of_pairs(rows: Any, pairs: Collection[tuple[str, str]]) -> Any:
    users = _active_users().filter(pk__in={user for user, _ in pairs})
    applications = {application for _, application in pairs}
    found = rows.filter(owned_by(users), ~Exists(blocked()), application__in=applications)
    return found.order_by()


def _active_users() -> QuerySet[Any]:
    """Return the active users; all users if the model has no ``is_active`` column."""
    model = get_user_model()
    try:
        model._meta.get_field("is_active")
    except FieldDoesNotExist:
        return model._default_manager.all()
    return model._default_manager.filter(is_active=True)


def _write_client_uses(client_ids: Collection[Any]) -> None:
    ClientProfile.objects.filter(client_id__in=client_ids).update(last_used=timezone.now())


client_uses = LastUsedTimes(_write_client_uses)
