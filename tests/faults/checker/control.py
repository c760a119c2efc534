"""
Client of the control views: users, tokens, and effects of tools. Repeats requests until they
succeed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from .client import Address, Broken, request
from .context import CampaignContext, Deadline, pause

AT_ONCE, SPARING = 400, 5.0


class Unreachable(Exception):
    """No worker answers."""


async def spare(context: CampaignContext, worker: Address, seconds: float) -> None:
    """Ask a worker not to be killed for a while. Ignore it if the worker does not respond."""
    with contextlib.suppress(Unreachable):
        await ask(context, "spare", to=worker, within=SPARING, seconds=seconds)


async def ask(
    context: CampaignContext,
    what: str,
    *,
    to: Address | None = None,
    within: float = 0.0,
    **given: Any,
) -> Any:
    """Send a POST request to ``/control/<what>`` of ``to`` or any worker, and return the answer."""
    rng, deadline, attempt = context.rng("control", what), Deadline(within or context.timeout), 0
    body = json.dumps(given).encode()
    wrong: Any = None
    while not deadline.is_over:
        try:
            place = to or rng.choice(context.workers)
            path, headers = f"/control/{what}/", {"content-type": "application/json"}
            answer = await request(place, "POST", headers, body, path=path)
            said = await answer.json()
        except Broken as error:
            wrong = error
        else:
            if answer.status == 200:
                return said
            wrong = f"{answer.status} {str(said)[:200]}"
            if answer.status in (400, 404):
                break
        attempt += 1
        await pause(rng, attempt)
    raise Unreachable(f"/control/{what}/: {wrong}")


async def effects(context: CampaignContext, keys: Sequence[str]) -> dict[str, int]:
    """Return how often each of these effects has happened."""
    found: dict[str, int] = {}
    for start in range(0, len(keys), AT_ONCE):
        found |= await ask(context, "effects", keys=keys[start : start + AT_ONCE])
    return found
