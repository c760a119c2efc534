"""
The tools and the prompt that ask the client something before they answer.

Rule: each is written once. In the revisions with sessions its questions are requests to the
client, in the newest its result is what it wants to know; nothing here tells which.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import django_mcp as mcp


@dataclass
class Name:
    name: str


@dataclass
class Color:
    color: str


@dataclass
class Confirmation:
    ok: bool


@dataclass
class Context:
    context: str


@dataclass
class Account:
    username: str
    email: str


@dataclass
class Defaults:
    """A field of each type, with a default."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


def titled(*titles: str) -> list[dict[str, str]]:
    return [{"const": f"value{n}", "title": title} for n, title in enumerate(titles, 1)]


OPTIONS = ["option1", "option2", "option3"]
# By hand: one of the fields is written as it was before choices had titles.
CHOICES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {
            "type": "string",
            "oneOf": titled("First Option", "Second Option", "Third Option"),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": titled("First Choice", "Second Choice", "Third Choice")},
        },
    },
}


# As a session's client is asked.


@mcp.tool(permission=mcp.PUBLIC)
def test_sampling(request: mcp.Request, prompt: str) -> str:
    """Let the client's model answer a prompt."""
    return f"LLM response: {request.sample(prompt, max_tokens=100).text}"


@mcp.tool(permission=mcp.PUBLIC)
def test_elicitation(request: mcp.Request, message: str) -> str:
    """Ask the user for a name and an address."""
    return f"User response: {told(request, message, Account)}"


@mcp.tool(permission=mcp.PUBLIC)
def test_elicitation_sep1034_defaults(request: mcp.Request) -> str:
    """Ask the user for what has defaults."""
    return f"Elicitation completed: {told(request, 'Please review these values', Defaults)}"


@mcp.tool(permission=mcp.PUBLIC)
def test_elicitation_sep1330_enums(request: mcp.Request) -> str:
    """Ask the user to choose, in every way there is."""
    return f"Elicitation completed: {told(request, 'Please choose', CHOICES)}"


def told(request: mcp.Request, message: str, schema: Any) -> str:
    """What the user did, and filled in."""
    try:
        content = request.elicit(message, schema)
    except mcp.Declined as declined:
        return f"action={declined.action}, content=None"
    return f"action=accept, content={content}"


# As the client of a single request is asked.


@mcp.register
class NeedsSampling(mcp.Tool):
    """Need a client whose model can be asked."""

    name = "test_missing_capability"
    permission = mcp.PUBLIC
    needs = ["sampling"]

    def handle(self, request: mcp.Request) -> str:
        return request.sample("Say something.", max_tokens=100).text


@mcp.tool(permission=mcp.PUBLIC)
def test_streaming_elicitation(request: mcp.Request) -> str:
    """Tell of progress, and ask the user's name."""
    request.progress(1, 2, "asking")
    return f"Hello, {request.elicit('What is your name?', Name, key='user_name').name}!"


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_elicitation(request: mcp.Request) -> str:
    """Ask the user's name."""
    return f"Hello, {request.elicit('What is your name?', Name, key='user_name').name}!"


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_sampling(request: mcp.Request) -> str:
    """Ask the client's model a question."""
    question = "What is the capital of France?"
    return request.sample(question, max_tokens=100, key="capital_question").text


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_list_roots(request: mcp.Request) -> str:
    """Ask for the client's roots."""
    roots = request.roots(key="client_roots")
    return f"The roots are: {', '.join(root.uri for root in roots)}"


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_request_state(request: mcp.Request) -> str:
    """Ask the user to confirm, and know again what was asked."""
    answer = request.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok: {answer.ok}"


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_multiple_inputs(request: mcp.Request) -> str:
    """Ask user, model and client at once."""
    answers = request.ask(
        user_name=mcp.Elicit("What is your name?", Name),
        greeting=mcp.Sample("Generate a greeting", max_tokens=50),
        client_roots=mcp.Roots(),
    )
    name, greeting = answers["user_name"].name, answers["greeting"].text
    return f"{greeting} {name}, of {len(answers['client_roots'])} roots."


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_multi_round(request: mcp.Request) -> str:
    """Ask the user twice, one after the other."""
    name = request.elicit("Step 1: What is your name?", Name, key="step1").name
    color = request.elicit("Step 2: What is your favorite color?", Color, key="step2").color
    return f"{name} likes {color}."


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_tampered_state(request: mcp.Request) -> str:
    """Ask the user to confirm, and take no forged state."""
    answer = request.elicit("Please confirm", Confirmation, key="confirm")
    return f"Confirmed: {answer.ok}"


@mcp.tool(permission=mcp.PUBLIC)
def test_input_required_result_capabilities(request: mcp.Request) -> str:
    """Ask only what the client can be asked."""
    questions: dict[str, Any] = {}
    if request.can.elicit:
        questions["user_name"] = mcp.Elicit("What is your name?", Name)
    if request.can.sample:
        questions["greeting"] = mcp.Sample("Generate a greeting", max_tokens=50)
    return f"Answered: {', '.join(request.ask(**questions)) or 'nothing'}."


@mcp.prompt(permission=mcp.PUBLIC)
def test_input_required_result_prompt(request: mcp.Request) -> str:
    """A prompt that asks for its context."""
    asked = "What context should the prompt use?"
    return f"Use this context: {request.elicit(asked, Context, key='user_context').context}"
