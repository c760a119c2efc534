"""
Who may use what of a server, and which rule decides: for commands and for the admin.

Rule: whether is what the effective permission says, as it does for clients; why is told beside it.
It tells hidden from missing, which is for people who answer for the server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ..declare.effective import decision, effective
from ..principal import Auth

if TYPE_CHECKING:
    from ..declare.declarations import Declaration
    from ..declare.requests import Request
    from ..declare.servers import Server

_SOME = SimpleNamespace(pk="some")  # client of an authorization server
SECTIONS = ("tools", "resources", "templates", "prompts")


@dataclass(frozen=True)
class Verdict:
    """Whether one thing may be used, and why."""

    kind: str
    name: str
    allowed: bool
    reason: str
    rule: str
    scopes: str  # that a token needs, if it is narrowed
    origin: str


def as_client(scopes: Collection[str]) -> Auth | None:
    """The token of a client that has these scopes, and could be given others; none without."""
    return Auth(frozenset(scopes), application=_SOME) if scopes else None


def declared(server: Server) -> Iterator[tuple[str, Declaration]]:
    for kind in SECTIONS:
        yield from ((kind, thing) for thing in getattr(server.catalog, kind).values())


def verdicts(things: Iterable[tuple[str, Declaration]], request: Request) -> list[Verdict]:
    return [
        Verdict(
            kind,
            thing.name,
            *_decided(thing, request),
            thing.rule,
            " ".join(thing.scopes) or "none",
            thing.origin(),
        )
        for kind, thing in things
    ]


def _decided(thing: Declaration, request: Request) -> tuple[bool, str]:
    """What the declaration answers, and its reason. The project's code may fail in either."""
    try:
        return effective(thing, request).may_use, decision(thing, request).words
    except Exception as error:
        failed = f"{type(error).__name__}: {error}"
        return False, f"{thing.rule} fails, and with it every list: {failed}"
