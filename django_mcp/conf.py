"""
The one setting, ``DJANGO_MCP``, and its defaults.

Rule: at most twenty keys, each read through ``settings.NAME`` at the moment of
use, so that ``override_settings`` works. Where Django has a setting for a
thing, that one is used and no key stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed


@dataclass(frozen=True)
class Scope:
    """What a client may ask for: ``words`` for the person who is asked, and what it ``covers``.

    That is a sequence of patterns, as of ``fnmatch``, of what things need - Django's codenames,
    "shop.view_*", or what a thing without one is called, "tool:close_month" - and of names of
    other scopes, which it then includes. A scope always covers its own name.
    """

    words: Any
    covers: Sequence[str] = ()

    def __str__(self) -> str:
        return str(self.words)


DEFAULTS: dict[str, Any] = {
    # The public origin, "https://shop.example": never taken from the Host header.
    "URL": "http://localhost",
    # Dotted paths of context managers (request) that wrap everything of the project's own.
    "AROUND": [],
    # Dotted paths of what turns the token of a request into a principal, asked in this order.
    "VERIFIERS": ["django_mcp.tokens.PersonalAccessTokens"],
    # What clients may ask for. The first is what they are told to ask for.
    "SCOPES": {"mcp": Scope("Use it with your permissions", covers=("*",))},
    # Of the embedded authorization server: see ``django_mcp.oauth.conf``.
    "OAUTH": {},
    # How many items a page of a list holds.
    "PAGE_SIZE": 100,
    # Threads that run the project's synchronous code, and how many calls may wait for one.
    "THREADS": 10,
    "QUEUE": 100,
    # Calls that one connection may have running at once.
    "CONCURRENT_CALLS": 64,
    # Per principal and server: "number/seconds" of calls, completions, log lines, progress.
    "RATES": {},
    # Seconds until an unanswered question is withdrawn, and how often one call may ask.
    "QUESTION_TIMEOUT": 600,
    "QUESTION_ROUNDS": 20,
    # Seconds for which the state that a client carries between rounds stays valid.
    "STATE_LIFETIME": 3600,
    # Bytes of one result; beyond, the call ends with an error the model can act on.
    "RESULT_SIZE": 10_000_000,
    # Seconds within which a call that says nothing is answered by plain JSON, in a session.
    "JSON_GRACE": 0.5,
    # Seconds of silence after which a connection shows that it lives.
    "KEEPALIVE": 15,
    # The alias of the database that holds sessions and what is said in them.
    "DATABASE": "default",
    # Seconds for which a session may be idle, and how many sessions one owner may have.
    "SESSION_LIFETIME": 86_400,
    "SESSIONS": 1_000,
    # Messages that one stream may hold; the last response has room beyond.
    "EVENTS": 50_000,
}


class Settings:
    """``DJANGO_MCP`` over the defaults, re-read whenever a test changes it."""

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there yet: from then on it is an attribute."""
        if name not in DEFAULTS:
            raise AttributeError(f"DJANGO_MCP has no key {name!r}.")
        vars(self).update(DEFAULTS | self.given())
        return vars(self)[name]

    @staticmethod
    def given() -> dict[str, Any]:
        """The project's own dict, empty when there is none."""
        return dict(getattr(django_settings, "DJANGO_MCP", None) or {})

    def unknown(self) -> list[str]:
        return sorted(set(self.given()) - set(DEFAULTS))

    def reload(self, *, setting: str, **kwargs: Any) -> None:
        if setting == "DJANGO_MCP":
            vars(self).clear()


class Project:
    """The project's other settings, each an attribute once it was read.

    For what every request asks: Django's own way to an attribute is longer.
    """

    def __getattr__(self, name: str) -> Any:
        value = vars(self)[name] = getattr(django_settings, name)
        return value

    def reload(self, *, setting: str, **kwargs: Any) -> None:
        vars(self).pop(setting, None)


settings, project = Settings(), Project()
setting_changed.connect(settings.reload, dispatch_uid="django_mcp.conf")
setting_changed.connect(project.reload, dispatch_uid="django_mcp.conf.project")
