"""Queries whose SQL is compiled once: numbers of values, columns and rows."""

from __future__ import annotations

import pytest
from django.db import connection
from django.db.models.expressions import RawSQL
from django.test.utils import CaptureQueriesContext

from django_mcp.storage import compiled_queries
from django_mcp.storage.compiled_queries import MAX_VALUES, column_names, fetch, instance
from tests.shop.models import Note

pytestmark = pytest.mark.django_db


def by_text(texts):
    return Note.objects.filter(text__in=texts).values_list("text", "pk")


def notes(number):
    Note.objects.bulk_create(Note(text=f"note {n}") for n in range(number))
    return [f"note {n}" for n in range(number)]


@pytest.mark.parametrize("number", [1, 2, 3, 5, MAX_VALUES, MAX_VALUES + 1, 2 * MAX_VALUES + 3])
def test_rows_of_all_values_are_found(number):
    texts = notes(number)
    with CaptureQueriesContext(connection) as queries:
        found = fetch("default", by_text, [*texts[:-1], "unknown"])
    pks = dict(Note.objects.values_list("text", "pk"))
    assert [row and list(row) for row in found] == [[pks[text]] for text in texts[:-1]] + [None]
    assert len(queries) == -(-number // MAX_VALUES)


def test_no_value_takes_no_query(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert fetch("default", by_text, []) == []


def test_value_is_a_parameter_and_not_part_of_the_sql():
    texts = ["' OR 1=1 --", *compiled_queries.PLACEHOLDERS[:2]]
    Note.objects.bulk_create(Note(text=text) for text in (*texts, "another"))
    found = fetch("default", by_text, texts)
    assert len(found) == 3 and None not in found


def test_statement_is_compiled_once_for_each_number_of_values(monkeypatch):
    texts = notes(8)
    fetch("default", by_text, texts[:5])
    monkeypatch.setattr(compiled_queries, "_compile", None)
    for number in (5, 6, 7, 8):
        assert None not in fetch("default", by_text, texts[:number])


def test_statement_that_is_not_constant_is_compiled_each_time():
    texts, hidden = notes(2), ["note 0"]

    def visible(texts):
        return by_text(texts).exclude(text__in=hidden)

    for hidden[0] in ("note 0", "note 1"):
        found = fetch("default", visible, texts, is_constant=False)
        assert [row is None for row in found] == [text in hidden for text in texts]


def test_filter_that_no_row_can_meet_finds_nothing():
    def nothing(texts):
        return by_text(texts).filter(pk__in=[])

    assert fetch("default", nothing, notes(2)) == [None, None]


def test_parameter_that_is_a_list_is_kept():
    params = {"p0": ["a"], "p1": compiled_queries.PLACEHOLDERS[0]}
    statement = compiled_queries.Statement(None, "", params, (), is_constant=False)
    assert statement.parameters(["b"]) == {"p0": ["a"], "p1": "b"}


def test_percent_signs_in_the_sql_and_in_parameters_are_kept():
    notes(3)
    labelled = Note.objects.annotate(label=RawSQL("'%%s %%'", ()))

    def by_text_and_label(texts):
        found = labelled.filter(text__in=texts).exclude(text__endswith="%(p0)s")
        return found.values_list("text", "label")

    found = fetch("default", by_text_and_label, ["note 1", "%s"])
    assert found == [("%s %",), None]


def test_instance_has_the_values_of_its_row():
    note = Note.objects.create(text="a note")
    row = Note.objects.values_list(*column_names(Note)).get()
    found = instance(Note, "default", iter(row))
    assert found == note and found.text == "a note" and not found._state.adding
    assert instance(Note, "default", iter([None] * len(row))) is None
