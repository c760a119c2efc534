"""Permissions removed in another process: lists, calls, streams and subscriptions at each worker.

The delays are printed; their limits are measured by ``benchmarks.revocation``.
"""

from __future__ import annotations

import threading
import time

import pytest

from .revocation import (
    Pipe,
    listed_tools,
    listen,
    open_all_kinds,
    refusals,
    report,
    response_of,
    results,
    stateless_request,
    tool_names,
)
from .test_legacy_sse import Client as SseClient

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CHANGED = "notifications/tools/list_changed"
UNKNOWN = {"code": -32602, "message": "Unknown tool: guarded"}


@pytest.fixture
def person(shell, request) -> tuple[str, str]:
    """The name of a user, and a token."""
    name = f"{request.node.name} {time.time()}"[-100:]
    return name, shell.person(name)


def error(response) -> dict:
    return {key: response["error"][key] for key in ("code", "message")}


TAKEN = {
    "from the group": "Group.objects.get(name={0!r}).permissions.clear()",
    "the membership": "User.objects.get(username={0!r}).groups.clear()",
    "the members": "Group.objects.get(name={0!r}).user_set.set([])",
    "the group": "Group.objects.get(name={0!r}).delete()",
    "a switch": "Switch.objects.create(server='default', thing='tool:guarded')",
    "a switch for the group": "Switch.objects.create(server='default', thing='tool:guarded', "
    "group=str(Group.objects.get(name={0!r}).pk))",
}


GIVEN = (
    "Group.objects.get(name={0!r}).permissions.add(Permission.objects.get(codename='view_group'))"
)


@pytest.mark.parametrize("way", TAKEN)
def test_removed_permission_is_effective_at_each_worker(shell, ports, person, connect, record, way):
    name, token = person
    clients = [connect(port, token) for port in ports]
    at = list(zip(ports, clients, strict=True))
    streams = {f"session {port}": record(client.get()) for port, client in at}
    streams |= {f"listen {port}": record(listen(port, token)) for port in ports}
    calls = {f"call {port}": record(client.call("guarded", seconds=60)) for port, client in at}
    assert all("guarded" in listed_tools(client) for client in clients)
    time.sleep(2)  # processes have refreshed the subscribers by now
    since, _ = shell.do(TAKEN[way].format(name))
    report(way, since, {where: one.wait(CHANGED, since) for where, one in streams.items()})
    report(f"{way}, calls", since, {where: one.end() for where, one in calls.items()})
    for call in calls.values():
        assert error(call.messages[-1][1]) == UNKNOWN
    for port, client in at:
        assert "guarded" not in listed_tools(client)
        assert error(response_of(client.call("guarded"))) == UNKNOWN
        assert "guarded" not in tool_names(
            response_of(stateless_request(port, token, "tools/list"))
        )
        lone = response_of(
            stateless_request(port, token, "tools/call", name="guarded", arguments={})
        )
        assert error(lone) == UNKNOWN
    assert all(
        one.ended is None for one in streams.values()
    )  # they stay open for other notifications


def test_stateless_call_ends_with_an_error_when_its_permission_is_removed(shell, ports, person):
    name, token = person
    said = []

    def call(port: int) -> None:
        answer = stateless_request(
            port, token, "tools/call", name="guarded", arguments={"seconds": 60}
        )
        said.append((response_of(answer), time.time()))

    threads = [threading.Thread(target=call, args=(port,)) for port in ports]
    for thread in threads:
        thread.start()
    time.sleep(3)
    since, _ = shell.do(TAKEN["from the group"].format(name))
    for thread in threads:
        thread.join(30)
    report("lone calls", since, {str(number): at for number, (_, at) in enumerate(said)})
    assert [error(response) for response, _ in said] == [UNKNOWN] * 3


def test_kill_switch_ends_anonymous_calls_of_public_tools(shell, ports, connect, record):
    calls = [record(connect(port, "").call("look", seconds=60, steps=120)) for port in ports]
    time.sleep(3)
    since, _ = shell.do("Switch.objects.create(server='default', thing='tool:look')")
    report("a switch, calls of nobody", since, {str(at): one.end() for at, one in enumerate(calls)})
    for call in calls:
        assert error(call.messages[-1][1]) == UNKNOWN | {"message": "Unknown tool: look"}


def test_call_cancelled_in_the_admin_ends_with_an_error_at_each_worker(
    shell, ports, connect, record
):
    calls = [record(connect(port, "").call("look", seconds=60)) for port in ports]
    asks = [record(connect(port, "").call("ask")) for port in ports]  # they wait for an answer
    shell.do("from django_mcp.models import Call; from django_mcp.storage.databases import rows")
    shell.do("from django_mcp.calls.administration import cancel_call")
    open_calls = "rows(Call).filter(method='tools/call').exclude(state='done')"
    end = time.monotonic() + 20
    while shell.do(f"value = {open_calls}.count()")[1] != "6" or not all(
        one.messages for one in asks
    ):
        assert time.monotonic() < end, "The calls are not stored."
        time.sleep(0.05)
    cancel_all = f"value = [cancel_call(pk) for pk in {open_calls}.values_list('pk', flat=True)]"
    since, done = shell.do(cancel_all)
    assert done == str([True] * 6)
    report("cancelled", since, {str(at): one.end() for at, one in enumerate(calls + asks)})
    for call in calls + asks:
        assert error(call.messages[-1][1]) == {
            "code": -32603, "message": "The call was cancelled by an administrator."
        }  # fmt: skip
    for ask in asks:
        question, withdrawn, _ = (one for _, one in ask.messages)
        assert withdrawn["method"] == "notifications/cancelled"
        assert withdrawn["params"]["requestId"] == question["id"]
    assert shell.do(f"value = {open_calls}.count()")[1] == "0"


def test_call_in_a_thread_stops_at_its_next_query_without_writing(
    shell, ports, person, connect, record
):
    name, token = person
    client = connect(ports[0], token)
    call = record(client.call("guarded_writing", name=f"by {name}"[:150], seconds=60))
    time.sleep(2)
    shell.do(TAKEN["from the group"].format(name))
    call.end()
    assert error(call.messages[-1][1])["message"] == "Unknown tool: guarded_writing"
    assert shell.do(f"value = Group.objects.filter(name={f'by {name}'[:150]!r}).count()")[1] == "0"


def test_rolled_back_change_notifies_nobody(shell, ports, person, connect, record):
    name, token = person
    client = connect(ports[0], token)
    streams = [record(client.get()), record(listen(ports[1], token))]
    time.sleep(2)
    before, _ = shell.do(
        f"u = User.objects.get(username={name!r}); u.groups.clear(); transaction.set_rollback(True)"
    )
    time.sleep(2)
    for stream in streams:
        assert not [
            at for at, one in stream.messages if one.get("method") == CHANGED and at >= before
        ]
    since, _ = shell.do(TAKEN["from the group"].format(name))
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
def test_deactivated_user_has_no_open_streams_or_calls_at_any_worker(
    shell, ports, person, connect, record, way
):
    name, token = person
    opened = open_all_kinds(ports, token, connect, record)
    time.sleep(2)
    since, _ = shell.do(ENDS[way].format(name))
    report(way, since, {where: one.end() for where, one in opened.items()})
    assert not results(opened)
    assert refusals(ports, token) == [401] * 3


def test_superuser_flag_changes_notify_and_other_changes_do_not(shell, ports, person, record):
    name, token = person
    shell.do(f"User.objects.get(username={name!r}).groups.clear()")
    streams = {str(port): record(listen(port, token)) for port in ports}
    time.sleep(2)
    for is_one in (True, False):
        since, _ = shell.do(
            f"u = User.objects.get(username={name!r}); u.is_superuser = {is_one}; u.save()"
        )
        report("superuser", since, {p: one.wait(CHANGED, since) for p, one in streams.items()})
        shown = [
            tool_names(response_of(stateless_request(port, token, "tools/list"))) for port in ports
        ]
        assert ["guarded" in one for one in shown] == [is_one] * 3
    before = [len(one.messages) for one in streams.values()]
    shell.do(f"u = User.objects.get(username={name!r}); u.first_name = 'x'; u.save()")
    time.sleep(1.5)
    assert [
        len(one.messages) for one in streams.values()
    ] == before  # the permissions did not change


# Other transports, in one session.


def test_removed_permission_is_effective_over_stdio(shell, tables, more, person):
    name, _ = person
    pipe = Pipe(tables, name, **more)
    try:
        assert "guarded" in tool_names(pipe.ask("tools/list"))
        running = pipe.begin("tools/call", name="guarded", arguments={"seconds": 60})
        time.sleep(2)
        since, _ = shell.do(TAKEN["from the group"].format(name))
        at = {"notified": pipe.wait_for(CHANGED, since), "ended": pipe.answer_to(running)[0]}
        report("over a pipe", since, at)
        assert error(pipe.answer_to(running)[1]) == UNKNOWN
        assert "guarded" not in tool_names(pipe.ask("tools/list"))
        assert error(pipe.ask("tools/call", name="guarded", arguments={})) == UNKNOWN
        shell.do(GIVEN.format(name))
        assert "guarded" in tool_names(pipe.ask("tools/list"))
        running = pipe.begin("tools/call", name="guarded", arguments={"seconds": 60})
        time.sleep(2)
        shell.do(ENDS["deactivated"].format(name))
        assert error(pipe.answer_to(running)[1]) == UNKNOWN
        assert "guarded" not in tool_names(pipe.ask("tools/list"))
    finally:
        pipe.close()


def test_removed_permission_is_effective_over_legacy_sse(shell, ports, person):
    name, token = person
    client = SseClient(ports[0], token=token)
    try:
        assert "guarded" in tool_names(client.answer_to(client.ask("tools/list")))
        running = client.ask("tools/call", name="guarded", arguments={"seconds": 60})
        time.sleep(2)
        since, _ = shell.do(TAKEN["from the group"].format(name))
        assert error(client.answer_to(running)) == UNKNOWN
        report("over HTTP+SSE", since, {"ended": time.time()})
        assert "guarded" not in tool_names(client.answer_to(client.ask("tools/list", ports[1])))
        lost = client.ask("tools/call", ports[2], name="guarded", arguments={})
        assert error(client.answer_to(lost)) == UNKNOWN
        client.until(lambda: any(one.get("method") == CHANGED for one in client.messages))
        shell.do(ENDS["deactivated"].format(name))
        assert client.ended.wait(20)
    finally:
        client.cut()


def test_permission_is_checked_again_in_the_next_run(ports, person, shell, connect):
    """A permission removed in a step is missing in the next run: the user is loaded again."""
    name, token = person
    lone = response_of(
        stateless_request(ports[0], token, "tools/call", name="resign", arguments={})
    )
    assert error(lone)["message"] == "Unknown tool: resign"
    shell.do(f"User.objects.get(username={name!r}).groups.add(Group.objects.get(name={name!r}))")
    assert error(response_of(connect(ports[0], token).call("resign")))["message"] == (
        "Unknown tool: resign"
    )


UPDATED = "notifications/resources/updated"


def test_unreadable_subscription_is_notified_once_and_then_silent(
    shell, ports, person, connect, record
):
    """It is notified once, as if the row were deleted; reading it then fails."""
    name, token = person
    client, uri = connect(ports[0], token), "guarded://one"
    subscribe = {"jsonrpc": "2.0", "id": "s", "method": "resources/subscribe"}
    assert response_of(client.post(subscribe | {"params": {"uri": uri}}))["result"] == {}
    wanted = {"resourceSubscriptions": [uri]}
    lone = stateless_request(ports[1], token, "subscriptions/listen", notifications=wanted)
    streams = [record(client.get(port=ports[2])), record(lone)]
    time.sleep(2)
    since, _ = shell.do(TAKEN["from the group"].format(name))
    for stream in streams:
        stream.wait(UPDATED, since)
    say = f"import django_mcp; django_mcp.notify_changed({uri!r})"
    shell.do(say)
    time.sleep(2)
    counts = [sum(one.get("method") == UPDATED for _, one in stream.messages) for stream in streams]
    assert counts == [1, 1]
    since, _ = shell.do(GIVEN.format(name))
    for stream in streams:
        stream.wait(UPDATED, since)


def test_change_of_a_group_notifies_its_members_only(shell, ports, person, record):
    name, token = person
    other = shell.person(f"{name[-90:]} too")
    mine, others = record(listen(ports[0], token)), record(listen(ports[0], other))
    time.sleep(2)
    since, _ = shell.do(TAKEN["from the group"].format(name))
    mine.wait(CHANGED, since)
    time.sleep(1)
    assert not [one for _, one in others.messages if one.get("method") == CHANGED]
