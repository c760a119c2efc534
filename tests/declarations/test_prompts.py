"""Prompts: their definition, arguments, completion and checks."""

import enum
from typing import Annotated, Literal

import pytest
from pydantic import Field

import django_mcp as mcp
from django_mcp.declarations.outputs import Mismatch
from tests.client import RpcError
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


# Templates.


@pytest.fixture
def template(settings, tmp_path):
    """Return a function that writes a template and returns its name."""
    settings.TEMPLATES = [{**settings.TEMPLATES[0], "DIRS": [tmp_path]}]

    def made(text, name="t.txt"):
        (tmp_path / name).write_text(text, "utf-8")
        return name

    return made


@pytest.mark.django_db
@pytest.mark.parametrize("is_async", [False, True])
def test_template_of_a_prompt(template, server, connect, alice, invoice, is_async):
    class Customers(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    server.register(Customer, Customers)
    text = "{{ tone }} {{ customer.name }} {{ invoices.0.number }} {{ request.user.username }}"

    def context(request, customer: Customer, tone: Literal["kind", "firm"] = "kind"):
        return {"customer": customer, "tone": tone, "invoices": customer.invoices.all()}

    async def acontext(request, customer: Customer, tone: Literal["kind", "firm"] = "kind"):
        return context(request, customer, tone)

    function = acontext if is_async else context
    server.prompt(name="remind", template_name=template(text))(function)
    client = connect(alice, server=server)
    given = {"name": "remind", "arguments": {"customer": str(invoice.customer_id)}}
    (message,) = client.request("prompts/get", **given)["messages"]
    assert message["role"] == "user"
    assert message["content"] == {"type": "text", "text": "kind Carla A-1 alice"}


@pytest.mark.django_db
def test_row_that_the_user_may_not_see_is_in_no_template(template, server, connect, bob, invoice):
    class Customers(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).filter(company__members=request.user)

    server.register(Customer, Customers)

    @server.prompt(template_name=template("{{ customer.name }}"))
    def remind(request, customer: Customer):
        return {"customer": customer}

    client = connect(bob, server=server)
    key = str(invoice.customer_id)
    with pytest.raises(RpcError, match=f"There is no customer {key}"):
        client.request("prompts/get", name="remind", arguments={"customer": key})


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["t.txt", "t.html"])
def test_values_in_a_template_are_text(template, server, connect, alice, name):
    """They are neither escaped as HTML nor executed as a template."""
    included = template("{{ word }}", "part.html")

    @server.prompt(template_name=template(f"{{{{ word }}}} {{% include '{included}' %}}", name))
    def say(request, word: str):
        return {"word": word}

    client = connect(alice, server=server)
    for word in ("a & <b>", "{{ request.user.password }}", "{% debug %}"):
        found = client.request("prompts/get", name="say", arguments={"word": word})
        assert found["messages"][0]["content"]["text"] == f"{word} {word}"


def test_class_of_a_prompt_with_a_template(template, server):
    @server.register
    class Greet(mcp.Prompt):
        template_name = template("Greet {{ name }}.")

        def handle(self, request, name: str):
            return {"name": name}

    prompt = valid_catalog(server).prompts["greet"]
    assert prompt._messages({"name": "Ann"}, make_request()) == "Greet Ann."


def test_context_that_is_no_dict_is_an_error(template, server):
    server.prompt(name="a", template_name=template("x"))(lambda request: "text")
    prompt = valid_catalog(server).prompts["a"]
    with pytest.raises(Mismatch, match="must be a dict, not a str"):
        prompt._messages("text", make_request())


@pytest.mark.parametrize("text", [None, "{% if %}", "{% load nothing %}"])
def test_template_that_cannot_be_loaded_is_reported(template, server, text):
    name = "missing.txt" if text is None else template(text)
    server.prompt(name="a", template_name=name)(lambda request: {})
    assert single_problem(server).id == "django_mcp.E266"


def test_template_of_another_engine_is_reported(settings, server, tmp_path):
    (tmp_path / "t.txt").write_text("x")
    backend = "django.template.backends.dummy.TemplateStrings"
    settings.TEMPLATES = [{"BACKEND": backend, "DIRS": [tmp_path]}]
    server.prompt(name="a", template_name="t.txt")(lambda request: {})
    assert single_problem(server).id == "django_mcp.E266"


def test_project_without_templates_is_reported(settings, server):
    settings.TEMPLATES = []
    server.prompt(name="a", template_name="t.txt")(lambda request: {})
    assert single_problem(server).id == "django_mcp.E266"
