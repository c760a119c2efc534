"""
The session of a view that no browser looks at: one call's, in memory.

Rule: it says who calls, as after signing in, and is forgotten with the call: nothing is stored,
and nothing of one call reaches another.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings as django_settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.backends import RemoteUserBackend
from django.contrib.sessions.backends.base import SessionBase
from django.utils.module_loading import import_string

MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"


class CallSession(SessionBase):
    """A session of ``user``, or of nobody."""

    def __init__(self, user: Any) -> None:
        super().__init__()
        self._session_cache = dict(_signed_in(user))
        self.begun = SESSION_KEY in self._session_cache
        if self.begun:  # whoever is signed in has one; without, all of them would be one visitor
            self.create()

    @property
    def is_over(self) -> bool:
        """Whether the caller was signed out. To look marks the session as used, by anybody."""
        return SESSION_KEY not in self and self.begun

    def exists(self, session_key: str | None = None) -> bool:
        return False

    def create(self) -> None:
        self._session_key = self._get_new_session_key()  # type: ignore[attr-defined]

    def save(self, must_create: bool = False) -> None:
        if self.session_key is None:
            self.create()

    def delete(self, session_key: str | None = None) -> None:
        """There is nothing to delete."""

    def load(self) -> dict[str, Any]:
        return {}

    async def aexists(self, session_key: str | None = None) -> bool:
        return False

    async def acreate(self) -> None:
        self.create()

    async def asave(self, must_create: bool = False) -> None:
        self.save()

    async def adelete(self, session_key: str | None = None) -> None:
        """There is nothing to delete."""

    async def aload(self) -> dict[str, Any]:
        return {}


def _signed_in(user: Any) -> dict[str, str]:
    """What ``django.contrib.auth.login`` would have written down."""
    if not user.is_authenticated or not hasattr(user, "get_session_auth_hash"):
        return {}
    return {
        SESSION_KEY: user._meta.pk.value_to_string(user),
        BACKEND_SESSION_KEY: getattr(user, "backend", None) or _backend(),
        HASH_SESSION_KEY: user.get_session_auth_hash(),
    }


def _backend() -> str:
    """Not a RemoteUserBackend: of whom it let in, its middleware wants a header each time."""
    for path in django_settings.AUTHENTICATION_BACKENDS:
        if not issubclass(import_string(path), RemoteUserBackend):
            return path
    return MODEL_BACKEND
