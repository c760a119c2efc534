"""Servers: names, paths, options, registration of declarations, and resolution of the catalog."""

import gc

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.urls import set_script_prefix

import django_mcp as mcp
from django_mcp.declarations.server import (
    Server,
    address,
    default_server,
    server_named,
    servers,
    sse_address,
)
from django_mcp.exceptions import AlreadyRegistered, Misdeclared
from tests.shop.models import Company, Customer

from .helpers import Do, Rows, nothing, problem_ids, single_problem, valid_catalog


@pytest.fixture
def make_server():
    """Return a function that creates servers, which are deleted after the test."""
    made = []
    yield lambda *args, **options: made.append(Server(*args, **options)) or made[-1]
    made.clear()
    gc.collect()


# Names, paths and options.


def test_default_server_is_the_first_server():
    assert servers()[0] is default_server is mcp.server
    assert default_server.name == "default" and default_server.path == "mcp"


@pytest.mark.slow
def test_path_of_a_server(make_server):
    assert make_server("billing").path == "mcp/billing"
    assert make_server("sales", path="/mcp/selling/").path == "mcp/selling"
    assert make_server("root", path="").path == ""
    assert repr(server_named("sales")) == "<Server 'sales' at /mcp/selling>"


@pytest.fixture
def settings_module(tmp_path, monkeypatch, settings):
    """Return a function that creates a settings module below a folder of the given name."""

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
def test_public_name_of_the_default_server_is_the_project_or_its_folder(
    settings_module, folder, module, name
):
    settings_module(folder, module)
    assert mcp.server.public_name == name


@pytest.mark.parametrize("module", [None, "config.nowhere", "nowhere_at_all.settings"])
def test_public_name_of_the_default_server_without_a_settings_module(settings, module):
    settings.SETTINGS_MODULE = module
    assert mcp.server.public_name == ("nowhere_at_all" if module and "_" in module else "django")


def test_public_name_of_a_server_can_be_set(make_server):
    server = make_server("billing")
    assert server.public_name == "billing"
    server.public_name = "bills"
    assert (server.name, server.public_name) == ("billing", "bills")
    assert server_named("billing") is server_named("bills") is server


def test_lookup_prefers_the_name_over_the_public_name(make_server):
    first, second = make_server("first"), make_server("second")
    first.public_name = "second"
    assert server_named("second") is second


def test_name_of_a_server_cannot_be_changed(make_server):
    server = make_server("billing")
    with pytest.raises(AttributeError, match="public_name"):
        server.name = "bills"


@pytest.mark.slow
def test_second_server_with_the_same_name_raises(make_server):
    first = make_server("billing")
    with pytest.raises(AlreadyRegistered, match="billing"):
        Server("billing")
    assert server_named("billing") is first


@pytest.mark.slow
def test_name_of_a_deleted_server_can_be_reused(make_server):
    Server("passing")
    gc.collect()
    assert "passing" not in [server.name for server in servers()]
    assert make_server("passing") is server_named("passing")


def test_unknown_server_name_raises():
    with pytest.raises(LookupError, match="'nowhere'; there are: tests"):
        server_named("nowhere")


@pytest.mark.slow
def test_two_servers_with_the_same_path_are_an_error(make_server):
    first, second = make_server("a", path="mcp/same"), make_server("b", path="mcp/same")
    first.tool(nothing)
    second.tool(nothing)
    message = single_problem(second)
    assert message.id == "django_mcp.E004"
    assert repr(first) in message.msg and repr(second) in message.msg
    assert problem_ids(first) == []


@pytest.mark.slow
def test_path_of_another_servers_sse_is_an_error(make_server):
    first, second = make_server("a", path="x", sse=True), make_server("b", path="x/sse")
    for server in (first, second):
        server.tool(nothing)
    message = single_problem(second)
    assert message.id == "django_mcp.E150" and "/x/sse" in message.msg
    assert repr(first) in message.msg and problem_ids(first) == []
    first.sse = False
    second._forget()
    assert problem_ids(second) == []


@pytest.mark.slow
def test_sse_must_be_a_bool(make_server):
    server = make_server("a", sse="yes")
    server.tool(nothing)
    assert single_problem(server).id == "django_mcp.E151"


@pytest.mark.slow
def test_invalid_icon_of_a_server_is_an_error(make_server):
    server = make_server("a", icons=[mcp.Icon("ftp://x"), mcp.Icon("data:image/png;base64,AA==")])
    server.tool(nothing)
    assert single_problem(server).id == "django_mcp.E005"


@pytest.mark.slow
@pytest.mark.parametrize(
    "extensions", [{"ui": {}}, {"io.example/ui": True}, {"io.example/ui": {"a": object()}}]
)
def test_invalid_extension_of_a_server_is_an_error(make_server, extensions):
    server = make_server("a", extensions=extensions)
    server.tool(nothing)
    assert single_problem(server).id == "django_mcp.E006"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["everybody", False, mcp.Tool])
def test_invalid_page_permission_is_an_error(make_server, page):
    server = make_server("a", page=page)
    server.tool(nothing)
    assert single_problem(server).id == "django_mcp.E008"
    server = make_server("b", page=None)
    server.tool(nothing)
    valid_catalog(server)


def test_unknown_page_permission_is_a_warning(make_server):
    server = make_server("a", page="shop.view_invoize")
    server.tool(nothing)
    assert single_problem(server).id == "django_mcp.W155"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("title", 5),
        ("instructions", ["Be kind."]),
        ("durable", "yes"),
        ("icons", "a.png"),
        ("audit", "no"),
    ],
)
def test_server_attribute_of_another_type_is_an_error(make_server, name, value):
    server = make_server("a", **{name: value})
    server.tool(nothing)
    assert "django_mcp.E153" in {message.id for message in server.check()}


@pytest.mark.parametrize(
    ("name", "hint"), [("instuctions", "'instructions'"), ("instructions", "constructor")]
)
def test_value_in_the_body_of_a_server_class_is_an_error(name, hint):
    server = type("Billing", (Server,), {name: "Be kind.", "_own": 1})("a")
    server.tool(nothing)
    message = single_problem(server)
    assert message.id == "django_mcp.E154" and hint in message.hint


def test_public_name_of_another_server_is_an_error(make_server):
    first, second = make_server("first"), make_server("second")
    first.tool(nothing)
    second.tool(nothing)
    second.public_name = "first"
    assert problem_ids(first) == [] and single_problem(second).id == "django_mcp.E152"


@pytest.mark.slow
def test_version_instructions_and_extensions_of_a_server(make_server):
    server = make_server("a", experimental={"x": {}}, extensions={"io.example/y": {"z": 1}})
    server.tool(nothing)
    valid_catalog(server)
    assert server.experimental == {"x": {}} and server.extensions == {"io.example/y": {"z": 1}}
    assert server.version == "1.0" and server.instructions is None


# Registration.


def test_function_may_be_registered_as_several_declarations(server):
    server.tool(nothing)
    server.prompt(nothing)
    server.tool(name="again")(nothing)
    server.resource("a://x")(nothing)
    server.resource("b://x")(nothing)
    catalog = valid_catalog(server)
    assert list(catalog.tools) == ["nothing", "again"]
    assert list(catalog.prompts) == ["nothing"]
    assert list(catalog.resources) == ["a://x", "b://x"]


def test_registering_the_same_function_twice_raises(server):
    server.tool(nothing)
    with pytest.raises(AlreadyRegistered, match="nothing is already registered on"):
        server.tool(title="another title")(nothing)
    server.resource("a://x")(nothing)
    with pytest.raises(AlreadyRegistered):
        server.resource("a://x", title="another title")(nothing)


def test_class_can_be_registered_with_and_without_a_call(server):
    assert server.register(Do) is Do

    @server.register()
    class Other(mcp.Tool):
        def handle(self, request) -> str:
            return "x"

    assert list(valid_catalog(server).tools) == ["do", "other"]


def test_model_can_be_registered_by_decorator_or_call(server):
    assert server.register(Customer, Rows) is Rows

    @server.register(Company)
    class Companies(Rows):
        pass

    assert issubclass(Companies, Rows)
    assert list(valid_catalog(server).models) == [Customer, Company]


def test_several_models_can_be_registered_at_once(server):
    server.register(Customer, Company)(Rows)
    assert list(valid_catalog(server).models) == [Customer, Company]


def test_registering_the_same_class_twice_raises(server):
    server.register(Do)
    server.register(Customer, Rows)
    server.register(Company, Rows)
    for things in ([Do], [Customer, Rows]):
        with pytest.raises(AlreadyRegistered):
            server.register(*things)
    with pytest.raises(AlreadyRegistered, match="Rows"):
        server.register(Customer)(Rows)


def test_registration_of_a_model_can_be_applied_to_several_classes(server):
    again = server.register(Customer)
    again(Rows)
    again(type("Others", (Rows,), {"uri": "x://{pk}"}))
    assert len(valid_catalog(server).models[Customer]) == 2


# Resolution of the catalog.


def test_empty_server_does_not_compute_a_catalog(server):
    assert server._is_empty and server.check() == [] and "_catalog" not in vars(server)


def test_catalog_is_computed_once_and_then_closed(server):
    server.tool(nothing)
    assert server.ready() is server._catalog is server.ready()
    with pytest.raises(ImproperlyConfigured, match="already being served"):
        server.tool(name="late")(nothing)
    with pytest.raises(ImproperlyConfigured, match="already being served"):
        server.register(Customer, Rows)


def test_catalog_can_be_computed_again_in_tests(server):
    server.tool(nothing)
    first = server._catalog
    server._forget()
    server.tool(name="late")(nothing)
    assert list(server._catalog.tools) == ["nothing", "late"] and list(first.tools) == ["nothing"]


def test_server_with_errors_does_not_start(server):
    server.tool(nonsense=1)(nothing)
    server.tool(name="a b")(nothing)
    with pytest.raises(Misdeclared) as refused:
        server.ready()
    assert [m.id for m in refused.value.messages] == ["django_mcp.E003", "django_mcp.E010"]
    assert "nonsense" in str(refused.value) and "a b" in str(refused.value)


@pytest.mark.slow
def test_declarations_of_servers_are_separate(server, make_server):
    other = make_server("other")
    server.tool(nothing)
    other.register(Do)
    assert list(valid_catalog(server).tools) == ["nothing"] and list(
        valid_catalog(other).tools
    ) == ["do"]


# Addresses.


@pytest.mark.parametrize(
    ("url", "prefix", "expected"),
    [
        ("https://shop.example", "/", "https://shop.example/mcp"),
        ("https://shop.example/", "/", "https://shop.example/mcp"),
        ("http://127.0.0.1:8000", "/below/", "http://127.0.0.1:8000/below/mcp"),
        ("https://shop.example", "/a b/", "https://shop.example/a%20b/mcp"),
    ],
)
def test_address_is_the_configured_origin_with_the_script_prefix(settings, url, prefix, expected):
    settings.DJANGO_MCP = {"URL": url}
    set_script_prefix(prefix)
    try:
        assert address(default_server) == expected
    finally:
        set_script_prefix("/")


def test_sse_address_exists_only_if_sse_is_enabled(monkeypatch, settings):
    settings.DJANGO_MCP = {"URL": "https://shop.example"}
    assert sse_address(default_server) is None
    monkeypatch.setattr(default_server, "sse", True)
    assert sse_address(default_server) == "https://shop.example/mcp/sse"
