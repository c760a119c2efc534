"""
What sessions are told next, of one database: a page of changes, taken as a turn.

Rule: what lists show is told by turns of its own, so often at most by all
processes together, and as many pages at once as there are by then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..delivery import changes, tellings
from ..delivery.changes import Found, Page, Tip
from ..delivery.leases import lease
from ..delivery.tellings import Turn
from .bulletins import Bulletin, bulletin, everything

if TYPE_CHECKING:
    from ..declare.servers import Server

OF_LISTS = "?lists"  # after the name of a database; alone it says when that was told last
PAGES = 20  # at once


def begin() -> None:
    """Tell from now on, in each database, if that was never done; where that is not known, all."""
    for alias, tip in changes.each(changes.tip).items():
        last = tellings.START if tip is None else tip.last
        tellings.begin(alias, last)
        tellings.begin(alias + OF_LISTS, last)


def alias_of(name: str) -> str:
    return name.removesuffix(OF_LISTS)


def is_of_lists(name: str) -> bool:
    return name.endswith(OF_LISTS)


def taken(name: str, tip: Tip, every: float) -> tuple[Turn | None, Page | None]:
    """The next turn, and what it tells. No turn but a page: there is nothing up to its end.

    Neither: somebody is at it, or it is not the time, which comes every so many seconds.
    """
    found = tellings.begin(name, tip.last)
    if found.seq > tip.last and found.seq > changes.tip(alias_of(name)).last:
        tellings.put_back(found)
        return None, None
    if found.until <= found.seq >= tip.last:
        return None, Page(tip.last, (), True)
    if is_of_lists(name) and not tellings.may(OF_LISTS, every):
        return None, None
    page = _read(name, found.seq, tip.last)
    turn = tellings.claim(found, page.until, lease.hold())
    if turn is None:
        return None, None
    return turn, page if turn.until == page.until else _read(name, turn.after, turn.until)


def _read(name: str, seq: int, last: int) -> Page:
    found: list[Found] = []
    is_whole = True
    for _ in range(PAGES if is_of_lists(name) else 1):
        page = changes.after(alias_of(name), seq, last)
        found += page.changes
        seq, is_whole = page.until, is_whole and page.is_whole
        if seq >= last:
            break
    return Page(seq, found, is_whole)


def news(server: Server, name: str, page: Page) -> Bulletin:
    """What a turn tells of a page."""
    found = bulletin(server, page.changes)
    if is_of_lists(name):
        return Bulletin(listed=found.listed)
    found.listed = {}
    if not page.is_whole:
        found.add(everything())
    return found
