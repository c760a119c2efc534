"""
The setting ``DJANGO_MCP`` and its defaults.

Code reads ``settings.NAME`` when it uses a value, never at import, so that ``override_settings``
works. Where Django has a setting for something, that one is used instead of a key. ``project``
caches Django's own settings for code on the path of every request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.utils.module_loading import import_string


@dataclass(frozen=True)
class Scope:
    """A scope that clients may request.

    ``description`` is for the person who grants it. ``covers`` is a sequence of
    ``fnmatch`` patterns and of names of other scopes, which are included. A pattern is matched
    against Django's permission codenames ("shop.view_*"). Declarations without one have a name such
    as "tool:close_month". A scope always covers its own name.
    """

    description: Any
    covers: Sequence[str] = ()

    def __str__(self) -> str:
        return str(self.description)


DEFAULTS: dict[str, Any] = {
    # The public origin, such as "https://shop.example". It is never taken from the Host header,
    # which a client could forge.
    "URL": "http://localhost",
    # Dotted paths of context managers that take the request. They run around the project's code.
    "AROUND": [],
    # Dotted paths of ``TokenVerifier`` classes or objects, tried in this order.
    "VERIFIERS": ["django_mcp.verifiers.PersonalAccessTokens"],
    # Scopes that clients may request. Clients are told to request the first one.
    "SCOPES": {"mcp": Scope("Use it with your permissions", covers=("*",))},
    # Settings of the embedded authorization server: see ``django_mcp.oauth.conf``.
    "OAUTH": {},
    # Calls that a second person approves: see ``calls.approvals.DEFAULTS``.
    "APPROVALS": {},
    # Items per page of a list.
    "PAGE_SIZE": 100,
    # Threads for the project's synchronous code, and calls that may wait for a thread.
    "THREADS": 10,
    "QUEUE": 100,
    # Calls that one connection may run at the same time.
    "CONCURRENT_CALLS": 64,
    # Rates per user and server, such as "600/min", of "calls", "completions", "log" and "progress".
    # None means no limit.
    "THROTTLES": {},
    # Seconds until an unanswered question is withdrawn, and questions that one call may ask.
    "QUESTION_TIMEOUT": 600,
    "QUESTION_ROUNDS": 20,
    # Seconds for which the state that a client carries between rounds of a call is valid.
    "STATE_LIFETIME": 3600,
    # Bytes of one result. A call with a larger result ends with an error that a language model can
    # act on.
    "RESULT_SIZE": 10_000_000,
    # Seconds after which the response of a call in a session becomes a stream instead of plain
    # JSON.
    "JSON_GRACE": 0.5,
    # Seconds without data after which a keep-alive is sent on a stream.
    "KEEPALIVE": 15,
    # Seconds between two pings to a client that listens on a stream. 0 turns pings off. A client
    # that has not answered when the next ping is due is disconnected.
    "PING_INTERVAL": 300,
    # The alias of the database for sessions, streams, events and calls.
    "DATABASE": "default",
    # Seconds for which a session may be idle, and sessions that one owner may have.
    "SESSION_LIFETIME": 86_400,
    "SESSIONS": 1_000,
    # Days for which entries of the audit log are kept. None keeps them for ever.
    "AUDIT_DAYS": 365,
    # Messages that one stream may hold. The final response is stored in addition.
    "EVENTS": 50_000,
}


class Settings:
    """The values of ``DJANGO_MCP`` over the defaults. A change by a test clears the cache."""

    def __getattr__(self, name: str) -> Any:
        """Load all keys as attributes. Python calls this only for attributes that are not set."""
        if name not in DEFAULTS:
            raise AttributeError(f"DJANGO_MCP has no key {name!r}.")
        vars(self).update(DEFAULTS | self.given())
        return vars(self)[name]

    @staticmethod
    def given() -> dict[str, Any]:
        """Return the project's ``DJANGO_MCP`` dict, empty if there is none."""
        return dict(getattr(django_settings, "DJANGO_MCP", None) or {})

    def unknown(self) -> list[str]:
        return sorted(set(self.given()) - set(DEFAULTS))

    def reload(self, *, setting: str, **kwargs: Any) -> None:
        if setting == "DJANGO_MCP":
            vars(self).clear()


class Project:
    """Django's settings, cached as attributes after the first access.

    For code on the path of every request: access through ``django.conf.settings`` is slower.
    """

    def __getattr__(self, name: str) -> Any:
        value = vars(self)[name] = getattr(django_settings, name)
        return value

    def reload(self, *, setting: str, **kwargs: Any) -> None:
        vars(self).pop(setting, None)


settings, project = Settings(), Project()
setting_changed.connect(settings.reload, dispatch_uid="django_mcp.conf")
setting_changed.connect(project.reload, dispatch_uid="django_mcp.conf.project")


def is_function_path(value: Any) -> bool:
    """Whether ``value`` is the dotted path of a function or class, or None."""
    try:
        return value is None or callable(import_string(value))
    except (ImportError, AttributeError, TypeError):
        return False
