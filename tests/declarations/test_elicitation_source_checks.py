"""Checks of a function's source: forms in its questions, and async tools that write and ask."""

import functools

import pytest
from django import forms
from pydantic import BaseModel

import django_mcp as mcp
from django_mcp.declarations.elicitation_forms import CLIENT_REQUEST_METHODS, FunctionSource

from . import helpers
from .helpers import problem_ids, single_problem, valid_catalog


class Login(BaseModel):
    user: str
    password: str


class Person(BaseModel):
    name: str


class Nested(BaseModel):
    person: Person


class Upload(forms.Form):
    file = forms.FileField()


helpers.LoginForm = type("LoginForm", (forms.Form,), {"password": forms.CharField()})


def by_position(request) -> str:
    return request.elicit("Who are you?", Login).user


def by_name(request) -> str:
    return request.elicit("Who are you?", key="a", schema=Login).user


async def awaited(request) -> str:
    return (await request.aelicit("Who are you?", Login)).user


def several(request) -> str:
    return str(request.ask(a=mcp.Elicit("Who are you?", Login), b=mcp.Roots()))


def from_another_module(req) -> str:
    return req.elicit("Who are you?", helpers.LoginForm)["password"]


def nested(request) -> str:
    return str(request.elicit("Who?", Nested))


def a_file(request) -> str:
    return str(request.elicit("Which?", Upload))


def a_type(request) -> str:
    return str(
        request.elicit("Which?", dict)
    )  # not a global of the module: checked when it is asked


def inside(request) -> str:
    def again() -> str:
        return str(request.elicit("Who?", Login))

    return again() + str(request.elicit("Sure?", bool))


@pytest.mark.parametrize(
    "function",
    [by_position, by_name, awaited, several, from_another_module, nested, a_file, inside],
)
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
def test_invalid_form_in_a_question_is_an_error(server, function, kind):
    decorate = server.resource("x://y") if kind == "resource" else getattr(server, kind)
    decorate(function)
    found = [message for message in server.check() if message.is_serious()]
    assert [message.id for message in found] == ["django_mcp.E027"] and found[0].hint


def test_message_of_an_invalid_form(server):
    server.tool(by_position)
    assert single_problem(server).msg == "A form must not ask for secrets (password)."


def valid(request) -> str:
    return str(request.elicit("Who?", Person)) + str(request.elicit("Sure?"))


def local_variable(request) -> str:
    Login = Person  # noqa: N806
    return str(request.elicit("Who?", Login))


def _closure():
    Login = Person  # noqa: N806

    def closure_variable(request) -> str:
        return str(request.elicit("Who?", Login))

    return closure_variable


def method_of_another_object(request) -> str:
    client = helpers
    return str(client.elicit("Who?", Login)) + str(helpers.nowhere.elicit("Who?", Login))


def by_expression(request) -> str:
    return str(request.elicit("Who?", [Login][0])) + str(request.elicit("Who?", helpers.no.such))


@pytest.mark.parametrize(
    "function",
    [valid, local_variable, _closure(), method_of_another_object, by_expression, a_type],
)
def test_uncertain_cases_are_not_reported(server, function):
    server.tool(function)
    valid_catalog(server)


def test_invalid_form_in_a_method_is_an_error(server):
    class Ask(mcp.Tool):
        def handle(self, request) -> str:
            return str(request.elicit("Who?", Login))

    server.register(Ask)
    assert problem_ids(server) == ["E027"]


def test_source_of_a_wrapped_function_is_checked(server):
    @functools.wraps(by_position)
    def wrapper(*args):
        return by_position(*args)

    server.tool(wrapper)
    assert problem_ids(server) == ["E027"]


def test_function_without_a_source_is_not_checked(server):
    namespace = {"Login": Login}
    exec("def ask(request): return request.elicit('Who?', Login)", namespace)
    server.tool(namespace["ask"])
    server.tool(name="a")(functools.partial(by_position))
    valid_catalog(server)
    assert (
        not FunctionSource(len).calls_any_of(CLIENT_REQUEST_METHODS)
        and list(FunctionSource(print).forms()) == []
    )


# Async tools that write and ask.


async def asks(request) -> str:
    return str(await request.aelicit("Sure?"))


async def samples(request) -> str:
    return (await request.asample("A word.")).text


async def remembers(request) -> str:
    await request.aonce("written", dict)
    return str(await request.aelicit("Sure?"))


async def neither(request) -> str:
    return "x"


def waits(request) -> str:
    return str(request.elicit("Sure?"))


@pytest.mark.parametrize("function", [asks, samples])
def test_async_tool_that_writes_and_asks_is_a_warning(server, function):
    server.tool(function)
    message = single_problem(server)
    assert message.id == "django_mcp.W028" and "aonce" in message.hint
    assert not message.is_serious() and list(server.ready().tools) == [function.__name__]


def test_tool_that_does_not_both_write_and_ask_is_valid(server):
    for function in (remembers, neither, waits):
        server.tool(function)
    server.tool(read_only=True)(asks)
    server.prompt(asks)
    server.resource("x://y")(asks)
    valid_catalog(server)
