"""Paginated lists of the declarations that the caller may use.

``page`` and ``resources`` make the results of list requests. A declaration is listed if the caller
may use it, or lacks only a scope that the client can ask for. A cursor is a sealed position. It is
valid for one list, and for one caller unless the list is public. It stays valid when
the list changes. A page is cacheable as public only if all items of all pages are public
(server/utilities/caching).

``usable`` returns all usable declarations at once, for the endpoint's web page and for commands. It
makes the same permission checks as the lists, and shows nothing that they would not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from ..auth import kill_switches
from ..conf import settings
from ..declarations.cursors import seal, unseal
from ..declarations.declaration import Declaration, decide
from ..declarations.model_resources import ModelResource
from ..declarations.prompts import Prompt
from ..declarations.resources import Resource
from ..declarations.tools import Tool
from ..protocol.jsonrpc import JSON, EncodedArray, InvalidParams, encode
from ..protocol.revisions import encode_result
from .execution import surrounded, surroundings, with_database

if TYPE_CHECKING:
    from ..declarations.catalog import DeclaredList
    from ..declarations.request import Request
    from .call_state import CallRun

PRIVATE = {"ttlMs": 0, "cacheScope": "private"}  # the list depends on the caller
PUBLIC_TTL = 300_000  # milliseconds: a public list changes only with a deployment


async def page(run: CallRun, member: str, declared: DeclaredList) -> JSON:
    """Return one page of declarations, as the value of ``member``.

    Each definition is encoded once for each revision and language.
    """
    purpose = _purpose(run, member, declared.is_public)
    start = _position(run, purpose)
    revision, method = run.call.revision, run.call.method

    def encoded(definition: JSON) -> str:
        return encode(encode_result(revision, method, {member: [definition]})[member][0])

    def show(thing: Declaration) -> str:
        return thing._encoded_definition(revision.name, encoded)

    def listed() -> JSON:
        shown = _page(member, purpose, [_declared(run, declared, show)], start)
        encoded_list = {member: EncodedArray(shown[member])}
        return shown | encoded_list | hints(run.server.name, declared.is_public)

    if declared.is_free and not surroundings():
        await kill_switches.arefresh()
        if not kill_switches.may_query(run.server.name):
            return listed()
    return await with_database(run, listed)


async def resources(run: CallRun) -> JSON:
    """Return one page of ``resources/list``: declared resources, then rows of listed models."""
    catalog = run.server._catalog
    declared = catalog.resource_list
    models = [resource for resource in catalog.templates.values() if _lists_rows(resource)]
    public = not models and declared.is_public and all(map(_is_alike, declared.declarations))
    purpose = _purpose(run, "resources", public)
    start = _position(run, purpose)

    def listed() -> JSON:
        declarations = _declared(run, declared, lambda resource: resource._list_entry(run.request))
        rows = [_rows(run, resource) for resource in models if resource._is_allowed(run.request)]
        return _page("resources", purpose, [declarations, *rows], start)

    return await with_database(run, listed) | hints(run.server.name, public)


def hints(server: str, public: bool) -> JSON:
    """Return the cache hints of a list.

    With ``AROUND`` even a public list is private: it may set the caller's language, for example.
    """
    if not public or kill_switches.has_audiences(server):
        return PRIVATE
    return {"ttlMs": PUBLIC_TTL, "cacheScope": "private" if settings.AROUND else "public"}


# A list consists of sections. Each section has its own kind of position.

# (after, limit) -> entries, position. An entry is an object, or text that is encoded already.
Page = Callable[[Any, int], tuple[list[Any], Any]]
Section = tuple[str, Page]


def _page(member: str, purpose: str, sections: Sequence[Section], start: Any) -> JSON:
    entries, following = _filled(sections, start, settings.PAGE_SIZE)
    shown: JSON = {member: entries}
    return shown if following is None else shown | {"nextCursor": seal(following, purpose)}


def _filled(sections: Sequence[Section], start: Any, limit: int) -> tuple[list[Any], Any]:
    """Return the entries after ``start``, from as many sections as needed, and the new position."""
    key, after = start or (sections[0][0], None)
    entries: list[Any] = []
    for section_key, page in dropwhile(lambda section: section[0] != key, sections):
        if len(entries) >= limit:
            return entries, [section_key, None]
        more, after = page(after, limit - len(entries))
        entries += more
        if after is not None:
            return entries, [section_key, after]
    return entries, None


def _declared(run: CallRun, declared: DeclaredList, show: Callable[[Any], Any]) -> Section:
    """Return the section of declarations. Its position is how many were shown, and the last name.

    The next page starts after the declaration of that name, even if the caller may not use it any
    more. If it no longer exists, as many as were shown are skipped.
    """

    def page(after: Any, limit: int) -> tuple[list[Any], Any]:
        shown, name = (0, None) if after is None else (int(after[0]), after[1])
        first = declared.positions.get(name, 0)
        skipped = 0 if first else shown
        # Only as many permissions are checked as the page needs.
        allowed = _listed(declared.declarations[first:], run.request)
        found = list(islice(allowed, skipped, skipped + limit + 1))
        entries = [show(thing) for thing in found[:limit]]
        return entries, [shown + limit, found[limit - 1].name] if len(found) > limit else None

    return "", page


def _listed(things: Iterable[Declaration], request: Request) -> Iterator[Declaration]:
    """Yield the declarations that the caller may know of.

    Declarations with the same constant or codename are decided together, in this request only.
    """
    decided: dict[Any, bool] = {}
    server, principal = request.server.name, request.principal
    for thing in things:
        rule = thing._shared_rule
        if rule is None:
            is_listed = decide(thing, request).is_listed
        elif kill_switches.find(server, thing._qualified_name, principal) is not None:
            is_listed = False
        elif rule in decided:
            is_listed = decided[rule]
        else:
            is_listed = decided[rule] = decide(thing, request).is_listed
        if is_listed:
            yield thing


def _is_alike(resource: Declaration) -> bool:
    return isinstance(resource, Resource) and resource._is_alike


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
    model_tools: list[Tool] = field(default_factory=list)
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
            model_tools=allowed(catalog.model_tools.values()),
            resources=allowed(one for one in catalog.resources.values() if one.listed),
            templates=allowed(catalog.templates.values()),
            prompts=allowed(catalog.prompts.values()),
        )
