"""Context managers for ``AROUND``, and records of what happened in them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from django.db import connections
from django.utils import translation

from tests.shop.models import Tag


@dataclass
class AroundCall:
    """One use of ``recorded``: its threads, its exception, and what the project ran inside."""

    request: Any
    thread: int
    left: int = 0
    error: BaseException | None = None
    within: list[tuple[str, int]] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return not self.left


seen: list[AroundCall] = []


@contextmanager
def recorded(request: Any) -> Iterator[None]:
    passed = AroundCall(request, threading.get_ident())
    seen.append(passed)
    try:
        yield
    except BaseException as error:
        passed.error = error
        raise
    finally:
        passed.left = threading.get_ident()


def note(what: str) -> None:
    """Record that project code runs, which must be inside of ``recorded``."""
    assert seen and seen[-1].is_open, f"{what} runs outside of AROUND"
    seen[-1].within.append((what, threading.get_ident()))


order: list[str] = []


@contextmanager
def outer(request: Any) -> Iterator[None]:
    order.append("enter outer")
    yield
    order.append("leave outer")


@contextmanager
def inner(request: Any) -> Iterator[None]:
    order.append("enter inner")
    yield
    order.append("leave inner")


@contextmanager
def swallowing(request: Any) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        order.append(f"swallowed {type(error).__name__}")


@contextmanager
def closed(request: Any) -> Iterator[None]:
    raise ValueError("the entry is refused")
    yield


@contextmanager
def broken(request: Any) -> Iterator[None]:
    """Use the connection on exit, then fail."""
    yield
    Tag.objects.count()
    order.append(f"open {connections['default'].connection is not None}")
    raise ValueError("the exit is blocked")


@contextmanager
def in_german(request: Any) -> Iterator[None]:
    with translation.override("de"):
        yield


tenant: ContextVar[str] = ContextVar("tenant", default="nobody's")


@contextmanager
def of_tenant(request: Any) -> Iterator[None]:
    """Reset the variable by its token, which only works in the context in which it was set."""
    token = tenant.set("Acme's")
    try:
        yield
    finally:
        order.append(tenant.get())
        tenant.reset(token)
