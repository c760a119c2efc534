"""Validation of authorization requests, and the data that the consent page shows.

``validate_request`` returns an ``AuthorizationRequest``, after django-oauth-toolkit's validation
and further checks. ``consent_question`` makes the data of the page, a ``ConsentQuestion``.

A request consists of the parameters in its URL, both when it is shown and when it is confirmed. The
form adds the chosen server, if the URL names none, and the scopes that were shown. The browser is
never redirected to a URI that was not verified: malformed requests, control characters, unknown or
blocked clients and invalid redirect URIs are shown to the user only. Other errors are sent to the
client (RFC 6749, 4.1.2.1; RFC 8707, 2).

Names that a client registered are shown as unverified, without control characters and invisible
characters. Only verified data is presented as fact: the host of a metadata document, and the
redirect target.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_plus, urlsplit

from django.http import QueryDict
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.models import get_application_model
from oauth2_provider.oauth2_backends import OAuthLibCore
from oauth2_provider.scopes import get_scopes_backend
from oauthlib.oauth2.rfc6749 import errors

from ..verifiers.protected_resource import PORTS, canonical, served
from .client_registry import is_registered_by_staff
from .conf import issuer, settings
from .models import ClientProfile, Source
from .resource_indicators import default_servers
from .scope_grants import join_scopes, may_authorize, new_scopes

if TYPE_CHECKING:
    from ..declarations.server import Server

MAX_SHOWN_NAME_LENGTH = 60  # characters of a name on the page
LOOPBACK = ("127.0.0.1", "::1", "localhost")
DOTS = str.maketrans("。．｡", "...")  # other characters that separate labels (UTS 46)
# Invisible characters whose Unicode category is that of letters, marks or symbols.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# Keys of request.META that mark requests at our authorization view and at our token view, for
# ``validators``. Clients cannot set them by a header, because headers have the prefix HTTP_ there.
OUR_VIEW, OUR_TOKEN_VIEW = "mcp.oauth.view", "mcp.oauth.token_view"
SITE, DEVICE, APP = "site", "device", "app"


@dataclass(frozen=True, slots=True)
class Destination:
    """The target of a redirect: a site, a program on this device, or an app (by URI scheme)."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class ConsentClient:
    """The client as the page shows it. ``host`` is that of its metadata document, or "".

    ``source`` is ``MANUAL`` only if the site's staff registered the client. Only then is its name
    presented as verified.
    """

    name: str
    source: Source
    host: str = ""


@dataclass(frozen=True, slots=True)
class ConsentQuestion:
    """The data of the consent page. If ``may_allow`` is false, the user can only decline."""

    client: ConsentClient
    destination: Destination
    servers: Mapping[str, str]  # titles by URL
    scopes: Sequence[str]  # descriptions of the new scopes; of all if none is new
    held: Sequence[str]  # descriptions of the other requested scopes; empty if none is new
    shown: str  # names of all scopes, separated by spaces; the form sends them back
    user: Any
    may_allow: bool
    choices: Mapping[str, str]  # titles by URL: servers of which the user chooses one


def consent_question(request: AuthorizationRequest, user: Any) -> ConsentQuestion:
    """Return what to show ``user``.

    If the client already holds scopes and requests new ones, the new ones are listed separately.
    """
    new = new_scopes(request.scopes, request.held) or request.scopes
    choices = {
        uri: server for uri, server in request.choices.items() if may_authorize(user, [server])
    }
    may_allow = may_authorize(user, list(request.servers.values()))
    return ConsentQuestion(
        client=consent_client(request.application),
        destination=request.destination,
        servers=_titles_by_url(request.servers),
        scopes=scope_descriptions(new),
        held=scope_descriptions(scope for scope in request.scopes if scope not in new),
        shown=" ".join(request.scopes),
        user=user,
        may_allow=may_allow and bool(request.servers or choices),
        choices=_titles_by_url(choices),
    )


def _titles_by_url(servers: Mapping[str, Server]) -> dict[str, str]:
    return {uri: str(server.title or server.public_name) for uri, server in servers.items()}


def scope_descriptions(scopes: Iterable[str]) -> list[str]:
    """Return the descriptions of scopes. A scope that is no longer offered keeps its name."""
    descriptions = get_scopes_backend().get_all_scopes()
    return [str(descriptions.get(scope) or scope) for scope in scopes]


def consent_client(application: Any) -> ConsentClient:
    """Return how to show an application: as registered by the staff, by itself or by a document."""
    source = Source.MANUAL if is_registered_by_staff(application) else Source.DCR
    if application.registration_source == Source.CIMD:
        source = Source.CIMD
    host = _host(application.client_id) if source is Source.CIMD else ""
    return ConsentClient(displayable(application.name), source, host)


def displayable(text: str) -> str:
    """Return a name on one line, without invisible characters and text direction marks.

    It is cut at ``MAX_SHOWN_NAME_LENGTH``.
    """
    text = _without_format_characters(text)
    characters = (" " if unicodedata.category(c)[0] in "CZ" or c in BLANK else c for c in text)
    return " ".join("".join(characters).split())[:MAX_SHOWN_NAME_LENGTH].rstrip()


def _without_format_characters(text: str) -> str:
    """Remove characters of the category Cf. They occur in words, so no space replaces them."""
    composed = unicodedata.normalize("NFC", text)
    return "".join(c for c in composed if unicodedata.category(c) != "Cf")


def destination(uri: str) -> Destination | None:
    """Return where a redirect URI leads; None if it is not allowed (OAuth 2.1, 2.3)."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if parts.scheme not in PORTS:
        if parts.scheme not in settings.REDIRECT_SCHEMES:
            return None
        return Destination(APP, displayable(f"{parts.scheme}:{_app_authority(host)}"))
    if not host or (parts.scheme == "http" and host not in LOOPBACK):
        return None
    suffix = "" if port in (None, PORTS[parts.scheme]) else f":{port}"
    return Destination(DEVICE if host in LOOPBACK else SITE, f"{in_ascii(host)}{suffix}")


def _app_authority(host: str) -> str:
    return f"//{in_ascii(host)}" if host else ""


def _host(url: str) -> str:
    return in_ascii(urlsplit(url).hostname or "")


def in_ascii(host: str) -> str:
    """Return a host in Punycode (RFC 3492), so that look-alike letters are visible as "xn--"."""
    if ":" in host:
        return f"[{host}]"
    normalized = unicodedata.normalize("NFKC", host.translate(DOTS)).lower()
    return ".".join(map(_label, normalized.split(".")))


def _label(label: str) -> str:
    return label if label.isascii() else f"xn--{label.encode('punycode').decode()}"


CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # not allowed in parameters (RFC 6749, Appendix A)
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636, 4.2: a SHA-256, in base64url
MAX_NONCE_LENGTH = 255  # characters, the length of the column of a grant
# The parameters that ``create_authorization_response`` of django-oauth-toolkit needs.
KEPT_PARAMETERS = ("client_id", "redirect_uri", "response_type", "state", "code_challenge",
        "code_challenge_method", "nonce", "claims")  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """A validated authorization request. For ``prompt`` see OpenID Connect Core, 3.1.2.1."""

    application: Any
    credentials: Mapping[str, Any]
    destination: Destination
    servers: Mapping[str, Server]
    scopes: tuple[str, ...]
    prompt: frozenset[str]
    held: tuple[str, ...] = ()  # scopes that the client already holds
    # The servers of which the user must choose one, if the request names none and several are
    # possible. Then ``servers`` is empty.
    choices: Mapping[str, Server] = field(default_factory=dict)

    def for_server(self, uri: str) -> AuthorizationRequest:
        """Return the request for the server that the user chose; unchanged if it is no choice."""
        if uri not in self.choices:
            return self
        credentials = {**self.credentials, "resource": [uri]}
        return replace(self, servers={uri: self.choices[uri]}, choices={}, credentials=credentials)

    def with_held_scopes(self, held: tuple[str, ...]) -> AuthorizationRequest:
        """Return the request of a client that already holds these scopes.

        If it asks for new scopes, the held ones are added.
        """
        return replace(self, held=held, scopes=join_scopes(self.scopes, held))

    def error(self, error: str, description: str = "") -> OAuthToolkitError:
        """Return an exception that sends the error to the client when it is raised."""
        return _client_error(self.credentials, error, description)


class QueryOnlyCore(OAuthLibCore):  # type: ignore[misc]
    """Read parameters only from the URL: oauthlib would let those of the form override them."""

    def extract_body(self, request: Any) -> list[Any]:
        return []

    def _get_escaped_full_path(self, request: Any) -> str:
        """Drop parameters without a value: they count as omitted (RFC 6749, 3.1)."""
        parts = urlsplit(str(super()._get_escaped_full_path(request)))
        pairs = [pair for pair in parts.query.split("&") if pair.partition("=")[2]]
        return parts._replace(query="&".join(pairs)).geturl()


def validate_request(
    query: QueryDict, validate: Callable[[], tuple[list[str], dict[str, Any]]]
) -> AuthorizationRequest:
    """Return the authorization request of a query.

    ``validate`` runs django-oauth-toolkit's validation. It and this function raise
    ``OAuthToolkitError`` for an error that is sent to the client, and ``FatalClientError`` for one
    that only the user sees.
    """
    scopes, credentials = _run_validation(query, validate)
    application = _application(credentials["client_id"])
    target = _destination(query, application, credentials["redirect_uri"])
    # The client may have been blocked since the request was validated.
    if ClientProfile.objects.filter(
        client_id=application.client_id, blocked__isnull=False
    ).exists():
        raise FatalClientError(errors.InvalidClientIdError())
    _run_checks(query, credentials)
    servers, choices = _servers(query, credentials), {}
    if len(servers) > 1 and not _requested_resources(query):
        servers, choices = {}, servers
    kept = {name: credentials.get(name) for name in KEPT_PARAMETERS} | {"resource": list(servers)}
    return AuthorizationRequest(
        application, kept, target, servers, tuple(dict.fromkeys(scopes)), prompt(query),
        choices=choices,
    )  # fmt: skip


def _application(client_id: str) -> Any:
    """Return the client's row. It may have been deleted since the request was validated."""
    application = get_application_model().objects.filter(client_id=client_id).first()
    if application is None:
        raise FatalClientError(errors.InvalidClientIdError())
    return application


def _destination(query: QueryDict, application: Any, uri: str) -> Destination:
    """Return the redirect target. Raise ``FatalClientError`` if it is missing or not allowed.

    Clients with a metadata document must send ``redirect_uri``. The document's default may change
    between the consent page and the user's decision.
    """
    if application.registration_source == Source.CIMD and not query.get("redirect_uri"):
        raise FatalClientError(errors.MissingRedirectURIError())
    if (target := destination(uri)) is None:
        raise FatalClientError(errors.InvalidRedirectURIError())
    return target


def prompt(query: QueryDict) -> frozenset[str]:
    return frozenset(" ".join(query.getlist("prompt")).split())


def with_issuer(uri: str) -> str:
    """Set ``iss`` in a redirect URI, exactly once (RFC 9207, 2).

    The fragment is removed. Other parameters stay as they are.
    """
    parts = urlsplit(uri)
    # The client may have registered a redirect URI with an ``iss`` of another server.
    others = [pair for pair in parts.query.split("&") if pair and _name(pair) != "iss"]
    query = "&".join([*others, f"iss={quote(issuer(), safe='')}"])
    return parts._replace(query=query, fragment="").geturl()


def _name(pair: str) -> str:
    return unquote_plus(pair.partition("=")[0])


def _run_validation(query: QueryDict, validate: Callable[[], Any]) -> Any:
    if any(CONTROL.search(text) for name, texts in query.lists() for text in (name, *texts)):
        control = errors.InvalidRequestFatalError("A parameter has a control character.")
        raise FatalClientError(control)
    try:
        return validate()
    except ValueError as error:  # a malformed query, or a malformed URI in it
        malformed = errors.InvalidRequestFatalError("Malformed request.")
        raise FatalClientError(malformed) from error


def _client_error(
    credentials: Mapping[str, Any], error: str, description: str = ""
) -> OAuthToolkitError:
    oauth_error = errors.CustomOAuth2Error(error, description, state=credentials.get("state"))
    return OAuthToolkitError(oauth_error, redirect_uri=credentials["redirect_uri"])


def _servers(query: QueryDict, credentials: Mapping[str, Any]) -> dict[str, Server]:
    """Return the servers that the request names; if it names none, the possible ones."""
    requested, known = _requested_resources(query), served()
    if not requested and (found := default_servers()):
        return found
    if not requested or not known.keys() >= set(requested):
        raise _client_error(credentials, "invalid_target", "There is no such resource.")
    return {uri: known[uri] for uri in requested if uri}


def _requested_resources(query: QueryDict) -> list[str | None]:
    # RFC 6749, 3.1: a parameter without a value counts as omitted.
    return [canonical(uri) for uri in query.getlist("resource") if uri]


# Checks of a request, in order: whether it is wrong, the error, and its description. The error of
# the first check that fails is raised.
Credentials = Mapping[str, Any]
CHECKS: tuple[tuple[Callable[[QueryDict, Credentials], bool], str, str], ...] = (
    (
        lambda query, _: any(len(v) > 1 for name, v in query.lists() if name != "resource"),
        "invalid_request", "A parameter is repeated.",
    ),
    (
        lambda _, credentials: credentials["response_type"] != "code",
        "unsupported_response_type", "Only response_type=code is supported.",
    ),
    (
        lambda query, _: query.get("response_mode", "query") not in ("", "query"),
        "invalid_request", "Only response_mode=query is supported.",
    ),
    (
        lambda _, credentials: not _is_challenge(credentials),
        "invalid_request", "A code_challenge with code_challenge_method=S256 is required.",
    ),
    (
        lambda query, _: len(query.get("nonce", "")) > MAX_NONCE_LENGTH,
        "invalid_request", "The nonce is too long.",
    ),
    (
        lambda query, _: prompt(query) > {"none"},
        "invalid_request", "prompt=none cannot be combined with other values.",
    ),
)  # fmt: skip


def _run_checks(query: QueryDict, credentials: Credentials) -> None:
    for is_wrong, error, description in CHECKS:
        if is_wrong(query, credentials):
            raise _client_error(credentials, error, description)


def _is_challenge(credentials: Credentials) -> bool:
    is_s256 = credentials.get("code_challenge_method") == "S256"
    return is_s256 and bool(CHALLENGE.fullmatch(credentials.get("code_challenge") or ""))
