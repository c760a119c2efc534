"""Paginated lists of the declarations that the caller may use.

``page`` and ``resources`` make the results of list requests. A declaration is listed if the caller
may use it, or lacks only a scope that the client can ask for. A cursor is sealed and has a position
only. It is valid for one list, and for one caller unless the list is public. It stays valid when
the list changes. A page is cacheable as public only if all items of all pages are public
(server/utilities/caching).

``usable`` returns all of them at once, for the endpoint's web page and for commands. It
makes the same permission checks as the lists, and shows nothing that they would not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from ..auth import kill_switches
from ..conf import settings
from ..declarations.cursors import seal, unseal
from ..declarations.declaration import Declaration
from ..declarations.model_resources import ModelResource
from ..declarations.permissions import decide
from ..declarations.prompts import Prompt
from ..declarations.resources import Resource
from ..declarations.tools import Tool
from ..protocol.jsonrpc import JSON, InvalidParams
from .execution import surrounded, surroundings, with_database

if TYPE_CHECKING:
    from ..declarations.request import Request
    from .call_state import CallRun

PRIVATE = {"ttlMs": 0, "cacheScope": "private"}  # the list depends on the caller
PUBLIC_TTL = 300_000  # milliseconds: a public list changes only with a deployment


async def page(
    run: CallRun, member: str, things: Sequence[Declaration], show: Callable[[Any], JSON]
) -> JSON:
    """Return one page of declarations, as the value of ``member``."""
    public = all(thing._is_public for thing in things)
    purpose = _purpose(run, member, public)
    start = _position(run, purpose)

    def listed() -> JSON:
        return _page(member, purpose, [_declared(run, things, show)], start)

    if not surroundings() and all(thing._is_free for thing in things):
        await kill_switches.arefresh()
        return listed() | hints(public)
    return await with_database(run, listed) | hints(public)


async def resources(run: CallRun) -> JSON:
    """Return one page of ``resources/list``: declared resources, then rows of listed models."""
    catalog = run.server._catalog
    declared = [one for one in catalog.resources.values() if one.listed]
    models = [one for one in catalog.templates.values() if _lists_rows(one)]
    public = not models and all(one._is_public and one._is_alike for one in declared)
    purpose = _purpose(run, "resources", public)
    start = _position(run, purpose)

    def listed() -> JSON:
        alone = _declared(run, declared, lambda one: one._list_entry(run.request))
        rows = [_rows(run, one) for one in models if one._is_allowed(run.request)]
        return _page("resources", purpose, [alone, *rows], start)

    return await with_database(run, listed) | hints(public)


def hints(public: bool) -> JSON:
    """Return the cache hints of a list.

    With ``AROUND`` even a public list is private: it may set the caller's language, for example.
    """
    if not public:
        return PRIVATE
    return {"ttlMs": PUBLIC_TTL, "cacheScope": "private" if settings.AROUND else "public"}


# A list consists of sections. Each section has its own kind of position.

Page = Callable[[Any, int], tuple[list[JSON], Any]]  # (after, limit) -> entries, position
Section = tuple[str, Page]


def _page(member: str, purpose: str, sections: Sequence[Section], start: Any) -> JSON:
    entries, following = _filled(sections, start, settings.PAGE_SIZE)
    shown: JSON = {member: entries}
    return shown if following is None else shown | {"nextCursor": seal(following, purpose)}


def _filled(sections: Sequence[Section], start: Any, limit: int) -> tuple[list[JSON], Any]:
    """Return the entries from ``start`` on, from as many sections as needed, and the position."""
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


def _declared(run: CallRun, things: Iterable[Declaration], show: Callable[[Any], JSON]) -> Section:
    """Return the section of declarations. Its position is how many were shown, and the last name.

    The next page starts after the declaration of that name, even if the caller may not use it any
    more. If it no longer exists, as many as were shown are skipped.
    """
    listed = list(things)

    def page(after: Any, limit: int) -> tuple[list[JSON], Any]:
        shown, name = (0, None) if after is None else (int(after[0]), after[1])
        first = next((n for n, thing in enumerate(listed, 1) if thing.name == name), 0)
        skipped = 0 if first else shown
        # Only as many permissions are checked as the page needs.
        allowed = (thing for thing in listed[first:] if decide(thing, run.request).is_listed)
        found = list(islice(allowed, skipped, skipped + limit + 1))
        entries = [show(thing) for thing in found[:limit]]
        return entries, [shown + limit, found[limit - 1].name] if len(found) > limit else None

    return "", page


def _lists_rows(resource: Declaration) -> TypeGuard[ModelResource]:
    return isinstance(resource, ModelResource) and resource.listed


def _rows(run: CallRun, resource: ModelResource) -> Section:
    def page(after: Any, limit: int) -> tuple[list[JSON], Any]:
        try:
            return resource._page(run.request, after, limit)
        except ValueError as error:
            raise InvalidParams(f"cursor: {error}") from None

    return resource.uri, page


# Cursors.


def _purpose(run: CallRun, member: str, public: bool) -> str:
    """Return what a cursor is bound to: server and list, and the caller unless it is public.

    A public page may come from a shared cache, so its cursor must be valid for everybody.
    """
    owner = "" if public else run.principal.key
    return f"list:{run.server.name}:{member}:{owner}"


def _position(run: CallRun, purpose: str) -> Any:
    cursor = run.params.get("cursor")
    if cursor is None:
        return None
    try:
        return unseal(cursor, purpose)
    except ValueError as error:
        raise InvalidParams(f"cursor: {error}") from None


T = TypeVar("T", bound=Declaration)


@dataclass(frozen=True)
class Usable:
    """The declarations that a caller may use, in the order in which they were declared."""

    tools: list[Tool] = field(default_factory=list)
    resources: list[Resource] = field(default_factory=list)
    templates: list[Resource] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)


def usable(request: Request) -> Usable:
    """Return what ``request``'s user may use. Queries the database, so call it in a thread."""
    catalog = request.server.ready()

    def allowed(things: Iterable[T]) -> list[T]:
        return [thing for thing in things if thing._is_allowed(request)]

    with surrounded(request):
        return Usable(
            tools=allowed(catalog.tools.values()),
            resources=allowed(one for one in catalog.resources.values() if one.listed),
            templates=allowed(catalog.templates.values()),
            prompts=allowed(catalog.prompts.values()),
        )
