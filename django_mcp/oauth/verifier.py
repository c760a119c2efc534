"""Verification of access tokens that the embedded authorization server issued.

A token is valid at the servers that its ``resource`` names, and nowhere else. A token without a
resource, or one for the project's other APIs, is valid at no server. The reason of a rejection is
logged and never sent to the client.

One SQL statement reads the token, its user, its client and whether the client is blocked. Compiling
that statement takes longer than executing it, so it is compiled once. It is compiled each time if a
manager of the project filters rows, because such a filter may depend on the time. Users that the
project's default manager hides are rejected.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib.auth import get_user_model
from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import connections, models
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
from ..auth.principal import Auth, LookupVerifier, Principal, key_parts
from ..conf import settings as mcp
from ..verifiers.protected_resource import canonical, challenge, resource
from . import upstream_accounts
from .activity import uses as theirs
from .conf import issuer, settings
from .models import ClientProfile, Source, TokenBinding
from .scope_grants import default_scopes

if TYPE_CHECKING:
    from ..declarations.server import Server

OWN = ("pk", "scope", "expires", "resource")  # columns of the token
BOUND = ("account", "checked")  # columns of its binding, if the project has an ``Upstream``
NEVER = datetime(1970, 1, 1, tzinfo=UTC)  # last use of a client that was never used
MARK = "the checksum"  # placeholder for the checksum in the compiled parameters


@dataclass(frozen=True, slots=True)
class FoundToken:
    """An access token's row with its user, client and binding.

    ``user`` is the user that the token was issued for, ``owner`` the user of its client.
    ``last_noted`` is the last use of the client, or None if it has no ``ClientProfile``.
    """

    pk: Any
    scope: str
    expires: datetime
    resource: Any
    user: Any
    application: Any
    owner: Any
    is_blocked: bool
    last_noted: datetime | None
    account: str | None = None  # upstream account that it is bound to
    checked: datetime | None = None  # time of the last successful check of that account


def find(token: str) -> FoundToken | None:
    """Return the row of a token, or None if there is none. Runs one query."""
    tokens, users = get_access_token_model().objects.all(), get_user_model()._default_manager.all()
    bound, alias = settings.UPSTREAM is not None, tokens.db
    if tokens.query.where or users.query.where:
        statement = _written(tokens, users, bound)
    else:
        vendor = connections[alias].vendor
        statement = _written_once(tokens.model, users.model, alias, vendor, bound)
    row = statement.row(alias, hashlib.sha256(token.encode()).hexdigest())
    return None if row is None else _found(alias, iter(row))


def profiles() -> QuerySet[ClientProfile]:
    """Return the profile of a token's client, as a subquery over ``OuterRef``."""
    return ClientProfile.objects.filter(client_id=OuterRef("application__client_id"))


def blocked() -> QuerySet[ClientProfile]:
    return profiles().filter(blocked__isnull=False)


def of(users: QuerySet[Any]) -> Q:
    """Filter for tokens of these users. A token without a user belongs to its client's user."""
    return Q(user__in=users) | Q(user=None, application__user__in=users)


# The compiled statement.


class Statement(NamedTuple):
    """A compiled SQL statement, and the columns that it returns."""

    query: Any
    sql: str
    params: Sequence[Any]
    columns: Sequence[Any]

    def row(self, alias: str, checksum: str) -> Sequence[Any] | None:
        """Execute it. Return the first row as Python values, or None."""
        connection = connections[alias]
        with connection.cursor() as cursor:
            cursor.execute(self.sql, [checksum if one == MARK else one for one in self.params])
            found = cursor.fetchone()
        if found is None:
            return None
        compiler = self.query.get_compiler(connection=connection)
        (row,) = compiler.apply_converters([found], compiler.get_converters(self.columns))
        return list(row)


@lru_cache(maxsize=8)
def _written_once(tokens: Any, users: Any, alias: str, vendor: str, bound: bool) -> Statement:
    return _written(tokens.objects.all(), users._default_manager.all(), bound)


def _written(tokens: Any, users: QuerySet[Any], bound: bool) -> Statement:
    found = tokens.filter(token_checksum=MARK)
    if users.query.where:
        found = found.filter(of(users))
    found = found.annotate(
        is_blocked=Exists(blocked()), is_kept=Exists(profiles()),
        last_used=Subquery(profiles().values("last_used")[:1]),
    )  # fmt: skip
    names = [*_names(), "is_blocked", "is_kept", "last_used"]
    if bound:
        found = found.annotate(**_bound())
        names += BOUND
    query = found.values_list(*names)[:1].query
    compiler = query.get_compiler(tokens.db)
    sql, params = compiler.as_sql()
    return Statement(query, sql, params, [column for column, *_ in compiler.select])


def _bound() -> dict[str, Any]:
    rows = TokenBinding.objects.filter(family=OuterRef("refresh_token__token_family"))
    return {name: Subquery(rows.values(name)[:1]) for name in BOUND}


# Columns of the statement, and the objects that are made of a row.


def _related() -> dict[str, type[models.Model]]:
    """Return the models that are joined to the token, by lookup."""
    user = get_user_model()
    return {"user": user, "application": get_application_model(), "application__user": user}


def _names() -> Iterator[str]:
    yield from OWN
    for way, model in _related().items():
        yield from (f"{way}__{field.attname}" for field in model._meta.concrete_fields)


def _found(alias: str, values: Iterator[Any]) -> FoundToken:
    own: dict[str, Any] = dict(zip(OWN, values, strict=False))
    user, application, owner = (_instance(model, alias, values) for model in _related().values())
    if owner is not None:
        application.user = owner  # fills the cache of the foreign key: no further query
    is_blocked, is_kept, last_used, *bound = values
    last_noted = last_used or NEVER if is_kept else None
    return FoundToken(
        **own, user=user, application=application, owner=owner, is_blocked=is_blocked,
        last_noted=last_noted, **dict(zip(BOUND, bound, strict=False)),
    )  # fmt: skip


def _instance(model: type[models.Model], alias: str, values: Iterator[Any]) -> Any:
    """Take the next columns and make an instance of them; None if the join found no row."""
    names = [field.attname for field in model._meta.concrete_fields]
    found = list(islice(values, len(names)))
    is_none = found[names.index(model._meta.pk.attname)] is None
    return None if is_none else model.from_db(alias, names, found)


logger = logging.getLogger("django_mcp")
TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")  # b64token of RFC 6750, section 2.1
HOLDERS = ("user", "application__user", "application")
PRINCIPALS_PER_QUERY = 200  # principals in one query


class OAuthTokens(LookupVerifier):
    """The ``TokenVerifier`` for tokens that ``django_mcp.oauth`` issues."""

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
        user: Any = _user(row) if row.application is not None else None
        if wrong := _wrong(row, user, server):
            logger.info("OAuth access token %s was refused: %s", row.pk, wrong)
            return None
        if row.last_noted is not None:  # None: the client has no profile to update
            uses.note(row.application.client_id, row.last_noted)
            theirs.note((user.pk, row.application.client_id))
        auth = Auth(frozenset(row.scope.split()), row.application, expires=row.expires)
        return Principal(user, auth)

    def challenge(self, server: Server) -> dict[str, str]:
        return challenge(server, self.asked)

    def still_valid(self, keys: Collection[str]) -> dict[str, bool]:
        """Return whether the user and client of each key still have a valid token between them.

        Keys of other verifiers' principals are left out. Runs queries.
        """
        named = {key: found for key in keys if (found := _named(key))}
        pairs = sorted(set(named.values()))
        stands = {
            pair
            for at in range(0, len(pairs), PRINCIPALS_PER_QUERY)
            for pair in _standing(pairs[at : at + PRINCIPALS_PER_QUERY])
        }
        return {key: pair in stands for key, pair in named.items()}

    def applications(self, keys: Collection[str]) -> dict[str, Any]:
        """Return the client of each key, with its user loaded; None if it was deleted.

        Keys of other verifiers' principals are left out. Runs queries.
        """
        named = {key: found[1] for key in keys if (found := _named(key))}
        wanted = sorted(set(named.values()))
        rows = get_application_model().objects.select_related("user")
        clients = {
            str(pk): row
            for at in range(0, len(wanted), PRINCIPALS_PER_QUERY)
            for pk, row in rows.in_bulk(wanted[at : at + PRINCIPALS_PER_QUERY]).items()
        }
        return {key: clients.get(pk) for key, pk in named.items()}


# Checks of one token.


def _wrong(row: FoundToken, user: Any, server: Server) -> str | None:
    """Return why a token is not valid at ``server``, for the log only; None if it is valid."""
    if row.application is None or row.is_blocked:
        return "its client is blocked or was deleted"
    if row.expires <= timezone.now():
        return "expired"
    if wrong := _wrong_use(row, server):
        return wrong
    if user is None or not user.is_active:
        return "its user may not sign in"
    # Tokens of the client credentials grant have no upstream account.
    if row.account is None and _is_machine(row):
        return None
    return upstream_accounts.wrong(user, row.account, row.checked)


def _wrong_use(row: FoundToken, server: Server) -> str | None:
    scopes = set(row.scope.split())
    if oauth2_settings.DCR_REGISTRATION_SCOPE in scopes:
        return "it is for a registration"
    if resource(server) not in map(canonical, row.resource or ()):
        return f"not for {server.name!r}"
    return None if scopes & mcp.SCOPES.keys() else "it has none of our scopes"


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


def _named(key: str) -> tuple[str, str] | None:
    """Return the keys of the user and the application in a principal's key.

    Return None if they are no valid primary keys: then the principal is another verifier's.
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
    """Return the pairs of user and application that have a token which is not revoked.

    Expired tokens count, because a stream or call outlives the expiry of its token. One query.
    """
    refresh = _of(get_refresh_token_model().objects.filter(revoked=None), pairs)
    upstream_accounts.look_after(refresh.values("token_family"))
    tokens = _of(get_access_token_model().objects.all(), pairs)
    tokens = upstream_accounts.known(tokens, "refresh_token__token_family").values_list(*HOLDERS)
    refresh = upstream_accounts.known(refresh, "token_family").values_list(*HOLDERS)
    return {(str(user or owner), str(pk)) for user, owner, pk in tokens.union(refresh)}


def _of(rows: Any, pairs: Collection[tuple[str, str]]) -> Any:
    users = _active().filter(pk__in={user for user, _ in pairs})
    applications = {application for _, application in pairs}
    found = rows.filter(of(users), ~Exists(blocked()), application__in=applications)
    return found.order_by()


def _active() -> QuerySet[Any]:
    """Return the active users; all users if the model has no ``is_active`` column."""
    model = get_user_model()
    try:
        model._meta.get_field("is_active")
    except FieldDoesNotExist:
        return model._default_manager.all()
    return model._default_manager.filter(is_active=True)


def _used(client_ids: Collection[Any]) -> None:
    ClientProfile.objects.filter(client_id__in=client_ids).update(last_used=timezone.now())


uses = LastUsedTimes(_used)
