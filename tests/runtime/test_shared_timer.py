"""The shared timer: when targets are called, and one timer for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from django_mcp.runtime.runtime import Service, SharedTimer
from django_mcp.transports.http.shutdown import draining

PERIOD = 0.02


class CountingTarget:
    def __init__(self) -> None:
        self.calls = 0

    def tick(self) -> None:
        self.calls += 1


@contextmanager
def joined(timer: SharedTimer, *targets: CountingTarget) -> Iterator[None]:
    for target in targets:
        timer.join(target)
    try:
        yield
    finally:
        for target in targets:
            timer.leave(target)


def timers() -> int:
    """Return how many timers of the loop are pending."""
    loop = asyncio.get_running_loop()
    return sum(not timer.cancelled() for timer in loop._scheduled)


async def called(one: CountingTarget, number: int) -> None:
    async with asyncio.timeout(30):
        while one.calls < number:  # noqa: ASYNC110 - there is no event to await
            await asyncio.sleep(PERIOD / 4)


async def test_first_call_comes_after_one_to_two_periods():
    timer, one = SharedTimer(lambda: PERIOD), CountingTarget()
    loop = asyncio.get_running_loop()
    with joined(timer, one):
        begun = loop.time()
        await called(one, 1)
        assert loop.time() - begun >= PERIOD
        await called(one, 3)
    seen = one.calls
    await asyncio.sleep(3 * PERIOD)
    assert one.calls == seen


async def test_target_that_joins_between_calls_waits_for_a_whole_period():
    timer, first, second = SharedTimer(lambda: PERIOD), CountingTarget(), CountingTarget()
    with joined(timer, first):
        await asyncio.sleep(PERIOD * 0.75)
        begun = asyncio.get_running_loop().time()
        with joined(timer, second):
            await called(second, 1)
        assert asyncio.get_running_loop().time() - begun >= PERIOD


async def test_one_timer_serves_all_targets_and_ends_without_targets():
    timer, before = SharedTimer(lambda: PERIOD), timers()
    for _ in range(100):
        with joined(timer, CountingTarget()):
            pass
    with joined(timer, CountingTarget(), CountingTarget(), CountingTarget()):
        assert timers() == before + 1
    for _ in range(100):
        if timers() == before:
            return
        await asyncio.sleep(PERIOD)
    raise AssertionError("the timer goes on without targets")


async def test_period_of_zero_disables_the_timer():
    timer, one, before = SharedTimer(lambda: 0), CountingTarget(), timers()
    with joined(timer, one):
        assert timers() == before
        await asyncio.sleep(PERIOD)
    assert one.calls == 0


async def test_target_may_leave_while_it_is_called():
    timer = SharedTimer(lambda: PERIOD)

    class Once(CountingTarget):
        def tick(self) -> None:
            super().tick()
            timer.leave(self)

    one, other = Once(), CountingTarget()
    with joined(timer, one, other):
        await called(other, 4)
    assert one.calls == 1


async def test_other_targets_stay_when_one_leaves():
    timer, one, other = SharedTimer(lambda: PERIOD), CountingTarget(), CountingTarget()
    with joined(timer, one):
        with joined(timer, other):
            await called(other, 1)
        seen = one.calls
        await called(one, seen + 2)


def test_each_loop_has_its_own_timer():
    service = Service(lambda: SharedTimer(lambda: PERIOD))

    async def beating() -> int:
        with joined(service(), one := CountingTarget()):
            await called(one, 2)
        return one.calls

    for _ in range(3):  # a loop that has ended leaves nothing to the next
        assert asyncio.run(beating()) >= 2
    assert len(service.instances()) == 1


async def test_period_is_that_of_the_setting(settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"KEEPALIVE": PERIOD}
    with joined(draining().keep_alives, one := CountingTarget()):
        await called(one, 1)


async def test_thousand_targets_are_called_together():
    timer, many = SharedTimer(lambda: PERIOD), [CountingTarget() for _ in range(1_000)]
    for one in many:
        timer.join(one)
    await called(many[-1], 2)
    assert {one.calls for one in many} == {many[0].calls}
    for one in many:
        timer.leave(one)


async def test_target_removed_by_another_is_not_called():
    timer, other = SharedTimer(lambda: PERIOD), CountingTarget()

    class Removing(CountingTarget):
        def tick(self) -> None:
            super().tick()
            timer.leave(other)

    one = Removing()
    with joined(timer, one, other):
        await called(one, 2)
    assert other.calls == 0
