"""Checks of an HTTP request before it is handled: Host and Origin, names, scopes, 401 and 403.

``guard`` checks the method, Host and Origin before the body is read. Django's settings decide:
ALLOWED_HOSTS, CSRF_TRUSTED_ORIGINS and the trusted proxy headers. "Servers MUST validate the Origin
header on all incoming connections to prevent DNS rebinding attacks."

``check_names`` answers 401 to a request without a token that names something private. A name that
does not exist gets the same answer, so that responses do not show which private names exist. If
nothing of that kind is private, or the parameter is no name at all, the method reports the error.

``check_scopes`` answers 403 before a call begins if its token lacks scopes. The response lists all
scopes that are missing, but only for what the user may do, so that it reveals nothing else. For
tokens without scopes, and for those that cannot get more, nothing is looked up.

``challenge`` and ``insufficient`` build the 401 and 403 (RFC 6750, 3). The verifiers say where to
get a token; the first verifier that sets a parameter decides it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from django.http.request import split_domain_port, validate_host
from django.utils.encoding import escape_uri_path
from django.utils.http import is_same_domain

from ...auth.principal import ChallengingVerifier, verifiers
from ...auth.scopes import cover_everything
from ...calls.execution import surrounded_job
from ...calls.records import CallRecord
from ...calls.runner import record_denied_call
from ...calls.throttling import MAX_SUBSCRIPTIONS
from ...conf import project, settings
from ...declarations.declaration import decide, grantable
from ...declarations.request import Request
from ...exceptions import Busy, InsufficientScope
from ...protocol import http_rules
from ...protocol.connection import ClientCall
from ...protocol.jsonrpc import Id, InvalidParams, InvalidRequest
from .request import RequestRejected

if TYPE_CHECKING:
    from ...declarations.catalog import Catalog
    from ...declarations.declaration import Declaration
    from .request import Exchange

INSUFFICIENT_SCOPE = "The token lacks scopes for this."
METHODS = ("POST", "GET", "DELETE", "OPTIONS")
ALLOW = (b"allow", ", ".join(METHODS).encode())
HOSTS_UNDER_DEBUG = (".localhost", "127.0.0.1", "[::1]")  # as Django allows under DEBUG
# Characters of a host or an origin. A domain name has 253 at most. Longer texts, which clients
# choose, would be kept as keys of the caches below.
MAX_HOST_LENGTH = 300
# CORS: the request headers that a page may send.
ALLOWED_REQUEST_HEADERS = (
    b"authorization", b"content-type", b"accept", b"last-event-id",
    *(
        name.encode()
        for name in (
            http_rules.PROTOCOL_VERSION, http_rules.SESSION_ID, http_rules.METHOD, http_rules.NAME,
        )
    ),
)  # fmt: skip
PREFLIGHT_HEADERS = (
    (b"access-control-allow-methods", b"POST, GET, DELETE"),
    (b"access-control-max-age", b"7200"),
)
EXPOSE_HEADERS = (
    b"access-control-expose-headers",
    b"mcp-session-id, www-authenticate, retry-after",
)
VARY = (b"vary", b"origin")
PARAMETER = re.compile(  # a header name (RFC 9110, 5.6.2) that mirrors a tool's argument
    re.escape(http_rules.PARAM_PREFIX).encode() + rb"[!#$%&'*+.^_`|~0-9a-z-]+"
)
MAX_PREFLIGHT_BYTES = 4_000  # bytes of a preflight's header names that are read
# "scheme://host:port" and no more (RFC 6454, 6.2); no path, no user, no "null".
ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


def challenge(
    exchange: Exchange, *, invalid: bool = False, about: Id | None = None
) -> RequestRejected:
    """Return the 401 that asks for a token (RFC 6750, 3).

    ``about`` is the id of the JSON-RPC request, if known. ``invalid`` says that the request had a
    token that is not valid.
    """
    message = "The token is not valid here." if invalid else "A token is needed."
    error = {"error": "invalid_token", "error_description": message} if invalid else {}
    return _rejection(exchange, 401, message, error, about)


def insufficient(
    exchange: Exchange, scopes: Sequence[str], *, about: Id | None = None
) -> RequestRejected:
    """Return the 403 that asks for a token with all of ``scopes`` (RFC 6750, 3.1)."""
    error = {"error": "insufficient_scope", "scope": " ".join(scopes)}
    error["error_description"] = INSUFFICIENT_SCOPE
    message = f"{INSUFFICIENT_SCOPE} It needs: {error['scope']}."
    return _rejection(exchange, 403, message, error, about)


def _rejection(
    exchange: Exchange, status: int, message: str, error: Mapping[str, str], about: Id | None
) -> RequestRejected:
    parameters = {"realm": exchange.server.public_name, **error}
    for verifier in verifiers():
        # Parameters of an earlier verifier are kept: clients go to the issuer of the first.
        if isinstance(verifier, ChallengingVerifier):
            extra_parameters = verifier.challenge(exchange.server)
            parameters |= {k: v for k, v in extra_parameters.items() if k not in parameters}
    if metadata_url := parameters.get("resource_metadata"):
        parameters["resource_metadata"] = _with_same_trailing_slash(metadata_url, exchange)
    header = (b"www-authenticate", _bearer(parameters))
    return RequestRejected(status, InvalidRequest(message, about=about), (header,))


def _with_same_trailing_slash(metadata_url: str, exchange: Exchange) -> str:
    """Return the URL of the metadata, with a trailing slash if the request's URL has one.

    Clients compare the name in the metadata with the URL that they use (RFC 9728, 3.3).
    """
    path = escape_uri_path(exchange.scope["path"])
    is_other = path.endswith("/") and path != "/" and metadata_url.endswith(path[:-1])
    return f"{metadata_url}/" if is_other else metadata_url


def _bearer(parameters: Mapping[str, str]) -> bytes:
    return ("Bearer " + ", ".join(f'{k}="{_quotable(v)}"' for k, v in parameters.items())).encode()


def _quotable(text: str) -> str:
    """Return the text with "?" for all that needs escapes in a quoted string (RFC 9110, 5.6.4)."""
    return re.sub(r"[^ !#-\[\]-~]", "?", text)


async def check_names(exchange: Exchange, call: ClientCall) -> None:
    """Raise a 401 if an anonymous client names something that is private or does not exist.

    Both leave the same records, without a declaration. Otherwise a client could tell them apart by
    the time that an audit entry takes.
    """
    catalog = exchange.server._catalog
    if exchange.principal.is_authenticated or not catalog.private_kinds:
        return
    for kind, candidates in declarations_named_in(catalog, call):
        if kind in catalog.private_kinds and not any(one._is_public for one in candidates):
            await _record_denied(exchange, call, InvalidParams("A token is needed."))
            raise challenge(exchange, about=call.id)


async def _record_denied(
    exchange: Exchange, call: ClientCall, error: Exception, declaration: Declaration | None = None
) -> None:
    # A request that needs no session may still have the header of one.
    session = exchange.session if call.revision.handshake else None
    transport, pk = ("http", None) if session is None else (session.transport, session.pk)
    record = CallRecord(call, exchange.server, exchange.principal, session=pk, transport=transport)
    record.declaration = declaration
    await record_denied_call(record, error)


def declarations_named_in(
    catalog: Catalog, call: ClientCall
) -> Iterator[tuple[str, list[Declaration]]]:
    """Yield the kind of each name in a call, and the declarations that it may mean.

    The kinds are those of ``Catalog.private_kinds``. A name that does not exist means nothing.
    """
    name, uri = call.params.get("name"), call.params.get("uri")
    match call.method:
        case "tools/call" if isinstance(name, str):
            tool = catalog.called_tool(call.params)
            yield "tools", [] if tool is None else [tool]
        case "prompts/get" if isinstance(name, str):
            yield "prompts", [catalog.prompts[name]] if name in catalog.prompts else []
        case "resources/read" | "resources/subscribe" if isinstance(uri, str):
            yield "resources", [resource for resource, _ in catalog.at(uri)]
        case "subscriptions/listen":
            yield from _listened(catalog, call.params.get("notifications"))
        case "completion/complete":
            yield from _referred(catalog, call.params.get("ref"))


def _listened(catalog: Catalog, wanted: Any) -> Iterator[tuple[str, list[Declaration]]]:
    uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
    for uri in uris[:MAX_SUBSCRIPTIONS] if isinstance(uris, list) else ():
        if isinstance(uri, str):
            yield "resources", [resource for resource, _ in catalog.at(uri)]


def _referred(catalog: Catalog, ref: Any) -> Iterator[tuple[str, list[Declaration]]]:
    if not isinstance(ref, dict):
        return
    name, uri = ref.get("name"), ref.get("uri")
    if ref.get("type") == "ref/prompt":
        if isinstance(name, str):
            yield "prompts", [catalog.prompts[name]] if name in catalog.prompts else []
    elif isinstance(uri, str):
        templates = [catalog.templates[uri]] if uri in catalog.templates else []
        yield "resources", [*templates, *(resource for resource, _ in catalog.at(uri))]


def guard(exchange: Exchange, methods: Collection[str] = METHODS) -> None:
    """Check the method, Host and Origin; set the request's host and CORS headers.

    Raise ``RequestRejected`` with 405, 400 or 403.
    """
    if exchange.method not in methods:
        raise RequestRejected(405, f"There is no {exchange.method[:20]} here.", (ALLOW,))
    host = exchange.headers.get("host", "")
    if project.USE_X_FORWARDED_HOST:
        host = exchange.headers.get("x-forwarded-host", host)
    if len(host) > MAX_HOST_LENGTH or not _is_allowed(host, allowed_hosts()):
        raise RequestRejected(400, "This host is not allowed: see ALLOWED_HOSTS.")
    exchange.host = host
    origin = exchange.headers.get("origin")
    if origin is None:
        return
    if not _is_trusted(origin, exchange):
        raise RequestRejected(403, "This origin is not trusted: see CSRF_TRUSTED_ORIGINS.", (VARY,))
    allowed = (b"access-control-allow-origin", origin.encode("latin-1"))
    exchange.cors = (allowed, EXPOSE_HEADERS, VARY)


async def preflight(exchange: Exchange) -> None:
    """Answer OPTIONS, also as a CORS preflight (Fetch, "CORS-preflight request")."""
    if "access-control-request-method" not in exchange.headers or not exchange.cors:
        await exchange.json(204, headers=(ALLOW,))
        return
    names = (
        b"access-control-allow-headers",
        b", ".join((*ALLOWED_REQUEST_HEADERS, *_parameters(exchange))),
    )
    await exchange.json(204, headers=(*PREFLIGHT_HEADERS, names))


def _parameters(exchange: Exchange) -> Iterable[bytes]:
    """Return the ``Mcp-Param-*`` headers that the preflight asks for.

    All are allowed, because each tool chooses the names of its own.
    """
    raw = exchange.scope["headers"]
    asked = (value for name, value in raw if name == b"access-control-request-headers")
    names = b",".join(asked)[:MAX_PREFLIGHT_BYTES].lower().split(b",")
    return filter(PARAMETER.fullmatch, dict.fromkeys(name.strip(b" \t") for name in names))


# Host.


def allowed_hosts() -> tuple[str, ...]:
    hosts = tuple(project.ALLOWED_HOSTS)
    return HOSTS_UNDER_DEBUG if project.DEBUG and not hosts else hosts


@lru_cache(maxsize=256)
def _is_allowed(host: str, allowed: tuple[str, ...]) -> bool:
    domain, _ = split_domain_port(host)
    return bool(domain) and validate_host(domain, list(allowed))


@lru_cache(maxsize=256)
def _is_own(host: str, allowed: tuple[str, ...]) -> bool:
    """Whether a page whose origin is this host may be trusted as one of the site's own.

    If ALLOWED_HOSTS is ``*``, an attacker's domain that resolves to this server passes as the same
    host (DNS rebinding). So the name must match another entry, or be an IP address, which DNS
    rebinding cannot fake.
    """
    if _is_allowed(host, tuple(name for name in allowed if name != "*")):
        return True
    try:
        ip_address(split_domain_port(host)[0].strip("[]"))
    except ValueError:
        return False
    return True


# Origin.


def _is_trusted(origin: str, exchange: Exchange) -> bool:
    if len(origin) > MAX_HOST_LENGTH or exchange.host is None:
        return False
    trusted = [settings.URL.rstrip("/"), *project.CSRF_TRUSTED_ORIGINS]
    if _is_own(exchange.host, allowed_hosts()):
        trusted.append(f"{_scheme(exchange)}://{exchange.host}")
    return _matches(origin, tuple(trusted))


def _scheme(exchange: Exchange) -> str:
    """Return the scheme of the client's request, as ``HttpRequest.scheme`` does."""
    if secure := project.SECURE_PROXY_SSL_HEADER:
        header, value = secure
        given = _header(exchange, header.removeprefix("HTTP_").replace("_", "-").lower())
        if given is not None:
            return "https" if given.split(",", 1)[0].strip() == value else "http"
    return str(exchange.scope.get("scheme", "http"))


def _header(exchange: Exchange, name: str) -> str | None:
    wanted = name.encode()
    found = (value for key, value in exchange.scope["headers"] if key == wanted)
    return next((value.decode("latin-1") for value in found), None)


@lru_cache(maxsize=256)
def _matches(origin: str, trusted: tuple[str, ...]) -> bool:
    """Whether an origin is in ``trusted``, or matches an entry with a wildcard (``https://*.``)."""
    origin = origin.lower()
    if ORIGIN.fullmatch(origin) is None:
        return False
    if origin in (one.lower() for one in trusted):
        return True
    scheme, host = origin.split("://")
    wildcards = (urlsplit(one.lower()) for one in trusted if "://*." in one)
    return any(
        one.scheme == scheme and is_same_domain(host, one.netloc.removeprefix("*"))
        for one in wildcards
    )


async def check_scopes(exchange: Exchange, calls: Sequence[ClientCall]) -> None:
    """Raise a 403 that lists all scopes the calls need (basic/authorization, "Scope Challenge").

    Calls of revisions without that response get a JSON-RPC error from the method. Raise ``Busy``
    if the thread pool is exhausted.
    """
    auth = exchange.principal.auth
    if auth is None or auth.application is None:  # ``grantable`` is false for every declaration
        return
    if cover_everything(frozenset(auth.scopes)):
        return
    narrow = [
        (call, candidates)
        for call in calls if call.revision.scope_challenges
        for _, candidates in declarations_named_in(exchange.server._catalog, call)
        if any(one._missing_scopes(auth) and grantable(one, auth) for one in candidates)
    ]  # fmt: skip
    if not narrow:
        return
    request = Request(exchange.principal, exchange.server, host=exchange.host)
    try:
        found = await surrounded_job(
            request,
            lambda: [_missing_scopes_of_name(request, candidates) for _, candidates in narrow],
        )
    except Busy:
        raise
    # An error in the project's permission check: the call runs into it again, and reports it in
    # the usual way.
    except Exception:
        return
    denied = [(call, one) for (call, _), one in zip(narrow, found, strict=True) if one is not None]
    for call, (declaration, scopes) in denied:
        await _record_denied(exchange, call, InsufficientScope(scopes), declaration)
    if needed := list(dict.fromkeys(scope for _, (_, scopes) in denied for scope in scopes)):
        raise insufficient(exchange, needed, about=calls[0].id if len(calls) == 1 else None)


def _missing_scopes_of_name(
    request: Request, candidates: Iterable[Declaration]
) -> tuple[Declaration, Sequence[str]] | None:
    """Return the declaration of a name that the user may use, and the scopes that the token lacks.

    Return None if one of the candidates can be used, or none with more scopes. Runs in a thread.
    """
    found = [(one, decide(one, request)) for one in candidates]
    if any(decision.allowed for _, decision in found):
        return None
    narrow = ((one, decision.missing_scopes) for one, decision in found if decision.missing_scopes)
    return next(narrow, None)
