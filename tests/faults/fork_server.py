"""A process that has imported everything that a worker needs, and forks workers.

Before a fork there is no thread, no connection and no event loop. Requests are lines of JSON on
standard input, and results on standard output.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NoReturn

SOON = 0.5  # seconds; libfaketime reads its file once a second


def main() -> None:
    prepare()
    receiver, sender = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(sender, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    tell(ready=True)
    rest = b""
    while True:
        ready, _, _ = select.select([0, receiver], [], [], SOON)
        if receiver in ready:
            os.read(receiver, 4096)
        reap()
        if 0 in ready:
            read = os.read(0, 65536)
            if not read:
                return
            *lines, rest = (rest + read).split(b"\n")
            for line in lines:
                begin(json.loads(line))


def prepare() -> None:
    """Import what every worker needs."""
    if "LD_PRELOAD" in os.environ:
        # With libfaketime, a sleep until an absolute time fails.
        time.sleep = lambda seconds: select.select([], [], [], float(seconds)) and None
    import uvicorn  # noqa: F401
    import uvicorn.lifespan.on
    import uvicorn.protocols.http.h11_impl
    import uvicorn.protocols.websockets.auto  # noqa: F401

    from .project import asgi

    assert asgi.application


def tell(**what: Any) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def reap() -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        tell(died=pid, code=os.waitstatus_to_exitcode(status))


def begin(wanted: dict[str, Any]) -> None:
    pid = os.fork()
    if pid:
        tell(began=pid, worker=wanted["worker"])
    else:
        become(wanted)


def become(wanted: dict[str, Any]) -> NoReturn:
    """In the child: run a worker or a job to its end."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(wanted.get("environ", {}))
        _write_to(wanted["log"])
        signal.signal(TELL, where)
        KINDS[wanted["kind"]](wanted)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def where(*_: object) -> None:
    """Print the stacks of all threads and tasks."""
    faulthandler.dump_traceback()
    for task in asyncio.all_tasks():
        print(task.get_name(), *_frames(task.get_coro()), sep="\n  ", file=sys.stderr)


def _frames(coro: Any) -> Iterator[str]:
    """Iterate over the frames of a coroutine, outermost first."""
    while coro is not None:
        if (frame := getattr(coro, "cr_frame", None)) is not None:
            yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}"
        coro = getattr(coro, "cr_await", None)


def _write_to(log: str) -> None:
    words = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, source in ((0, nothing), (1, words), (2, words)):
        os.dup2(source, number)


def uvicorn(wanted: dict[str, Any]) -> None:
    from uvicorn.main import main

    from .project import injection

    injection.begin()
    place = ["--host", "127.0.0.1", "--port", str(wanted["port"])]
    main([*place, "--log-level", "warning", APPLICATION])


def daphne(wanted: dict[str, Any]) -> None:
    from daphne.cli import CommandLineInterface

    from .project import injection

    injection.begin()
    place = ["--bind", "127.0.0.1", "--port", str(wanted["port"])]
    CommandLineInterface().run([*place, "--verbosity", "0", APPLICATION])


def manage(wanted: dict[str, Any]) -> None:
    from django.core.management import call_command

    for command, options in wanted["commands"]:
        call_command(command, **options)


def prune(wanted: dict[str, Any]) -> None:
    """Prune ended streams as if they had ended two hours earlier."""
    from django.core.management import call_command
    from django.db.models import F

    from django_mcp.conf import settings
    from django_mcp.models import Stream

    ended = Stream.objects.using(settings.DATABASE).filter(closed=True, ended__isnull=False)
    ended.update(ended=F("ended") - timedelta(hours=2))
    call_command("mcp_prune")


TELL = signal.SIGUSR1  # makes a process print its stacks
APPLICATION = "tests.faults.project.asgi:application"
KINDS: dict[str, Callable[[dict[str, Any]], None]] = {
    "uvicorn": uvicorn,
    "daphne": daphne,
    "manage": manage,
    "prune": prune,
}

if __name__ == "__main__":
    main()
