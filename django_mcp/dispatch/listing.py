"""
Lists, page by page: what the caller may use, after a sealed cursor.

Rule: what may not be used is not listed, but what lacks a scope that the client
could be given. A cursor holds a position and nothing
else, opens for one list only, and for one caller where the list is theirs, and
stays right when the list changes under it. Whether a page may be shared is
computed: only if every item on every page is public (server/utilities/caching).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

from .. import switches
from ..conf import settings
from ..declare.cursors import opened, seal
from ..declare.declarations import Declaration
from ..declare.effective import effective
from ..declare.model_resources import ModelResource
from ..protocol.jsonrpc import JSON, InvalidParams
from .running import surroundings, with_database

if TYPE_CHECKING:
    from .runs import Run

PRIVATE = {"ttlMs": 0, "cacheScope": "private"}  # rows depend on who asks
PUBLIC_TTL = 300_000  # milliseconds: what is the same for all changes with a deployment


async def page(
    run: Run, member: str, things: Sequence[Declaration], show: Callable[[Any], JSON]
) -> JSON:
    """One page of declared things, under ``member``."""
    public = all(thing.is_public for thing in things)
    purpose = _purpose(run, member, public)
    start = _position(run, purpose)

    def listed() -> JSON:
        return _page(member, purpose, [_declared(run, things, show)], start)

    if not surroundings() and all(thing.is_free for thing in things):
        await switches.fresh()
        return listed() | hints(public)
    return await with_database(run, listed) | hints(public)


async def resources(run: Run) -> JSON:
    """One page of ``resources/list``: those declared one by one, then rows of listed models."""
    catalog = run.server.catalog
    declared = [one for one in catalog.resources.values() if one.listed]
    models = [one for one in catalog.templates.values() if _lists_rows(one)]
    public = not models and all(one.is_public and one.is_alike for one in declared)
    purpose = _purpose(run, "resources", public)
    start = _position(run, purpose)

    def listed() -> JSON:
        alone = _declared(run, declared, lambda one: one.entry_for(run.request))
        rows = [_rows(run, one) for one in models if one.admits(run.request)]
        return _page("resources", purpose, [alone, *rows], start)

    return await with_database(run, listed) | hints(public)


def hints(public: bool) -> JSON:
    """Whether, and how long, a list may be kept that is ``public``, or is not.

    What surrounds it may be of the caller still, as a language is.
    """
    if not public:
        return PRIVATE
    return {"ttlMs": PUBLIC_TTL, "cacheScope": "private" if settings.AROUND else "public"}


# A list is made of sections, each of which pages by positions of its own.

Page = Callable[[Any, int], tuple[list[JSON], Any]]  # (after, limit) -> entries, position
Section = tuple[str, Page]


def _page(member: str, purpose: str, sections: Sequence[Section], start: Any) -> JSON:
    entries, following = _filled(sections, start, settings.PAGE_SIZE)
    shown: JSON = {member: entries}
    return shown if following is None else shown | {"nextCursor": seal(following, purpose)}


def _filled(sections: Sequence[Section], start: Any, limit: int) -> tuple[list[JSON], Any]:
    """Entries from ``start`` on, over as many sections as a page needs."""
    key, after = start or (sections[0][0], None)
    entries: list[JSON] = []
    for place, page in dropwhile(lambda section: section[0] != key, sections):
        if len(entries) >= limit:
            return entries, [place, None]
        found, after = page(after, limit - len(entries))
        entries += found
        if after is not None:
            return entries, [place, after]
    return entries, None


def _declared(run: Run, things: Iterable[Declaration], show: Callable[[Any], JSON]) -> Section:
    listed = list(things)
    allowed = [thing for thing in listed if effective(thing, run.request).is_known]

    def page(after: Any, limit: int) -> tuple[list[JSON], Any]:
        first = _resume(listed, allowed, after)
        last = first + limit
        position = [last, allowed[last - 1].name] if last < len(allowed) else None
        return [show(thing) for thing in allowed[first:last]], position

    return "", page


def _resume(listed: list[Declaration], allowed: list[Declaration], after: Any) -> int:
    """Where to go on: behind the thing shown last or, if that is gone, where it stood.

    What was shown may not be allowed any more, and keeps its place among all.
    """
    if after is None:
        return 0
    index, name = int(after[0]), after[1]
    names = [thing.name for thing in listed]
    if name not in names:
        return min(index, len(allowed))
    behind = set(map(id, listed[names.index(name) + 1 :]))
    return len(allowed) - sum(id(thing) in behind for thing in allowed)


def _lists_rows(resource: Declaration) -> bool:
    return isinstance(resource, ModelResource) and resource.listed


def _rows(run: Run, resource: Any) -> Section:
    def page(after: Any, limit: int) -> tuple[list[JSON], Any]:
        try:
            found: tuple[list[JSON], Any] = resource.page(run.request, after, limit)
            return found
        except ValueError as error:
            raise InvalidParams(f"cursor: {error}") from None

    return resource.uri, page


# Cursors.


def _purpose(run: Run, member: str, public: bool) -> str:
    """What a cursor is good for; one on a page that may be shared is anybody's."""
    owner = "" if public else run.principal.key
    return f"list:{run.server.name}:{member}:{owner}"


def _position(run: Run, purpose: str) -> Any:
    cursor = run.params.get("cursor")
    if cursor is None:
        return None
    try:
        return opened(cursor, purpose)
    except ValueError as error:
        raise InvalidParams(f"cursor: {error}") from None
