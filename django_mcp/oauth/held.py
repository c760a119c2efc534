"""
What a client may do already, when it asks for more (basic/authorization, "Step-Up Authorization").

Rule: who asks for something new is asked about that, and keeps what they hold: a client that
names only what it lacks does not lose the rest. Who asks for nothing new asks for what is named,
and may be given less than it holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.db.models import Q
from django.utils import timezone
from oauth2_provider.models import (
    get_access_token_model,
    get_refresh_token_model,
    refresh_token_expire_timedelta,
)

from ..scopes import broader, offered

MOST = 100  # rows that are looked at: the newest


def held(user: Any, application: Any, servers: Iterable[str]) -> tuple[str, ...]:
    """Of the scopes that are offered, those of a client's living tokens for just these servers.

    In the order in which they are offered. Asks the database.
    """
    wanted = set(servers)
    found = {scope for row in _living(user, application) if set(row.resource or ()) == wanted
             for scope in row.scope.split()}  # fmt: skip
    return tuple(scope for scope in offered() if scope in found)


def _living(user: Any, application: Any) -> Iterator[Any]:
    """Access tokens that are good, or would be good again by a refresh token."""
    tokens = get_access_token_model().objects.filter(user=user, application=application)
    tokens = tokens.only("scope", "resource").order_by("-pk")
    yield from tokens.filter(expires__gt=timezone.now())[:MOST]
    yield from tokens.filter(renewable(user=user, application=application))[:MOST]


def renewable(**whose: Any) -> Q:
    """Of access tokens, those with a refresh token that was not revoked and has not expired."""
    living = get_refresh_token_model().objects.filter(revoked=None, **whose)
    found, longest = Q(pk__in=living.values("access_token")), refresh_token_expire_timedelta()
    return found if longest is None else found & Q(expires__gt=timezone.now() - longest)


def joined(asked: Iterable[str], held: Iterable[str]) -> tuple[str, ...]:
    """What a token is to have of a client that holds some of it: all, if anything is new."""
    named = tuple(asked)
    return tuple(dict.fromkeys((*held, *named))) if new(named, held) else named


def new(asked: Iterable[str], held: Iterable[str]) -> tuple[str, ...]:
    """What of ``asked`` is not covered by what is held."""
    have = tuple(held)
    return broader(have, asked) if have else tuple(asked)
