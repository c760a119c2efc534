"""
How fast a stream may be written: where a server takes whatever it is given, and keeps it.

Rule: who writes waits for who reads, so a slow reader costs no memory. Of the
servers that are supported daphne alone does not let its applications wait; the
connection below it, which is Twisted's, says when it has enough.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any


class Flow:
    """A push producer of Twisted's, by its shape, for one request of daphne's."""

    def __init__(self, request: Any) -> None:
        self._request, self._open = request, asyncio.Event()
        self._open.set()
        request.registerProducer(self, True)

    async def ready(self) -> None:
        """Come back when there is room for more, or nobody there."""
        await self._open.wait()

    def close(self) -> None:
        """Nothing more is written."""
        if self._request.channel is not None:  # the connection is there
            self._request.unregisterProducer()

    # What Twisted calls, in the loop.

    def pauseProducing(self) -> None:  # noqa: N802
        self._open.clear()

    def resumeProducing(self) -> None:  # noqa: N802
        self._open.set()

    stopProducing = resumeProducing  # noqa: N815 - the connection was lost


def flow_of(send: Any) -> Flow | None:
    """That of an answer which ``send`` sends; None where servers let us wait themselves."""
    request: Any = send.args[0] if isinstance(send, partial) and send.args else None
    if not hasattr(request, "registerProducer"):
        return None
    is_free = request.channel is not None and request.producer is None
    return Flow(request) if is_free else None
