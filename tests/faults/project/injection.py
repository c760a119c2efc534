"""Fault injection: faults take effect at named points of a call.

``django_mcp`` is not patched. Its statements are watched by ``connection.execute_wrappers``, its
requests and responses in ASGI; tools report their own points. A datagram arms a fault in all
workers. The first process that reaches the point logs that and injects the fault.
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
class ArmedFault:
    """A fault that is injected at a point."""

    id: str
    point: str
    act: str = "kill"  # or pause, suspend, or note: only log that the point was reached
    seconds: float = 0.0
    but: int = 0  # the process that is not affected


_armed: dict[str, ArmedFault] = {}
_worker = ""
_spared = 0.0  # until when no fault is injected here
_open = 0  # requests being handled


def begin() -> None:
    """Receive faults from now on. Called in each process after the fork."""
    global _worker
    _worker = os.environ.get("FAULTS_WORKER", "")
    _armed.clear()
    place = FOLDER / f"{_worker}.sock"
    place.unlink(missing_ok=True)
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(str(place))
    threading.Thread(target=_hear, args=(receiver,), name="injection", daemon=True).start()


def _hear(receiver: socket.socket) -> None:
    while True:
        told = json.loads(receiver.recv(4096))
        if "id" in told:
            _armed[told["point"]] = ArmedFault(**told)
        elif "spare" in told:
            _spare(told["spare"])
        elif "count" in told:
            tell(counted=told["count"], open=_open)
        else:
            _armed.pop(told["forget"], None)


def reach(point: str) -> None:
    """Inject the fault that is armed at this point, unless another process was first."""
    arm = _armed.get(point)
    if arm is None or arm.but == os.getpid() or (_is_spared() and arm.act != "note"):
        return
    if _armed.pop(point, None) is None or not _is_first(arm.id):
        return
    tell(struck=point, id=arm.id)
    ACTS[arm.act](arm)


def _kill(arm: ArmedFault) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _pause(arm: ArmedFault) -> None:
    time.sleep(arm.seconds)


def _suspend(arm: ArmedFault) -> None:
    """Suspend the whole process at this point, until SIGCONT."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    time.sleep(STANDING)


STANDING = 0.05  # seconds; SIGSTOP may stop another thread first
ACTS: dict[str, Callable[[ArmedFault], None]] = {
    "kill": _kill,
    "pause": _pause,
    "suspend": _suspend,
    "note": lambda arm: None,
}


def _is_spared() -> bool:
    return time.monotonic() < _spared


def spare(seconds: float) -> None:
    """Inject no fault into this process for a while."""
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
    """Write a line to the shared log, before the fault takes effect."""
    line = json.dumps({"worker": _worker, "pid": os.getpid(), "at": time.monotonic(), **what})
    log = os.open(FOLDER / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, line.encode() + b"\n")
    finally:
        os.close(log)


# Statements.


def watch(sender: Any, connection: Any, **kwargs: Any) -> None:
    """Watch the statements of a new connection."""
    if not any(isinstance(one, points.StatementWatcher) for one in connection.execute_wrappers):
        connection.execute_wrappers.append(
            points.StatementWatcher(connection, reach, _saw, _paused)
        )
        wrong = mutants.among_statements(os.environ.get("FAULTS_MUTANT", ""))
        connection.execute_wrappers.extend(wrong)


def _saw(what: str) -> None:
    tell(seen=what)


def _paused(began: float, ended: float) -> None:
    """Report a pause of the heartbeat in which this worker lost its lease, or gave it up."""
    if ended - began > MAX_SILENCE_SECONDS:
        tell(paused=began, ended=ended)


# Requests and responses.


def watched(application: Any) -> Any:
    """Return the application with the injection points of its requests and responses."""

    async def served(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/mcp"):
            await application(scope, receive, send)
            return
        global _open
        passed = points.RequestWatcher(scope["method"], reach)

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
