"""Validation of client metadata (RFC 7591, 2) and redirect URIs.

Anybody can send metadata. Stored values are short, printable and safe to display. Unknown
members are dropped, and unsupported flows are rejected. Dynamic registration and client ID metadata
documents use the same code.

Redirect URIs (RFC 6749, 3.1.2; RFC 8252, 7; RFC 9700, 2.1) use https, http to this machine, or a
scheme of ``REDIRECT_SCHEMES``. Only characters that RFC 3986 allows are accepted. Otherwise a
browser and this code might parse the same string as different targets.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import SplitResult, urlsplit

from django.core.exceptions import ValidationError
from django.http.request import validate_host
from oauth2_provider.settings import oauth2_settings
from oauth2_provider.validators import AllowedURIValidator

from .conf import settings
from .models import ClientProfile

MAX_REDIRECT_URI_LENGTH = 512  # characters of a redirect URI
MAX_REDIRECT_URIS = 10  # redirect URIs of a client that registers itself
# RFC 3986, 2, without "#", which opens a fragment, and "*", which looks like a wildcard.
URI = re.compile(r"(?:[A-Za-z0-9._~:/?\[\]@!$&'()+,;=-]|%[0-9A-Fa-f]{2})+")
LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
NETLOC = re.compile(rf"(?:{LABEL}(?:\.{LABEL})*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{{1,5}})?")
NUMBER = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
LOOPBACK = {"127.0.0.1", "::1", "localhost"}
# Schemes that a browser runs or reads itself. ``REDIRECT_SCHEMES`` cannot allow them.
BROWSER_SCHEMES = {
    "about", "blob", "content", "data", "file", "filesystem", "ftp", "http", "https", "intent",
    "jar", "javascript", "mailto", "vbscript", "view-source", "ws", "wss",
}  # fmt: skip
MAX_CLIENT_NAME_LENGTH = 100
GRANT_AUTHORIZATION_CODE = "authorization_code"
GRANT_TYPES = [GRANT_AUTHORIZATION_CODE, "refresh_token"]
RESPONSE_TYPES = ["code"]
AUTH_METHOD_NONE, AUTH_METHOD_PRIVATE_KEY = "none", "private_key_jwt"
AUTH_METHODS_WITH_SECRET = ("client_secret_basic", "client_secret_post")
APPLICATION_TYPES = ("native", "web")


def redirect_uri_problem(uri: Any) -> str | None:
    """Return why a redirect URI is not accepted, as a message for the client; None if it is."""
    if not isinstance(uri, str) or len(uri) > MAX_REDIRECT_URI_LENGTH:
        return f"a redirect URI must be a string of at most {MAX_REDIRECT_URI_LENGTH} characters"
    if not URI.fullmatch(uri):
        return "a redirect URI must have only characters of RFC 3986, no fragment and no wildcard"
    try:
        parts = urlsplit(uri)
        parts.port  # noqa: B018 - raises for an invalid port
    except ValueError:
        return "a redirect URI must be an absolute URI"
    return CHECKS_BY_SCHEME.get(parts.scheme, _check_app_scheme)(parts) or _toolkit_problem(uri)


def valid_redirect_uris(uris: Iterable[Any]) -> list[str]:
    """Return the accepted redirect URIs, each once."""
    return list(dict.fromkeys(uri for uri in uris if not redirect_uri_problem(uri)))


def _check_https(parts: SplitResult) -> str | None:
    if not NETLOC.fullmatch(parts.netloc):
        return "a redirect URI must have a host, and no user name or password"
    return "the host is not a valid address" if _is_invalid_address(parts.hostname or "") else None


def _check_http(parts: SplitResult) -> str | None:
    if NETLOC.fullmatch(parts.netloc) and parts.hostname in LOOPBACK:
        return None
    return "http is allowed for localhost, 127.0.0.1 and [::1] only; use https"


def _check_app_scheme(parts: SplitResult) -> str | None:
    """Check a private scheme: ``app:/path`` (RFC 8252, 7.1), or the common ``app://host/path``."""
    if parts.scheme not in {name.lower() for name in settings.REDIRECT_SCHEMES} - BROWSER_SCHEMES:
        return "a redirect URI must use https, or http to localhost"
    if parts.netloc:
        return _check_https(parts)
    return None if parts.path.startswith("/") else "a redirect URI must have a host or a path"


CHECKS_BY_SCHEME: dict[str, Callable[[SplitResult], str | None]] = {
    "https": _check_https,
    "http": _check_http,
}


def _is_invalid_address(host: str) -> bool:
    """Whether a host is an unspecified or invalid address, or an address in an unusual notation.

    Browsers take every host that ends in a number for an address, as 0, 0x0 and 0.0 for 0.0.0.0.
    """
    if ":" not in host and not NUMBER.fullmatch(host.rpartition(".")[2]):
        return False
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_unspecified


def _toolkit_problem(uri: str) -> str | None:
    """Return a problem if ``Application.clean`` rejects the URI.

    Otherwise the stored application could not be saved in the admin.
    """
    schemes = {scheme.lower() for scheme in oauth2_settings.ALLOWED_REDIRECT_URI_SCHEMES}
    try:
        AllowedURIValidator(schemes, "redirect uri", allow_path=True, allow_query=True)(uri)
    except ValidationError:
        return "this redirect URI is not allowed here"
    return None


class MetadataError(ValueError):
    """Metadata was rejected. ``code`` is the error code of RFC 7591, 3.2.2."""

    def __init__(self, description: str, code: str = "invalid_client_metadata") -> None:
        super().__init__(description)
        self.code = code


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """The validated metadata of a client."""

    name: str
    redirect_uris: list[str]
    auth_method: str
    application_type: str = ""
    client_uri: str = ""
    logo_uri: str = ""
    jwks_uri: str = ""

    @property
    def digest(self) -> str:
        """SHA-256 of all members, independent of the order of the redirect URIs."""
        members = asdict(self) | {"redirect_uris": sorted(self.redirect_uris)}
        return hashlib.sha256(json.dumps(members, sort_keys=True).encode()).hexdigest()

    @property
    def columns(self) -> dict[str, str]:
        """The values of the columns of ``ClientProfile``."""
        return {name: text for name, text in asdict(self).items() if name in COLUMNS} | {
            "digest": self.digest
        }


COLUMNS = {field.name for field in ClientProfile._meta.get_fields()}


def parse_metadata(document: Any, *, redirect_uris: list[str], auth_method: str) -> ClientMetadata:
    """Validate the other metadata of a client, or raise ``MetadataError``.

    The caller has validated ``redirect_uris`` and ``auth_method``.
    """
    _check_flow(document)
    uses_key = auth_method == AUTH_METHOD_PRIVATE_KEY
    return ClientMetadata(
        name=_name(document.get("client_name", "")),
        redirect_uris=redirect_uris,
        auth_method=auth_method,
        application_type=_known_or_empty(document.get("application_type"), APPLICATION_TYPES),
        client_uri=_link(document.get("client_uri")),
        logo_uri=_link(document.get("logo_uri")),
        jwks_uri=_jwks_uri(document.get("jwks_uri")) if uses_key else "",
    )


def string_list(document: dict[str, Any], name: str, default: list[str] | None = None) -> list[str]:
    """Return a member that is a list of strings, or raise ``MetadataError``."""
    value = document.get(name, default)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise MetadataError(f"{name} must be a list of strings")
    return value


def printable(text: str, max_length: int) -> str:
    """Return a text on one line, without invisible characters and text direction marks."""
    line = " ".join(unicodedata.normalize("NFC", text).split())
    visible = "".join(character for character in line if unicodedata.category(character)[0] != "C")
    return " ".join(visible.split())[:max_length].strip()


def _check_flow(document: dict[str, Any]) -> None:
    """Require the authorization code flow. Other requested flows are ignored (RFC 7591, 2)."""
    required = GRANT_AUTHORIZATION_CODE
    if required not in string_list(document, "grant_types", [required]):
        raise MetadataError(f"grant_types must contain {required!r}")
    if "code" not in string_list(document, "response_types", RESPONSE_TYPES):
        raise MetadataError("response_types must contain 'code'")


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise MetadataError("client_name must be a string")
    return printable(value, MAX_CLIENT_NAME_LENGTH)


def _known_or_empty(value: Any, choices: tuple[str, ...]) -> str:
    """Return ``value`` if it is one of ``choices``, else "". Optional values may be ignored."""
    return value if isinstance(value, str) and value in choices else ""


def _link(value: Any) -> str:
    """Return the URL of a page or a picture if it is a valid https URL, else ""."""
    # The rules for https redirect URIs suit links too: a valid host, no user name or password.
    is_https = isinstance(value, str) and value.startswith("https://")
    return value if is_https and not redirect_uri_problem(value) else ""


def _jwks_uri(value: Any) -> str:
    """Return the client's ``jwks_uri``, or raise ``MetadataError``.

    This server fetches that URL, so only port 443 and hosts of ``CLIENT_HOSTS`` are allowed.
    """
    if not (uri := _link(value)) or urlsplit(uri).port not in (None, 443):
        raise MetadataError(
            f"{AUTH_METHOD_PRIVATE_KEY} needs a jwks_uri that uses https and port 443"
        )
    if not validate_host(urlsplit(uri).hostname or "", settings.CLIENT_HOSTS):
        raise MetadataError("the host of jwks_uri is not allowed here")
    return uri
