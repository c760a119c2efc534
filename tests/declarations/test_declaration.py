"""Names, descriptions, permissions, icons and other options of all declarations."""

import functools

import pytest
from asgiref.sync import sync_to_async
from django.db import models
from django.test.utils import isolate_apps

import django_mcp as mcp
from django_mcp.declarations.declaration import (
    Declaration,
    argument_descriptions,
    ascii_name,
    default_name,
    prose,
)

from .helpers import make_request, problem_ids, single_problem, valid_catalog


def nothing(request):
    """Do nothing."""


def declare(server, **attributes):
    """Register a tool class with ``attributes``."""
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
def test_default_name_of_a_class_is_snake_case(name, expected):
    assert default_name(type(name, (), {})) == expected


def test_default_name_of_a_function_is_its_name(server):
    server.tool(nothing)
    server.tool(name="other", title="Another")(nothing)
    catalog = valid_catalog(server)
    assert list(catalog.tools) == ["nothing", "other"]
    assert catalog.tools["other"]._definition()["title"] == "Another"


@pytest.mark.parametrize("name", ["a b", "ä", "a/b", "x" * 129, "a,b", "a\n"])
def test_invalid_name_is_an_error(server, name):
    server.tool(name=name)(nothing)
    message = single_problem(server)
    assert message.id == "django_mcp.E010" and repr(name) in message.msg


@pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 128])
def test_valid_name_is_accepted(server, name):
    server.tool(name=name)(nothing)
    assert name in valid_catalog(server).tools


def test_lambda_without_a_name_is_an_error(server):
    server.tool(lambda request: "x")
    assert single_problem(server).id == "django_mcp.E010"
    server._forget()
    server._records.clear()
    server.tool(name="one")(lambda request: "x")
    assert "one" in valid_catalog(server).tools


def test_partial_function_can_be_declared_with_a_name(server):
    def add(request, a: int, b: int) -> int:
        return a + b

    server.tool(name="add_one", description="Add one.")(functools.partial(add, b=1))
    server.tool(name="add_two")(functools.partial(add, b=2))
    assert "description" not in valid_catalog(server).tools["add_two"]._definition()
    tool = valid_catalog(server).tools["add_one"]
    assert tool._implementation(make_request(), a=1) == 2
    assert tool._origin() == "functools.partial"


def test_definition_has_name_and_description():
    assert Declaration._from_function(nothing)._definition() == {
        "name": "nothing",
        "description": "Do nothing.",
    }


# Options of decorators.


@pytest.mark.parametrize(
    "option", ["nonsense", "handle", "kind", "entry", "is_public", "_function", "resolve", "server"]
)
def test_unknown_option_of_a_decorator_is_an_error(server, option):
    server.tool(**{option: True})(nothing)
    message = single_problem(server)
    assert message.id == "django_mcp.E003" and repr(option) in message.msg


def test_check_reports_all_errors_at_once(server):
    server.tool(nonsense=1)(nothing)
    server.tool(name="a b", permission="x", needs=["telepathy"])(nothing)
    assert problem_ids(server) == ["E003", "E010", "E011", "E014"]


@pytest.mark.parametrize("thing", [7, "name", None, type("Thing", (), {})])
def test_decorating_anything_but_a_function_is_an_error(server, thing):
    server._decorate("tool", None, {})(thing)
    message = single_problem(server)
    assert message.id == "django_mcp.E003" and "function" in message.msg


def test_decorator_returns_the_function(server):
    assert server.tool(nothing) is nothing
    assert server.tool(name="b")(nothing) is nothing
    assert server.prompt(nothing) is nothing
    assert server.resource("x://y")(nothing) is nothing


def test_registering_a_tool_class_with_a_model_is_an_error(server):
    from tests.shop.models import Invoice

    class Odd(mcp.Tool):
        def handle(self, request):
            return "x"

    server.register(Invoice, Odd)
    message = single_problem(server)
    assert message.id == "django_mcp.E003" and "without arguments" in message.msg


# Descriptions.


def test_description_does_not_contain_argument_sections():
    assert prose("Do it.\n\n    Well.\n\n    Args:\n        a: one\n") == "Do it.\n\nWell."
    assert prose("Do it.\n\n:param a: one\n:returns: two") == "Do it."
    assert prose("Do it.\n:returns: two") == "Do it."
    assert prose("Do it.\n\nReturns:\n    two") == "Do it."
    assert prose("Args:\n    a: one") is None
    assert prose("") is None and prose(None) is None


def test_description_keeps_text_that_resembles_a_section():
    assert prose("Returns: the sum.") == "Returns: the sum."
    assert prose("A ratio :parameter free.") == "A ratio :parameter free."


def test_argument_descriptions_of_a_google_docstring():
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


def test_argument_descriptions_of_a_google_docstring_with_two_spaces():
    found = argument_descriptions("Do.\n\nArgs:\n  a: First\n    and more.\n  b: Second.\n")
    assert found == {"a": "First and more.", "b": "Second."}


def test_argument_descriptions_of_a_sphinx_docstring():
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


def test_argument_descriptions_without_a_docstring():
    assert argument_descriptions(None) == {}


def test_function_without_a_docstring_has_no_description(server):
    @server.tool
    def bare(request) -> str:
        return "x"

    @server.resource("x://y")
    def bare_too(request) -> str:
        return "x"

    catalog = valid_catalog(server)
    assert "description" not in catalog.tools["bare"]._definition()
    assert "description" not in catalog.resources["x://y"]._definition()


def test_description_attribute_overrides_the_docstring_of_a_class(server):
    declare(server)
    declare(server, name="b", description="Said.")
    tools = valid_catalog(server).tools
    assert tools["do_it"]._definition()["description"] == "Do it."
    assert tools["b"]._definition()["description"] == "Said."


def test_title_and_description_may_be_lazy_translations(server):
    from django.utils import translation
    from django.utils.translation import gettext_lazy

    server.tool(name="a", title=gettext_lazy("Yes"), description=gettext_lazy("No"))(nothing)
    tool = valid_catalog(server).tools["a"]
    with translation.override("de"):
        assert tool._common_definition() == {"name": "a", "title": "Ja", "description": "Nein"}


# Permissions.


def test_default_permission_requires_a_user(server, alice):
    server.tool(nothing)
    tool = valid_catalog(server).tools["nothing"]
    assert tool._is_allowed(make_request(alice)) and not tool._is_allowed(make_request())


def test_has_permission_decides(server, alice, bob):
    declare(server, has_permission=lambda self, request: request.user.username == "alice")
    tool = valid_catalog(server).tools["do_it"]
    assert tool._is_allowed(make_request(alice)) and not tool._is_allowed(make_request(bob))


def test_has_permission_alone_does_not_make_a_tool_public(server, alice):
    """A method that returns True for all users still requires a user."""
    declare(server, name="a", has_permission=lambda self, request: True)
    declare(server, name="b", has_permission=lambda self, request: True, permission=mcp.PUBLIC)
    tools = valid_catalog(server).tools
    assert tools["a"]._is_allowed(make_request(alice)) and not tools["a"]._is_allowed(
        make_request()
    )
    assert tools["b"]._is_allowed(make_request())


def test_public_tool_with_a_permission_method_is_not_free(server):
    declare(server, name="a", permission=mcp.PUBLIC)
    declare(server, name="b", permission=mcp.PUBLIC, has_permission=lambda self, request: True)
    declare(server, name="c", permission="shop.view_tag")
    tools = valid_catalog(server).tools
    assert tools["a"]._is_public and tools["a"]._decides_without_database
    assert not tools["b"]._is_public and not tools["b"]._decides_without_database
    assert not tools["c"]._is_public and not tools["c"]._decides_without_database


@pytest.mark.parametrize("permission", [None, 7, "refund", type("IsAdmin", (), {})])
def test_invalid_permission_is_an_error(server, permission):
    server.tool(permission=permission)(nothing)
    assert single_problem(server).id == "django_mcp.E011"


def test_asynchronous_has_permission_is_an_error(server):
    """A coroutine is true, so everybody would have the permission."""

    async def later(self, request):
        return False

    declare(server, has_permission=later)
    message = single_problem(server)
    assert message.id == "django_mcp.E015" and "has_permission" in message.msg


# Icons, metadata, needs.


def test_icons_and_metadata_are_in_the_definition(server):
    icon = mcp.Icon("https://shop.example/i.png", "image/png", ["48x48"], "dark")
    server.tool(icons=[icon], meta={"com.example/a": 1, "plain": [1]})(nothing)
    shown = valid_catalog(server).tools["nothing"]._definition()
    assert shown["icons"] == [
        {"src": icon.src, "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
    ]
    assert shown["_meta"] == {"com.example/a": 1, "plain": [1]}


@pytest.mark.parametrize(
    "icon",
    [
        mcp.Icon("javascript:alert(1)"),
        mcp.Icon("/static/i.png"),
        mcp.Icon("http://a.example/i.png"),
        mcp.Icon("https://a.example/i.png", theme="blue"),
        mcp.Icon("https://a.example/i.png", sizes="48x48"),
        mcp.Icon("https://a.example/i.png", sizes=["48"]),
        mcp.Icon("https://a.example/i.png", static="i.png"),
        mcp.Icon(),
        "https://a.example/i.png",
    ],
)
def test_invalid_icon_is_an_error(server, icon):
    server.tool(icons=[icon])(nothing)
    assert single_problem(server).id == "django_mcp.E012"


@pytest.mark.parametrize("meta", [{"com.mcp/x": 1}, {7: 1}, {"com.example/x": object()}])
def test_invalid_metadata_is_an_error(server, meta):
    server.tool(meta=meta)(nothing)
    assert single_problem(server).id == "django_mcp.E013"


def test_needs_are_required_capabilities(server):
    needs = ["sampling.tools", "sampling", "roots", "elicitation.url", "extensions.io.example/ui"]
    server.tool(needs=needs)(nothing)
    assert valid_catalog(server).tools["nothing"]._required_capabilities == {
        "sampling": {"tools": {}},
        "roots": {},
        "elicitation": {"url": {}},
        "extensions": {"io.example/ui": {}},
    }


@pytest.mark.parametrize("need", ["telepathy", "", "sampling.", "Sampling", "experimental.x"])
def test_unknown_capability_in_needs_is_an_error(server, need):
    server.tool(needs=[need])(nothing)
    message = single_problem(server)
    assert message.id == "django_mcp.E014" and repr(need) in message.msg


# Asynchronous functions.


def test_asynchronous_functions_are_recognized(server):
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
    tools = valid_catalog(server).tools
    assert [name for name in tools if tools[name]._is_async] == ["a", "b", "c", "d"]


def test_async_generator_is_an_error(server):
    async def parts(request):
        yield "x"

    server.tool(parts)
    assert single_problem(server).id == "django_mcp.E016"


def test_str_of_a_declaration_has_its_origin(server):
    server.tool(nothing)
    declare(server)
    tools = valid_catalog(server).tools
    assert str(tools["nothing"]) == "tool nothing (tests.declarations.test_declaration.nothing)"
    assert str(tools["do_it"]) == "tool do_it (tests.declarations.test_declaration.DoIt)"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("billing:invoice-close", "billing_invoice_close"), ("Année", "Annee"), ("größe", "gro_e"),
        ("ﬁn_de_mois", "fin_de_mois"), ("発票", ""),
    ],
)  # fmt: skip
def test_default_names_have_no_accents(name, plain):
    assert ascii_name(name) == plain


@isolate_apps("tests.shop")
def test_model_with_an_accent_in_its_name_can_be_registered(server):
    class Année(models.Model):
        class Meta:
            app_label = "shop"

        def __str__(self):
            return "2026"

    attributes = {"fields": ["id"], "permission": "shop.view_note"}
    server.register(Année, type("Years", (mcp.ModelResource,), attributes))
    (resource,) = valid_catalog(server).templates.values()
    assert resource.name == "annee"
