"""JSON in text columns: every value is read as it was stored, on each database."""

import json

import pytest
from django.core import serializers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from django_mcp.models import Session, Step

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


class TestJSON(TestCase):
    databases = "__all__"

    @pytest.mark.slow
    @given(VALUES.filter(lambda value: value is not None))
    def test_stored_value_is_read_unchanged(self, value):
        made = Session.objects.create(digest="d", client_info=value)
        made.refresh_from_db()
        assert made.client_info == value
        assert json.dumps(made.client_info) == json.dumps(value)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "value",
    ["\0", "\ud800", "\U0001f600", 10**400, -0.0, 1.0, {"b": 1, "a": 2}, [], {}, "", 0, False,
     "x" * 100_000],
)  # fmt: skip
def test_value_that_a_json_column_would_refuse_or_change_is_unchanged(value):
    made = Session.objects.create(digest="d", client_info=value)
    made.refresh_from_db()
    assert json.dumps(made.client_info) == json.dumps(value)


@pytest.mark.django_db
def test_none_is_stored_as_null():

    made = Step.objects.create(call="c", digest="d", key="k")
    assert list(Step.objects.filter(value=None)) == list(Step.objects.filter(value__isnull=True))
    made.refresh_from_db()
    assert made.value is None and Step.objects.filter(value=None).exists()


@pytest.mark.django_db
def test_values_can_be_serialized_and_deserialized():
    made = Session.objects.create(digest="d", client_info={"a": ["\0"]}, pending_changes=["x"])
    text = serializers.serialize("json", [made])
    (loaded,) = serializers.deserialize("json", text)
    assert loaded.object.client_info == {"a": ["\0"]} and loaded.object.pending_changes == ["x"]
