"""The objects that a caller may use are those in the protocol's lists."""

import pytest

import django_mcp as mcp
from django_mcp.auth.principal import Principal, anonymous
from django_mcp.calls.listing import usable
from django_mcp.declarations.request import Request
from tests.client import Client

LISTS = {
    "tools": ("tools/list", "tools"),
    "resources": ("resources/list", "resources"),
    "templates": ("resources/templates/list", "resourceTemplates"),
    "prompts": ("prompts/list", "prompts"),
}


@pytest.fixture
def mixed(server):
    for permission in (mcp.PUBLIC, mcp.AUTHENTICATED, "auth.view_user"):
        name = str(getattr(permission, "value", "staff"))

        def function(request) -> str:
            return "done"

        server.tool(permission=permission, name=f"{name}_tool")(function)
        server.prompt(permission=permission, name=f"{name}_prompt")(function)
        server.resource(f"x://{name}", permission=permission, name=f"{name}_resource")(function)

        def template(request, key: str) -> str:
            return key

        server.resource(f"{name}://{{key}}", permission=permission, name=f"{name}_each")(template)
    return server


@pytest.mark.django_db
@pytest.mark.parametrize("who", ["nobody", "somebody", "superuser"])
def test_usable_objects_are_those_in_the_lists(mixed, who, django_user_model):
    make = {
        "nobody": lambda: None,
        "somebody": lambda: django_user_model.objects.create_user("alice"),
        "superuser": lambda: django_user_model.objects.create_superuser("root"),
    }
    user = make[who]()
    found = usable(Request(Principal(user) if user else anonymous(), mixed))
    with Client(user, server=mixed) as client:
        shown = {kind: client.all(*LISTS[kind]) for kind in LISTS}
    for kind, listed in shown.items():
        assert [one.name for one in getattr(found, kind)] == [one["name"] for one in listed]
        assert len(listed) == ["nobody", "somebody", "superuser"].index(who) + 1
