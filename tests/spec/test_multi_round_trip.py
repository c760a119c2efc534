"""Multi round-trip requests: questions in results, and the state and answers sent back."""

from __future__ import annotations

import time
import uuid
from typing import Annotated

import pytest

import django_mcp as mcp
from django_mcp.declarations.server import Server, _servers
from django_mcp.protocol.revisions import REVISIONS
from tests.client import PREFIX, RpcError
from tests.shop.models import Company

from .helpers import error_member, replies_to, response_to, run_until

pytestmark = pytest.mark.django_db
KINDS = {"elicitation/create", "sampling/createMessage", "roots/list"}
YES = {"action": "accept", "content": {"answer": True}}
WORD = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "word"}}
RESPONSES = {"sure": YES, "word": WORD, "places": {"roots": []}}


def suspicious(request: mcp.Request) -> bool:
    return bool(request.elicit("May you?", default=True))


def curious(request: mcp.Request, text: str, before: dict[str, str]) -> list[str]:
    return [str(request.elicit("What?", str))]


@pytest.fixture
def asking(server):
    """A server whose things ask, each in its way, and count how often they act."""
    server._acted = []

    @server.tool(permission=mcp.AUTHENTICATED)
    def delete(request: mcp.Request, what: str = "it") -> str:
        Company.objects.create(name=f"written {uuid.uuid4()}")
        if not request.elicit(f"Delete {what}?"):
            return "kept"
        server._acted.append(what)
        return f"deleted {what}"

    @server.tool(permission=mcp.PUBLIC)
    def delete_too(request: mcp.Request, what: str = "it") -> str:
        return str(request.elicit(f"Delete {what}?"))

    @server.tool(permission=mcp.PUBLIC)
    def everything(request: mcp.Request) -> str:
        found = request.ask(
            sure=mcp.Elicit("Sure?", bool), word=mcp.Sample("?"), places=mcp.Roots()
        )
        return f"{found['sure']} {found['word'].text} {found['places']}"

    @server.tool(permission=mcp.PUBLIC)
    def guess(request: mcp.Request) -> str:
        tries = 1
        while not request.elicit("Heads?"):
            tries += 1
        return f"after {tries}"

    @server.tool(permission=mcp.PUBLIC)
    def redeem(request: mcp.Request) -> str:
        request.elicit("Redeem?")
        number = request.once(
            "redeem", lambda: server._acted.append("redeemed") or len(server._acted)
        )
        return f"number {number}"

    @server.prompt(permission=mcp.PUBLIC, name="delete")
    def delete_prompt(
        request: mcp.Request, what: Annotated[str, mcp.Complete(curious)] = "it"
    ) -> str:
        return str(request.elicit(f"Delete {what}?"))

    @server.prompt(permission=mcp.PUBLIC)
    def broken(request: mcp.Request) -> str:
        raise RuntimeError("secret")

    @server.resource("asking://{name}", permission=suspicious)
    def row(request: mcp.Request, name: str) -> str:
        return f"{name} {request.elicit('Read it?')}"

    return server


def asked(client, tool="delete", **arguments):
    """The result that asks, and the key of its only question."""
    result = client.call(tool, **arguments)
    assert result["resultType"] == "input_required", result
    return result, next(iter(result["inputRequests"]))


def again(client, result, responses, tool="delete", **arguments):
    """The request once more, with answers."""
    params = {"requestState": result["requestState"], "inputResponses": responses}
    return response_to(client, "tools/call", name=tool, arguments=arguments, **params)


def text(response):
    return response["result"]["content"][0]["text"]


# Asking.


def test_only_three_methods_return_input_required(connect, asking, alice):
    client = connect(alice, server=asking)
    ref = {"type": "ref/prompt", "name": "delete"}
    results = [
        response_to(client, "tools/call", name="delete"),
        response_to(client, "prompts/get", name="delete"),
        response_to(client, "resources/read", uri="asking://a"),
    ]
    assert [one["result"]["resultType"] for one in results] == ["input_required"] * 3
    others = [
        response_to(client, "completion/complete", ref=ref, argument={"name": "what", "value": ""}),
        response_to(client, "resources/templates/list"),
        response_to(client, "resources/list"),
        response_to(client, "tools/list"),
        response_to(client, "prompts/list"),
        response_to(client, "server/discover"),
    ]
    listen = {"resourceSubscriptions": ["asking://a"]}
    id = client.start("subscriptions/listen", notifications=listen)
    client.until(lambda: client.notes or any(m.get("id") == id for m in client.received))
    types = [one["result"]["resultType"] for one in others if "result" in one]
    assert set(types) == {"complete"}
    refused = [one["error"]["code"] for one in others if "error" in one]
    assert set(refused) == {-32603}  # a completer, or a permission, that asks is a mistake
    assert "input_required" not in str(client.received[-1])


def test_several_questions_are_returned_with_their_keys(connect, asking):
    client = connect(server=asking)
    result, _ = asked(client, "everything")
    assert result["inputRequests"].keys() == {"sure", "word", "places"}
    assert {one["method"] for one in result["inputRequests"].values()} == KINDS
    done = again(client, result, RESPONSES, "everything")
    assert text(done) == "True word []"


def test_input_required_result_has_questions_and_a_state(connect, asking, alice):
    client = connect(alice, server=asking)
    for tool in ("delete", "everything", "guess", "redeem"):
        result, _ = asked(client, tool)
        assert result["inputRequests"] and isinstance(result["requestState"], str)
        for one in result["inputRequests"].values():
            assert one["method"] in KINDS


def test_only_declared_capabilities_are_requested(connect, asking):
    able = {"elicitation": {}, "sampling": {}, "roots": {}}
    for lacking in able:
        capabilities = {name: {} for name in able if name != lacking}
        client = connect(server=asking, capabilities=capabilities)
        refused = error_member(client, "tools/call", name="everything")
        assert refused["code"] == -32021
        assert refused["data"]["requiredCapabilities"].keys() == {lacking}
    assert client.asked == [] and "inputRequests" not in str(client.received)


def test_unanswered_question_holds_no_resources(connect, asking, alice, settings):
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"THREADS": 1, "QUEUE": 1, "CONCURRENT_CALLS": 1}
    client = connect(alice, server=asking)
    for number in range(30):
        asked(client, what=str(number))
    run_until(client, lambda: not client.conversation._tasks)
    assert client.conversation._active == {}
    assert not Company.objects.filter(name__startswith="written").exists()
    assert asking._acted == []
    assert client.request("tools/list")["tools"]


def test_number_of_rounds_is_limited(connect, asking, settings):
    no = {"action": "accept", "content": {"answer": False}}
    client = connect(server=asking)
    result, key = asked(client, "guess")
    states = {result["requestState"]}
    for _ in range(3):
        result = again(client, result, {key: no}, "guess")["result"]
        assert result["resultType"] == "input_required"
        (key,) = result["inputRequests"]
        states.add(result["requestState"])
    assert len(states) == 4
    assert text(again(client, result, {key: YES}, "guess")) == "after 4"
    stubborn = connect(server=asking, answers={"elicitation/create": lambda params: no})
    assert "20 times" in stubborn.failure("guess")
    assert len(stubborn.asked) == 20
    settings.DJANGO_MCP = settings.DJANGO_MCP | {"QUESTION_ROUNDS": 2}
    assert "2 times" in stubborn.failure("guess")


# Answers.


@pytest.mark.parametrize("responses", [[], "yes", 1, True, {"x": None}, {"x": "yes"}, {"x": [1]}])
def test_input_responses_must_be_an_object_of_results(connect, asking, alice, responses):
    client = connect(alice, server=asking)
    result, key = asked(client)
    if isinstance(responses, dict):
        responses = {key: responses["x"]}
    refused = again(client, result, responses)["error"]
    assert refused["code"] == -32602 and "inputResponses" in refused["message"]
    assert asking._acted == []


@pytest.mark.parametrize(
    "response",
    [
        {},
        {"action": "agree"},
        {"action": "accept"},
        {"action": "accept", "content": {}},
        {"action": "accept", "content": {"answer": "yes"}},
        {"action": "accept", "content": [True]},
        WORD,
    ],
    ids=str,
)
def test_invalid_answer_repeats_the_question(connect, asking, alice, response):
    client = connect(alice, server=asking)
    result, key = asked(client)
    once_more = again(client, result, {key: response})["result"]
    assert once_more["resultType"] == "input_required" and asking._acted == []
    shown = once_more["inputRequests"][key]["params"]
    shown["message"] = shown["message"].partition("\n\n")[0]  # what follows is why
    assert once_more["inputRequests"] == result["inputRequests"]
    assert text(again(client, once_more, {key: YES})) == "deleted it"


def test_answer_to_an_unknown_question_is_ignored(connect, asking, alice):
    client = connect(alice, server=asking)
    result, key = asked(client)
    more = {"unknown": YES, "other": {"anything": 1}, "": {}}
    assert text(again(client, result, {key: YES} | more)) == "deleted it"
    first = response_to(client, "tools/call", name="delete", inputResponses=more)
    assert first["result"]["inputRequests"] == result["inputRequests"]


def test_missing_answer_repeats_the_question(connect, asking):
    client = connect(server=asking)
    result, _ = asked(client, "everything")
    for name in ("word", "places"):
        result = again(client, result, {name: RESPONSES[name]}, "everything")["result"]
        assert name not in result["inputRequests"]
    assert result["inputRequests"].keys() == {"sure"}
    nothing = again(client, result, {}, "everything")["result"]
    assert nothing["inputRequests"] == result["inputRequests"]
    assert text(again(client, nothing, {"sure": YES}, "everything")) == "True word []"


def test_malformed_round_is_a_json_rpc_error(connect, asking, alice):
    client = connect(alice, server=asking)
    result, key = asked(client)
    codes = [
        replies_to(client, '{"jsonrpc": "2.0", "id": 1, "inputResponses": {')[0]["error"]["code"],
        again(client, result, {key: "yes"})["error"]["code"],
        again(client, {"requestState": "forged"}, {key: YES})["error"]["code"],
        again(client, {"requestState": 5}, {key: YES})["error"]["code"],
        error_member(client, "prompts/get", name="broken")["code"],
    ]
    assert codes == [-32700, -32602, -32602, -32602, -32603]


# The state.


def test_state_contains_the_answers_of_earlier_rounds(connect, asking):
    client = connect(server=asking)
    result, _ = asked(client, "everything")
    more = again(client, result, {"sure": YES}, "everything")["result"]
    rest = {name: RESPONSES[name] for name in ("word", "places")}
    assert text(again(client, more, rest, "everything")) == "True word []"
    # The earlier state knows nothing of the answer that came after it.
    assert again(client, result, rest, "everything")["result"]["inputRequests"].keys() == {"sure"}


def forgeries(state):
    """Changed states, one for each way to change one."""
    payload, _, rest = state.partition(":")
    yield from ("", "x", "a:b:c", state + "x", state[:-1], payload, f"{payload}::{rest}", "\0")
    for place in range(0, len(state), 7):
        swapped = "A" if state[place] != "A" else "B"
        yield state[:place] + swapped + state[place + 1 :]


def test_modified_state_is_rejected(connect, asking, alice):
    client = connect(alice, server=asking)
    result, key = asked(client)
    other, _ = asked(client, what="everything else")
    mixed = result["requestState"].split(":")[:-1] + other["requestState"].split(":")[-1:]
    for forged in [*forgeries(result["requestState"]), ":".join(mixed), "x" * 1_100_000]:
        if forged == result["requestState"]:
            continue
        refused = again(client, {"requestState": forged}, {key: YES})
        assert refused["error"]["code"] == -32602, forged
        assert "requestState" in refused["error"]["message"]
    assert asking._acted == []
    assert text(again(client, result, {key: YES})) == "deleted it"


def test_state_is_checked_with_current_and_fallback_secret_keys(connect, asking, alice, settings):
    client = connect(alice, server=asking)
    result, key = asked(client)
    former, settings.SECRET_KEY = settings.SECRET_KEY, "another key"
    assert again(client, result, {key: YES})["error"]["code"] == -32602
    settings.SECRET_KEY_FALLBACKS = [former]
    assert text(again(client, result, {key: YES})) == "deleted it"


def test_state_of_another_user_is_rejected(connect, asking, alice, bob):
    result, key = asked(connect(alice, server=asking))
    mine, yours = asked(connect(bob, server=asking))
    assert key == yours and mine["requestState"] != result["requestState"]
    assert again(connect(bob, server=asking), result, {key: YES})["error"]["code"] == -32602
    public, key = asked(connect(alice, server=asking), "delete_too")
    nobody = connect(server=asking)
    assert again(nobody, public, {key: YES}, "delete_too")["error"]["code"] == -32602
    assert asking._acted == []


def test_expired_state_is_rejected(connect, asking, alice, monkeypatch):
    client = connect(alice, server=asking)
    result, key = asked(client)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3590)
    assert text(again(client, result, {key: YES})) == "deleted it"
    monkeypatch.setattr(time, "time", lambda: now() + 3610)
    assert again(client, result, {key: YES})["error"]["code"] == -32602
    assert asking._acted == ["it"]


def test_state_of_another_request_is_rejected(connect, asking, alice):
    client = connect(alice, server=asking)
    result, key = asked(client, what="A")
    params = {"requestState": result["requestState"], "inputResponses": {key: YES}}
    arguments = {"what": "A"}
    other = Server("another", extensions={})
    other.tool(permission=mcp.PUBLIC)(asking._catalog.tools["delete"]._implementation)
    try:
        wrong = [
            error_member(client, "tools/call", name="delete", arguments={"what": "B"}, **params),
            error_member(client, "tools/call", name="delete", **params),
            error_member(client, "tools/call", name="delete_too", arguments=arguments, **params),
            error_member(client, "prompts/get", name="delete", arguments=arguments, **params),
            error_member(client, "resources/read", uri="asking://A", **params),
            error_member(connect(alice, server=other), "tools/call", name="delete",
                         arguments=arguments, **params),
        ]  # fmt: skip
    finally:
        _servers.pop("another")
    assert {one["code"] for one in wrong} == {-32602}
    assert asking._acted == []
    assert text(again(client, result, {key: YES}, what="A")) == "deleted A"


def test_step_happens_once_if_a_state_is_replayed(connect, asking, alice):
    client = connect(alice, server=asking)
    result, key = asked(client, "redeem")
    for one in (client, client, connect(alice, server=asking)):
        assert text(again(one, result, {key: YES}, "redeem")) == "number 1"
    assert asking._acted == ["redeemed"]
    _, key = asked(client, "redeem")
    other, key = asked(client, "redeem")
    assert text(again(client, other, {key: YES}, "redeem")) == "number 2"  # a call of its own


def test_step_happens_once_if_a_state_is_sent_concurrently(connect, asking):
    client = connect(server=asking)
    result, key = asked(client, "redeem")
    params = {"requestState": result["requestState"], "inputResponses": {key: YES}}
    ids = [client.start("tools/call", name="redeem", **params) for _ in range(8)]
    for response in map(client.wait, ids):
        assert response["result"].get("isError") or text(response) == "number 1"
    assert asking._acted == ["redeemed"]


def test_capabilities_are_checked_in_every_round(connect, asking, alice):
    client = connect(alice, server=asking)
    result, _ = asked(client)
    bare = {PREFIX + "clientCapabilities": {}}
    with pytest.raises(RpcError) as refused:
        client.request("tools/call", name="delete", arguments={}, _meta=bare,
                       requestState=result["requestState"])  # fmt: skip
    assert refused.value.code == -32021


@pytest.mark.django_db
def test_repeated_question_explains_the_invalid_answer(connect, server, revision):
    """The reason is added to the message, and the question stays the same."""
    if "elicitation/create" not in REVISIONS[revision].asks:
        return
    asked = []

    @server.tool(permission=mcp.PUBLIC)
    def age(request: mcp.Request) -> str:
        return str(request.elicit("How old?", int, key="age"))

    def answered(params):
        asked.append(params["message"])
        content = {"answer": "old" if len(asked) == 1 else 40}
        return {"action": "accept", "content": content}

    client = connect(server=server, revision=revision, answers={"elicitation/create": answered})
    assert client.text("age") == "40"
    assert asked[0] == "How old?" and asked[1].startswith("How old?\n\n") and len(asked) == 2
