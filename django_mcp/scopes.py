"""
Scopes: what the token of a client is narrowed to, of all that its user may do.

Rule: what is needed to use a thing follows from what it asks of its users - a
codename of Django's, or its own name - and what a client may ask for are the
scopes of ``DJANGO_MCP["SCOPES"]``, each of which covers some of these. A broader
one is always good for what a narrower one is good for (basic/authorization,
"Step-Up Authorization Flow"). A token that names no scope narrows nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any

from django.utils.functional import Promise

from .conf import Scope, settings

Patterns = tuple[str, ...]
Known = tuple[tuple[str, Patterns], ...]  # what is offered, to be remembered by
NAME = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # scope-token of RFC 6749, section 3.3
WILD, CHOICE = re.compile(r"[*?\[]"), re.compile(r"[?\[]")
ONE_OF = re.compile(r"\[!?\]?[^\]]*\]")  # a character of some, in a pattern
OFFLINE = "offline_access"  # of authorization servers alone (basic/authorization)


def offered() -> dict[str, Scope]:
    """What clients may ask for, by name; text alone is a scope that covers just its name."""
    return _offered(settings.SCOPES)


def _offered(given: Mapping[str, Any]) -> dict[str, Scope]:
    return {
        name: scope if isinstance(scope, Scope) else Scope(scope) for name, scope in given.items()
    }


def patterns(name: str) -> Patterns:
    """All that a granted scope covers: itself, its patterns, and those of scopes these name."""
    return _patterns(name, _known())


def _known() -> Known:
    return tuple((name, tuple(scope.covers)) for name, scope in offered().items())


@lru_cache(maxsize=512)
def _patterns(name: str, known: Known) -> Patterns:
    covers, found, waiting = dict(known), [], [name]
    while waiting:
        if (one := waiting.pop(0)) not in found:
            found.append(one)
            waiting += covers.get(one, ())
    return tuple(found)


def covers(granted: Iterable[str], needed: str) -> bool:
    """Whether one of the scopes of a token is good for what is needed.

    What a token says is a name: only the project writes patterns.
    """
    return any(_covers(patterns(one), needed) for one in granted)


def _covers(found: Patterns, needed: str) -> bool:
    name, *written = found
    return needed == name or any(fnmatchcase(needed, each) for each in written)


def lacking(granted: Collection[str], needed: Iterable[str]) -> tuple[str, ...]:
    """What of ``needed`` a token of these scopes is not good for; a token of none, for all."""
    if not granted:
        return ()
    return tuple(one for one in needed if not covers(granted, one))


def to_ask(granted: Collection[str], needed: Collection[str]) -> tuple[str, ...] | None:
    """The scopes by which a client can do what is needed, all of them at once.

    Those that it has are among them; for each other the narrowest that is offered. None where
    nothing that is offered would do.
    """
    found = [_held(granted, one) or narrowest(one) for one in needed]
    return None if None in found else tuple(dict.fromkeys(filter(None, found)))


def _held(granted: Iterable[str], needed: str) -> str | None:
    known = offered()
    return next((one for one in granted if one in known and covers([one], needed)), None)


def narrowest(needed: str) -> str | None:
    """The offered scope that covers this and the least beside it; of equals the first."""
    return _narrowest(needed, _known())


@lru_cache(maxsize=4096)
def _narrowest(needed: str, known: Known) -> str | None:
    able = [one for one, _ in known if covers([one], needed)]
    if needed in able:
        return needed
    return next((one for one in able if not any(_within(other, one) for other in able)), None)


def broader(granted: Collection[str], scopes: Iterable[str]) -> tuple[str, ...]:
    """Of ``scopes``, those that are good for more than a token of ``granted`` is.

    That one covers the name of another says nothing of what the other covers.
    """
    return tuple(one for one in scopes if one not in granted and not _hold(granted, patterns(one)))


def _within(one: str, other: str) -> bool:
    """Whether ``other`` covers all that ``one`` does, and not the other way about."""
    return _hold([other], _leaves(one)) and not _hold([one], _leaves(other))


def _leaves(name: str) -> Patterns:
    """What a scope covers in the end: its own name stands for its patterns, if it has any."""
    found = patterns(name)
    return found[1:] or found


def _hold(granted: Iterable[str], wanted: Iterable[str]) -> bool:
    """Whether all that these patterns match is matched by one of the granted, for each."""
    have = [each for one in granted for each in _written(patterns(one))]
    return all(any(_inside(one, each) for each in have) for one in wanted)


def _written(found: Patterns) -> Patterns:
    """The patterns, without a name that looks like one."""
    name, *written = found
    return (*((name,) if not WILD.search(name) else ()), *written)


def _inside(pattern: str, other: str) -> bool:
    """Whether ``other`` matches whatever ``pattern`` does; no, where that is hard to say."""
    if pattern == other:
        return True
    if WILD.search(pattern) and CHOICE.search(other):
        return False
    # What stands in brackets is no text that the other could match letter by letter.
    return fnmatchcase(ONE_OF.sub("?", pattern), other)


def problem(given: object) -> str | None:
    """What is wrong with ``DJANGO_MCP["SCOPES"]``, in words, or None."""
    if not isinstance(given, Mapping) or not given:
        return "SCOPES is a dict of scopes, of which there is one at least."
    for name, scope in given.items():
        if not (isinstance(name, str) and NAME.fullmatch(name)) or name == OFFLINE:
            return f"{name!r} is no scope of a server's."
        if wrong := _problem(name, scope if isinstance(scope, Scope) else Scope(scope)):
            return wrong
    return None


def _problem(name: str, scope: Scope) -> str | None:
    if not isinstance(scope.words, str | Promise) or not str(scope):
        return f"{name!r} has no words for the person who is asked."
    listed = isinstance(scope.covers, list | tuple)
    if not listed or not all(isinstance(one, str) and one for one in scope.covers):
        return f"covers of {name!r} is a list of patterns."
    return None
