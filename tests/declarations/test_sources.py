"""What a function's source tells before it runs: what it will ask, and what it would do twice."""

import functools

import pytest
from django import forms
from pydantic import BaseModel

import django_mcp as mcp
from django_mcp.declarations.elicitation_checks import ASKING, FunctionSource

from . import world
from .world import ids, only, right


class Login(BaseModel):
    user: str
    password: str


class Person(BaseModel):
    name: str


class Nested(BaseModel):
    person: Person


class Upload(forms.Form):
    file = forms.FileField()


world.LoginForm = type("LoginForm", (forms.Form,), {"password": forms.CharField()})


def by_position(request) -> str:
    return request.elicit("Who are you?", Login).user


def by_name(request) -> str:
    return request.elicit("Who are you?", key="a", schema=Login).user


async def awaited(request) -> str:
    return (await request.aelicit("Who are you?", Login)).user


def several(request) -> str:
    return str(request.ask(a=mcp.Elicit("Who are you?", Login), b=mcp.Roots()))


def of_another_module(req) -> str:
    return req.elicit("Who are you?", world.LoginForm)["password"]


def nested(request) -> str:
    return str(request.elicit("Who?", Nested))


def a_file(request) -> str:
    return str(request.elicit("Which?", Upload))


def a_type(request) -> str:
    return str(request.elicit("Which?", dict))  # no global: left to the moment of asking


def inside(request) -> str:
    def again() -> str:
        return str(request.elicit("Who?", Login))

    return again() + str(request.elicit("Sure?", bool))


@pytest.mark.parametrize(
    "function",
    [by_position, by_name, awaited, several, of_another_module, nested, a_file, inside],
)
@pytest.mark.parametrize("kind", ["tool", "prompt", "resource"])
def test_forms_that_would_be_refused_are_found_before(server, function, kind):
    decorate = server.resource("x://y") if kind == "resource" else getattr(server, kind)
    decorate(function)
    found = [message for message in server.check() if message.is_serious()]
    assert [message.id for message in found] == ["django_mcp.E027"] and found[0].hint


def test_it_says_what_is_wrong(server):
    server.tool(by_position)
    assert only(server).msg == "A form must not ask for secrets (password)."


def fine(request) -> str:
    return str(request.elicit("Who?", Person)) + str(request.elicit("Sure?"))


def made_on_the_way(request) -> str:
    Login = Person  # noqa: N806
    return str(request.elicit("Who?", Login))


def anothers_method(request) -> str:
    client = world
    return str(client.elicit("Who?", Login)) + str(world.nowhere.elicit("Who?", Login))


def by_arithmetic(request) -> str:
    return str(request.elicit("Who?", [Login][0])) + str(request.elicit("Who?", world.no.such))


@pytest.mark.parametrize(
    "function", [fine, made_on_the_way, anothers_method, by_arithmetic, a_type]
)
def test_only_what_is_certain_is_said(server, function):
    server.tool(function)
    right(server)


def test_a_method_is_read_too(server):
    class Ask(mcp.Tool):
        def handle(self, request) -> str:
            return str(request.elicit("Who?", Login))

    server.register(Ask)
    assert ids(server) == ["E027"]


def test_a_wrapped_function_is_read_through(server):
    @functools.wraps(by_position)
    def wrapper(*args):
        return by_position(*args)

    server.tool(wrapper)
    assert ids(server) == ["E027"]


def test_without_a_source_nothing_is_said(server):
    namespace = {"Login": Login}
    exec("def ask(request): return request.elicit('Who?', Login)", namespace)
    server.tool(namespace["ask"])
    server.tool(name="a")(functools.partial(by_position))
    right(server)
    assert not FunctionSource(len).does(ASKING) and list(FunctionSource(print).forms()) == []


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
def test_an_async_tool_that_writes_and_asks_is_a_warning(server, function):
    server.tool(function)
    message = only(server)
    assert message.id == "django_mcp.W028" and "aonce" in message.hint
    assert not message.is_serious() and list(server.ready().tools) == [function.__name__]


def test_what_is_not_such_a_tool(server):
    for function in (remembers, neither, waits):
        server.tool(function)
    server.tool(read_only=True)(asks)
    server.prompt(asks)
    server.resource("x://y")(asks)
    right(server)
