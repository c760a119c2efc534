"""What every declared thing has: a name, words, who may use it, and checks of all of them."""

import functools

import pytest
from asgiref.sync import sync_to_async

import django_mcp as mcp
from django_mcp.declarations.declaration import (
    Declaration,
    argument_descriptions,
    default_name,
    prose,
)

from .world import asked, ids, only, right


def nothing(request):
    """Do nothing."""


def declare(server, **attributes):
    """A tool class with ``attributes``, registered."""
    body = {"handle": lambda self, request: "done", "__doc__": "Do it."} | attributes
    return server.register(type("DoIt", (mcp.Tool,), body))


# Names.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("CloseMonth", "close_month"),
        ("PDFReport", "pdf_report"),
        ("Add", "add"),
        ("ExportCSV", "export_csv"),
        ("V2Thing", "v2_thing"),
    ],
)
def test_a_class_is_named_by_its_name(name, expected):
    assert default_name(type(name, (), {})) == expected


def test_a_function_is_named_by_its_name(server):
    server.tool(nothing)
    server.tool(name="other", title="Another")(nothing)
    catalog = right(server)
    assert list(catalog.tools) == ["nothing", "other"]
    assert catalog.tools["other"]._definition()["title"] == "Another"


@pytest.mark.parametrize("name", ["a b", "ä", "a/b", "x" * 129, "a,b", "a\n"])
def test_names_that_are_none(server, name):
    server.tool(name=name)(nothing)
    message = only(server)
    assert message.id == "django_mcp.E010" and repr(name) in message.msg


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 128])
def test_names_that_are(server, name):
    server.tool(name=name)(nothing)
    assert name in right(server).tools


def test_a_lambda_needs_a_name(server):
    server.tool(lambda request: "x")
    assert only(server).id == "django_mcp.E010"
    server._forget()
    server._records.clear()
    server.tool(name="one")(lambda request: "x")
    assert "one" in right(server).tools


def test_a_partial_function_takes_a_name(server):
    def add(request, a: int, b: int) -> int:
        return a + b

    server.tool(name="add_one", description="Add one.")(functools.partial(add, b=1))
    server.tool(name="add_two")(functools.partial(add, b=2))
    assert "description" not in right(server).tools["add_two"]._definition()
    tool = right(server).tools["add_one"]
    assert tool._implementation(asked(), a=1) == 2
    assert tool._origin() == "functools.partial"


def test_what_is_shown_of_any_thing():
    assert Declaration._from_function(nothing)._definition() == {
        "name": "nothing",
        "description": "Do nothing.",
    }


# What a decorator takes.


@pytest.mark.parametrize(
    "option", ["nonsense", "handle", "kind", "entry", "is_public", "_function", "resolve", "server"]
)
def test_options_that_are_none(server, option):
    server.tool(**{option: True})(nothing)
    message = only(server)
    assert message.id == "django_mcp.E003" and repr(option) in message.msg


def test_every_mistake_is_found_at_once(server):
    server.tool(nonsense=1)(nothing)
    server.tool(name="a b", permission="x", needs=["telepathy"])(nothing)
    assert ids(server) == ["E003", "E010", "E011", "E014"]


@pytest.mark.parametrize("thing", [7, "name", None, type("Thing", (), {})])
def test_only_functions_are_decorated(server, thing):
    server._decorate("tool", None, {})(thing)
    message = only(server)
    assert message.id == "django_mcp.E003" and "function" in message.msg


def test_a_decorator_gives_back_what_it_was_given(server):
    assert server.tool(nothing) is nothing
    assert server.tool(name="b")(nothing) is nothing
    assert server.prompt(nothing) is nothing
    assert server.resource("x://y")(nothing) is nothing


def test_a_class_that_is_registered_alone_takes_no_model(server):
    from tests.shop.models import Invoice

    class Odd(mcp.Tool):
        def handle(self, request):
            return "x"

    server.register(Invoice, Odd)
    message = only(server)
    assert message.id == "django_mcp.E003" and "without arguments" in message.msg


# Words.


def test_prose_leaves_out_what_is_about_arguments():
    assert prose("Do it.\n\n    Well.\n\n    Args:\n        a: one\n") == "Do it.\n\nWell."
    assert prose("Do it.\n\n:param a: one\n:returns: two") == "Do it."
    assert prose("Do it.\n:returns: two") == "Do it."
    assert prose("Do it.\n\nReturns:\n    two") == "Do it."
    assert prose("Args:\n    a: one") is None
    assert prose("") is None and prose(None) is None


def test_prose_keeps_what_only_looks_like_a_section():
    assert prose("Returns: the sum.") == "Returns: the sum."
    assert prose("A ratio :parameter free.") == "A ratio :parameter free."


def test_arguments_in_googles_form():
    found = argument_descriptions(
        """Do it.

        Args:
            a: First
                and more: much.
            b (tuple[int, (str)], optional): Second.
            c(int): Third.

        Returns:
            d: nothing
        """
    )
    assert found == {"a": "First and more: much.", "b": "Second.", "c": "Third."}


def test_arguments_in_googles_form_with_two_spaces():
    found = argument_descriptions("Do.\n\nArgs:\n  a: First\n    and more.\n  b: Second.\n")
    assert found == {"a": "First and more.", "b": "Second."}


def test_arguments_in_sphinxs_form():
    found = argument_descriptions(
        """Do it.

        :param a: First
            and more.
        :param int b: Second.
        :param list[int] | None c: Third.
        :returns: nothing
        """
    )
    assert found == {"a": "First and more.", "b": "Second.", "c": "Third."}


def test_no_docstring_describes_nothing():
    assert argument_descriptions(None) == {}


def test_a_function_without_a_docstring_borrows_none(server):
    @server.tool
    def bare(request) -> str:
        return "x"

    @server.resource("x://y")
    def bare_too(request) -> str:
        return "x"

    catalog = right(server)
    assert "description" not in catalog.tools["bare"]._definition()
    assert "description" not in catalog.resources["x://y"]._definition()


def test_a_class_is_described_by_its_docstring_or_its_description(server):
    declare(server)
    declare(server, name="b", description="Said.")
    tools = right(server).tools
    assert tools["do_it"]._definition()["description"] == "Do it."
    assert tools["b"]._definition()["description"] == "Said."


def test_words_may_be_lazy(server):
    from django.utils import translation
    from django.utils.translation import gettext_lazy

    server.tool(name="a", title=gettext_lazy("Yes"), description=gettext_lazy("No"))(nothing)
    tool = right(server).tools["a"]
    with translation.override("de"):
        assert tool._common_definition() == {"name": "a", "title": "Ja", "description": "Nein"}


# Who may use it.


def test_who_states_nothing_needs_a_user(server, alice):
    server.tool(nothing)
    tool = right(server).tools["nothing"]
    assert tool._is_allowed(asked(alice)) and not tool._is_allowed(asked())


def test_a_methods_answer_counts(server, alice, bob):
    declare(server, has_permission=lambda self, request: request.user.username == "alice")
    tool = right(server).tools["do_it"]
    assert tool._is_allowed(asked(alice)) and not tool._is_allowed(asked(bob))


def test_public_is_always_written_out(server, alice):
    """A method that says yes to everybody says it of users."""
    declare(server, name="a", has_permission=lambda self, request: True)
    declare(server, name="b", has_permission=lambda self, request: True, permission=mcp.PUBLIC)
    tools = right(server).tools
    assert tools["a"]._is_allowed(asked(alice)) and not tools["a"]._is_allowed(asked())
    assert tools["b"]._is_allowed(asked())


def test_public_and_free(server):
    declare(server, name="a", permission=mcp.PUBLIC)
    declare(server, name="b", permission=mcp.PUBLIC, has_permission=lambda self, request: True)
    declare(server, name="c", permission="shop.view_tag")
    tools = right(server).tools
    assert tools["a"]._is_public and tools["a"]._is_free
    assert not tools["b"]._is_public and not tools["b"]._is_free
    assert not tools["c"]._is_public and not tools["c"]._is_free


@pytest.mark.parametrize("permission", [None, 7, "refund", type("IsAdmin", (), {})])
def test_permissions_that_are_none(server, permission):
    server.tool(permission=permission)(nothing)
    assert only(server).id == "django_mcp.E011"


def test_what_is_needed_at_once_is_not_async(server):
    """A coroutine is true: everybody would be let in."""

    async def later(self, request):
        return False

    declare(server, has_permission=later)
    message = only(server)
    assert message.id == "django_mcp.E015" and "has_permission" in message.msg


# Icons, metadata, needs.


def test_icons_and_metadata_are_shown(server):
    icon = mcp.Icon("https://shop.example/i.png", "image/png", ["48x48"], "dark")
    server.tool(icons=[icon], meta={"com.example/a": 1, "plain": [1]})(nothing)
    shown = right(server).tools["nothing"]._definition()
    assert shown["icons"] == [
        {"src": icon.src, "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
    ]
    assert shown["_meta"] == {"com.example/a": 1, "plain": [1]}


@pytest.mark.parametrize(
    "icon",
    [
        mcp.Icon("javascript:alert(1)"),
        mcp.Icon("/static/i.png"),
        mcp.Icon("https://a.example/i.png", theme="blue"),
        "https://a.example/i.png",
    ],
)
def test_icons_that_are_none(server, icon):
    server.tool(icons=[icon])(nothing)
    assert only(server).id == "django_mcp.E012"


@pytest.mark.parametrize("meta", [{"com.mcp/x": 1}, {7: 1}, {"com.example/x": object()}])
def test_metadata_that_is_none(server, meta):
    server.tool(meta=meta)(nothing)
    assert only(server).id == "django_mcp.E013"


def test_needs_are_capabilities(server):
    needs = ["sampling.tools", "sampling", "roots", "elicitation.url", "extensions.io.example/ui"]
    server.tool(needs=needs)(nothing)
    assert right(server).tools["nothing"]._required_capabilities == {
        "sampling": {"tools": {}},
        "roots": {},
        "elicitation": {"url": {}},
        "extensions": {"io.example/ui": {}},
    }


@pytest.mark.parametrize("need", ["telepathy", "", "sampling.", "Sampling", "experimental.x"])
def test_needs_nobody_has(server, need):
    server.tool(needs=[need])(nothing)
    message = only(server)
    assert message.id == "django_mcp.E014" and repr(need) in message.msg


# How it runs.


def test_what_is_async(server):
    async def later(request):
        return "x"

    @functools.wraps(later)
    def wrapped(request):
        return later(request)

    functions = {
        "a": later,
        "b": wrapped,
        "c": sync_to_async(nothing),
        "d": functools.partial(later),
        "e": nothing,
    }
    for name, function in functions.items():
        server.tool(name=name)(function)
    declare(server, name="f", handle=lambda self, request: "x")
    tools = right(server).tools
    assert [name for name in tools if tools[name]._is_async] == ["a", "b", "c", "d"]


def test_an_async_generator_returns_nothing_that_can_be_sent(server):
    async def parts(request):
        yield "x"

    server.tool(parts)
    assert only(server).id == "django_mcp.E016"


def test_it_says_where_it_was_written(server):
    server.tool(nothing)
    declare(server)
    tools = right(server).tools
    assert str(tools["nothing"]) == "tool nothing (tests.declarations.test_declarations.nothing)"
    assert str(tools["do_it"]) == "tool do_it (tests.declarations.test_declarations.DoIt)"
