"""Vector search on PostgreSQL with pgvector: the order of rows, and what no user may find out."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

import django_mcp as mcp
from django_mcp.declarations.fields.values import read_value
from django_mcp.declarations.model_tools import MAX_EMBEDDED_TEXT_LENGTH
from django_mcp.testing import Client

from .models import Note

pytestmark = pytest.mark.django_db
TEXTS = {"east": [1.0, 0.0], "north": [0.0, 1.0], "far": [9.0, 9.0], "short": [1.0]}


def embed(text: str) -> list[float]:
    return TEXTS[text]


class Notes(mcp.ModelResource):
    """The notes of a team, which is named as the user is."""

    permission = mcp.AUTHENTICATED
    fields = ["text", "kind"]
    filter_fields = ["kind"]
    vector_search = mcp.VectorSearch("embedding", embed=embed, distance="l2")

    def get_queryset(self, request: Any) -> Any:
        return super().get_queryset(request).filter(team=request.user.username)


@pytest.fixture
def red(db: None) -> Any:
    return User.objects.create(username="red")


@pytest.fixture
def declare(server: Any, red: Any, connect: Any) -> Any:
    """Return a function that declares the notes and returns a client of the red team."""

    def declared(**attributes: Any) -> Client:
        server.register(Note, type("Rows", (Notes,), attributes))
        assert [str(message) for message in server.check()] == []
        return connect(red)

    return declared


def add(text: str, x: float, y: float, **more: Any) -> Note:
    return Note.objects.create(text=text, embedding=[x, y], **more)


def found(client: Client, **arguments: Any) -> list[str]:
    result = client.call("find_similar_note", **arguments)
    assert not result.is_error, result.text
    return [row["text"] for row in result.data["results"]]


def refused(client: Client, **arguments: Any) -> str:
    result = client.call("find_similar_note", **arguments)
    assert result.is_error and not result.bugs
    return result.text


def test_rows_nearest_to_a_text_are_first(declare):
    client = declare()
    add("c", 0, 1)
    add("a", 1, 0.1)
    add("b", 1, 0.5)
    Note.objects.create(text="without a vector")
    assert found(client, query="east") == ["a", "b", "c"]
    assert found(client, query="east", limit=2) == ["a", "b"]
    assert found(client, query="north") == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("distance", "texts"),
    [
        ("l2", ["near", "long", "east"]),
        ("cosine", ["long", "near", "east"]),
        ("inner_product", ["east", "long", "near"]),
    ],
)
def test_distance_decides_the_order(declare, distance, texts):
    client = declare(vector_search=mcp.VectorSearch("embedding", embed, distance))
    add("near", 0.1, 1)
    add("long", 0.2, 3)
    add("east", 50, 4)
    assert found(client, query="north") == texts


def test_zero_vectors_are_last(declare):
    client = declare(vector_search=mcp.VectorSearch("embedding", embed))
    add("zero", 0, 0)
    add("a", -1, 0)
    assert found(client, query="east") == ["a", "zero"]


def test_rows_similar_to_a_row_do_not_contain_it(declare):
    client = declare()
    rows = [add("a", 1, 0), add("b", 1, 0.1), add("c", 0, 1)]
    assert found(client, similar_to=rows[0].pk) == ["b", "c"]
    assert found(client, similar_to=f"model://fields/note/{rows[2].pk}") == ["b", "a"]


def test_distinct_queryset_can_be_searched(declare):
    client = declare(
        get_queryset=lambda self, request: Note.objects.filter(note__team="red").distinct()
    )
    row = add("a", 1, 0)
    for _ in range(3):
        add("b", 0, 1, similar_to=row)
    assert found(client, query="east") == ["a"]


def test_filters_select_rows(declare):
    client = declare()
    add("a", 1, 0, kind="plain")
    add("b", 0, 1, kind="draft")
    assert found(client, query="east", kind="draft") == ["b"]


def test_definition_of_the_tool(declare):
    (tool,) = [each for each in declare().tools() if each["name"] == "find_similar_note"]
    assert tool["annotations"]["readOnlyHint"] is True
    schema = tool["inputSchema"]
    assert [*schema["properties"]] == ["query", "similar_to", "kind", "limit"]
    assert schema["properties"]["limit"]["maximum"] == 100 and "required" not in schema


def test_without_embed_only_rows_can_be_named(declare):
    client = declare(vector_search=mcp.VectorSearch("embedding"))
    (tool,) = [each for each in client.tools() if each["name"] == "find_similar_note"]
    assert tool["inputSchema"]["required"] == ["similar_to"]
    assert "query" not in tool["inputSchema"]["properties"]
    assert "query" in refused(client, query="east")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Give either query or similar_to"),
        ({"query": "east", "similar_to": 1}, "Give either query or similar_to"),
        ({"query": ""}, "1 to 1000 characters"),
        ({"query": "x" * (MAX_EMBEDDED_TEXT_LENGTH + 1)}, "1 to 1000 characters"),
        ({"query": [1.0, 0.0]}, "query"),
        ({"query": "east", "limit": 101}, "limit"),
        ({"query": "east", "text": "a"}, "text"),
        ({"query": "east", "embedding": [1, 0]}, "embedding"),
    ],
)
def test_wrong_arguments_are_errors_of_the_client(declare, arguments, message):
    assert message in refused(declare(), **arguments)


def test_row_without_a_vector_cannot_be_compared(declare):
    row = Note.objects.create(text="x")
    assert "has no vector" in refused(declare(), similar_to=row.pk)


# What a user may not see.


def test_rows_of_other_teams_are_not_found(declare):
    client = declare()
    hidden = add("hidden", 1, 0, team="blue")
    add("a", 0, 1)
    assert found(client, query="east") == ["a"]
    text = refused(client, similar_to=hidden.pk)
    assert text.replace(str(hidden.pk), "0") == refused(client, similar_to=0)


def test_nearer_rows_that_are_hidden_do_not_shorten_the_result(declare):
    """An HNSW index returns its nearest 40 rows, of which the condition then removes most."""
    client = declare()
    Note.objects.bulk_create(
        Note(text="hidden", team="blue", embedding=[1, index / 1000]) for index in range(300)
    )
    for index in range(5):
        add(f"{index}", 0, index + 1)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE fields_note")
        cursor.execute("SET LOCAL enable_seqscan = off")
        # The attack is possible: with the index, the same search finds nothing.
        cursor.execute(
            "SELECT text FROM fields_note WHERE team = 'red' ORDER BY embedding <-> '[1,0]' LIMIT 5"
        )
        assert cursor.fetchall() == []
    assert found(client, query="east", limit=5) == ["0", "1", "2", "3", "4"]


def test_object_permission_hides_rows_and_fills_the_result(declare):
    client = declare(has_object_permission=lambda self, request, obj, action: obj.kind != "draft")
    hidden = [add("draft", 1, index / 100, kind="draft") for index in range(60)]
    for index in range(3):
        add(f"{index}", 0, index + 1)
    assert found(client, query="east", limit=2) == ["0", "1"]
    assert "draft" not in refused(client, similar_to=hidden[0].pk)


def test_result_has_the_fields_and_no_vector_or_distance(declare):
    client = declare()
    note = add("a", 1, 0)
    (row,) = client.call("find_similar_note", query="east").data["results"]
    assert row == {"_uri": f"model://fields/note/{note.pk}", "text": "a", "kind": "plain"}


def test_number_of_queries_does_not_depend_on_the_number_of_rows(declare):
    client = declare()
    counts = []
    for _ in range(2):
        for index in range(10):
            add("a", 1, index)
        with CaptureQueriesContext(
            connection,
        ) as queries:
            assert found(client, query="east")
        counts.append(len([each for each in queries if "fields_note" in each["sql"]]))
    assert counts == [1, 1]


def test_tool_needs_the_permission_of_its_resource(declare):
    client = declare(permission="auth.add_user")
    names = [each["name"] for each in client.tools()]
    assert "find_similar_note" not in names


def test_wrong_vector_of_embed_is_an_internal_error(declare):
    client = declare()
    add("a", 1, 0)
    with pytest.raises(TypeError, match="embed returned a wrong vector. A vector must have 2"):
        client.call("find_similar_note", query="short")


# Checks.


@pytest.mark.parametrize(
    ("declared", "id", "message"),
    [
        (mcp.VectorSearch("missing"), "E280", "Note has no field 'missing'"),
        (mcp.VectorSearch("text"), "E280", "'text' is not a VectorField"),
        (mcp.VectorSearch("anything"), "E280", "'anything' has no dimensions"),
        (mcp.VectorSearch("embedding", distance="manhattan"), "E281", "'manhattan'"),
        (mcp.VectorSearch("embedding", embed=lambda: [1.0]), "E282", "embed"),
        (mcp.VectorSearch("embedding", embed="x"), "E282", "embed"),
    ],
)
def test_wrong_declaration_is_a_check_error(server, declared, id, message):
    server.register(Note, type("Rows", (Notes,), {"vector_search": declared}))
    (found,) = server.check()
    assert found.id == f"django_mcp.{id}" and message in found.msg and found.hint


def test_filter_with_the_name_of_an_argument_is_a_check_error(server):
    names = {"fields": ["similar_to"], "filter_fields": ["similar_to"]}
    server.register(Note, type("Rows", (Notes,), names))
    assert [message.id for message in server.check()] == ["django_mcp.E283"]


def test_embed_must_be_synchronous(server):
    async def slow(text: str) -> list[float]:
        return [1.0, 0.0]

    declared = mcp.VectorSearch("embedding", slow)
    server.register(Note, type("Rows", (Notes,), {"vector_search": declared}))
    assert [message.id for message in server.check()] == ["django_mcp.E282"]


def test_vector_cannot_be_filtered_or_ordered(server):
    rows = {"fields": ["embedding"], "filter_fields": ["embedding"], "ordering": ["embedding"]}
    server.register(Note, type("Rows", (Notes,), rows))
    assert {message.id for message in server.check()} == {"django_mcp.E061"}


@pytest.mark.parametrize("numbers", [[1.0], [1, 2, 3], [float("nan"), 1], [1e39, 1]])
def test_vector_that_the_column_cannot_hold_is_refused(numbers):
    with pytest.raises(ValueError, match="numbers"):
        read_value(Note._meta.get_field("embedding"), numbers)


def test_generic_tool_finds_similar_rows(server, red, connect):
    server.register(Note, Notes)
    mcp.register_models("fields", generic=True, server=server)
    assert [str(message) for message in server.check()] == []
    add("b", 0, 1)
    add("a", 1, 0)
    client = connect(red)
    assert "find_similar_rows" in [tool["name"] for tool in client.tools()]
    result = client.call("find_similar_rows", model="note", arguments={"query": "east"})
    assert [row["text"] for row in result.data["results"]] == ["a", "b"]
    result = client.call("find_similar_rows", model="nothing")
    assert "There is no model 'nothing' of which you may find similar rows." in result.text
