"""A Wagtail site: the file that startmcp writes works with all lines uncommented."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.declarations.server import Server
from django_mcp.management.starter_file import generate_starter_file
from django_mcp.testing import Client

from .packages import PACKAGES, is_installed

NEEDED = ("wagtail", "modelcluster", "taggit")
# A line of code that startmcp has commented out. Its other comments are prose.
COMMENTED_OUT = re.compile(
    r'^    # (?=(?:operations|readonly_fields|permission) = |def |    return |    "|\]$)', re.M
)


def uncommented(label: str) -> str:
    """Return the file of startmcp for an app, with every commented line of code uncommented."""
    config = apps.get_app_config(label)
    text = COMMENTED_OUT.sub("    ", generate_starter_file(config).text)
    return text.replace("from .", f"from {config.name}.").replace(
        "mcp.register(", "server.register("
    )


def register_starter_file(server: Server, *labels: str) -> Server:
    for label in labels:
        exec(compile(uncommented(label), f"{label}/mcp.py", "exec"), {"server": server})
    assert [str(message) for message in server.check() if message.is_serious()] == []
    return server


@pytest.fixture(autouse=True)
def _packages() -> None:
    absent = [PACKAGES[module] for module in NEEDED if not is_installed(module)]
    if absent:
        why = f"{', '.join(absent)} not installed: pip install -e '.[field-packages]'"
        (pytest.fail if os.environ.get("TESTS_REQUIRED") else pytest.skip)(why)


@pytest.fixture
def client(server: Server, admin: Any) -> Iterator[Client]:
    register_starter_file(server, "bakery")
    with Client(admin, server=server) as found:
        yield found


@pytest.mark.parametrize(
    "label",
    [
        "admin", "auth", "bakery", "contenttypes", "sessions", "taggit", "wagtailadmin",
        "wagtailcore", "wagtaildocs", "wagtailimages", "wagtailsearch", "wagtailusers",
    ],
)  # fmt: skip
def test_every_line_that_startmcp_comments_out_passes_the_checks(
    label: str, server: Server
) -> None:
    register_starter_file(server, label)
    assert server._catalog.models


def found(client: Client, model: str, **asked: Any) -> list[Any]:
    return list(client.call(f"search_{model}", **asked).data["results"])


@pytest.mark.django_db
def test_rows_are_created_read_searched_and_changed(client: Client) -> None:
    country = client.call("create_country", title="Aotearoa").data
    flour = client.call("create_ingredient", name="Flour").data
    body = [{"type": "heading", "value": "Rye", "id": "1"}]
    bread = client.call(
        "create_bread", title="Rye bread", introduction="<p>Dark.</p>", body=body,
        origin=country["_uri"],
    ).data  # fmt: skip
    assert bread["body"] == body and bread["_links"]["origin"] == country["_uri"]
    step = client.call("create_step", bread=bread["_uri"], text="Knead").data
    assert client.read(step["_uri"]).data == step
    assert [each["title"] for each in found(client, "bread", query="dark rye")] == ["Rye bread"]
    assert [each["text"] for each in found(client, "step", query="knead")] == ["Knead"]
    changed = client.call("update_ingredient", ingredient=flour["_uri"], name="Rye flour").data
    assert changed["name"] == "Rye flour" and client.read(flour["_uri"]).data == changed


@pytest.mark.django_db
def test_rows_are_limited_to_those_of_the_user(client: Client, admin: Any) -> None:
    """The first resource has the method that startmcp wrote for the rows of ``request.user``."""
    from .bakery.models import Country, Review

    other = get_user_model().objects.create(username="other")
    country = Country.objects.create(title="Aotearoa")
    for author in (admin, other):
        Review.objects.create(author=author, text=f"by {author.username}", subject=country)
    assert [each["text"] for each in found(client, "review", query="by")] == ["by admin"]


@pytest.mark.django_db
def test_pages_can_be_read_and_changed(client: Client) -> None:
    from wagtail.models import Locale, Page

    from .bakery.models import BreadPage

    Locale.objects.create(language_code="en")
    root = Page.add_root(title="Root", slug="root")
    body = [{"type": "heading", "value": "Rye", "id": "1"}]
    page = root.add_child(instance=BreadPage(title="Rye page", slug="rye", body=body))
    (shown,) = found(client, "breadpage", query="rye")
    assert shown["body"] == body and client.read(page).data == shown
    body = [{"type": "heading", "value": "Wheat", "id": "2"}]
    client.call("update_breadpage", breadpage=page, title="Wheat page", body=body)
    page.refresh_from_db()
    assert (page.title, page.body[0].value) == ("Wheat page", "Wheat")
    tools = {tool["name"]: tool["inputSchema"]["properties"] for tool in client.tools()}
    # The library maintains the columns of the tree, so clients cannot create or move pages.
    assert "create_breadpage" not in tools
    assert not {"path", "depth", "numchild"} & tools["update_breadpage"].keys()


TAGGED = {"fields": ["title", "ingredients", "tags", "steps"], "operations": ["create", "update"]}


@pytest.mark.django_db
def test_relations_and_tags_of_a_cluster_can_be_written(server: Server, admin: Any) -> None:
    """startmcp does not list them, but a project may."""

    from .bakery.models import Bread, Ingredient, Step

    for model in (Ingredient, Step):
        server.register(model, type("Other", (mcp.ModelResource,), {"fields": ["pk"]}))
    server.register(Bread, type("Breads", (mcp.ModelResource,), TAGGED))
    flour, salt = (Ingredient.objects.create(name=name) for name in ("Flour", "Salt"))
    with Client(admin, server=server) as client:
        both = [flour.pk, salt.pk]
        made = client.call("create_bread", title="Rye", ingredients=both, tags=["dark"]).data
        assert (made["ingredients"], made["tags"]) == (both, ["dark"])
        made = client.call("update_bread", bread=made["_uri"], ingredients=[salt.pk]).data
        assert (made["ingredients"], made["tags"]) == ([salt.pk], ["dark"])
        made = client.call("update_bread", bread=made["_uri"], tags=["old", "dark"]).data
        Step.objects.create(bread=Bread.objects.get(), text="Knead")
        made = client.read(made["_uri"]).data
        assert (made["tags"], made["steps"]) == (["dark", "old"], [Step.objects.get().pk])
        words = client.call("create_bread", title="Rye", tags=[""])
        assert words.is_error


@pytest.mark.django_db
def test_invalid_stream_field_blocks_are_refused(client: Client) -> None:
    from .bakery.models import Bread

    odd = [{"type": "script", "value": "x"}]
    assert client.call("create_bread", title="Rye", body=odd).is_error
    empty = [{"type": "heading", "value": ""}]
    assert client.call("create_bread", title="Rye", body=empty).is_error
    assert not Bread.objects.exists()


@pytest.mark.django_db
def test_number_of_queries_does_not_depend_on_the_number_of_rows(
    server: Server, admin: Any
) -> None:

    from .bakery.models import Bread, Ingredient

    listed = TAGGED | {"search_fields": ["title"], "operations": []}
    server.register(Bread, type("Breads", (mcp.ModelResource,), listed))
    flour = Ingredient.objects.create(name="Flour")
    with Client(admin, server=server) as client:
        counts = []
        for number in (1, 3):
            for _ in range(number):
                bread = Bread(title="Rye")
                bread.ingredients.set([flour])
                bread.save()
                bread.tags.add("dark")
                bread.save()
            with CaptureQueriesContext(
                connection,
            ) as queries:
                assert found(client, "bread")[0]["tags"] == ["dark"]
            counts.append(len(queries))
    assert counts[0] == counts[1]
