"""Prompts: their definition, arguments, completion and checks."""

import enum
from typing import Annotated, Literal

import pytest
from pydantic import Field

import django_mcp as mcp
from tests.shop.models import Customer

from .helpers import make_request, problem_ids, single_problem, valid_catalog


class Size(enum.Enum):
    SMALL = "s"


def visit(request, country: Literal["fr", "de"], days: int = 1, *, size: Size | None = None) -> str:
    """Plan a visit.

    Args:
        country: Where to.
    """
    return f"{country} {days} {size}"


def test_definition_of_a_prompt_function(server):
    server.prompt(title="Visit")(visit)
    assert valid_catalog(server).prompts["visit"]._definition() == {
        "name": "visit",
        "title": "Visit",
        "description": "Plan a visit.",
        "arguments": [
            {"name": "country", "description": "Where to.", "required": True},
            {"name": "days", "required": False},
            {"name": "size", "required": False},
        ],
    }


def test_definition_of_a_prompt_class(server):
    class Greet(mcp.Prompt):
        """Greet somebody."""

        icons = [mcp.Icon("https://shop.example/i.png")]

        def handle(self, request, name: Annotated[str, Field(title="Whom")]) -> str:
            return f"Greet {name}."

    server.register(Greet)
    prompt = valid_catalog(server).prompts["greet"]
    shown = prompt._definition()
    assert shown["arguments"] == [{"name": "name", "title": "Whom", "required": True}]
    assert shown["icons"] and prompt._implementation(make_request(), name="A") == "Greet A."


def test_prompt_without_arguments(server):
    server.prompt(name="a")(lambda request: "x")
    assert valid_catalog(server).prompts["a"]._definition() == {"name": "a"}


def test_arguments_with_choices_are_completed(server):
    server.prompt(visit)
    completers = valid_catalog(server).prompts["visit"]._completers
    assert set(completers) == {"country", "size"}
    assert list(completers["country"](make_request(), "f", {})) == ["fr"]


def test_prompt_arguments_are_read_from_strings(server):
    server.prompt(visit)
    read = valid_catalog(server).prompts["visit"]._arguments.read_text
    assert read({"country": "fr", "days": "3", "size": "s"}) == {
        "country": "fr", "days": 3, "size": Size.SMALL,
    }  # fmt: skip


def test_class_without_handle_is_an_error(server):
    server.register(type("Idle", (mcp.Prompt,), {}))
    assert single_problem(server).id == "django_mcp.E030"
    with pytest.raises(NotImplementedError):
        mcp.Prompt().handle(make_request())


@pytest.mark.parametrize("annotation", [None, "Nowhere", Customer, type("Odd", (), {})])
def test_argument_without_a_usable_type_is_an_error(server, annotation):
    def ask(request, a) -> str:
        return "x"

    if annotation is not None:
        ask.__annotations__["a"] = annotation
    server.prompt(ask)
    assert single_problem(server).id == "django_mcp.E030"


def test_type_that_a_string_cannot_represent_is_an_error(server):
    @server.prompt
    def ask(request, names: list[str]) -> str:
        return "x"

    message = single_problem(server)
    assert (
        message.id == "django_mcp.E018"
        and "names of a prompt cannot be read from a string" in message.msg
    )


@pytest.mark.parametrize("option", ["read_only", "destructive", "atomic", "input_schema", "uri"])
def test_option_of_tools_is_an_error_for_prompts(server, option):
    server.prompt(**{option: True})(visit)
    assert problem_ids(server) == ["E003"]
