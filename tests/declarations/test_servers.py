"""Servers record what is declared on them, and resolve it once."""

import gc

import pytest
from django.core.exceptions import ImproperlyConfigured

import django_mcp as mcp
from django_mcp.declarations.server import Server, default_server, server_named, servers
from django_mcp.exceptions import AlreadyRegistered, Misdeclared
from tests.shop.models import Company, Customer

from .world import Do, Rows, ids, nothing, only, right


@pytest.fixture
def another():
    """Makes servers that are gone after the test."""
    made = []
    yield lambda *args, **options: made.append(Server(*args, **options)) or made[-1]
    made.clear()
    gc.collect()


# Servers.


def test_the_default_server_comes_first():
    assert servers()[0] is default_server is mcp.server
    assert default_server.name == "default" and default_server.path == "mcp"


@pytest.mark.slow
def test_a_server_has_a_path(another):
    assert another("billing").path == "mcp/billing"
    assert another("sales", path="/mcp/selling/").path == "mcp/selling"
    assert another("root", path="").path == ""
    assert repr(server_named("sales")) == "<Server 'sales' at /mcp/selling>"


@pytest.fixture
def settings_module(tmp_path, monkeypatch, settings):
    """Makes the module of the project's settings, below a folder of the given name."""

    def made(folder, module):
        *packages, name = module.split(".")
        place = tmp_path / folder
        for package in packages:
            place = place / package
        place.mkdir(parents=True)
        for package in packages:
            (tmp_path / folder / package / "__init__.py").touch()
        (place / f"{name}.py").touch()
        monkeypatch.syspath_prepend(str(tmp_path / folder))
        settings.SETTINGS_MODULE = module

    return made


@pytest.mark.parametrize(
    ("folder", "module", "name"),
    [
        ("src", "bookshop.settings", "bookshop"),
        ("bakery", "config.settings", "bakery"),
        ("bakery", "core.settings", "bakery"),
        ("bakery", "settings", "bakery"),
        ("app", "conf.settings", "django"),
    ],
)
def test_default_server_is_called_as_the_project_or_its_folder(
    settings_module, folder, module, name
):
    settings_module(folder, module)
    assert mcp.server.public_name == name


@pytest.mark.parametrize("module", [None, "config.nowhere", "nowhere_at_all.settings"])
def test_default_server_has_a_name_where_no_settings_module_is_found(settings, module):
    settings.SETTINGS_MODULE = module
    assert mcp.server.public_name == ("nowhere_at_all" if module and "_" in module else "django")


def test_public_name_of_a_server_can_be_set(another):
    server = another("billing")
    assert server.public_name == "billing"
    server.public_name = "bills"
    assert (server.name, server.public_name) == ("billing", "bills")
    assert server_named("billing") is server_named("bills") is server


def test_a_name_counts_more_than_a_public_name(another):
    first, second = another("first"), another("second")
    first.public_name = "second"
    assert server_named("second") is second


def test_name_of_a_server_does_not_change(another):
    server = another("billing")
    with pytest.raises(AttributeError, match="public_name"):
        server.name = "bills"


@pytest.mark.slow
def test_a_name_is_one_servers(another):
    first = another("billing")
    with pytest.raises(AlreadyRegistered, match="billing"):
        Server("billing")
    assert server_named("billing") is first


@pytest.mark.slow
def test_the_name_of_a_server_that_is_gone_is_free(another):
    Server("passing")
    gc.collect()
    assert "passing" not in [server.name for server in servers()]
    assert another("passing") is server_named("passing")


def test_a_server_there_is_not():
    with pytest.raises(LookupError, match="'nowhere'; there are: tests"):
        server_named("nowhere")


@pytest.mark.slow
def test_two_servers_on_one_path(another):
    first, second = another("a", path="mcp/same"), another("b", path="mcp/same")
    first.tool(nothing)
    second.tool(nothing)
    message = only(second)
    assert message.id == "django_mcp.E004"
    assert repr(first) in message.msg and repr(second) in message.msg
    assert ids(first) == []


@pytest.mark.slow
def test_a_server_in_the_place_of_anothers_sse(another):
    first, second = another("a", path="x", sse=True), another("b", path="x/sse")
    for server in (first, second):
        server.tool(nothing)
    message = only(second)
    assert message.id == "django_mcp.E150" and "/x/sse" in message.msg
    assert repr(first) in message.msg and ids(first) == []
    first.sse = False
    second._forget()
    assert ids(second) == []


@pytest.mark.slow
def test_sse_is_on_or_off(another):
    server = another("a", sse="yes")
    server.tool(nothing)
    assert only(server).id == "django_mcp.E151"


@pytest.mark.slow
def test_icons_of_a_server(another):
    server = another("a", icons=[mcp.Icon("ftp://x"), mcp.Icon("data:image/png;base64,AA==")])
    server.tool(nothing)
    assert only(server).id == "django_mcp.E005"


@pytest.mark.slow
@pytest.mark.parametrize(
    "extensions", [{"ui": {}}, {"io.example/ui": True}, {"io.example/ui": {"a": object()}}]
)
def test_extensions_of_a_server(another, extensions):
    server = another("a", extensions=extensions)
    server.tool(nothing)
    assert only(server).id == "django_mcp.E006"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["everybody", False, mcp.Tool])
def test_who_may_see_the_page_of_a_server(another, page):
    server = another("a", page=page)
    server.tool(nothing)
    assert only(server).id == "django_mcp.E008"
    server = another("b", page=None)
    server.tool(nothing)
    right(server)


def test_page_with_a_permission_that_does_not_exist_is_a_warning(another):
    server = another("a", page="shop.view_invoize")
    server.tool(nothing)
    assert only(server).id == "django_mcp.W155"


@pytest.mark.parametrize(
    ("name", "value"),
    [("title", 5), ("instructions", ["Be kind."]), ("durable", "yes"), ("icons", "a.png")],
)
def test_server_attribute_of_another_type_is_an_error(another, name, value):
    server = another("a", **{name: value})
    server.tool(nothing)
    assert "django_mcp.E153" in {message.id for message in server.check()}


@pytest.mark.parametrize(
    ("name", "hint"), [("instuctions", "'instructions'"), ("instructions", "constructor")]
)
def test_value_in_the_body_of_a_server_class_is_an_error(name, hint):
    server = type("Billing", (Server,), {name: "Be kind.", "_own": 1})("a")
    server.tool(nothing)
    message = only(server)
    assert message.id == "django_mcp.E154" and hint in message.hint


def test_public_name_of_another_server_is_an_error(another):
    first, second = another("first"), another("second")
    first.tool(nothing)
    second.tool(nothing)
    second.public_name = "first"
    assert ids(first) == [] and only(second).id == "django_mcp.E152"


@pytest.mark.slow
def test_what_presents_a_server(another):
    server = another("a", experimental={"x": {}}, extensions={"io.example/y": {"z": 1}})
    server.tool(nothing)
    right(server)
    assert server.experimental == {"x": {}} and server.extensions == {"io.example/y": {"z": 1}}
    assert server.version == "1.0" and server.instructions is None


# Declaring.


def test_the_same_function_may_be_several_things(server):
    server.tool(nothing)
    server.prompt(nothing)
    server.tool(name="again")(nothing)
    server.resource("a://x")(nothing)
    server.resource("b://x")(nothing)
    catalog = right(server)
    assert list(catalog.tools) == ["nothing", "again"]
    assert list(catalog.prompts) == ["nothing"]
    assert list(catalog.resources) == ["a://x", "b://x"]


def test_the_same_thing_twice(server):
    server.tool(nothing)
    with pytest.raises(AlreadyRegistered, match="nothing is already registered on"):
        server.tool(title="another title")(nothing)
    server.resource("a://x")(nothing)
    with pytest.raises(AlreadyRegistered):
        server.resource("a://x", title="another title")(nothing)


def test_a_class_is_registered_bare_or_called(server):
    assert server.register(Do) is Do

    @server.register()
    class Other(mcp.Tool):
        def handle(self, request) -> str:
            return "x"

    assert list(right(server).tools) == ["do", "other"]


def test_a_model_is_registered_by_a_decorator_or_a_statement(server):
    assert server.register(Customer, Rows) is Rows

    @server.register(Company)
    class Companies(Rows):
        pass

    assert issubclass(Companies, Rows)
    assert list(right(server).models) == [Customer, Company]


def test_several_models_are_registered_at_once(server):
    server.register(Customer, Company)(Rows)
    assert list(right(server).models) == [Customer, Company]


def test_a_class_twice(server):
    server.register(Do)
    server.register(Customer, Rows)
    server.register(Company, Rows)
    for things in ([Do], [Customer, Rows]):
        with pytest.raises(AlreadyRegistered):
            server.register(*things)
    with pytest.raises(AlreadyRegistered, match="Rows"):
        server.register(Customer)(Rows)


def test_a_registration_that_is_applied_twice(server):
    again = server.register(Customer)
    again(Rows)
    again(type("Others", (Rows,), {"uri": "x://{pk}"}))
    assert len(right(server).models[Customer]) == 2


# Resolving.


def test_an_empty_server_pays_nothing(server):
    assert server._is_empty and server.check() == [] and "_catalog" not in vars(server)


def test_it_is_resolved_once(server):
    server.tool(nothing)
    assert server.ready() is server._catalog is server.ready()
    with pytest.raises(ImproperlyConfigured, match="already being served"):
        server.tool(name="late")(nothing)
    with pytest.raises(ImproperlyConfigured, match="already being served"):
        server.register(Customer, Rows)


def test_a_test_may_have_it_resolved_again(server):
    server.tool(nothing)
    first = server._catalog
    server._forget()
    server.tool(name="late")(nothing)
    assert list(server._catalog.tools) == ["nothing", "late"] and list(first.tools) == ["nothing"]


def test_a_server_with_mistakes_does_not_start(server):
    server.tool(nonsense=1)(nothing)
    server.tool(name="a b")(nothing)
    with pytest.raises(Misdeclared) as refused:
        server.ready()
    assert [m.id for m in refused.value.messages] == ["django_mcp.E003", "django_mcp.E010"]
    assert "nonsense" in str(refused.value) and "a b" in str(refused.value)


@pytest.mark.slow
def test_what_is_declared_on_one_server_is_not_on_another(server, another):
    other = another("other")
    server.tool(nothing)
    other.register(Do)
    assert list(right(server).tools) == ["nothing"] and list(right(other).tools) == ["do"]
