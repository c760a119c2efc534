"""
The effective permission: what a caller may do with a thing, and what that lacks.

Rule: one answer for lists, calls and challenges. Who lacks a permission - Django's, an object's,
the project's own, an administrator's - is not told that the thing is there. Who lacks nothing but a
scope that its client could be given is told so, and which.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .. import scopes, switches
from .reasons import Reason

if TYPE_CHECKING:
    from ..principal import Auth
    from .declarations import Declaration
    from .requests import Request


@dataclass(frozen=True, slots=True)
class Effective:
    """Whether a thing ``may_use``; if not, the scopes ``needed`` by which it might be.

    Those are all that the thing asks for, also such as the token has.
    """

    may_use: bool
    needed: tuple[str, ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the caller is told that the thing is there."""
        return self.may_use or bool(self.needed)


ALLOWED, UNKNOWN = Effective(True), Effective(False)


def effective(thing: Declaration, request: Request) -> Effective:
    """What ``request``'s user may do with ``thing``, as a client of the request's token."""
    if not thing.lacking(request):
        return ALLOWED if thing.allows(request) else UNKNOWN
    needed = grantable(thing, request.principal.auth)
    if not needed or not thing.allows(request):
        return UNKNOWN
    return Effective(False, needed)


def decision(thing: Declaration, request: Request) -> Reason:
    """Which rule decides, in words for people who may know of everything; as ``effective`` does."""
    for one in (thing, *thing.rests_on):
        if switches.is_off(request.server.name, one.mark) and not thing.allows(request):
            return Reason(False, f"an administrator has switched off {one.mark}, or the server")
    permission = thing.reason(request)
    missing = thing.lacking(request)
    if not permission.allows or not missing:
        return permission
    return Reason(False, f"{permission.words}, but {_narrow(thing, request, missing)}")


def _narrow(thing: Declaration, request: Request, missing: Iterable[str]) -> str:
    words = f"its token is not good for {' and '.join(missing)}"
    if needed := grantable(thing, request.principal.auth):
        return f"{words}: listed, and asked to get {' '.join(needed)}"
    return f"{words}, and such a client cannot get more"


def grantable(thing: Declaration, auth: Auth | None) -> tuple[str, ...]:
    """The scopes to ask for by which a client of this token could use ``thing``; nothing if none.

    Only what an authorization server gave to an application can be asked for again.
    """
    if auth is None or auth.application is None:
        return ()
    return scopes.to_ask(auth.scopes, thing.scopes) or ()
