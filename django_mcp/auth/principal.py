"""
Principals: the user that a call acts as, with their token, and the interfaces of token verifiers.

A principal is an immutable value. Its user is loaded for every call, and is never a lazy object.
An inactive user becomes an ``AnonymousUser``.

Requests without a user and a token count towards one limit of all anonymous clients, and towards
one of the client's network. The client's address is that of the connection, as the web server
reports it (``REMOTE_ADDR``, or ``client`` of an ASGI scope). No request header is read, because
only the web server knows which proxies are trusted.
"""

from __future__ import annotations

import hashlib
import inspect
import ipaddress
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import groupby
from typing import (
    TYPE_CHECKING,
    Any,
    ParamSpec,
    Protocol,
    TypeGuard,
    TypeVar,
    cast,
    runtime_checkable,
)
from urllib.parse import quote, unquote

from django.conf import settings as django_settings
from django.utils.crypto import salted_hmac
from django.utils.module_loading import import_string

from ..conf import settings
from ..exceptions import Busy
from ..runtime import threads

if TYPE_CHECKING:
    from datetime import datetime

P = ParamSpec("P")
T = TypeVar("T")
ANONYMOUS = "anonymous"
SUBNET_BITS, SITE_BITS = 64, 48  # IPv6 prefix lengths of a network and of a site (RFC 6177)
HALF_DIGEST_LENGTH = 32  # hex digits
MAX_KEY_LENGTH = 255  # characters that a column of every database can hold and index


@dataclass(frozen=True, slots=True)
class Auth:
    """The content of a verified token: scopes, application (OAuth client) and expiry.

    A token without ``scopes`` is not limited: it may do what its user may do. ``key`` names a token
    that belongs to no application, so that another token of the same user cannot continue its
    sessions and calls. It is a name and never the token itself.
    """

    scopes: frozenset[str] = frozenset()
    application: Any = None
    key: str = ""
    expires: datetime | None = None

    @property
    def client_id(self) -> str:
        """The client id of the application, or "" without one.

        Of an application without a ``client_id``, it is the primary key as text.
        """
        if self.application is None:
            return ""
        return str(getattr(self.application, "client_id", self.application.pk))


@dataclass(frozen=True, slots=True)
class Principal:
    """The user that a call acts as, and the token that came with the call.

    ``user`` is a loaded user or an ``AnonymousUser``. An inactive user is replaced by an
    ``AnonymousUser``, also for the project's code. ``auth`` is None without a token, as over stdio.
    ``network`` is the digest of an anonymous client's network, for limits only. ``impersonator`` is
    the primary key of the member of staff who acts as the user in the admin's inspector, or "".

    ``key`` is a stable key for sessions and sealed state, and "" without a user, application and
    token key. It differs between users, and between the applications or tokens of one user.

    ``limit_keys`` are the names under which limits count this caller, from the widest to the
    narrowest. An anonymous client counts under ``ANONYMOUS`` and under its network, so that no
    single client uses up the limit of all. Every other caller counts under ``key``.
    """

    user: Any
    auth: Auth | None = None
    network: str = ""
    impersonator: str = ""
    # Computed once, because a call needs them many times.
    is_authenticated: bool = field(init=False, repr=False, compare=False)
    key: str = field(init=False, repr=False, compare=False)
    limit_keys: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        is_authenticated = bool(self.user.is_authenticated and self.user.is_active)
        if self.user.is_authenticated and not is_authenticated:
            object.__setattr__(self, "user", _nobody())
        application = self.auth.application if self.auth else None
        token_parts = (getattr(application, "pk", ""), self.auth.key if self.auth else "")
        if is_authenticated:
            key = _name(self.user.pk, *token_parts)
        else:
            key = _name(*token_parts) if any(token_parts) else ""
        object.__setattr__(self, "is_authenticated", is_authenticated)
        object.__setattr__(self, "key", key)
        # Over stdio an anonymous client has no network: it is the only one.
        limit_keys = (key,) if key else tuple(filter(None, (ANONYMOUS, self.network)))
        object.__setattr__(self, "limit_keys", limit_keys)


@runtime_checkable
class TokenVerifier(Protocol):
    """Turns the token of a request into a principal."""

    async def verify(self, token: str, server: Any) -> Principal | None:
        """Return the principal of ``token`` on ``server``, a ``Server``, or None if it is invalid.

        Raise ``InsufficientScope`` if it is valid but has no scope of the server. The client gets a
        403 response that names the scopes.
        """
        ...


@runtime_checkable
class RevokingVerifier(Protocol):
    """A ``TokenVerifier`` that can tell which of its tokens were revoked."""

    def still_valid(self, keys: Collection[str]) -> Mapping[str, bool]:
        """Return whether these grants are still valid, by ``Principal.key``, for its own keys.

        The value is False if the token was revoked or the user is inactive. Expiry is not checked
        here: a call that began before the expiry may finish. Called in a thread, after revocations
        and every few seconds, for all open streams and calls at once, so it should take one query.
        """
        ...


@runtime_checkable
class ChallengingVerifier(Protocol):
    """A ``TokenVerifier`` that adds to the challenge where clients can get its tokens."""

    def challenge(self, server: Any) -> Mapping[str, str]:
        """Return more parameters of the challenge of ``server`` (RFC 6750, 3), not yet quoted.

        For example ``resource_metadata`` (RFC 9728, 5.1) and ``scope``. It is called in the event
        loop and must not block.
        """
        ...


@runtime_checkable
class ApplicationVerifier(Protocol):
    """A ``TokenVerifier`` whose tokens are given to applications."""

    def applications(self, keys: Collection[str]) -> Mapping[str, Any]:
        """Return the ``Auth.application`` of these ``Principal.key``, by key, for its own keys.

        The value is None if the application was deleted. It is called for calls that continue
        without their HTTP request, in a thread that may query the database. It should take one
        query.
        """
        ...


@runtime_checkable
class IssuingVerifier(Protocol):
    """A ``TokenVerifier`` of tokens that an authorization server gives out."""

    @property
    def issuer(self) -> str:
        """The issuer identifier of the authorization server (RFC 8414, 2)."""
        ...

    @property
    def advertised_scopes(self) -> Sequence[str]:
        """The scopes that clients should request."""
        ...


class NotYetKnown(Exception):
    """Raised by ``lookup`` if another server has to be asked first.

    The caller awaits ``find_out``, which asks it, and repeats the look-up once.
    """

    def __init__(self, find_out: Callable[[], Awaitable[None]]) -> None:
        super().__init__("The token cannot be verified at the moment.")
        self.find_out = find_out


class LookupVerifier:
    """Base class of token verifiers that query the database: subclasses define ``lookup``.

    The endpoint calls ``lookup`` in the thread job that also finds the session. If a subclass
    overrides ``verify``, only that is called.
    """

    def lookup(self, token: str, server: Any) -> Principal | None:
        """Return the principal of ``token``, or None if it is invalid.

        It runs in a thread that may query the database. It may raise ``NotYetKnown``.
        """
        raise NotImplementedError

    async def verify(self, token: str, server: Any) -> Principal | None:
        """Return the result of ``lookup``. For callers that are not the endpoint."""
        return await look_up_with_retry(partial(threads.lookups.run, self.lookup, token, server))


class RowVerifier(LookupVerifier):
    """Base class of verifiers whose tokens are rows. It looks up several tokens by one query.

    Subclasses define ``token_format``, ``find`` and ``principal_of``.
    """

    token_format: re.Pattern[str]

    def find(self, tokens: Sequence[str]) -> Sequence[Any]:
        """Return the row of each token, or None. All ``tokens`` match ``token_format``."""
        raise NotImplementedError

    def principal_of(self, row: Any, server: Any) -> Principal | None:
        """Return the principal of a token's row; None if the token is not valid at ``server``."""
        raise NotImplementedError

    def look_up_all(
        self, requests: Sequence[tuple[str, Any]]
    ) -> list[Principal | Exception | None]:
        """Return the principal of each token at its server, or None, or the error for it."""
        found: list[Principal | Exception | None] = [None] * len(requests)
        numbers = [n for n, (token, _) in enumerate(requests) if self.token_format.fullmatch(token)]
        rows = self.find([requests[n][0] for n in numbers]) if numbers else []
        for n, row in zip(numbers, rows, strict=True):
            try:
                found[n] = None if row is None else self.principal_of(row, requests[n][1])
            except Exception as error:  # it must not affect the other requests
                found[n] = error
        return found

    def lookup(self, token: str, server: Any) -> Principal | None:
        (found,) = self.look_up_all([(token, server)])
        if isinstance(found, Exception):
            raise found
        return found


def takes_several(verifier: LookupVerifier) -> TypeGuard[RowVerifier]:
    """Whether ``look_up_all`` of a verifier does the same as its ``lookup``."""
    # By the identity of the function. If a subclass, a mixin or a decorator replaces ``lookup``,
    # the replacement is called, so its checks are not bypassed.
    return getattr(verifier.lookup, "__func__", None) is RowVerifier.lookup


async def look_up_with_retry(look_up: Callable[[], Awaitable[T]]) -> T:
    """Return the result of a look-up, and repeat it once after ``NotYetKnown``.

    Raise ``Busy`` if the second attempt raises ``NotYetKnown`` too.
    """
    try:
        return await look_up()
    except NotYetKnown as unknown:
        await unknown.find_out()
    try:
        return await look_up()
    except NotYetKnown as unknown:
        raise Busy(str(unknown)) from None


# The verifiers of the test client, which come before those of the project.
verifiers_of_tests: list[TokenVerifier] = []


def verifiers() -> tuple[TokenVerifier, ...]:
    """Return the token verifiers in the order in which they are asked."""
    return (*verifiers_of_tests, *_instances(tuple(settings.VERIFIERS)))


def verifier_groups() -> list[tuple[bool, tuple[TokenVerifier, ...]]]:
    """Return the verifiers in their order, in groups, and whether a group only looks up.

    Consecutive verifiers are one group if all or none of them are ``LookupVerifier`` that do not
    override ``verify``. A group that only looks up takes one thread job instead of one each.
    """
    if verifiers_of_tests:
        return _grouped(verifiers())
    return _groups(tuple(settings.VERIFIERS))


@lru_cache(maxsize=8)
def _groups(paths: tuple[str, ...]) -> list[tuple[bool, tuple[TokenVerifier, ...]]]:
    return _grouped(_instances(paths))


def _only_looks_up(verifier: TokenVerifier) -> bool:
    """Whether it is a ``LookupVerifier`` that does not override ``verify``."""
    is_lookup = isinstance(verifier, LookupVerifier)
    return is_lookup and type(verifier).verify is LookupVerifier.verify


def _grouped(
    verifiers: tuple[TokenVerifier, ...],
) -> list[tuple[bool, tuple[TokenVerifier, ...]]]:
    return [(key, tuple(group)) for key, group in groupby(verifiers, _only_looks_up)]


@lru_cache(maxsize=8)
def _instances(paths: tuple[str, ...]) -> tuple[TokenVerifier, ...]:
    found: list[Any] = [import_string(path) for path in paths]
    return tuple(cast(TokenVerifier, one() if inspect.isclass(one) else one) for one in found)


def key_parts(key: str) -> tuple[str, str, str] | None:
    """Return the user, application and token that a key names.

    Return None if it names no user, or is a digest because it was too long. The tokens of such a
    key are not checked for revocation while a call runs, only at the next request.
    """
    parts = [unquote(part) for part in key.split(":")]
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


def applications(keys: Collection[str]) -> dict[str, Any]:
    """Return the applications of these ``Principal.key`` that a verifier knows, by key.

    Queries the database.
    """
    named = {key for key in keys if (parts := key_parts(key)) and parts[1]}
    found: dict[str, Any] = {}
    for verifier in verifiers() if named else ():
        if isinstance(verifier, ApplicationVerifier):
            found |= verifier.applications(named - found.keys())
    return found


@lru_cache(maxsize=1_000, typed=True)  # each request with a token needs it
def _name(*parts: Any) -> str:
    """Join parts by colons, which are quoted in the parts. Return a digest if it is too long."""
    name = ":".join(quote(str(part), safe="") for part in parts)
    if len(name) <= MAX_KEY_LENGTH:
        return name
    return hashlib.sha256(name.encode()).hexdigest()


def anonymous(network: str = "") -> Principal:
    """Return the principal of requests without a token, which may use only what is public."""
    return Principal(_nobody(), network=network)


def _nobody() -> Any:
    from django.contrib.auth.models import AnonymousUser

    return AnonymousUser()


# Client networks.


def network_digest(remote: str, ipv6_bits: int, purpose: str) -> str:
    """Return a digest of the network, 32 hex digits. It is keyed, so the address stays unknown.

    An IPv4 address is a network of its own. Requests without an address come from one network.
    """
    return _keyed_digest(remote, ipv6_bits, purpose, django_settings.SECRET_KEY)


@lru_cache(maxsize=1_000)  # each request of an anonymous client needs it
def _keyed_digest(remote: str, ipv6_bits: int, purpose: str, secret: str) -> str:
    network = _network(remote, ipv6_bits)
    made = salted_hmac(f"django_mcp.{purpose}", network, secret, algorithm="sha256")
    return made.hexdigest()[:HALF_DIGEST_LENGTH]


def client_network(remote: str) -> str:
    """Return the digest that limits of anonymous clients use, for sessions, calls and listens."""
    return network_digest(remote, SITE_BITS, "client.network")


def _network(remote: str, bits: int) -> str:
    try:
        address = ipaddress.ip_address(remote.partition("%")[0])
    except ValueError:
        return remote
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, bits), strict=False))
        address = address.ipv4_mapped
    return str(address)
