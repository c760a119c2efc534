"""Resources with a fixed URI or a URI template: definition, arguments and checks."""

from datetime import UTC, datetime
from typing import Annotated

import pytest

import django_mcp as mcp
from tests.shop.models import Customer

from .helpers import make_request, problem_ids, single_problem, valid_catalog


def hours(request) -> dict[str, str]:
    """When we are open."""
    return {"monday": "9-17"}


def policy(request, name: str) -> str:
    """Our policies."""
    return f"# {name}"


# Definition.


def test_definition_of_a_resource(server):
    modified = datetime(2026, 1, 2, tzinfo=UTC)
    server.resource(
        "shop://hours", title="Hours", mime_type="text/plain", size=10, last_modified=modified,
        audience=["user"], priority=1,
    )(hours)  # fmt: skip
    resource = valid_catalog(server).resources["shop://hours"]
    annotations = {"audience": ["user"], "priority": 1}
    assert resource._definition() == {
        "uri": "shop://hours", "name": "hours", "title": "Hours",
        "description": "When we are open.", "mimeType": "text/plain", "annotations": annotations,
    }  # fmt: skip
    assert resource._list_entry(make_request()) == resource._definition() | {
        "size": 10, "annotations": annotations | {"lastModified": "2026-01-02T00:00:00+00:00"},
    }  # fmt: skip
    assert resource._is_alike and not resource._is_template


def test_definition_of_a_resource_template(server):
    server.resource("policy://{name}")(policy)
    template = valid_catalog(server).templates["policy://{name}"]
    assert template._definition() == {
        "uriTemplate": "policy://{name}", "name": "policy", "description": "Our policies.",
    }  # fmt: skip
    assert template._is_template and template._match("policy://a%20b") == {"name": "a b"}
    assert template._match("policy://a/b") is None and template._match("policy://a") is not None
    assert template._values({"name": "a b"}) == {"name": "a b"}


def test_resource_matches_only_its_exact_uri(server):
    server.resource("shop://hours")(hours)
    resource = valid_catalog(server).resources["shop://hours"]
    assert resource._match("shop://hours") == {}
    assert resource._match("shop://hours/") is None and resource._match("SHOP://hours") is None


def test_size_and_last_modified_may_depend_on_the_user(server, alice):
    class Report(mcp.Resource):
        """A report."""

        uri = "shop://report"

        def read(self, request) -> str:
            return "x" * self.get_size(request)

        def get_size(self, request):
            return 5 if request.user.is_authenticated else None

        def get_last_modified(self, request):
            return datetime(2026, 1, 2, tzinfo=UTC)

    server.register(Report)
    resource = valid_catalog(server).resources["shop://report"]
    assert resource._list_entry(make_request(alice))["size"] == 5
    assert "size" not in resource._list_entry(make_request())
    assert resource._list_entry(make_request())["annotations"]["lastModified"].startswith("2026")
    assert "annotations" not in resource._definition() and not resource._is_alike
    assert resource._implementation(make_request(alice)) == "xxxxx"


def test_uri_of_a_template_can_be_subscribed_to(server):
    server.resource("policy://{name}")(policy)
    assert (
        valid_catalog(server).templates["policy://{name}"]._exists(make_request(), {"name": "a"})
        is True
    )


# URIs.


@pytest.mark.parametrize("uri", ["", "hours", "/hours", "{name}", "shop hours://", "SHOP://x", 7])
def test_invalid_uri_is_an_error(server, uri):
    server.resource(uri)(hours)
    assert single_problem(server).id == "django_mcp.E040"


@pytest.mark.parametrize("uri", ["shop://a b", "shop://ä", 'shop://"', "shop://%zz", "shop://a\n"])
def test_uri_with_invalid_characters_is_an_error(server, uri):
    server.resource(uri)(hours)
    assert single_problem(server).id == "django_mcp.E040"


@pytest.mark.parametrize("scheme", ["http", "https", "data", "javascript"])
def test_scheme_that_clients_fetch_themselves_is_a_warning(server, scheme):
    server.resource(f"{scheme}://x")(hours)
    message = single_problem(server)
    assert message.id == "django_mcp.W041" and repr(scheme) in message.msg
    assert list(server._catalog.resources) == [f"{scheme}://x"]


@pytest.mark.parametrize("scheme", ["file", "git", "ftp", "s3"])
def test_other_standard_schemes_are_valid(server, scheme):
    server.resource(f"{scheme}:///x")(hours)
    server.resource(f"{scheme}:///{{name}}")(policy)
    valid_catalog(server)


@pytest.mark.parametrize("scheme", ["shop", "git+ssh", "x-own.thing", "urn:a", "httpx"])
def test_custom_schemes_are_valid(server, scheme):
    server.resource(f"{scheme}://x")(hours)
    valid_catalog(server)


@pytest.mark.parametrize(
    "uri", ["shop://{", "shop://{}", "shop://{name", "shop://{a b}", "x://{!a}"]
)
def test_invalid_uri_template_is_an_error(server, uri):
    server.resource(uri)(policy)
    assert single_problem(server).id == "django_mcp.E042"


# Arguments.


def test_argument_without_a_type_is_an_error(server):
    server.resource("policy://{name}", name="a")(lambda request, name: "x")
    assert single_problem(server).id == "django_mcp.E043"


def test_class_without_read_is_an_error(server):
    server.register(type("Idle", (mcp.Resource,), {"uri": "x://y"}))
    assert single_problem(server).id == "django_mcp.E043"
    with pytest.raises(NotImplementedError):
        mcp.Resource().read(make_request())


def test_argument_that_is_no_variable_of_the_uri_is_an_error(server):
    server.resource("policy://all")(policy)
    message = single_problem(server)
    assert message.id == "django_mcp.E044" and message.msg.startswith(
        "The argument name is not a variable"
    )


def test_variable_of_the_uri_that_is_no_argument_is_an_error(server):
    server.resource("policy://{name}/{part}")(policy)
    message = single_problem(server)
    assert message.id == "django_mcp.E045" and "{part}" in message.msg


def test_argument_with_a_default_may_be_missing_in_the_uri(server):
    @server.resource("policy://{name}")
    def read(request, name: str, language: str = "en") -> str:
        return language

    valid_catalog(server)


def test_uri_variables_are_read_bound_and_completed(server):
    class Rows(mcp.ModelResource):
        fields = ["name"]

    @server.resource("note://{customer}/{page}")
    def read(request, customer: Customer, page: Annotated[int, mcp.Complete(["1", "2"])]) -> str:
        return "x"

    server.register(Customer, Rows)
    template = valid_catalog(server).templates["note://{customer}/{page}"]
    found = template._values({"customer": "5", "page": "2"})
    assert found["page"] == 2 and str(found["customer"]) == "5" and template._arguments.binds
    assert set(template._completers) == {"customer", "page"}


def test_type_that_a_string_cannot_represent_is_an_error(server):
    @server.resource("x://{names}")
    def read(request, names: list[str]) -> str:
        return "x"

    assert problem_ids(server) == ["E018"]


# Caching and other options.


def test_shared_public_resource_is_valid(server):
    server.resource("x://a", shared=True, permission=mcp.PUBLIC, cache=60)(hours)
    valid_catalog(server)


@pytest.mark.parametrize("permission", [mcp.AUTHENTICATED, "shop.view_invoice"])
def test_shared_resource_that_is_not_public_is_an_error(server, permission):
    server.resource("x://a", shared=True, permission=permission)(hours)
    assert single_problem(server).id == "django_mcp.E046"


@pytest.mark.parametrize("cache", [-1, 1.5, "60", None, True])
def test_invalid_cache_time_is_an_error(server, cache):
    server.resource("x://a", cache=cache)(hours)
    assert single_problem(server).id == "django_mcp.E047"


@pytest.mark.parametrize("mime_type", ["markdown", "", "text/", "text/plain\n", "text/a b"])
def test_invalid_mime_type_is_an_error(server, mime_type):
    server.resource("x://a", mime_type=mime_type)(hours)
    assert single_problem(server).id == "django_mcp.E048"


@pytest.mark.parametrize(
    "wrong",
    [{"audience": ["robot"]}, {"audience": 5}, {"priority": 2}, {"priority": "high"}],
)
def test_invalid_annotation_is_an_error(server, wrong):
    server.resource("x://a", **wrong)(hours)
    assert single_problem(server).id == "django_mcp.E049"


@pytest.mark.parametrize("option", ["read_only", "template", "completers", "arguments", "kind"])
def test_unknown_option_is_an_error(server, option):
    server.resource("x://a", **{option: None})(hours)
    assert single_problem(server).id == "django_mcp.E003"
