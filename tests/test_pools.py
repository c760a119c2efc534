"""Pools: what one owner may have of the threads, and threads that are stuck."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from django_mcp import pools, threads
from django_mcp.exceptions import Busy
from django_mcp.pools import Pool

SECONDS = 10


@pytest.fixture
def pool(request):
    found = Pool("test", lambda: 4)
    yield found
    found.shutdown()


@pytest.fixture
def queue(settings):
    def given(number):
        settings.DJANGO_MCP = {"QUEUE": number}

    return given


async def until(condition):
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.001)


def begun(pool, owner, function, times=1):
    return [asyncio.ensure_future(pool.run_for(owner, function)) for _ in range(times)]


# Shares.


async def test_one_owner_leaves_threads_to_others(pool, gate):
    mine = begun(pool, "me", lambda: gate.wait(SECONDS), 20)
    await until(lambda: len(pool._begun) == 3)  # of four
    assert await asyncio.wait_for(pool.run_for("you", lambda: "here"), SECONDS) == "here"
    assert await asyncio.wait_for(pool.run(lambda: "ours"), SECONDS) == "ours"
    assert len(pool._begun) == 3
    gate.set()
    assert all(await asyncio.gather(*mine))
    await until(lambda: not (pool._pending or pool._held or pool._waiting or pool._begun))


async def test_jobs_of_one_owner_keep_their_order(pool):
    found = []
    await asyncio.gather(*(pool.run_for("me", lambda n=n: found.append(n)) for n in range(3)))
    single = Pool("one", lambda: 1)
    done = [single.run_for("me", lambda n=n: found.append(n)) for n in range(10, 30)]
    await asyncio.gather(*done)
    assert found[3:] == list(range(10, 30))
    single.shutdown()


async def test_nobody_in_particular_is_one_owner(pool, gate):
    mine = begun(pool, "", lambda: gate.wait(SECONDS), 5)
    await until(lambda: len(pool._begun) == 3)
    assert await pool.run_for("you", lambda: 1) == 1
    gate.set()
    await asyncio.gather(*mine)


async def test_one_owner_does_not_fill_the_queue(pool, gate, queue):
    queue(4)
    mine = begun(pool, "me", lambda: gate.wait(SECONDS), 6)  # three run, three wait
    await asyncio.sleep(0)
    with pytest.raises(Busy):
        await pool.run_for("me", lambda: 1)
    assert await pool.run_for("you", lambda: 1) == 1
    gate.set()
    await asyncio.gather(*mine)
    assert await pool.run_for("me", lambda: 1) == 1


async def test_who_gives_up_while_it_waits_has_not_run(pool, gate):
    ran = []
    mine = begun(pool, "me", lambda: gate.wait(SECONDS), 3)
    (late,) = begun(pool, "me", lambda: ran.append(1))
    await until(lambda: len(pool._begun) == 3)
    late.cancel()
    with pytest.raises(asyncio.CancelledError):
        await late
    gate.set()
    await asyncio.gather(*mine)
    await until(lambda: not pool._pending)
    assert ran == [] and not pool._held


async def test_errors_arrive_from_who_waited(pool, gate):
    mine = begun(pool, "me", lambda: gate.wait(SECONDS), 3)
    (late,) = begun(pool, "me", lambda: 1 // 0)
    await until(lambda: len(pool._begun) == 3)
    gate.set()
    with pytest.raises(ZeroDivisionError):
        await late
    await asyncio.gather(*mine)


async def test_a_shutdown_refuses_whose_turn_had_come(gate):
    pool, first = Pool("test", lambda: 2), threading.Event()
    mine = begun(pool, "me", lambda: first.wait(SECONDS))
    others = begun(pool, "you", lambda: gate.wait(SECONDS))
    await until(lambda: len(pool._begun) == 2)
    others += begun(pool, "they", lambda: gate.wait(SECONDS))
    mine += begun(pool, "me", lambda: 1)
    await until(lambda: pool._pending == 4)
    first.set()
    # Who comes after "they", who have begun.
    await until(lambda: not pool._waiting and len(pool._begun) == 2)
    pool.shutdown(wait=False)
    gate.set()
    found = await asyncio.gather(*mine, return_exceptions=True)
    assert isinstance(found[1], asyncio.CancelledError)
    await asyncio.gather(*others)
    await until(lambda: not pool._pending)
    assert not pool._held


async def test_a_shutdown_refuses_who_waits(gate):
    pool = Pool("test", lambda: 4)
    mine = begun(pool, "me", lambda: gate.wait(SECONDS), 5)
    await until(lambda: len(pool._begun) == 3)
    pool.shutdown(wait=False)
    gate.set()
    found = await asyncio.gather(*mine, return_exceptions=True)
    assert [isinstance(one, asyncio.CancelledError) for one in found] == [False] * 3 + [True] * 2
    await until(lambda: not pool._pending)
    assert not pool._held and await pool.run_for("me", lambda: 1) == 1
    pool.shutdown()


# Stuck threads.


async def test_what_is_stuck_is_counted(pool, gate, monkeypatch, caplog):
    monkeypatch.setattr(pools, "STUCK", 0.05)
    first = begun(pool, "a", lambda: gate.wait(SECONDS))
    await asyncio.sleep(0.1)
    assert pool.stuck() == 1 and pool.is_ready()  # a quarter
    first += begun(pool, "b", lambda: gate.wait(SECONDS))
    await asyncio.sleep(0.1)
    assert pool.stuck() == 2 and not pool.is_ready()
    for _ in range(3):
        await pool.run(time.monotonic)
    assert caplog.text.count("2 threads of the pool 'test'") == 1
    gate.set()
    await asyncio.gather(*first)
    await until(lambda: not pool._begun)
    assert pool.stuck() == 0 and pool.is_ready()


def test_the_whole_process_can_tell(monkeypatch):
    names = {pool.name for pool in threads.POOLS}
    assert threads.is_ready() and set(threads.stuck()) == names
    monkeypatch.setattr(threads.lookups, "_begun", {1: time.monotonic() - pools.STUCK - 1})
    assert threads.stuck()["lookup"] == 1 and not threads.is_ready()
