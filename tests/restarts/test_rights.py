"""Rights that are taken in another process: lists, calls, streams and subscriptions at each worker.

How long it took is printed; that it was soon is the benchmark's to say (``benchmarks.revocation``).
"""

from __future__ import annotations

import threading
import time

import pytest

from .rights import (
    Pipe,
    all_kinds,
    alone,
    answered,
    listed,
    listen,
    names,
    refusals,
    report,
    results,
)
from .test_sse import Client as SseClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CHANGED = "notifications/tools/list_changed"
UNKNOWN = {"code": -32602, "message": "Unknown tool: guarded"}


@pytest.fixture
def person(hand, request) -> tuple[str, str]:
    """A name, and a token."""
    name = f"{request.node.name} {time.time()}"[-100:]
    return name, hand.person(name)


def error(response) -> dict:
    return {key: response["error"][key] for key in ("code", "message")}


TAKEN = {
    "from the group": "Group.objects.get(name={0!r}).permissions.clear()",
    "the membership": "User.objects.get(username={0!r}).groups.clear()",
    "the members": "Group.objects.get(name={0!r}).user_set.set([])",
    "the group": "Group.objects.get(name={0!r}).delete()",
    "a switch": "Switch.objects.create(server='default', thing='tool:guarded')",
}


GIVEN = (
    "Group.objects.get(name={0!r}).permissions.add(Permission.objects.get(codename='view_group'))"
)


@pytest.mark.parametrize("way", TAKEN)
def test_what_is_taken_is_gone_at_each_worker(hand, ports, person, connect, told, way):
    name, token = person
    clients = [connect(port, token) for port in ports]
    at = list(zip(ports, clients, strict=True))
    streams = {f"session {port}": told(client.get()) for port, client in at}
    streams |= {f"listen {port}": told(listen(port, token)) for port in ports}
    calls = {f"call {port}": told(client.call("guarded", seconds=60)) for port, client in at}
    assert all("guarded" in listed(client) for client in clients)
    time.sleep(2)  # who saves has asked again who wants to know
    since, _ = hand.do(TAKEN[way].format(name))
    report(way, since, {where: one.wait(CHANGED, since) for where, one in streams.items()})
    report(f"{way}, calls", since, {where: one.end() for where, one in calls.items()})
    for call in calls.values():
        assert error(call.came[-1][1]) == UNKNOWN
    for port, client in at:
        assert "guarded" not in listed(client)
        assert error(answered(client.call("guarded"))) == UNKNOWN
        assert "guarded" not in names(answered(alone(port, token, "tools/list")))
        lone = answered(alone(port, token, "tools/call", name="guarded", arguments={}))
        assert error(lone) == UNKNOWN
    assert all(one.ended is None for one in streams.values())  # they may listen to the rest


def test_a_lone_call_that_may_no_longer_run_is_ended_by_its_error(hand, ports, person):
    name, token = person
    said = []

    def call(port: int) -> None:
        answer = alone(port, token, "tools/call", name="guarded", arguments={"seconds": 60})
        said.append((answered(answer), time.time()))

    threads = [threading.Thread(target=call, args=(port,)) for port in ports]
    for thread in threads:
        thread.start()
    time.sleep(3)
    since, _ = hand.do(TAKEN["from the group"].format(name))
    for thread in threads:
        thread.join(30)
    report("lone calls", since, {str(number): at for number, (_, at) in enumerate(said)})
    assert [error(response) for response, _ in said] == [UNKNOWN] * 3


def test_what_is_for_everybody_is_ended_for_nobody_in_particular_when_it_is_switched_off(
    hand, ports, connect, told
):
    calls = [told(connect(port, "").call("look", seconds=60, steps=120)) for port in ports]
    time.sleep(3)
    since, _ = hand.do("Switch.objects.create(server='default', thing='tool:look')")
    report("a switch, calls of nobody", since, {str(at): one.end() for at, one in enumerate(calls)})
    for call in calls:
        assert error(call.came[-1][1]) == UNKNOWN | {"message": "Unknown tool: look"}


def test_a_call_in_a_thread_stops_at_its_next_query_and_writes_nothing(
    hand, ports, person, connect, told
):
    name, token = person
    client = connect(ports[0], token)
    call = told(client.call("guarded_writing", name=f"by {name}"[:150], seconds=60))
    time.sleep(2)
    hand.do(TAKEN["from the group"].format(name))
    call.end()
    assert error(call.came[-1][1])["message"] == "Unknown tool: guarded_writing"
    assert hand.do(f"value = Group.objects.filter(name={f'by {name}'[:150]!r}).count()")[1] == "0"


def test_what_was_rolled_back_is_told_nobody(hand, ports, person, connect, told):
    name, token = person
    client = connect(ports[0], token)
    streams = [told(client.get()), told(listen(ports[1], token))]
    time.sleep(2)
    before, _ = hand.do(
        f"u = User.objects.get(username={name!r}); u.groups.clear(); transaction.set_rollback(True)"
    )
    time.sleep(2)
    for stream in streams:
        assert not [at for at, one in stream.came if one.get("method") == CHANGED and at >= before]
    since, _ = hand.do(TAKEN["from the group"].format(name))
    for stream in streams:
        stream.wait(CHANGED, since)


ENDS = {
    "deactivated": "u = User.objects.get(username={0!r}); u.is_active = False; u.save()",
    "deleted": "User.objects.get(username={0!r}).delete()",
    "token revoked": "t = Token.objects.get(user__username={0!r}); "
    "from django_mcp.verifiers.personal_tokens import revoke; "
    "revoke(Token.objects.filter(pk=t.pk))",
    "token deleted": "Token.objects.get(user__username={0!r}).delete()",
}


@pytest.mark.parametrize("way", ENDS)
def test_who_may_no_longer_come_in_has_nothing_open_at_any_worker(
    hand, ports, person, connect, told, way
):
    name, token = person
    opened = all_kinds(ports, token, connect, told)
    time.sleep(2)
    since, _ = hand.do(ENDS[way].format(name))
    report(way, since, {where: one.end() for where, one in opened.items()})
    assert not results(opened)
    assert refusals(ports, token) == [401] * 3


def test_who_becomes_a_superuser_is_told_so_and_who_is_none_any_more(hand, ports, person, told):
    name, token = person
    hand.do(f"User.objects.get(username={name!r}).groups.clear()")
    streams = {str(port): told(listen(port, token)) for port in ports}
    time.sleep(2)
    for is_one in (True, False):
        since, _ = hand.do(
            f"u = User.objects.get(username={name!r}); u.is_superuser = {is_one}; u.save()"
        )
        report("superuser", since, {p: one.wait(CHANGED, since) for p, one in streams.items()})
        shown = [names(answered(alone(port, token, "tools/list"))) for port in ports]
        assert ["guarded" in one for one in shown] == [is_one] * 3
    before = [len(one.came) for one in streams.values()]
    hand.do(f"u = User.objects.get(username={name!r}); u.first_name = 'x'; u.save()")
    time.sleep(1.5)
    assert [len(one.came) for one in streams.values()] == before  # the same rights as before


# The other ways in: the same session all along.


def test_over_a_pipe(hand, tables, more, person):
    name, _ = person
    pipe = Pipe(tables, name, **more)
    try:
        assert "guarded" in names(pipe.ask("tools/list"))
        running = pipe.begin("tools/call", name="guarded", arguments={"seconds": 60})
        time.sleep(2)
        since, _ = hand.do(TAKEN["from the group"].format(name))
        at = {"told": pipe.told(CHANGED, since), "ended": pipe.answer_to(running)[0]}
        report("over a pipe", since, at)
        assert error(pipe.answer_to(running)[1]) == UNKNOWN
        assert "guarded" not in names(pipe.ask("tools/list"))
        assert error(pipe.ask("tools/call", name="guarded", arguments={})) == UNKNOWN
        hand.do(GIVEN.format(name))
        assert "guarded" in names(pipe.ask("tools/list"))
        running = pipe.begin("tools/call", name="guarded", arguments={"seconds": 60})
        time.sleep(2)
        hand.do(ENDS["deactivated"].format(name))
        assert error(pipe.answer_to(running)[1]) == UNKNOWN
        assert "guarded" not in names(pipe.ask("tools/list"))
    finally:
        pipe.close()


def test_over_http_and_sse(hand, ports, person):
    name, token = person
    client = SseClient(ports[0], token=token)
    try:
        assert "guarded" in names(client.answer_to(client.ask("tools/list")))
        running = client.ask("tools/call", name="guarded", arguments={"seconds": 60})
        time.sleep(2)
        since, _ = hand.do(TAKEN["from the group"].format(name))
        assert error(client.answer_to(running)) == UNKNOWN
        report("over HTTP+SSE", since, {"ended": time.time()})
        assert "guarded" not in names(client.answer_to(client.ask("tools/list", ports[1])))
        lost = client.ask("tools/call", ports[2], name="guarded", arguments={})
        assert error(client.answer_to(lost)) == UNKNOWN
        client.until(lambda: any(one.get("method") == CHANGED for one in client.messages))
        hand.do(ENDS["deactivated"].format(name))
        assert client.ended.wait(20)
    finally:
        client.cut()


def test_a_call_that_runs_again_is_asked_again(ports, person, hand, connect):
    """What a step took counts for the run after it: nothing of the first run's user is kept."""
    name, token = person
    lone = answered(alone(ports[0], token, "tools/call", name="resign", arguments={}))
    assert error(lone)["message"] == "Unknown tool: resign"
    hand.do(f"User.objects.get(username={name!r}).groups.add(Group.objects.get(name={name!r}))")
    assert error(answered(connect(ports[0], token).call("resign")))["message"] == (
        "Unknown tool: resign"
    )


UPDATED = "notifications/resources/updated"


def test_a_subscription_that_may_no_longer_be_read_is_silent(hand, ports, person, connect, told):
    """It is told of once, as of a row that went: whoever reads it then finds nothing."""
    name, token = person
    client, uri = connect(ports[0], token), "guarded://one"
    subscribe = {"jsonrpc": "2.0", "id": "s", "method": "resources/subscribe"}
    assert answered(client.post(subscribe | {"params": {"uri": uri}}))["result"] == {}
    wanted = {"resourceSubscriptions": [uri]}
    lone = alone(ports[1], token, "subscriptions/listen", notifications=wanted)
    streams = [told(client.get(port=ports[2])), told(lone)]
    time.sleep(2)
    since, _ = hand.do(TAKEN["from the group"].format(name))
    for stream in streams:
        stream.wait(UPDATED, since)
    say = f"import django_mcp; django_mcp.notify_changed({uri!r})"
    hand.do(say)
    time.sleep(2)
    counts = [sum(one.get("method") == UPDATED for _, one in stream.came) for stream in streams]
    assert counts == [1, 1]
    since, _ = hand.do(GIVEN.format(name))
    for stream in streams:
        stream.wait(UPDATED, since)


def test_a_group_concerns_its_members_alone(hand, ports, person, told):
    name, token = person
    other = hand.person(f"{name[-90:]} too")
    mine, others = told(listen(ports[0], token)), told(listen(ports[0], other))
    time.sleep(2)
    since, _ = hand.do(TAKEN["from the group"].format(name))
    mine.wait(CHANGED, since)
    time.sleep(1)
    assert not [one for _, one in others.came if one.get("method") == CHANGED]
