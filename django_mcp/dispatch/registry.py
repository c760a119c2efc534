"""
What a server exposes since it was deployed anew: told to the sessions that it had before.

Rule: a list is what its definitions are. What they were is remembered as a
digest, by all processes together, so that a change is told once for each
process that brings it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.conf import settings as project
from django.utils import translation

from ..delivery import tellings
from ..delivery.changes import LIST
from ..delivery.rows import digest_of
from . import saves

if TYPE_CHECKING:
    from ..declare.servers import Server


def tell(server: Server) -> None:
    """Have it told which lists are no longer what they were. Asks the database."""
    for name, digest in _lists(server):
        if tellings.has_changed(f"?{name}:{digest_of(server.name)}", digest):
            saves.say((LIST, {"what": name, "server": server.name}))


def _lists(server: Server) -> Iterator[tuple[str, str]]:
    catalog = server.catalog
    things: dict[str, list[Any]] = {
        "tools": [*catalog.tools.values()],
        "prompts": [*catalog.prompts.values()],
        "resources": [*catalog.resources.values(), *catalog.templates.values()],
    }
    with translation.override(project.LANGUAGE_CODE):
        for name, theirs in things.items():
            written = sorted(json.dumps(one.definition(), sort_keys=True) for one in theirs)
            yield name, digest_of("\n".join(written))
