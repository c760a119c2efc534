"""The signed request state and the answers that a client sends back with a repeated call."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser

import django_mcp as mcp
from django_mcp.auth.principal import Auth, Principal
from django_mcp.calls import interaction as module
from django_mcp.calls.interaction import Interaction, purpose, resumed, sealed
from django_mcp.declarations.request import KnownAnswers
from django_mcp.declarations.server import Server
from django_mcp.exceptions import ToolError
from django_mcp.protocol.connection import ClientCall
from django_mcp.protocol.jsonrpc import InvalidParams
from django_mcp.protocol.revisions import LATEST, REVISIONS
from tests.client import RpcError

REFUND = {"name": "refund", "arguments": {"total": 100}}
YES = {"action": "accept", "content": {"answer": True}}


def call(method="tools/call", params=None, **given: Any) -> ClientCall:
    return ClientCall(1, method, REFUND if params is None else params, LATEST, **given)


class Application:
    def __init__(self, pk: int) -> None:
        self.pk = pk


@pytest.fixture
def anonymous():
    return Principal(AnonymousUser())


# The seal.


def test_state_is_valid_for_the_same_request_and_principal(server, anonymous):
    rounds = Interaction(known={"digest": {"result": YES}}, count=3, high_water=1.5)
    rounds.asked = {"key": ["digest", "roots/list"]}
    state = sealed(rounds, purpose(call(), server, anonymous))
    again = call(request_state=state, params={**REFUND, "arguments": {"total": 100}})
    assert asdict(resumed(again, purpose(again, server, anonymous))) == asdict(rounds)


def test_call_without_state_begins_anew(server, anonymous):
    first, second = (resumed(call(), purpose(call(), server, anonymous)) for _ in range(2))
    assert first.id != second.id and not first.known and not first.may_return


@pytest.mark.parametrize(
    "other",
    [
        {"method": "prompts/get"},
        {"params": {"name": "refund_all", "arguments": {"total": 100}}},
        {"params": {"name": "refund", "arguments": {"total": 5000}}},
        {"params": {"name": "refund", "arguments": {"total": "100"}}},
        {"params": {"name": "refund", "arguments": {}}},
        {"params": {"name": "refund"}},
        {"params": {"uri": "refund", "arguments": {"total": 100}}, "method": "resources/read"},
    ],
)
def test_state_is_invalid_for_another_request(server, anonymous, other):
    state = sealed(Interaction(), purpose(call(), server, anonymous))
    made = call(**other, request_state=state)
    with pytest.raises(InvalidParams, match="requestState"):
        resumed(made, purpose(made, server, anonymous))


def test_state_is_invalid_for_another_principal_or_server(server, anonymous, alice, bob):
    other = Server("another of this test")
    state = sealed(Interaction(), purpose(call(), server, Principal(alice)))
    made = call(request_state=state)
    resumed(made, purpose(made, server, Principal(alice)))
    for principal, where in (
        (anonymous, server),
        (Principal(bob), server),
        (Principal(alice), other),
        (Principal(alice, Auth(application=Application(1))), server),
    ):
        with pytest.raises(InvalidParams):
            resumed(made, purpose(made, where, principal))
    alice.is_active = False
    with pytest.raises(InvalidParams):
        resumed(made, purpose(made, server, Principal(alice)))


def test_state_is_invalid_for_another_application(server, alice):
    first, second = (Principal(alice, Auth(application=Application(pk))) for pk in (1, 2))
    state = sealed(Interaction(), purpose(call(), server, first))
    made = call(request_state=state)
    assert resumed(made, purpose(made, server, first))
    with pytest.raises(InvalidParams):
        resumed(made, purpose(made, server, second))


CHANGES = {
    "shorter": lambda state: state[:-1],
    "longer": lambda state: "x" + state,
    "other letters": lambda state: state.swapcase(),
    "nothing": lambda state: "",
    "too long": lambda state: state * 100_000,
    "backwards": lambda state: state[::-1],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_modified_state_is_rejected(server, anonymous, change):
    state = sealed(Interaction(), purpose(call(), server, anonymous))
    made = call(request_state=change(state))
    with pytest.raises(InvalidParams, match="was not issued by this server"):
        resumed(made, purpose(made, server, anonymous))


def test_expired_state_is_rejected(server, anonymous, settings):
    state = sealed(Interaction(), purpose(call(), server, anonymous))
    settings.DJANGO_MCP = {"STATE_LIFETIME": -1}
    made = call(request_state=state)
    with pytest.raises(InvalidParams, match="expired"):
        resumed(made, purpose(made, server, anonymous))


def test_state_survives_secret_key_rotation(server, anonymous, settings):
    state = sealed(Interaction(count=2), purpose(call(), server, anonymous))
    made = call(request_state=state)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "new", [settings.SECRET_KEY]
    assert resumed(made, purpose(made, server, anonymous)).count == 2
    settings.SECRET_KEY_FALLBACKS = []
    with pytest.raises(InvalidParams):
        resumed(made, purpose(made, server, anonymous))


def test_too_large_state_is_an_error(server, anonymous, monkeypatch):
    monkeypatch.setattr(module, "MAX_STATE", 100)
    with pytest.raises(ToolError, match="too large to go on with"):
        sealed(Interaction(), purpose(call(), server, anonymous))


# Answers.


def test_answer_is_matched_to_the_question_by_key():
    rounds = Interaction(asked={"sure": ["digest of 100", "elicitation/create"]})
    answers = rounds.answers(call(input_responses={"sure": YES, "more": YES}))
    assert answers.known == {"digest of 100": {"result": YES}}
    assert answers.named == {"more": {"result": YES}}


@pytest.mark.parametrize("response", [{}, {"action": "maybe"}, {"roots": []}])
def test_invalid_answer_is_ignored(response):
    rounds = Interaction(asked={"sure": ["digest", "elicitation/create"]})
    answers = rounds.answers(call(input_responses={"sure": response}))
    assert answers.known == {} == answers.named


def test_answers_that_a_run_did_not_use_are_dropped():
    rounds = Interaction()
    rounds.next(KnownAnswers(known={"old": {}, "good": {}}, used={"good", "new"}))
    assert rounds.known == {"good": {}} and rounds.may_return


def test_number_of_question_rounds_is_limited(settings):
    settings.DJANGO_MCP = {"QUESTION_ROUNDS": 2}
    rounds = Interaction()
    rounds.next(KnownAnswers())
    rounds.next(KnownAnswers())
    with pytest.raises(ToolError, match="more than 2 times"):
        rounds.next(KnownAnswers())


def test_url_elicitation_has_its_own_id():
    rounds = Interaction()
    elicit = mcp.Elicit("Sign in.", url="https://shop.example/?id={elicitation_id}")
    asked = {"": ("key", "digest", elicit)}
    found = rounds.ask(call(), asked, KnownAnswers())["inputRequests"]["key"]["params"]["url"]
    assert found == f"https://shop.example/?id={rounds.id}-key"
    assert rounds.asked == {"key": ["digest", "elicitation/create"]}


# The same, through a client.


@pytest.fixture
def shop(server):
    server._price = [100]

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def refund(request: mcp.Request) -> str:
        total = server._price[0]
        if not request.elicit(f"Refund {total}?", key="sure"):
            return "kept"
        return f"refunded {total}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def twice(request: mcp.Request) -> str:
        first = request.elicit("One?", key="sure")
        second = request.elicit("Two?", key="sure")
        return f"{first} {second}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def more(request: mcp.Request) -> str:
        count = 0
        while request.elicit("More?", key="more"):
            count += 1
        return f"{count}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def stepping(request: mcp.Request) -> str:
        sure = request.elicit("Sure?", key="sure")
        return f"{sure} {request.once('step', lambda: 7)}"

    @server.tool(permission=mcp.PUBLIC, read_only=True)
    def large(request: mcp.Request) -> str:
        request.elicit("Write.", str, key="text")
        return f"{request.elicit('Sure?', key='sure')}"

    @server.prompt(permission=mcp.PUBLIC)
    def letter(request: mcp.Request) -> str:
        return f"Dear {request.elicit('Who?', str, key='who')}"

    @server.resource("shop://secret", permission=mcp.PUBLIC)
    def secret(request: mcp.Request) -> str:
        return f"{request.elicit('Sure?', key='sure')}"

    return server


def ask(client, method="tools/call", **params):
    return client.wait(client.start(method, **params))["result"]


def retry(client, asked, responses, method="tools/call", **params):
    state = {"requestState": asked["requestState"]}
    return ask(client, method, inputResponses=responses, **state, **params)


def words(result):
    return result["content"][0]["text"]


def test_answer_does_not_apply_to_a_changed_question(connect, shop):
    client = connect(server=shop)
    asked = ask(client, name="refund")
    assert asked["inputRequests"]["sure"]["params"]["message"] == "Refund 100?"
    shop._price[0] = 5000
    again = retry(client, asked, {"sure": YES}, name="refund")
    assert again["inputRequests"]["sure"]["params"]["message"] == "Refund 5000?"
    assert words(retry(client, again, {"sure": YES}, name="refund")) == "refunded 5000"


def test_named_answer_needs_no_state(connect, shop):
    client = connect(server=shop)
    assert words(ask(client, name="refund", inputResponses={"sure": YES})) == "refunded 100"
    wrong = {"action": "accept", "content": {"answer": "maybe"}}
    for response in (wrong, {"roots": []}, {}):
        asked = ask(client, name="refund", inputResponses={"sure": response})
        assert list(asked["inputRequests"]) == ["sure"]


def test_named_answer_answers_one_question_only(connect, shop):
    client = connect(server=shop)
    asked = ask(client, name="twice", inputResponses={"sure": YES})
    assert asked["inputRequests"]["sure"]["params"]["message"] == "Two?"
    assert words(retry(client, asked, {"sure": YES}, name="twice")) == "True True"
    asked = ask(client, name="more", inputResponses={"more": YES})
    no = {"action": "accept", "content": {"answer": False}}
    assert words(retry(client, asked, {"more": no}, name="more")) == "1"


def test_named_answer_survives_a_step(connect, shop, db):
    client = connect(server=shop)
    assert words(ask(client, name="stepping", inputResponses={"sure": YES})) == "True 7"


def test_answers_too_large_for_the_state_fail_the_call(connect, shop, monkeypatch):
    monkeypatch.setattr(module, "MAX_STATE", 2000)
    client = connect(server=shop)
    asked = ask(client, name="large")
    text = "".join(random.Random(1).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=5000))
    answer = {"action": "accept", "content": {"answer": text}}
    result = retry(client, asked, {"text": answer}, name="large")
    assert result["isError"] and "too large" in words(result)


WITH_FORMS = [name for name, one in REVISIONS.items() if "elicitation/create" in one.asks]


@pytest.mark.parametrize("revision", WITH_FORMS)
def test_prompts_and_resources_may_ask(connect, shop, revision):
    answers = [{"action": "accept", "content": {"answer": "Carla"}}, YES]
    client = connect(server=shop, revision=revision)
    client.answers["elicitation/create"] = lambda params: answers.pop(0)
    prompt = client.request("prompts/get", name="letter")
    assert prompt["messages"][0]["content"]["text"] == "Dear Carla"
    assert client.request("resources/read", uri="shop://secret")["contents"][0]["text"] == "True"


def test_question_rounds_of_prompts_and_resources_are_limited(connect, shop, revision, settings):
    settings.DJANGO_MCP = {"QUESTION_ROUNDS": 1}
    client = connect(server=shop, revision=revision)
    client.answers["elicitation/create"] = lambda params: {"action": "accept"}
    for method, params in (
        ("prompts/get", {"name": "letter"}),
        ("resources/read", {"uri": "shop://secret"}),
    ):
        with pytest.raises(RpcError):
            client.request(method, **params)


def test_forged_state_of_a_method_that_never_asks_is_rejected(connect, shop):
    client = connect(server=shop)
    response = client.wait(client.start("tools/list", requestState="forged"))
    assert response["error"]["code"] == -32602
