"""JSON in a text column: what was kept comes back as it was, on every database."""

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
    def test_any_value_comes_back(self, value):
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
def test_what_a_column_of_json_would_refuse_or_change(value):
    made = Session.objects.create(digest="d", client_info=value)
    made.refresh_from_db()
    assert json.dumps(made.client_info) == json.dumps(value)


@pytest.mark.django_db
def test_nothing_is_null():

    made = Step.objects.create(call="c", digest="d", key="k")
    assert list(Step.objects.filter(value=None)) == list(Step.objects.filter(value__isnull=True))
    made.refresh_from_db()
    assert made.value is None and Step.objects.filter(value=None).exists()


@pytest.mark.django_db
def test_it_can_be_dumped_and_loaded():
    made = Session.objects.create(digest="d", client_info={"a": ["\0"]}, pending_changes=["x"])
    text = serializers.serialize("json", [made])
    (loaded,) = serializers.deserialize("json", text)
    assert loaded.object.client_info == {"a": ["\0"]} and loaded.object.pending_changes == ["x"]
