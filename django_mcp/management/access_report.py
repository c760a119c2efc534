"""
Who may use what on a server, and which rule decides, for commands and the admin.

The decision is the one that clients get. Its reason distinguishes hidden from missing declarations,
so it is for people who run the server, never for clients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ..auth.principal import Auth
from ..declarations.permissions import decide

if TYPE_CHECKING:
    from ..declarations.declaration import Declaration
    from ..declarations.request import Request
    from ..declarations.server import Server

_SOME_CLIENT = SimpleNamespace(pk="some")  # client of an authorization server
SECTIONS = ("tools", "resources", "templates", "prompts")


@dataclass(frozen=True)
class AccessReportRow:
    """Whether one declaration may be used, and why."""

    kind: str
    name: str
    allowed: bool
    reason: str
    rule: str
    scopes: str  # scopes that a token with scopes needs
    origin: str


def client_auth(scopes: Collection[str]) -> Auth | None:
    """Return the token of a client with these scopes, or None without scopes.

    It counts as a client of an authorization server, which could request more scopes.
    """
    return Auth(frozenset(scopes), application=_SOME_CLIENT) if scopes else None


def declarations_of(server: Server) -> Iterator[tuple[str, Declaration]]:
    for kind in SECTIONS:
        yield from ((kind, declaration) for declaration in getattr(server._catalog, kind).values())


def access_report(
    declarations: Iterable[tuple[str, Declaration]], request: Request
) -> list[AccessReportRow]:
    """Return one row for each declaration, decided for the request's principal."""
    return [
        AccessReportRow(
            kind,
            declaration.name,
            *_allowed_and_reason(declaration, request),
            declaration._rule,
            " ".join(declaration._scopes) or "none",
            declaration._origin(),
        )
        for kind, declaration in declarations
    ]


def _allowed_and_reason(declaration: Declaration, request: Request) -> tuple[bool, str]:
    """Return the decision and its reason. The project's code may raise in either."""
    try:
        decision = decide(declaration, request)
        return decision.allowed, decision.reason
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        return False, f"{declaration._rule} fails, and with it every list: {message}"
