"""
Sessions over HTTP: not here yet.
"""

from __future__ import annotations

from typing import Any

from .exchanges import Exchange, Refused


async def post(exchange: Exchange, message: Any) -> None:
    raise Refused(501, "Sessions are not served yet.")


async def get(exchange: Exchange) -> None:
    raise Refused(501, "Sessions are not served yet.")


async def delete(exchange: Exchange) -> None:
    raise Refused(501, "Sessions are not served yet.")


def drain() -> None: ...
