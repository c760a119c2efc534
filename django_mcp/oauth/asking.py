"""
Authorization requests: what django-oauth-toolkit verifies of them, and what it does not.

Rule: a request is what its URL says, whether it is shown or agreed to: nothing of a form is part of
it. Whoever's redirect URI was not verified is never sent the browser; everybody else hears what is
wrong (RFC 6749, 4.1.2.1; RFC 8707, 2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote_plus, urlsplit

from django.http import QueryDict
from oauth2_provider.exceptions import FatalClientError, OAuthToolkitError
from oauth2_provider.models import get_application_model
from oauth2_provider.oauth2_backends import OAuthLibCore
from oauthlib.oauth2.rfc6749 import errors

from ..protected.names import canonical, served
from .conf import issuer
from .consent import Destination, destination
from .held import joined
from .models import ClientProfile, Source

if TYPE_CHECKING:
    from ..declare.servers import Server

CONTROL = re.compile(r"[\x00-\x1f\x7f]")  # RFC 6749, Appendix A: in no parameter
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")  # RFC 7636, 4.2: a SHA-256, in base64url
LONGEST_NONCE = 255  # what the column of a grant holds
KEPT = ("client_id", "redirect_uri", "response_type", "state", "code_challenge",
        "code_challenge_method", "nonce", "claims")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that may be put to a person. ``prompt`` is of OpenID Connect Core, 3.1.2.1."""

    application: Any
    credentials: Mapping[str, Any]
    destination: Destination
    servers: Mapping[str, Server]
    scopes: tuple[str, ...]
    prompt: frozenset[str]
    held: tuple[str, ...] = ()  # of what it may do already

    def holding(self, held: tuple[str, ...]) -> Asked:
        """The same by a client that has these scopes, and keeps them where it asks for more."""
        return replace(self, held=held, scopes=joined(self.scopes, held))

    def refused(self, error: str, description: str = "") -> OAuthToolkitError:
        """What to raise, so that the client hears of it."""
        return _refused(self.credentials, error, description)


class QueryAlone(OAuthLibCore):  # type: ignore[misc]
    """What a form carries would go over what the URL says."""

    def extract_body(self, request: Any) -> list[Any]:
        return []

    def _get_escaped_full_path(self, request: Any) -> str:
        """RFC 6749, 3.1: a parameter without a value is as if it were omitted."""
        parts = urlsplit(str(super()._get_escaped_full_path(request)))
        said = [pair for pair in parts.query.split("&") if pair.partition("=")[2]]
        return parts._replace(query="&".join(said)).geturl()


def asked(query: QueryDict, validated: Callable[[], tuple[list[str], dict[str, Any]]]) -> Asked:
    """The request that a query makes.

    ``validated`` is django-oauth-toolkit's validation of the same, which raises
    ``OAuthToolkitError``, as this does, or ``FatalClientError`` where only the person may hear it.
    """
    scopes, credentials = _validated(query, validated)
    application = _application(credentials["client_id"])
    to = _destination(query, application, credentials["redirect_uri"])
    if ClientProfile.objects.filter(
        client_id=application.client_id, blocked__isnull=False
    ).exists():
        raise FatalClientError(errors.InvalidClientIdError())
    _demand(query, credentials)
    servers = _servers(query, credentials)
    kept = {name: credentials.get(name) for name in KEPT} | {"resource": list(servers)}
    return Asked(application, kept, to, servers, tuple(dict.fromkeys(scopes)), prompt(query))


def _application(client_id: str) -> Any:
    """Its row, which may be gone since the request was validated."""
    found = get_application_model().objects.filter(client_id=client_id).first()
    if found is None:
        raise FatalClientError(errors.InvalidClientIdError())
    return found


def _destination(query: QueryDict, application: Any, uri: str) -> Destination:
    """That of a document, which may be another one by the time of the answer, is to be named."""
    if application.registration_source == Source.CIMD and not query.get("redirect_uri"):
        raise FatalClientError(errors.MissingRedirectURIError())
    if (to := destination(uri)) is None:
        raise FatalClientError(errors.InvalidRedirectURIError())
    return to


def prompt(query: QueryDict) -> frozenset[str]:
    return frozenset(" ".join(query.getlist("prompt")).split())


def with_issuer(uri: str) -> str:
    """A redirect URI that says who answers, once (RFC 9207, 2). All else is as it was."""
    parts = urlsplit(uri)
    others = [pair for pair in parts.query.split("&") if pair and _name(pair) != "iss"]
    query = "&".join([*others, f"iss={quote(issuer(), safe='')}"])
    return parts._replace(query=query, fragment="").geturl()


def _name(pair: str) -> str:
    return unquote_plus(pair.partition("=")[0])


def _validated(query: QueryDict, validated: Callable[[], Any]) -> Any:
    if any(CONTROL.search(text) for name, texts in query.lists() for text in (name, *texts)):
        raise FatalClientError(errors.InvalidRequestFatalError("A control character."))
    try:
        return validated()
    except ValueError as error:  # of a query, or of a URI in it, that is none
        malformed = errors.InvalidRequestFatalError("Malformed request.")
        raise FatalClientError(malformed) from error


def _refused(
    credentials: Mapping[str, Any], error: str, description: str = ""
) -> OAuthToolkitError:
    told = errors.CustomOAuth2Error(error, description, state=credentials.get("state"))
    return OAuthToolkitError(told, redirect_uri=credentials["redirect_uri"])


def _servers(query: QueryDict, credentials: Mapping[str, Any]) -> dict[str, Server]:
    """Those that the request names; the only one that there is, if it names none."""
    known = served()
    # RFC 6749, 3.1: a parameter without a value is as if it were omitted.
    named = [canonical(uri) for uri in query.getlist("resource") if uri]
    if not named and len(known) == 1:
        return known
    if not named or not known.keys() >= set(named):
        words = "There is no such resource." if named else "Say which resource it is for."
        raise _refused(credentials, "invalid_target", words)
    return {uri: known[uri] for uri in named if uri}


# What is wrong with a request, and how: the first that is true is told.
Credentials = Mapping[str, Any]
WRONG: tuple[tuple[Callable[[QueryDict, Credentials], bool], str, str], ...] = (
    (
        lambda query, _: any(len(v) > 1 for name, v in query.lists() if name != "resource"),
        "invalid_request", "A parameter is there twice.",
    ),
    (
        lambda _, credentials: credentials["response_type"] != "code",
        "unsupported_response_type", "Only response_type=code is there.",
    ),
    (
        lambda query, _: query.get("response_mode", "query") not in ("", "query"),
        "invalid_request", "Only response_mode=query is there.",
    ),
    (
        lambda _, credentials: not _is_challenge(credentials),
        "invalid_request", "A code_challenge with code_challenge_method=S256 is required.",
    ),
    (
        lambda query, _: len(query.get("nonce", "")) > LONGEST_NONCE,
        "invalid_request", "The nonce is too long.",
    ),
    (
        lambda query, _: prompt(query) > {"none"},
        "invalid_request", "prompt=none goes with no other.",
    ),
)  # fmt: skip


def _demand(query: QueryDict, credentials: Credentials) -> None:
    for is_wrong, error, description in WRONG:
        if is_wrong(query, credentials):
            raise _refused(credentials, error, description)


def _is_challenge(credentials: Credentials) -> bool:
    by_hash = credentials.get("code_challenge_method") == "S256"
    return by_hash and bool(CHALLENGE.fullmatch(credentials.get("code_challenge") or ""))
