"""
The steps of a request, and the processor time that each takes in the measured process.

With `BENCHMARK_STEPS` in the environment, the functions of `STEPS` are wrapped in a clock that
counts the time of their thread, without the time of other steps that they call. `/steps` returns
the nanoseconds so far by step. Time in no step belongs to the event loop, the threads and uvicorn.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import os
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

from benchmarks.peers.bare import respond

IS_ON = bool(os.environ.get("BENCHMARK_STEPS"))
FUNCTION, OTHER = "function", "the rest of django_mcp"
HTTP, CALLS = "django_mcp.transports.http", "django_mcp.calls"
# By step, the functions and methods whose time it has. Those of `OTHER` contain all others.
STEPS = {
    "receive": (
        "uvicorn.protocols.http.h11_impl:H11Protocol.data_received",
        "uvicorn.protocols.http.httptools_impl:HttpToolsProtocol.data_received",
    ),
    "parse": (
        f"{HTTP}.request:Exchange.__init__",
        f"{HTTP}.request:Exchange.body",
        "django_mcp.protocol.jsonrpc:decode",
    ),
    "security": (
        f"{HTTP}.security:guard",
        f"{HTTP}.security:check_names",
        f"{HTTP}.security:check_scopes",
    ),
    "authenticate": (f"{HTTP}.authentication:identify",),
    "look-up": (f"{HTTP}.lookups:LookupJob.run",),  # of several requests together
    "protocol": (
        "django_mcp.protocol.connection:Connection.receive",
        "django_mcp.protocol.connection:Connection.result",
    ),
    "permission": (f"{CALLS}.execution:check",),
    "validation": (
        "django_mcp.declarations.arguments:Arguments.read",
        "django_mcp.declarations.arguments:Arguments.bind",
    ),
    FUNCTION: (),  # the tool's own, decorated with `timed`
    "encode": (
        f"{CALLS}.results:tool_result",
        "django_mcp.protocol.jsonrpc:encode",
    ),
    "send": (
        f"{HTTP}.request:Exchange.text",
        "uvicorn.protocols.http.h11_impl:RequestResponseCycle.send",
        "uvicorn.protocols.http.httptools_impl:RequestResponseCycle.send",
    ),
    OTHER: (
        f"{HTTP}.consumer:MCPConsumer.__call__",
        f"{CALLS}.execution:_in_thread",
        f"{CALLS}.session_calls:SessionCallManager._work",
    ),
}


class Clock(threading.local):
    """The steps in which this thread is, the innermost last, and the time it spent in each."""

    every: list[Counter[str]] = []

    def __init__(self) -> None:
        self.inside: list[str] = []
        self.since = 0
        self.spent: Counter[str] = Counter()
        self.every.append(self.spent)

    def enter(self, step: str) -> None:
        self._note()
        self.inside.append(step)

    def leave(self) -> None:
        self._note()
        self.inside.pop()

    def _note(self) -> None:
        now = time.thread_time_ns()
        if self.inside:
            self.spent[self.inside[-1]] += now - self.since
        self.since = now


CLOCK = Clock()


def timed(step: str) -> Callable[[Any], Any]:
    """Return a decorator that counts the time of a function or coroutine function as a step."""

    def decorate(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*arguments: Any, **named: Any) -> Any:
            CLOCK.enter(step)
            try:
                return function(*arguments, **named)
            finally:
                CLOCK.leave()

        @functools.wraps(function)
        async def async_wrapper(*arguments: Any, **named: Any) -> Any:
            return await resumed(function(*arguments, **named), step)

        return async_wrapper if inspect.iscoroutinefunction(function) else wrapper

    return decorate if IS_ON else lambda function: function


@types.coroutine
def resumed(coroutine: Any, step: str) -> Generator[Any, Any, Any]:
    """Run a coroutine, and count its time only while it runs."""
    value, error = None, None
    while True:
        CLOCK.enter(step)
        try:
            found = coroutine.send(value) if error is None else coroutine.throw(error)
        except StopIteration as end:
            return end.value
        finally:
            CLOCK.leave()
        try:
            value, error = (yield found), None
        except BaseException as raised:
            value, error = None, raised


def with_steps(application: Any) -> Any:
    """Wrap the functions of all steps, and add the page."""
    for step, names in STEPS.items():
        for name in names:
            wrap(name, step)

    async def with_page(scope: Any, receive: Any, send: Any) -> None:
        if scope.get("path") == "/steps":
            await respond(json.dumps(sum(Clock.every, Counter())).encode(), send)
        else:
            await application(scope, receive, send)

    return with_page


def wrap(name: str, step: str) -> None:
    """Replace a function, wherever it was imported. Raise `AttributeError` if it is not there."""
    where, _, path = name.partition(":")
    *owners, last = path.split(".")
    owner: Any = functools.reduce(getattr, owners, importlib.import_module(where))
    function = getattr(owner, last)
    setattr(owner, last, wrapped := timed(step)(function))
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("django_mcp"):
            for key, value in list(vars(module).items()):
                if value is function:
                    setattr(module, key, wrapped)
