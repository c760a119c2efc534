"""Threads in which the ORM queries of asynchronous calls run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from django_mcp.runtime import threads
from django_mcp.runtime.async_orm import orm_in_own_thread

from ..shop.models import Note
from .jobs import SECONDS, have_ended, raise_error, thread_name, until


async def test_ten_concurrent_calls_query_in_ten_threads_that_end(shared_db, opened):
    note = await threads.tools.run(Note.objects.create, text="hello")
    together = threading.Barrier(10)

    def meet(sender: Any, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
        together.wait(SECONDS)

    async def one() -> str:
        async with orm_in_own_thread():
            return (await Note.objects.aget(pk=note.pk)).text

    opened.clear()
    connection_created.connect(meet)
    try:
        assert await asyncio.gather(*(one() for _ in range(10))) == ["hello"] * 10
    finally:
        connection_created.disconnect(meet)
    assert len(set(opened)) == 10 and all(one.connection is None for one in opened)
    assert have_ended("mcp-async")


async def test_call_without_queries_starts_no_thread():
    before = threading.active_count()
    async with orm_in_own_thread():
        assert threading.active_count() == before
    assert threading.active_count() == before


async def test_all_queries_of_a_call_run_in_one_thread():
    async with orm_in_own_thread():
        idents = {await sync_to_async(threading.get_ident)() for _ in range(3)}
        assert len(idents) == 1 and threading.get_ident() not in idents
        with pytest.raises(RuntimeError, match="StopIteration"):
            await sync_to_async(raise_error)(StopIteration())
    assert have_ended("mcp-async")


def test_call_under_async_to_sync_uses_its_own_thread():
    async def call() -> str:
        async with orm_in_own_thread():
            inside = await sync_to_async(thread_name)()
        assert await sync_to_async(thread_name)() == "MainThread"
        return inside

    assert async_to_sync(call)().startswith("mcp-async")


async def test_cancelled_call_closes_its_connections_after_its_query(shared_db, opened):
    begun, let_go = threading.Event(), threading.Event()

    def slow() -> int:
        begun.set()
        assert let_go.wait(SECONDS)
        return Note.objects.count()

    async def call() -> None:
        async with orm_in_own_thread():
            await sync_to_async(slow)()

    opened.clear()
    task = asyncio.ensure_future(call())
    await until(begun.is_set)
    task.cancel()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, SECONDS)
    assert have_ended("mcp-async")
    assert len(opened) == 1 and opened[0].connection is None
