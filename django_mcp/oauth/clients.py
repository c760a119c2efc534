"""
What a client says of itself (RFC 7591, 2), as far as it is taken.

Rule: it is the word of a stranger. What is kept is short, printable and harmless; what there is no
use for is not kept; what cannot be done is refused. A client that registers itself and one that is
known by its document say the same things, and are read by the same code.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

from django.http.request import validate_host

from . import redirects
from .conf import settings
from .models import ClientProfile

NAME = 100  # characters of a name
URI = 512  # of any URI
CODE = "authorization_code"
GRANTS = [CODE, "refresh_token"]
RESPONSES = ["code"]
NONE, KEY = "none", "private_key_jwt"
WITH_SECRET = ("client_secret_basic", "client_secret_post")
APPLICATION_TYPES = ("native", "web")


class MetadataError(ValueError):
    """Metadata that is not taken, by the error code of RFC 7591, 3.2.2, and why."""

    def __init__(self, description: str, code: str = "invalid_client_metadata") -> None:
        super().__init__(description)
        self.code = code


@dataclass(frozen=True, slots=True)
class ClientMetadata:
    """What a client says of itself, checked."""

    name: str
    redirect_uris: list[str]
    auth_method: str
    application_type: str = ""
    client_uri: str = ""
    logo_uri: str = ""
    jwks_uri: str = ""

    @property
    def digest(self) -> str:
        """Of all of it. The order of the redirect URIs is no matter."""
        what = asdict(self) | {"redirect_uris": sorted(self.redirect_uris)}
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    @property
    def columns(self) -> dict[str, str]:
        """What ``ClientProfile`` has of it."""
        return {name: text for name, text in asdict(self).items() if name in COLUMNS} | {
            "digest": self.digest
        }


COLUMNS = {field.name for field in ClientProfile._meta.get_fields()}


def read(document: Any, redirect_uris: list[str], auth_method: str) -> ClientMetadata:
    """Metadata, of which the redirect URIs and the method were looked at; or ``MetadataError``."""
    _check_flow(document)
    uses_key = auth_method == KEY
    return ClientMetadata(
        name=_name(document.get("client_name", "")),
        redirect_uris=redirect_uris,
        auth_method=auth_method,
        application_type=_one_of(document.get("application_type"), APPLICATION_TYPES),
        client_uri=_link(document.get("client_uri")),
        logo_uri=_link(document.get("logo_uri")),
        jwks_uri=_keys(document.get("jwks_uri")) if uses_key else "",
    )


def texts(document: dict[str, Any], name: str, default: list[str] | None = None) -> list[str]:
    """A list of strings, or ``MetadataError``."""
    found = document.get(name, default)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise MetadataError(f"{name} is a list of strings")
    return found


def printable(text: str, longest: int) -> str:
    """A text on one line, without what is not seen or turns the rest around."""
    line = " ".join(unicodedata.normalize("NFC", text).split())
    kept = "".join(one for one in line if unicodedata.category(one)[0] != "C")
    return " ".join(kept.split())[:longest].strip()


def _check_flow(document: dict[str, Any]) -> None:
    """A code, and maybe more: what else it asks for, it does not get (RFC 7591, 2)."""
    if CODE not in texts(document, "grant_types", [CODE]):
        raise MetadataError(f"grant_types has {CODE!r} in it")
    if "code" not in texts(document, "response_types", RESPONSES):
        raise MetadataError("response_types has 'code' in it")


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise MetadataError("client_name is a string")
    return printable(value, NAME)


def _one_of(value: Any, choices: tuple[str, ...]) -> str:
    return value if isinstance(value, str) and value in choices else ""


def _link(value: Any) -> str:
    """A page or a picture: kept where it is safe to follow."""
    fine = isinstance(value, str) and value.startswith("https://") and not redirects.wrong(value)
    return value if fine else ""


def _keys(value: Any) -> str:
    """Where the client's keys are: they are fetched from there, from no odd port or host."""
    if not (found := _link(value)) or urlsplit(found).port not in (None, 443):
        raise MetadataError(f"{KEY} needs a jwks_uri, by https")
    if not validate_host(urlsplit(found).hostname or "", settings.CLIENT_HOSTS):
        raise MetadataError("jwks_uri is at a host that is not taken")
    return found
