"""The server ``tables``: five tools find what the separate tools of the atlas find."""

import pytest

from django_mcp.testing import Client
from example_project.atlas.mcp import tables


@pytest.fixture
def client(atlas, alice):
    with Client(alice, server=tables) as client:
        yield client


def test_models_are_listed_and_described(client):
    models = {one["name"]: one for one in client.call("list_models").data["models"]}
    assert {"country", "city", "trip"} < models.keys()
    assert models["country"]["operations"] == ["search", "aggregate"]
    described = client.call("describe_model", model="country").data
    assert "capital" in described["fields"] and "continent" in str(described["arguments"])


def test_generic_search_finds_what_the_own_tool_finds(client, alice):
    arguments = {"query": "france"}
    found = client.call("search_rows", model="country", arguments=arguments).data
    with Client(alice) as other:
        assert found["results"] == other.call("search_country", **arguments).data["results"] != []
