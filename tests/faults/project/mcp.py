"""Tools whose texts, questions and effects follow from a seed.

A tool logs its process id at the start of a run; everything else is the same in every run. Tools
report their own injection points.
"""

import asyncio
import os
import time
from functools import partial
from pathlib import Path

from django.db import IntegrityError, OperationalError, transaction
from django.db.models import QuerySet

import django_mcp as mcp
from django_mcp import Elicit

from .injection import reach
from .models import Effect, Note
from .words import word

mcp.server.sse = True
GATES = Path(os.environ.get("FAULTS_FOLDER", "build/faults")) / "gates"
AWAY = "The database is away."


def here(request: mcp.Request) -> None:
    request.log("info", {"process": os.getpid()})


def speak(request: mcp.Request, seed: str, count: int, seconds: float, first: int = 0) -> None:
    """Say words ``first`` to ``count`` of the seed, in a thread, in as long as ``seconds``."""
    for number in range(first, count):
        request.progress(number + 1, count, word(seed, number))
        if seconds:
            time.sleep(seconds / count)
        reach("tool-working")


def write(key: str) -> None:
    """Do it."""
    reach("tool-before-write")
    try:
        Effect.objects.create(key=key)
    except OperationalError:
        raise mcp.ToolError(AWAY) from None
    reach("tool-after-write")


# Saying.


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def recite(request: mcp.Request, seed: str, count: int, seconds: float = 0) -> str:
    """Say so many words, in the loop."""
    here(request)
    for number in range(count):
        await request.aprogress(number + 1, count, word(seed, number))
        if seconds:
            await asyncio.sleep(seconds / count)
        reach("tool-working")
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def dictate(request: mcp.Request, seed: str, count: int, seconds: float = 0) -> str:
    """Say so many words, in a thread."""
    here(request)
    speak(request, seed, count, seconds)
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def brood(request: mcp.Request, seed: str, count: int, seconds: float) -> str:
    """Say nothing, in a thread."""
    time.sleep(seconds)
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def fail(request: mcp.Request, seed: str, count: int, seconds: float = 0) -> str:
    """Say so many words, and be answered by an error."""
    here(request)
    speak(request, seed, count, seconds)
    raise mcp.ProtocolError(word(seed, "final"))


# Acting.


@mcp.tool(permission=mcp.PUBLIC, durable=True)
def act(request: mcp.Request, seed: str, count: int, seconds: float = 0) -> str:
    """Say half of the words, write, say the other half."""
    here(request)
    half = count // 2
    speak(request, seed, half, seconds / 2 * half / count if count else 0)
    write(seed)
    speak(request, seed, count, seconds / 2, half)
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC, durable=True, transactional=True)
def transact(request: mcp.Request, seed: str, count: int, seconds: float = 0) -> str:
    """The same, and there is nothing of it that a roll-back does not undo."""
    here(request)
    write(seed)
    speak(request, seed, count, seconds)
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC, idempotent=True, durable=True)
def put(request: mcp.Request, seed: str, count: int, seconds: float = 0) -> str:
    """What may be done twice, and is then as if it was done once."""
    here(request)
    speak(request, seed, count, seconds)
    reach("tool-before-write")
    try:
        Effect.objects.filter(key=seed).exists() or Effect.objects.create(key=seed)
    except OperationalError:
        raise mcp.ToolError(AWAY) from None
    reach("tool-after-write")
    return word(seed, "final")


# Asking.


def wanted(seed: str, number: int) -> Elicit:
    return Elicit(word(seed, f"question {number}"), str)


def check(seed: str, number: int, answer: str) -> None:
    if answer != word(seed, f"answer {number}"):
        raise mcp.ToolError(f"{answer!r} does not answer question {number}.")


@mcp.tool(permission=mcp.PUBLIC)
def ask(request: mcp.Request, seed: str, count: int) -> str:
    """Ask one thing after the other, say a word after each answer, and act at the end."""
    for number in range(count):
        question = wanted(seed, number)
        try:
            check(seed, number, request.elicit(question.message, str))
        except mcp.Declined:
            return word(seed, f"declined {number}")
        except mcp.ClientError:
            return word(seed, f"error {number}")
        request.progress(number + 1, count, word(seed, number))
    here(request)
    write(seed)
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC)
def survey(request: mcp.Request, seed: str, count: int) -> str:
    """Ask several things at once, and act."""
    request.progress(1, 2, word(seed, 0))
    answers = request.ask(**{f"n{number}": wanted(seed, number) for number in range(count)})
    for number in range(count):
        check(seed, number, answers[f"n{number}"])
    here(request)
    write(seed)
    request.progress(2, 2, word(seed, 1))
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
async def inquire(request: mcp.Request, seed: str, count: int) -> str:
    """Ask, in the loop, and do nothing."""
    for number in range(count):
        await request.aprogress(number + 1, count, word(seed, number))
        check(seed, number, await request.aelicit(word(seed, f"question {number}"), str))
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC)
def doubt(request: mcp.Request, seed: str, seconds: float) -> str:
    """Ask what nobody answers in time."""
    try:
        request.elicit(word(seed, "question 0"), str, timeout=seconds)
    except mcp.TimedOut:
        return word(seed, "timed out")
    return word(seed, "final")


def step(key: str, value: str) -> str:
    write(key)
    return value


@mcp.tool(permission=mcp.PUBLIC, durable=True)
def steps(request: mcp.Request, seed: str, count: int = 0) -> str:
    """Do one thing, ask, do another, and one more at the end."""
    request.progress(1, 3, word(seed, 0))
    first = request.once("first", partial(step, f"{seed}/first", word(seed, "first")))
    for number in range(count):
        check(seed, number, request.elicit(word(seed, f"question {number}"), str))
    second = request.once("second", partial(step, f"{seed}/second", word(seed, "second")))
    request.progress(2, 3, word(seed, 1))
    if (first, second) != (word(seed, "first"), word(seed, "second")):
        raise mcp.ToolError("The steps are remembered as something else.")
    here(request)
    write(seed)
    request.progress(3, 3, word(seed, 2))
    return word(seed, "final")


# Taking time, and places.


@mcp.tool(permission=mcp.PUBLIC)
def sleep(request: mcp.Request, seed: str, count: int, seconds: float) -> str:
    """Write, and sleep in the transaction between two words."""
    here(request)
    Effect.objects.create(key=seed)
    for number in range(count):
        if number:
            time.sleep(seconds)
        request.progress(number + 1, count, word(seed, number))
    return word(seed, "final")


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def stick(request: mcp.Request, seed: str, gate: str, seconds: float) -> str:
    """Hold a thread until somebody opens the gate, and hear nothing meanwhile."""
    end = time.monotonic() + seconds
    while not (GATES / gate).exists() and time.monotonic() < end:
        time.sleep(0.05)
    return word(seed, "final")


# News.


@mcp.resource("news://{who}", permission=mcp.PUBLIC)
def news(request: mcp.Request, who: str) -> str:
    """What somebody subscribes to."""
    return who


@mcp.tool(permission=mcp.PUBLIC, read_only=True)
def announce(request: mcp.Request, seed: str, who: str) -> str:
    """Tell who subscribes that it has changed."""
    mcp.notify_changed(f"news://{who}")
    return word(seed, "final")


@mcp.register(Note)
class Notes(mcp.ModelResource):
    """Of whoever is calling."""

    permission = mcp.AUTHENTICATED
    fields = ("who", "text")
    uri = "note://{who}"

    def get_queryset(self, request: mcp.Request) -> QuerySet[Note]:
        return super().get_queryset(request).filter(owner=request.user.get_username())


@mcp.tool(permission=mcp.AUTHENTICATED, idempotent=True, durable=True)
def jot(request: mcp.Request, seed: str, who: str) -> str:
    """Save a note, and that it was; the ORM tells who subscribes."""
    here(request)
    reach("tool-before-write")
    note = Note(who=who, owner=request.user.get_username(), text=seed)
    try:
        try:
            _noted(note)
        except IntegrityError:  # its client got no answer and asked again: both are at it
            _noted(note)
    except OperationalError:
        raise mcp.ToolError(AWAY) from None
    reach("tool-after-write")
    return word(seed, "final")


def _noted(note: Note) -> None:
    with transaction.atomic():
        note.save()  # nothing is read before: on SQLite who has read waits for no writer
        Effect.objects.create(key=f"note {note.who}")
