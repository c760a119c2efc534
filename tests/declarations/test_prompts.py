"""Prompts: conversations a user may start, whose arguments arrive as strings."""

import enum
from typing import Annotated, Literal

import pytest
from pydantic import Field

import django_mcp as mcp
from tests.shop.models import Customer

from .world import asked, ids, only, right


class Size(enum.Enum):
    SMALL = "s"


def visit(request, country: Literal["fr", "de"], days: int = 1, *, size: Size | None = None) -> str:
    """Plan a visit.

    Args:
        country: Where to.
    """
    return f"{country} {days} {size}"


def test_a_function(server):
    server.prompt(title="Visit")(visit)
    assert right(server).prompts["visit"]._definition() == {
        "name": "visit",
        "title": "Visit",
        "description": "Plan a visit.",
        "arguments": [
            {"name": "country", "description": "Where to.", "required": True},
            {"name": "days", "required": False},
            {"name": "size", "required": False},
        ],
    }


def test_a_class(server):
    class Greet(mcp.Prompt):
        """Greet somebody."""

        icons = [mcp.Icon("https://shop.example/i.png")]

        def handle(self, request, name: Annotated[str, Field(title="Whom")]) -> str:
            return f"Greet {name}."

    server.register(Greet)
    prompt = right(server).prompts["greet"]
    shown = prompt._definition()
    assert shown["arguments"] == [{"name": "name", "title": "Whom", "required": True}]
    assert shown["icons"] and prompt._implementation(asked(), name="A") == "Greet A."


def test_a_prompt_without_arguments(server):
    server.prompt(name="a")(lambda request: "x")
    assert right(server).prompts["a"]._definition() == {"name": "a"}


def test_what_completes_itself(server):
    server.prompt(visit)
    completers = right(server).prompts["visit"]._completers
    assert set(completers) == {"country", "size"}
    assert list(completers["country"](asked(), "f", {})) == ["fr"]


def test_arguments_are_read_from_strings(server):
    server.prompt(visit)
    read = right(server).prompts["visit"]._arguments.read_text
    assert read({"country": "fr", "days": "3", "size": "s"}) == {
        "country": "fr", "days": 3, "size": Size.SMALL,
    }  # fmt: skip


def test_a_class_without_a_method(server):
    server.register(type("Idle", (mcp.Prompt,), {}))
    assert only(server).id == "django_mcp.E030"
    with pytest.raises(NotImplementedError):
        mcp.Prompt().handle(asked())


@pytest.mark.parametrize("annotation", [None, "Nowhere", Customer, type("Odd", (), {})])
def test_arguments_without_a_type(server, annotation):
    def ask(request, a) -> str:
        return "x"

    if annotation is not None:
        ask.__annotations__["a"] = annotation
    server.prompt(ask)
    assert only(server).id == "django_mcp.E030"


def test_what_no_string_can_be(server):
    @server.prompt
    def ask(request, names: list[str]) -> str:
        return "x"

    message = only(server)
    assert (
        message.id == "django_mcp.E018"
        and "names of a prompt cannot be read from a string" in message.msg
    )


@pytest.mark.parametrize("option", ["read_only", "destructive", "atomic", "input_schema", "uri"])
def test_options_of_tools_are_none_of_prompts(server, option):
    server.prompt(**{option: True})(visit)
    assert ids(server) == ["E003"]
