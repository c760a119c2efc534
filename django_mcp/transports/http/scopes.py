"""
Whether the token of a request is good for all that it asks: looked at before anything begins.

Rule: a client is asked for a broader token once, for all that it lacks, and only for what its user
may do; about everything else nothing more is told than without this. Who is never narrowed, or
could be given nothing more, pays nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ...declare.effective import effective, grantable
from ...declare.requests import Request
from ...dispatch.running import surrounded_job
from ...exceptions import Busy
from .challenges import insufficient
from .naming import named

if TYPE_CHECKING:
    from ...declare.declarations import Declaration
    from ...principal import Auth
    from ...protocol.events import Call
    from .exchanges import Exchange


async def check_scopes(exchange: Exchange, calls: Sequence[Call]) -> None:
    """Raises a 403 that names all that the calls need (basic/authorization, "Scope Challenge").

    Only where each revision can say so; a call is answered by an error of its own elsewhere.
    """
    narrow = _too_narrow(exchange, calls)
    if not narrow:
        return
    request = Request(exchange.principal, exchange.server, host=exchange.host)
    try:
        needed = await surrounded_job(request, lambda: _needed(request, narrow))
    except Busy:
        raise
    except Exception:  # of the project: the call finds the same, and says it as it would to others
        return
    if needed:
        raise insufficient(exchange, needed, about=calls[0].id if len(calls) == 1 else None)


def _too_narrow(exchange: Exchange, calls: Iterable[Call]) -> list[list[Declaration]]:
    """The names for which the token is not enough, as far as is known without asking anybody."""
    auth = exchange.principal.auth
    if auth is None or not auth.scopes or auth.application is None:
        return []
    return [
        candidates
        for call in calls if call.revision.scope_challenges
        for candidates in named(exchange.server.catalog, call)
        if any(_could_have(one, auth) for one in candidates)
    ]  # fmt: skip


def _could_have(thing: Declaration, auth: Auth) -> bool:
    return bool(thing.beyond(auth)) and bool(grantable(thing, auth))


def _needed(request: Request, narrow: Iterable[list[Declaration]]) -> list[str]:
    """All of it at once, of what the user may do."""
    return list(dict.fromkeys(scope for some in narrow for scope in _of_one(request, some)))


def _of_one(request: Request, candidates: Iterable[Declaration]) -> Sequence[str]:
    """What is needed for one name: nothing where something that it may mean can be used."""
    found = [effective(one, request) for one in candidates]
    if any(one.may_use for one in found):
        return ()
    return next((one.needed for one in found if one.needed), ())
