"""
Whom a client acts as: the user of a test, as a server would find them.

Rule: each run of a call sees a user as just loaded, with no permission that was looked up before -
and it costs no query, so that those of a tool can be counted. What the test changed on its own
object, or in the rows that belong to it, is seen; what it changed by ``update()`` is seen after
``refresh_from_db()``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Model

from ..principal import Auth, Principal, anonymous


def principal_of(user: Any, scopes: Iterable[str] | None) -> Principal:
    """``user`` (None is nobody), with a token of these scopes, or with none where it is None."""
    found = anonymous().user if user is None else _as_loaded(user)
    return Principal(found, None if scopes is None else Auth(frozenset(scopes)))


def _as_loaded(user: Any) -> Any:
    """Another object of the same values: backends keep permissions on the one they were given."""
    if not isinstance(user, Model):
        return user
    values = {
        field.attname: user.__dict__[field.attname]
        for field in user._meta.concrete_fields
        if field.attname in user.__dict__
    }
    return type(user).from_db(user._state.db, list(values), list(values.values()))
