"""Progress notifications, as basic/utilities/progress and basic/patterns require."""

import asyncio
import threading

import pytest

import django_mcp as mcp
from django_mcp.calls import throttling
from tests.client import RpcError

from .helpers import notification_params, request_error

pytestmark = pytest.mark.django_db


def call(client, name, token=None, /, **arguments):
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return client.request("tools/call", name=name, arguments=arguments, **meta)


def told(client):
    client.settle()
    return notification_params(client, "notifications/progress")


def steps(client):
    return [note["progress"] for note in told(client)]


@pytest.fixture(params=["sync", "async"])
def walk(server, request):
    """A tool that goes through the steps it is given."""
    if request.param == "sync":

        @server.tool(permission=mcp.PUBLIC, read_only=True)
        def walk(request, steps: list[float], total: float | None = None, words: str | None = None):
            for step in steps:
                request.progress(step, total, words)
    else:

        @server.tool(permission=mcp.PUBLIC, read_only=True)
        async def walk(
            request, steps: list[float], total: float | None = None, words: str | None = None
        ):
            for step in steps:
                await request.aprogress(step, total, words)

    return server


@pytest.mark.parametrize("token", ["abc", "", "1", "ünï", 0, 1, -7, 2**53])
def test_progress_contains_the_exact_token(connect, walk, revision, token):
    client = connect(server=walk, revision=revision)
    call(client, "walk", token, steps=[1])
    [note] = told(client)
    assert note == {"progressToken": token, "progress": 1}
    assert type(note["progressToken"]) is type(token)


@pytest.mark.parametrize("token", [1.5, True, False, [1], {"a": 1}, ["abc"]])
def test_invalid_progress_token_is_rejected(connect, server, revision, token):
    ran = []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def work(request) -> str:
        ran.append(request)

    client = connect(server=server, revision=revision)
    with pytest.raises(RpcError) as refused:
        call(client, "work", token)
    assert refused.value.code == -32602 and ran == []


def test_progress_contains_total_and_message(connect, walk, revision):
    client = connect(server=walk, revision=revision)
    call(client, "walk", "t", steps=[50], total=100, words="Reticulating splines… 🚂")
    [note] = told(client)
    message = {"message": "Reticulating splines… 🚂"} if revision >= "2025-03-26" else {}
    assert note == {"progressToken": "t", "progress": 50, "total": 100} | message


def test_progress_omits_missing_total_and_message(connect, walk, revision):
    client = connect(server=walk, revision=revision)
    call(client, "walk", "t", steps=[50])
    assert told(client) == [{"progressToken": "t", "progress": 50}]


def test_only_increasing_progress_is_sent(connect, walk, revision):
    client = connect(server=walk, revision=revision)
    call(client, "walk", "t", steps=[1, 1, 3, 2, 0, -1, 3, 3.5, 4, 4.0, 10])
    assert steps(client) == [1, 3, 3.5, 4, 10]


def test_progress_may_begin_with_any_number(connect, walk, revision):
    client = connect(server=walk, revision=revision)
    call(client, "walk", "t", steps=[-5, -2, 0])
    assert steps(client) == [-5, -2, 0]


def test_progress_increases_when_a_call_runs_again(connect, server, revision):
    @server.tool(permission=mcp.PUBLIC)
    def work(request) -> str:
        request.progress(1)
        request.progress(2)
        request.once("step", lambda: 1)
        request.progress(1.5)
        request.progress(3)
        return "done"

    client = connect(server=server, revision=revision)
    call(client, "work", "t")
    assert steps(client) == [1, 2, 3]


@pytest.mark.parametrize(
    ("given", "total"), [([0.25, 0.5, 1.0], 1.0), ([0.1, 0.2], 0.3), ([1e-9, 1e9], 1e12)]
)
def test_progress_may_be_fractional(connect, walk, revision, given, total):
    client = connect(server=walk, revision=revision)
    call(client, "walk", "t", steps=given, total=total)
    assert [(note["progress"], note["total"]) for note in told(client)] == [
        (step, total) for step in given
    ]


@pytest.mark.parametrize("step", [float("nan"), float("inf"), True, "1", None])
def test_progress_that_is_not_a_number_is_not_sent(connect, server, revision, step):
    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def work(request) -> str:
        request.progress(step)

    client = connect(server=server, revision=revision)
    call(client, "work", "t")
    assert told(client) == []


def test_no_progress_is_sent_without_a_token(connect, walk, revision):
    client = connect(server=walk, revision=revision)
    call(client, "walk", steps=[1, 2, 3])
    assert told(client) == []
    call(client, "walk", "t", steps=[])
    assert told(client) == []
    call(client, "walk", "t", steps=[1, 2, 3])
    assert steps(client) == [1, 2, 3]


@pytest.mark.parametrize("method", ["prompts/get", "resources/read"])
def test_prompts_and_resources_send_progress(connect, server, revision, method):
    def work(request) -> str:
        request.progress(1, 2, "half")
        return "done"

    server.prompt(permission=mcp.PUBLIC)(work)
    server.resource("work://it", permission=mcp.PUBLIC)(work)
    client = connect(server=server, revision=revision)
    client.request(method, name="work", uri="work://it", _meta={"progressToken": "t"})
    assert steps(client) == [1]


@pytest.fixture
def waiting(server):
    """A tool that says where it is and waits to be let on; a step per release."""
    released, asked = threading.Semaphore(0), []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def stay(request, name: str, times: int = 2) -> str:
        asked.append(request)
        for step in range(times):
            request.progress(step + 1, message=name)
            assert released.acquire(timeout=60)
        return name

    return server, released, asked


def test_progress_of_concurrent_requests_has_their_tokens(connect, server, revision):
    going_on = {"a": asyncio.Event(), "b": asyncio.Event()}

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    async def stay(request, name: str) -> str:
        await request.aprogress(1)
        await going_on[name].wait()
        await request.aprogress(2)
        return name

    client = connect(server=server, revision=revision)
    ids = {}
    for name, token in (("a", "1"), ("b", 1)):
        params = {"name": "stay", "arguments": {"name": name}, "_meta": {"progressToken": token}}
        ids[name] = client.start("tools/call", **params)
    client.until(lambda: len(client.notes) == 2)
    for name in ("b", "a"):
        going_on[name].set()
        client.wait(ids[name])
    found = [(note["progressToken"], note["progress"]) for note in told(client)]
    assert found == [("1", 1), (1, 1), (1, 2), ("1", 2)]


def test_progress_stops_with_the_response(connect, waiting, revision):
    server, released, asked = waiting
    client = connect(server=server, revision=revision)
    released.release(2)
    call(client, "stay", "t", name="x")
    assert steps(client) == [1, 2]
    response = client.received[-1]
    assert "result" in response  # and nothing after it
    asked[0].progress(3)  # the tool's request outlives it, in a thread perhaps
    assert steps(client) == [1, 2]
    call(client, "stay", name="without", times=0)
    assert steps(client) == [1, 2]


def test_token_may_be_reused_after_its_request(connect, waiting, revision):
    server, released, asked = waiting
    client = connect(server=server, revision=revision)
    for _ in range(2):
        released.release(2)
        call(client, "stay", "t", name="x")
    assert steps(client) == [1, 2, 1, 2]
    for request in asked:
        request.progress(9)
    assert steps(client) == [1, 2, 1, 2]


def test_no_progress_is_sent_after_an_error(connect, server, revision):
    kept = []

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def fail(request) -> str:
        kept.append(request)
        raise mcp.ProtocolError("Not like this")

    client = connect(server=server, revision=revision)
    params = {"name": "fail", "_meta": {"progressToken": "t"}}
    request_error(client, "tools/call", **params)
    kept[0].progress(1)
    assert told(client) == []


def test_progress_over_the_rate_limit_is_dropped(connect, walk, revision, settings):
    number, seconds = throttling.process_rate("progress")  # without any setting
    assert 0 < number / seconds <= 2_000
    settings.DJANGO_MCP = {"THROTTLES": {"progress": "5/month"}}
    client = connect(server=walk, revision=revision)
    result = call(client, "walk", "t", steps=list(range(1000)))
    assert not result.get("isError")
    assert steps(client) == [0, 1, 2, 3, 4]
