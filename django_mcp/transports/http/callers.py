"""
Who is calling: the token and the session of a request, found in one look-up.

Rule: a token is read from the Authorization header and from nowhere else. What
is not valid is answered by a challenge, and so is whoever shows no token and
asks for what is not for everybody - whether it exists is not told, except where
all there is is for everybody. A session is its owner's alone: to anybody else it
is not there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from django.utils.module_loading import import_string

from ... import threads
from ...conf import settings
from ...delivery import sessions
from ...principal import Principal, TokenVerifier, anonymous
from ...protocol import http
from ...protocol.events import Call
from .exchanges import Refused

if TYPE_CHECKING:
    from ...declare.catalogs import Catalog
    from ...declare.declarations import Declaration
    from ...declare.servers import Server
    from ...models import Session
    from .exchanges import Exchange

MAX_TOKEN = 8_192


async def identify(exchange: Exchange, *, with_session: bool) -> None:
    """Set the principal of a request, and its session if it names one. Raises ``Refused``."""
    token = bearer(exchange.headers.get("authorization"))
    if token is None and not exchange.server.catalog.has_public:
        raise challenge(exchange.server)
    id = exchange.headers.get(http.SESSION_ID) if with_session else None
    exchange.principal = anonymous()
    if token is not None or id is not None:
        await _look_up(exchange, token, id)


async def _look_up(exchange: Exchange, token: str | None, id: str | None) -> None:
    """One hop, however much there is to find, unless a verifier has no way to come along."""
    server = exchange.server
    principal = None if token is None else await _verified(server, token)
    found = await threads.lookups.run(_found, server, token, id, principal)
    if token is not None:
        if found[0] is None:
            raise challenge(server, invalid=True)
        exchange.principal = found[0]
    exchange.session = found[1]
    if id is not None:
        _check_owner(exchange, token is not None)


async def _verified(server: Server, token: str) -> Principal | None:
    """By the verifiers that have no look-up to come along with the session's."""
    for verifier in _verifiers():
        if not hasattr(verifier, "lookup"):
            principal = await verifier.verify(token, server)
            if principal is not None:
                return principal
    return None


def _found(
    server: Server, token: str | None, id: str | None, principal: Principal | None
) -> tuple[Principal | None, Session | None]:
    """In a thread: whom the token speaks for, and the session, if that may matter."""
    for verifier in _verifiers() if token is not None else ():
        lookup = getattr(verifier, "lookup", None)
        if principal is None and lookup is not None:
            principal = lookup(token, server)
    if id is None or (token is not None and principal is None):
        return principal, None
    return principal, sessions.find(id)


def _check_owner(exchange: Exchange, has_token: bool) -> None:
    session = exchange.session
    if session is not None and session.server == exchange.server.name:
        if session.owner == exchange.principal.key:
            return
        if not has_token:
            raise challenge(exchange.server)
    raise Refused(404, "There is no such session: initialize a new one.")


def _verifiers() -> tuple[TokenVerifier, ...]:
    return _made(tuple(settings.VERIFIERS))


@lru_cache(maxsize=8)
def _made(paths: tuple[str, ...]) -> tuple[TokenVerifier, ...]:
    found: list[Any] = [import_string(path) for path in paths]
    return tuple(cast(TokenVerifier, one() if inspect.isclass(one) else one) for one in found)


def bearer(authorization: str | None) -> str | None:
    """The token of an Authorization header (RFC 6750, 2.1); None if it holds no such thing."""
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer":
        return None
    return token.strip()[: MAX_TOKEN + 1]


def challenge(server: Server, *, invalid: bool = False) -> Refused:
    """The 401 that asks for a token (RFC 6750, 3)."""
    words = f'Bearer realm="{server.name}"'
    if invalid:
        words += ', error="invalid_token", error_description="The token is not valid here."'
    said = "The token is not valid here." if invalid else "A token is needed."
    return Refused(401, said, ((b"www-authenticate", words.encode("ascii", "replace")),))


# What everybody may name.


def check_names(exchange: Exchange, call: Call) -> None:
    """Raises a challenge where somebody unknown names what is not for everybody."""
    catalog = exchange.server.catalog
    if exchange.principal.is_authenticated or catalog.is_public or call.method not in _NAMED:
        return
    named = list(_NAMED[call.method](catalog, call.params))
    if not any(thing is not None and thing.is_public for thing in named):
        raise challenge(exchange.server)


def _tool(catalog: Catalog, params: dict[str, Any]) -> Iterator[Declaration | None]:
    yield catalog.tools.get(_text(params, "name"))


def _prompt(catalog: Catalog, params: dict[str, Any]) -> Iterator[Declaration | None]:
    yield catalog.prompts.get(_text(params, "name"))


def _resources(catalog: Catalog, params: dict[str, Any]) -> Iterator[Declaration | None]:
    return (resource for resource, _ in catalog.at(_text(params, "uri")))


def _referred(catalog: Catalog, params: dict[str, Any]) -> Iterator[Declaration | None]:
    ref = params.get("ref")
    ref = ref if isinstance(ref, dict) else {}
    if ref.get("type") == "ref/prompt":
        yield catalog.prompts.get(_text(ref, "name"))
    else:
        yield catalog.templates.get(_text(ref, "uri"))
        yield from (resource for resource, _ in catalog.at(_text(ref, "uri")))


def _text(params: dict[str, Any], name: str) -> str:
    value = params.get(name)
    return value if isinstance(value, str) else ""


Named = Callable[["Catalog", dict[str, Any]], Iterator["Declaration | None"]]
_NAMED: dict[str, Named] = {
    "tools/call": _tool,
    "prompts/get": _prompt,
    "resources/read": _resources,
    "resources/subscribe": _resources,
    "completion/complete": _referred,
}
