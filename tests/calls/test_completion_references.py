"""The parameters of a completion request are checked before any project code runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import django_mcp as mcp
from django_mcp.calls.methods import MAX_TEXT, filled_in, referred, typed
from django_mcp.protocol.jsonrpc import InvalidParams, ProtocolError


@pytest.fixture
def asked(server):
    @server.prompt(permission=mcp.PUBLIC)
    def letter(request: mcp.Request, tone: str) -> str:
        return tone

    @server.resource("policy://{name}", permission=mcp.PUBLIC)
    def policy(request: mcp.Request, name: str) -> str:
        return name

    def made(**params: Any) -> Any:
        return SimpleNamespace(params=params, server=server)

    return made


def test_prompt_reference_finds_the_prompt(asked, server):
    found, unknown = referred(asked(ref={"type": "ref/prompt", "name": "letter"}))
    assert found is server._catalog.prompts["letter"] and "letter" in unknown().message


@pytest.mark.parametrize("uri", ["policy://{name}", "policy://returns"])
def test_resource_reference_finds_the_template_by_template_or_uri(asked, server, uri):
    found, unknown = referred(asked(ref={"type": "ref/resource", "uri": uri}))
    assert found is server._catalog.templates["policy://{name}"] and unknown().data == {"uri": uri}


@pytest.mark.parametrize(
    "ref",
    [
        None, "letter", [], {}, {"type": "ref/prompt"}, {"type": "ref/prompt", "name": 1},
        {"type": "ref/prompt", "uri": "policy://{name}"}, {"type": "ref/tool", "name": "letter"},
        {"type": "ref/resource", "name": "letter"}, {"type": ["ref/prompt"], "name": "letter"},
        {"type": "ref/prompt", "name": "none"}, {"type": "ref/prompt", "name": "x" * 100_000},
        {"type": "ref/resource", "uri": "none://x"},
    ],
)  # fmt: skip
def test_invalid_reference_is_rejected(asked, ref):
    with pytest.raises(ProtocolError) as refused:
        referred(asked(ref=ref))
    assert refused.value.code == -32602 and len(refused.value.message) < 300


def test_argument_is_checked_and_shortened(asked):
    assert typed(asked(argument={"name": "tone", "value": "ki"})) == ("tone", "ki")
    assert typed(asked(argument={"name": "tone", "value": ""})) == ("tone", "")
    assert len(typed(asked(argument={"name": "tone", "value": "x" * 9999}))[1]) == MAX_TEXT
    for wrong in (None, {}, [], {"name": "tone"}, {"value": "x"}, {"name": {}, "value": "x"},
                  {"name": "tone", "value": 1}, {"name": "tone", "value": None}):  # fmt: skip
        with pytest.raises(InvalidParams, match="argument is required"):
            typed(asked(argument=wrong))


def test_context_arguments_are_checked(asked):
    assert filled_in(asked()) == {}
    assert filled_in(asked(context=None)) == {}
    assert filled_in(asked(context={})) == {}
    assert filled_in(asked(context={"arguments": None})) == {}
    assert filled_in(asked(context={"arguments": {"a": "b"}})) == {"a": "b"}
    for wrong in ([], "x", 1, {"arguments": []}, {"arguments": {"a": 1}}, {"arguments": "x"}):
        with pytest.raises(InvalidParams, match="object of strings"):
            filled_in(asked(context=wrong))
