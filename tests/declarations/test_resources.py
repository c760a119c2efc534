"""Resources: what a client may read, at one URI or those of a template."""

from datetime import UTC, datetime
from typing import Annotated

import pytest

import django_mcp as mcp
from tests.shop.models import Customer

from .world import asked, ids, only, right


def hours(request) -> dict[str, str]:
    """When we are open."""
    return {"monday": "9-17"}


def policy(request, name: str) -> str:
    """Our policies."""
    return f"# {name}"


# What lists show.


def test_a_resource(server):
    modified = datetime(2026, 1, 2, tzinfo=UTC)
    server.resource(
        "shop://hours", title="Hours", mime_type="text/plain", size=10, last_modified=modified,
        audience=["user"], priority=1,
    )(hours)  # fmt: skip
    resource = right(server).resources["shop://hours"]
    annotations = {"audience": ["user"], "priority": 1}
    assert resource._definition() == {
        "uri": "shop://hours", "name": "hours", "title": "Hours",
        "description": "When we are open.", "mimeType": "text/plain", "annotations": annotations,
    }  # fmt: skip
    assert resource._list_entry(asked()) == resource._definition() | {
        "size": 10, "annotations": annotations | {"lastModified": "2026-01-02T00:00:00+00:00"},
    }  # fmt: skip
    assert resource._is_alike and not resource._is_template


def test_a_template(server):
    server.resource("policy://{name}")(policy)
    template = right(server).templates["policy://{name}"]
    assert template._definition() == {
        "uriTemplate": "policy://{name}", "name": "policy", "description": "Our policies.",
    }  # fmt: skip
    assert template._is_template and template._match("policy://a%20b") == {"name": "a b"}
    assert template._match("policy://a/b") is None and template._match("policy://a") is not None
    assert template._values({"name": "a b"}) == {"name": "a b"}


def test_a_resource_is_at_its_uri_alone(server):
    server.resource("shop://hours")(hours)
    resource = right(server).resources["shop://hours"]
    assert resource._match("shop://hours") == {}
    assert resource._match("shop://hours/") is None and resource._match("SHOP://hours") is None


def test_a_class_whose_size_depends_on_who_asks(server, alice):
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
    resource = right(server).resources["shop://report"]
    assert resource._list_entry(asked(alice))["size"] == 5
    assert "size" not in resource._list_entry(asked())
    assert resource._list_entry(asked())["annotations"]["lastModified"].startswith("2026")
    assert "annotations" not in resource._definition() and not resource._is_alike
    assert resource._implementation(asked(alice)) == "xxxxx"


def test_what_is_read_may_be_watched(server):
    server.resource("policy://{name}")(policy)
    assert right(server).templates["policy://{name}"]._is_there(asked(), {"name": "a"}) is True


# Addresses.


@pytest.mark.parametrize("uri", ["", "hours", "/hours", "{name}", "shop hours://", "SHOP://x", 7])
def test_what_is_no_uri(server, uri):
    server.resource(uri)(hours)
    assert only(server).id == "django_mcp.E040"


@pytest.mark.parametrize("uri", ["shop://a b", "shop://ä", 'shop://"', "shop://%zz", "shop://a\n"])
def test_characters_no_uri_has(server, uri):
    server.resource(uri)(hours)
    assert only(server).id == "django_mcp.E040"


@pytest.mark.parametrize("scheme", ["http", "https", "data", "javascript"])
def test_schemes_that_clients_may_fetch_themselves_are_warned_of(server, scheme):
    server.resource(f"{scheme}://x")(hours)
    message = only(server)
    assert message.id == "django_mcp.W041" and repr(scheme) in message.msg
    assert list(server._catalog.resources) == [f"{scheme}://x"]


@pytest.mark.parametrize("scheme", ["file", "git", "ftp", "s3"])
def test_any_other_scheme_can_be_declared(server, scheme):
    server.resource(f"{scheme}:///x")(hours)
    server.resource(f"{scheme}:///{{name}}")(policy)
    right(server)


@pytest.mark.parametrize("scheme", ["shop", "git+ssh", "x-own.thing", "urn:a", "httpx"])
def test_schemes_of_ones_own(server, scheme):
    server.resource(f"{scheme}://x")(hours)
    right(server)


@pytest.mark.parametrize(
    "uri", ["shop://{", "shop://{}", "shop://{name", "shop://{a b}", "x://{!a}"]
)
def test_what_is_no_template(server, uri):
    server.resource(uri)(policy)
    assert only(server).id == "django_mcp.E042"


# Arguments.


def test_arguments_without_a_type(server):
    server.resource("policy://{name}", name="a")(lambda request, name: "x")
    assert only(server).id == "django_mcp.E043"


def test_a_class_without_a_method(server):
    server.register(type("Idle", (mcp.Resource,), {"uri": "x://y"}))
    assert only(server).id == "django_mcp.E043"
    with pytest.raises(NotImplementedError):
        mcp.Resource().read(asked())


def test_what_is_no_variable(server):
    server.resource("policy://all")(policy)
    message = only(server)
    assert message.id == "django_mcp.E044" and message.msg.startswith(
        "The argument name is not a variable"
    )


def test_what_is_no_argument(server):
    server.resource("policy://{name}/{part}")(policy)
    message = only(server)
    assert message.id == "django_mcp.E045" and "{part}" in message.msg


def test_an_argument_with_a_default_need_not_be_a_variable(server):
    @server.resource("policy://{name}")
    def read(request, name: str, language: str = "en") -> str:
        return language

    right(server)


def test_arguments_are_read_bound_and_completed(server):
    class Rows(mcp.ModelResource):
        fields = ["name"]

    @server.resource("note://{customer}/{page}")
    def read(request, customer: Customer, page: Annotated[int, mcp.Complete(["1", "2"])]) -> str:
        return "x"

    server.register(Customer, Rows)
    template = right(server).templates["note://{customer}/{page}"]
    found = template._values({"customer": "5", "page": "2"})
    assert found["page"] == 2 and str(found["customer"]) == "5" and template._arguments.binds
    assert set(template._completers) == {"customer", "page"}


def test_what_no_string_can_be(server):
    @server.resource("x://{names}")
    def read(request, names: list[str]) -> str:
        return "x"

    assert ids(server) == ["E018"]


# Who may keep it, and what it is.


def test_what_is_shared_is_public(server):
    server.resource("x://a", shared=True, permission=mcp.PUBLIC, cache=60)(hours)
    right(server)


@pytest.mark.parametrize("permission", [mcp.AUTHENTICATED, "shop.view_invoice"])
def test_what_is_shared_and_not_public(server, permission):
    server.resource("x://a", shared=True, permission=permission)(hours)
    assert only(server).id == "django_mcp.E046"


@pytest.mark.parametrize("cache", [-1, 1.5, "60", None, True])
def test_times_that_are_none(server, cache):
    server.resource("x://a", cache=cache)(hours)
    assert only(server).id == "django_mcp.E047"


@pytest.mark.parametrize("mime_type", ["markdown", "", "text/", "text/plain\n", "text/a b"])
def test_media_types_that_are_none(server, mime_type):
    server.resource("x://a", mime_type=mime_type)(hours)
    assert only(server).id == "django_mcp.E048"


@pytest.mark.parametrize(
    "wrong",
    [{"audience": ["robot"]}, {"audience": 5}, {"priority": 2}, {"priority": "high"}],
)
def test_annotations_that_are_none(server, wrong):
    server.resource("x://a", **wrong)(hours)
    assert only(server).id == "django_mcp.E049"


@pytest.mark.parametrize("option", ["read_only", "template", "completers", "arguments", "kind"])
def test_options_that_are_none(server, option):
    server.resource("x://a", **{option: None})(hours)
    assert only(server).id == "django_mcp.E003"
