"""The table in docs/reference/fields.md: it states what works for each field class."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.db.models import Field

from django_mcp.declarations.fields.values import read_value

from .campaign import Trial
from .cases import CASES, Case
from .table import documented

CASES_OF_THIS_DATABASE = [case for case in CASES if case.is_of_this_database]


@pytest.fixture
def case(request: pytest.FixtureRequest) -> Case:
    """Return a case whose package is installed. Otherwise skip the test."""
    found: Case = request.param
    if found.why_absent:
        (pytest.fail if os.environ.get("TESTS_REQUIRED") else pytest.skip)(found.why_absent)
    return found


@pytest.mark.django_db
@pytest.mark.parametrize("case", CASES_OF_THIS_DATABASE, ids=lambda case: case.id, indirect=True)
def test_table_row_matches_the_results_of_the_field(case: Case, admin: Any, server: Any) -> None:
    row, documented_row = Trial(case, admin).run().row(case), documented().get(case.id, "")
    assert _on_this_database(documented_row) == _on_this_database(row)


def _on_this_database(row: str) -> str:
    """Return a table row, without the column for ordering on a database that is an exception."""
    cells = row.split(" | ")
    is_text = cells[3:4] == ["yes"]
    return " | ".join(
        [*cells[:5], *cells[6:]] if is_text and connection.vendor == "mysql" else cells
    )


def test_table_has_exactly_one_row_for_each_case() -> None:
    assert list(documented()) == [case.id for case in CASES]


@pytest.mark.parametrize("value", ["a text", ["a list"], 5, None, {"title": {"no": "text"}}])
def test_block_with_a_value_of_another_shape_is_invalid(value: Any) -> None:
    pytest.importorskip("wagtail")
    from wagtail.blocks import CharBlock, ListBlock, StructBlock
    from wagtail.fields import StreamField

    struct = StructBlock([("title", CharBlock()), ("words", ListBlock(CharBlock()))])
    field = StreamField([("card", struct)])
    with pytest.raises((ValueError, ValidationError)):
        read_value(field, [{"type": "card", "value": value}])


MODULES = [
    "django.db.models",
    "django.db.models.fields.proxy",
    "django.contrib.contenttypes.fields",
    "django.contrib.postgres.fields",
    "django.contrib.postgres.search",
]
NO_FIELDS = {"ContinuousRangeField", "Field", "ForeignObject", "RangeField", "SearchQueryField"}


@pytest.mark.parametrize("module", MODULES)
def test_every_field_class_of_django_has_a_case(module: str) -> None:
    if "postgres" in module:
        pytest.importorskip("psycopg")
    found = [one for one in vars(import_module(module)).values() if isinstance(one, type)]
    public = {
        one.__name__
        for one in found
        if issubclass(one, Field) and getattr(one, "system_check_removed_details", None) is None
    }
    tried = {case.name.partition("(")[0] for case in CASES}
    assert {name for name in public - NO_FIELDS - tried if not name.startswith("_")} == set()
