"""
Scopes: limit a token to a part of what its user may do.

What a declaration needs is the Django permission that it requires, or its own name. Clients can
request the scopes of ``DJANGO_MCP["SCOPES"]``, each of which covers some of these by patterns. A
broader scope can replace a narrower one (basic/authorization, "Step-Up Authorization Flow"). A
token without scopes is not limited.

What a scope covers depends only on the setting, so it is computed once. A change of the setting
clears the caches.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from django.core.signals import setting_changed
from django.utils.functional import Promise

from ..conf import Scope, settings

Patterns = tuple[str, ...]
NAME = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token of RFC 6749, section 3.3
WILD, CHOICE = re.compile(r"[*?\[]"), re.compile(r"[?\[]")
ONE_OF = re.compile(r"\[!?\]?[^\]]*\]")  # a character set of a pattern, as in "[abc]"
OFFLINE = "offline_access"  # means something to authorization servers only (basic/authorization)


def offered() -> dict[str, Scope]:
    """Return the scopes that clients can request, by name. A text covers only its own name."""
    given: Mapping[str, Any] = settings.SCOPES
    return {
        name: scope if isinstance(scope, Scope) else Scope(scope) for name, scope in given.items()
    }


@lru_cache(maxsize=512)
def patterns(name: str) -> Patterns:
    """Return all that a scope covers: its name, its patterns, and those of scopes it names."""
    known, found, waiting = offered(), [], [name]
    while waiting:
        if (one := waiting.pop(0)) not in found:
            found.append(one)
            waiting += known[one].covers if one in known else ()
    return tuple(found)


def covers(granted: Iterable[str], needed: str) -> bool:
    """Whether one of a token's scopes covers what is needed.

    Scopes of a token are names and never used as patterns. Only the setting has patterns.
    """
    return any(_covers(one, needed) for one in granted)


def _covers(granted: str, needed: str) -> bool:
    name, *written = patterns(granted)
    return needed == name or any(fnmatchcase(needed, each) for each in written)


@lru_cache(maxsize=4096)
def lacking(granted: frozenset[str], needed: tuple[str, ...]) -> tuple[str, ...]:
    """Return what of ``needed`` these scopes do not cover. A token without scopes covers all."""
    if not granted:
        return ()
    return tuple(one for one in needed if not covers(granted, one))


@lru_cache(maxsize=4096)
def cover_everything(granted: frozenset[str]) -> bool:
    """Whether a token with these scopes lacks none, because it has none or one with ``*``."""
    return not granted or any("*" in patterns(one)[1:] for one in granted)


def to_ask(granted: Collection[str], needed: Collection[str]) -> tuple[str, ...] | None:
    """Return the scopes to request so that all of ``needed`` is covered.

    Use granted scopes where they suffice, and the narrowest offered scope for the rest. Return None
    if no offered scope covers one of them.
    """
    found = [_held(granted, one) or narrowest(one) for one in needed]
    return None if None in found else tuple(dict.fromkeys(filter(None, found)))


def _held(granted: Iterable[str], needed: str) -> str | None:
    known = offered()
    return next((one for one in granted if one in known and covers([one], needed)), None)


@lru_cache(maxsize=4096)
def narrowest(needed: str) -> str | None:
    """Return the narrowest offered scope that covers ``needed``, the first of equals, or None."""
    able = [one for one in offered() if covers([one], needed)]
    if needed in able:
        return needed
    return next((one for one in able if not any(_within(other, one) for other in able)), None)


def _clear_caches(*, setting: str, **kwargs: Any) -> None:
    if setting == "DJANGO_MCP":
        for function in (patterns, lacking, cover_everything, narrowest):
            function.cache_clear()


setting_changed.connect(_clear_caches, dispatch_uid="django_mcp.auth.scopes")


def broader(granted: Collection[str], scopes: Iterable[str]) -> tuple[str, ...]:
    """Return those of ``scopes`` that cover more than a token with the scopes ``granted``.

    A scope that covers the name of another need not cover what the other does, so their patterns
    are compared.
    """
    return tuple(one for one in scopes if one not in granted and not _hold(granted, patterns(one)))


def _within(one: str, other: str) -> bool:
    """Whether ``other`` covers everything that ``one`` does, and ``one`` not all of ``other``."""
    return _hold([other], _leaves(one)) and not _hold([one], _leaves(other))


def _leaves(name: str) -> Patterns:
    """Return what a scope covers: its patterns, or its own name if it has none."""
    found = patterns(name)
    return found[1:] or found


def _hold(granted: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether each of these patterns is matched completely by a pattern of a granted scope."""
    have = [each for one in granted for each in _written(patterns(one))]
    return all(any(_inside(one, each) for each in have) for one in wanted)


def _written(found: Patterns) -> Patterns:
    """Return the patterns, without the scope's name if that contains wildcard characters.

    The name of a scope is never a pattern, so it must not be compared as one.
    """
    name, *written = found
    return (*((name,) if not WILD.search(name) else ()), *written)


def _inside(pattern: str, other: str) -> bool:
    """Whether ``other`` matches everything that ``pattern`` matches. False if it is unclear.

    A wrong True would let a token do more than its scopes allow.
    """
    if pattern == other:
        return True
    if WILD.search(pattern) and CHOICE.search(other):
        return False
    # A character set is one character. As text, its letters could match the other pattern.
    return fnmatchcase(ONE_OF.sub("?", pattern), other)


def problem(given: object) -> str | None:
    """Return what is wrong with ``DJANGO_MCP["SCOPES"]``, as a message, or None."""
    if not isinstance(given, Mapping) or not given:
        return "SCOPES is a dict of scopes, of which there is one at least."
    for name, scope in given.items():
        if not (isinstance(name, str) and NAME.fullmatch(name)) or name == OFFLINE:
            return f"{name!r} is no scope of a server's."
        if wrong := _problem(name, scope if isinstance(scope, Scope) else Scope(scope)):
            return wrong
    return None


def _problem(name: str, scope: Scope) -> str | None:
    if not isinstance(scope.description, str | Promise) or not str(scope):
        return f"{name!r} has no description for the consent page."
    listed = isinstance(scope.covers, list | tuple)
    if not listed or not all(isinstance(one, str) and one for one in scope.covers):
        return f"covers of {name!r} is a list of patterns."
    return None
