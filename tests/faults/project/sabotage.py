"""Where faults strike: named points of a call, seen from outside of what is tried.

The rule: nothing of ``django_mcp`` is patched. Its statements are seen on their way to the
database (``connection.execute_wrappers``), its requests and answers on their way through ASGI;
points within a tool are reached by the tool. A fault is armed by a datagram, for any of the
processes that hear of it: who first reaches the point strikes, says so, and dies by SIGKILL.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import mutants, points

FOLDER = Path(os.environ.get("FAULTS_FOLDER", "."))
LOG = "struck.log"
# A worker without a heartbeat for two thirds of a lease stops its calls.
MAX_SILENCE_SECONDS = float(os.environ.get("FAULTS_LEASE", "15")) * 2 / 3


@dataclass(frozen=True)
class Arm:
    """A fault that waits at a point."""

    id: str
    point: str
    act: str = "kill"  # or pause, suspend, or note: only tell that it was reached
    seconds: float = 0.0
    but: int = 0  # the process that passes


_armed: dict[str, Arm] = {}
_worker = ""
_spared = 0.0  # until when nothing kills this process
_open = 0  # requests at work


def begin() -> None:
    """Hear of faults from now on; in each process, after it was forked."""
    global _worker
    _worker = os.environ.get("FAULTS_WORKER", "")
    _armed.clear()
    place = FOLDER / f"{_worker}.sock"
    place.unlink(missing_ok=True)
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    ear.bind(str(place))
    threading.Thread(target=_hear, args=(ear,), name="sabotage", daemon=True).start()


def _hear(ear: socket.socket) -> None:
    while True:
        told = json.loads(ear.recv(4096))
        if "id" in told:
            _armed[told["point"]] = Arm(**told)
        elif "spare" in told:
            _spare(told["spare"])
        elif "count" in told:
            tell(counted=told["count"], open=_open)
        else:
            _armed.pop(told["forget"], None)


def reach(point: str) -> None:
    """This point is reached: strike, if a fault waits here and no other process was first."""
    arm = _armed.get(point)
    if arm is None or arm.but == os.getpid() or (_is_spared() and arm.act != "note"):
        return
    if _armed.pop(point, None) is None or not _is_first(arm.id):
        return
    tell(struck=point, id=arm.id)
    ACTS[arm.act](arm)


def _kill(arm: Arm) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pause(arm: Arm) -> None:
    time.sleep(arm.seconds)


def _suspend(arm: Arm) -> None:
    """The whole process stands still, here, until it is told to go on."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    time.sleep(STANDING)


STANDING = 0.05  # seconds in which nothing goes on, whichever thread the signal came to first
ACTS: dict[str, Callable[[Arm], None]] = {
    "kill": _kill,
    "pause": _pause,
    "suspend": _suspend,
    "note": lambda arm: None,
}


def _is_spared() -> bool:
    return time.monotonic() < _spared


def spare(seconds: float) -> None:
    """Let this process live for a while: somebody tries what takes that long."""
    _spare(seconds)
    (FOLDER / f"{_worker}.spared").write_text(str(_spared))
    tell(spared=seconds)


def _spare(seconds: float) -> None:
    global _spared
    _spared = time.monotonic() + seconds


def _is_first(id: str) -> bool:
    try:
        os.close(os.open(FOLDER / f"{id}.claim", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def tell(**what: Any) -> None:
    """A line in the log that all share, written before anything else happens."""
    line = json.dumps({"worker": _worker, "pid": os.getpid(), "at": time.monotonic(), **what})
    log = os.open(FOLDER / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, line.encode() + b"\n")
    finally:
        os.close(log)


# Statements.


def watch(sender: Any, connection: Any, **kwargs: Any) -> None:
    """See the statements of a connection that was made."""
    if not any(isinstance(one, points.Watch) for one in connection.execute_wrappers):
        connection.execute_wrappers.append(points.Watch(connection, reach, _saw, _paused))
        wrong = mutants.among_statements(os.environ.get("FAULTS_MUTANT", ""))
        connection.execute_wrappers.extend(wrong)


def _saw(what: str) -> None:
    tell(seen=what)


def _paused(began: float, ended: float) -> None:
    """Report a pause of the heartbeat in which this worker lost its lease, or gave it up."""
    if ended - began > MAX_SILENCE_SECONDS:
        tell(paused=began, ended=ended)


# Requests and answers.


def watched(application: Any) -> Any:
    """``application``, with the points that its requests and answers pass."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/mcp"):
            await application(scope, receive, send)
            return
        global _open
        passed = points.Passage(scope["method"], reach)

        async def received() -> Any:
            message = await receive()
            passed.received(message)
            return message

        async def sent(message: Any) -> None:
            passed.before(message)
            await send(message)
            passed.after(message)

        _open += 1
        try:
            await application(scope, received, sent)
        finally:
            _open -= 1

    return served
