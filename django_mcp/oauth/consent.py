"""
What a person is asked, as a value: who asks, for which server and what, and where the answer goes.

Rule: what a client says of itself is shown as its word, cleaned of what disturbs the words around
it. What is told as true is what was verified: a host that a document was had from, the address that
the browser will be sent to.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from oauth2_provider.scopes import get_scopes_backend

from ..protected.names import PORTS
from .conf import settings
from .held import new
from .models import Source
from .people import may_authorize

if TYPE_CHECKING:
    from .asking import Asked

LONGEST_NAME = 60
LOOPBACK = ("127.0.0.1", "::1", "localhost")
DOTS = str.maketrans("。．｡", "...")  # which separate labels too (UTS 46)
# Letters, marks and symbols by their category, that nobody sees.
BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
SITE, DEVICE, APP = "site", "device", "app"


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the browser takes the answer: to a site, to a program on this device, or to an app."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks. ``host`` is that of its metadata document, "" where it has none."""

    name: str
    source: Source
    host: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """All that the page shows. Who ``may`` not agree can but say no."""

    client: Client
    destination: Destination
    servers: Mapping[str, str]  # titles by URL
    scopes: Sequence[str]  # in words, those that are new
    held: Sequence[str]  # in words, those that it has already
    shown: str  # all of them by name, which the answer sends back
    user: Any
    may: bool


def question(asked: Asked, user: Any) -> Question:
    """What to show ``user`` of a request: where it is for more, apart what is new in it."""
    fresh = new(asked.scopes, asked.held) or asked.scopes
    return Question(
        client=client(asked.application),
        destination=asked.destination,
        servers={url: str(each.title or each.public_name) for url, each in asked.servers.items()},
        scopes=in_words(fresh),
        held=in_words(scope for scope in asked.scopes if scope not in fresh),
        shown=" ".join(asked.scopes),
        user=user,
        may=may_authorize(user, list(asked.servers.values())),
    )


def in_words(scopes: Iterable[str]) -> list[str]:
    """Scopes as people read them; one that is offered no more by its name."""
    words = get_scopes_backend().get_all_scopes()
    return [str(words.get(scope) or scope) for scope in scopes]


def client(application: Any) -> Client:
    """An application of an unknown source is one that registered itself: nobody vouches for it."""
    known = {str(source): source for source in Source}
    source = known.get(application.registration_source, Source.DCR)
    host = _host(application.client_id) if source is Source.CIMD else ""
    return Client(plain(application.name), source, host)


def plain(text: str) -> str:
    """A name without what is invisible, turns the direction of text, or ends the line."""
    seen = (" " if unicodedata.category(c)[0] in "CZ" or c in BLANK else c for c in _joined(text))
    return " ".join("".join(seen).split())[:LONGEST_NAME].rstrip()


def _joined(text: str) -> str:
    """Without the characters of format (Cf), which stand within words and leave no gap."""
    composed = unicodedata.normalize("NFC", text)
    return "".join(c for c in composed if unicodedata.category(c) != "Cf")


def destination(uri: str) -> Destination | None:
    """Where a redirect URI leads; None where no answer may be sent (OAuth 2.1, 2.3)."""
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return None
    if parts.scheme not in PORTS:
        ours = parts.scheme in settings.REDIRECT_SCHEMES
        return Destination(APP, plain(f"{parts.scheme}:{_below(host)}")) if ours else None
    if not host or (parts.scheme == "http" and host not in LOOPBACK):
        return None
    at = "" if port in (None, PORTS[parts.scheme]) else f":{port}"
    return Destination(DEVICE if host in LOOPBACK else SITE, f"{in_ascii(host)}{at}")


def _below(host: str) -> str:
    return f"//{in_ascii(host)}" if host else ""


def _host(url: str) -> str:
    return in_ascii(urlsplit(url).hostname or "")


def in_ascii(host: str) -> str:
    """A host as the name system has it: letters that look like others do not (RFC 3492)."""
    if ":" in host:
        return f"[{host}]"
    named = unicodedata.normalize("NFKC", host.translate(DOTS)).lower()
    return ".".join(map(_label, named.split(".")))


def _label(label: str) -> str:
    return label if label.isascii() else f"xn--{label.encode('punycode').decode()}"
