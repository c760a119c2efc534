"""
Who is calling: a user, and what their token adds or takes away.

Rule: a principal is a value, loaded afresh for every call and never lazy; a
user that is not active is nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class Auth:
    """What a verified token says: its scopes, and the application it was given to."""

    scopes: frozenset[str] = frozenset()
    application: Any = None


@dataclass(frozen=True, slots=True)
class Principal:
    """The user a call acts as, and the token it came with.

    ``user`` is a loaded user or an ``AnonymousUser``; ``auth`` is None where no
    token is involved, as over stdio.
    """

    user: Any
    auth: Auth | None = None

    def __post_init__(self) -> None:
        """Whoever may not sign in is nobody, to the project's code as well."""
        if self.user.is_authenticated and not self.user.is_active:
            object.__setattr__(self, "user", _nobody())

    @property
    def key(self) -> str:
        """A stable name, to bind sealed state and limits to."""
        application = getattr(self.auth and self.auth.application, "pk", "")
        return f"{self.user.pk if self.is_authenticated else ''}:{application}"

    @property
    def is_authenticated(self) -> bool:
        return bool(self.user.is_authenticated and self.user.is_active)


@runtime_checkable
class TokenVerifier(Protocol):
    """Turns the token of a request into a principal."""

    async def verify(self, token: str, server: Any) -> Principal | None:
        """Who ``token`` speaks for on ``server``, a ``Server``; None when it is not valid there."""
        ...


def anonymous() -> Principal:
    """Nobody in particular: sees what is public, and no more."""
    return Principal(_nobody())


def _nobody() -> Any:
    from django.contrib.auth.models import AnonymousUser

    return AnonymousUser()
