"""Services of event loops: one instance for each loop, closed with the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from django_mcp.runtime.runtime import Service, current


def test_each_loop_has_its_own_instance_until_it_is_closed():
    service = Service(object)

    async def get():
        assert service() is service()
        return service()

    first, second = asyncio.run(get()), asyncio.run(get())
    assert first is not second
    assert [instance for _, instance in service.instances()] == [second]


def test_services_with_the_same_class_are_different_services():
    first, second = Service(dict), Service(dict)

    async def get():
        return first() is second()

    assert not asyncio.run(get())


def test_instances_of_loops_in_other_threads_are_found():
    service, ready, release = Service(object), threading.Event(), threading.Event()

    async def serve():
        service()
        ready.set()
        await asyncio.to_thread(release.wait, 10)

    async def find():
        return service.instances()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        assert len(asyncio.run(find())) == 1
    finally:
        release.set()
        thread.join()


def test_closing_a_runtime_closes_its_services_in_reverse_order():
    order = []

    class First:
        async def close(self):
            order.append("first")

    class Second:
        async def close(self):
            order.append("second")

    first, second, plain = Service(First), Service(Second), Service(object)

    async def use():
        first(), plain(), second()
        await current().close()

    asyncio.run(use())
    assert order == ["second", "first"]


def test_runtime_outside_of_a_loop_raises():
    with pytest.raises(RuntimeError):
        current()
    with pytest.raises(RuntimeError):
        Service(object)()
