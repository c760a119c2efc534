"""Encoding of column values as JSON, and strict decoding of what clients send."""

import json
import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from django_mcp.declarations.fields.columns import COLUMN_TYPES, column_type, stored_field
from tests.shop.models import Invoice, LedgerLine, Sample, Warehouse, Wearer

time_zones = st.sampled_from(
    [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=9))]
)
VALUES = {
    "BigAutoField": st.integers(-(2**63), 2**63 - 1),
    "CharField": st.text(st.characters(exclude_categories=["Cs"])),
    "GenericIPAddressField": st.ip_addresses().map(str),
    "BooleanField": st.booleans(),
    "FloatField": st.floats(),
    "DecimalField": st.decimals(allow_nan=False, allow_infinity=False, places=5),
    "DateField": st.dates(),
    "DateTimeField": st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=time_zones),
    "TimeField": st.times(),
    "DurationField": st.timedeltas(),
    "UUIDField": st.uuids(),
}


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_encoded_value_is_decoded_to_the_same_value(name, data):
    kind, value = COLUMN_TYPES[name], data.draw(VALUES[name])
    encoded = json.loads(json.dumps(kind.encode(value), allow_nan=False))
    read = kind.read(encoded)
    assert read == value or (math.isnan(read) and math.isnan(value))
    if not isinstance(value, float):
        assert Draft202012Validator(kind.schema).is_valid(encoded)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@pytest.mark.parametrize("name", VALUES)
@given(value=json_values)
def test_arbitrary_json_is_decoded_or_raises_value_error(name, value):
    kind = COLUMN_TYPES[name]
    try:
        read = kind.read(value)
    except ValueError as error:
        assert kind.label in str(error) and len(str(error)) < 300
    else:
        assert kind.read(json.loads(json.dumps(kind.encode(read)))) == read or math.isnan(read)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BigAutoField", True),
        ("BigAutoField", 2**63),
        ("FloatField", "1.5"),
        ("DecimalField", "1" * 101),
        ("DecimalField", "1e500"),
        ("DecimalField", "sNaN"),
        ("TimeField", "10:00:00+02:00"),
        ("DurationField", "soon"),
        ("GenericIPAddressField", "localhost"),
        ("CharField", "\ud800"),
    ],
)
def test_value_of_another_type_or_out_of_range_is_refused(name, value):
    with pytest.raises(ValueError, match="is not"):
        COLUMN_TYPES[name].read(value)


def test_datetimes_follow_the_time_zone_settings():
    kind = COLUMN_TYPES["DateTimeField"]
    with override_settings(TIME_ZONE="Europe/Vienna"):
        assert kind.read("2024-07-01T12:00:00") == datetime(2024, 7, 1, 10, tzinfo=UTC)
        assert kind.read("2024-07-01") == datetime(2024, 6, 30, 22, tzinfo=UTC)
    with override_settings(TIME_ZONE="Europe/Vienna", USE_TZ=False):
        assert kind.read("2024-07-01T10:00:00Z") == datetime(2024, 7, 1, 12)
        assert kind.encode(datetime(2024, 7, 1, 12)) == "2024-07-01T10:00:00+00:00"


@pytest.mark.parametrize("moment", [datetime.min, datetime.max])
def test_smallest_and_largest_datetimes_can_be_encoded(moment):
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        for zone in (None, timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))):
            text = COLUMN_TYPES["DateTimeField"].encode(moment.replace(tzinfo=zone))
            assert datetime.fromisoformat(text).tzinfo is not None


def test_column_type_is_found_through_inheritance_and_foreign_keys():
    field = Warehouse._meta.pk
    assert stored_field(field).model._meta.model_name == "place"
    assert column_type(field) is COLUMN_TYPES["BigAutoField"]
    assert column_type(Wearer._meta.get_field("badge")) is COLUMN_TYPES["CharField"]
    assert column_type(LedgerLine._meta.get_field("company")) is COLUMN_TYPES["BigAutoField"]
    for model, name in ((Invoice, "metadata"), (Invoice, "attachment"), (Sample, "blob")):
        assert column_type(model._meta.get_field(name)) is None
