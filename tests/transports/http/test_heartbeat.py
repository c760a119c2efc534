"""A beat for many: when it comes first, when it stops, and what it costs."""

from __future__ import annotations

import asyncio

from django_mcp.runtime.heartbeat import Heartbeat, HeartbeatTimer, alive

PERIOD = 0.02


class Counting:
    def __init__(self) -> None:
        self.beats = 0

    def pulse(self) -> None:
        self.beats += 1


def timers() -> int:
    """The timers of the loop that will still go off."""
    loop = asyncio.get_running_loop()
    return sum(not timer.cancelled() for timer in loop._scheduled)


async def beats(one: Counting, number: int) -> None:
    async with asyncio.timeout(30):
        while one.beats < number:  # noqa: ASYNC110 - the beat tells nobody
            await asyncio.sleep(PERIOD / 4)


async def test_the_first_beat_comes_after_one_period_to_two():
    pulse, one = Heartbeat(lambda: PERIOD), Counting()
    loop = asyncio.get_running_loop()
    with pulse(one):
        begun = loop.time()
        await beats(one, 1)
        assert loop.time() - begun >= PERIOD
        await beats(one, 3)
    seen = one.beats
    await asyncio.sleep(3 * PERIOD)
    assert one.beats == seen


async def test_who_comes_between_two_beats_waits_for_a_whole_period():
    pulse, first, second = Heartbeat(lambda: PERIOD), Counting(), Counting()
    with pulse(first):
        await asyncio.sleep(PERIOD * 0.75)
        begun = asyncio.get_running_loop().time()
        with pulse(second):
            await beats(second, 1)
        assert asyncio.get_running_loop().time() - begun >= PERIOD


async def test_there_is_one_timer_for_all_and_none_for_nobody():
    pulse, before = Heartbeat(lambda: PERIOD), timers()
    for _ in range(100):
        with pulse(Counting()):
            pass
    with pulse(Counting()), pulse(Counting()), pulse(Counting()):
        assert timers() == before + 1
    for _ in range(100):
        if timers() == before:
            return
        await asyncio.sleep(PERIOD)
    raise AssertionError("the timer goes on for nobody")


async def test_no_period_is_no_beat():
    pulse, one, before = Heartbeat(lambda: 0), Counting(), timers()
    with pulse(one):
        assert timers() == before
        await asyncio.sleep(PERIOD)
    assert one.beats == 0


async def test_a_beat_may_be_the_last():
    pulse = Heartbeat(lambda: PERIOD)

    class Once(Counting):
        def pulse(self) -> None:
            super().pulse()
            pulse.leave(self)

    one, other = Once(), Counting()
    with pulse(one), pulse(other):
        await beats(other, 4)
    assert one.beats == 1


async def test_the_one_that_goes_takes_no_other_along():
    pulse, one, other = Heartbeat(lambda: PERIOD), Counting(), Counting()
    with pulse(one):
        with pulse(other):
            await beats(other, 1)
        seen = one.beats
        await beats(one, seen + 2)


def test_each_loop_has_its_own():
    pulse = Heartbeat(lambda: PERIOD)

    async def beating() -> int:
        with pulse(one := Counting()):
            await beats(one, 2)
        return one.beats

    for _ in range(3):  # a loop that has ended leaves nothing to the next
        assert asyncio.run(beating()) >= 2
    assert len(pulse._hearts.instances()) == 1


async def test_the_period_is_the_settings(settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"KEEPALIVE": PERIOD}
    with alive(one := Counting()):
        await beats(one, 1)


async def test_a_thousand_cost_one_turn_of_the_loop():
    heart, many = HeartbeatTimer(lambda: PERIOD), [Counting() for _ in range(1_000)]
    for one in many:
        heart.take(one)
    await beats(many[-1], 2)
    assert {one.beats for one in many} == {many[0].beats}
    for one in many:
        heart.leave(one)
