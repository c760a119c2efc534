"""Notes when a switch is committed, and when the server sends that the list of tools has changed.

Both are notes of one process and one clock, so their difference contains neither the browser nor
the client.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.signals import pre_save
from django.dispatch import receiver

from django_mcp.models import Switch

COMMITTED, SENT = "committed", "sent"
NOTIFICATION = b"notifications/tools/list_changed"


def note(event: str) -> None:
    with (settings.FOLDER / "times.txt").open("a") as file:
        file.write(f"{event} {time.monotonic()}\n")


# Before the row is saved, so that this hook runs before those of ``django_mcp``. Otherwise the
# notification could be sent before the note.
@receiver(pre_save, sender=Switch)
def note_commit(using: str, **kwargs: Any) -> None:
    transaction.on_commit(partial(note, COMMITTED), using)


def noting_notifications(application: Any) -> Any:
    """Return the ASGI application, which notes each notification that it sends."""

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            if NOTIFICATION in message.get("body", b""):
                note(SENT)  # before it is sent, so that a client that has it finds the note
            await send(message)

        await application(scope, receive, noted)

    return noting


def seconds_to_notification(folder: Path) -> float:
    """Return the seconds from the latest commit to the first notification after it."""
    lines = [line.split() for line in (folder / "times.txt").read_text().splitlines()]
    committed = max(float(at) for event, at in lines if event == COMMITTED)
    sent = min(float(at) for event, at in lines if event == SENT and float(at) >= committed)
    return sent - committed
