"""Serializers as JSON Schemas: what they accept, and what they write."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from django.core.validators import MinValueValidator, RegexValidator
from django.db import models
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer

from django_mcp.bridges.serializer_schemas import SerializerInput, anything, output_schema
from django_mcp.declarations.redaction import Redaction
from django_mcp.declarations.schemas import violations
from tests.shop.models import Badge, Company, Customer, Invoice, Note, Sample, Tag, Wearer


def serializer(**fields):
    return type("Made", (serializers.Serializer,), fields)()


def accepted(field):
    """The schema of what a field accepts."""
    return SerializerInput(serializer(x=field)).schema["properties"]["x"]


def written(field):
    return output_schema(serializer(x=field))["properties"]["x"]


class Colour(models.TextChoices):
    RED = "r", "Red"
    BLUE = "b", "Blue"


CASES = [
    (serializers.BooleanField(), {"type": "boolean"}),
    (serializers.CharField(), {"type": "string", "minLength": 1}),
    (
        serializers.CharField(max_length=5, min_length=2),
        {"type": "string", "maxLength": 5, "minLength": 2},
    ),
    (serializers.CharField(allow_null=True, allow_blank=True), {"type": ["string", "null"]}),
    (serializers.EmailField(), {"type": "string", "format": "email", "minLength": 1}),
    (serializers.URLField(), {"type": "string", "format": "uri", "minLength": 1}),
    (serializers.SlugField(), {"type": "string", "minLength": 1, "pattern": "^[-a-zA-Z0-9_]+$"}),
    (
        serializers.RegexField(r"^\d{3}$"),
        {"type": "string", "pattern": r"^\d{3}$", "minLength": 1},
    ),
    (
        serializers.CharField(
            allow_blank=True, validators=[RegexValidator("^a", inverse_match=True)]
        ),
        {"type": "string"},
    ),
    (serializers.UUIDField(), {"type": "string", "format": "uuid"}),
    (
        serializers.IntegerField(min_value=1, max_value=9),
        {"type": "integer", "minimum": 1, "maximum": 9},
    ),
    (
        serializers.IntegerField(validators=[MinValueValidator(3)]),
        {"type": "integer", "minimum": 3},
    ),
    (
        serializers.IntegerField(validators=[MinValueValidator(lambda: 4)]),
        {"type": "integer"},
    ),
    (serializers.FloatField(), {"type": "number"}),
    (
        serializers.DecimalField(5, 2, min_value=Decimal("0.5")),
        {"type": ["string", "number"], "pattern": r"^-?[0-9]+(\.[0-9]+)?$", "minimum": 0.5},
    ),
    (serializers.DateField(), {"type": "string", "format": "date"}),
    (serializers.DateTimeField(), {"type": "string", "format": "date-time"}),
    (
        serializers.DateField(input_formats=["%d.%m.%Y"]),
        {"type": "string", "description": "Format: %d.%m.%Y."},
    ),
    (serializers.TimeField(), {"type": "string", "description": "HH:MM or HH:MM:SS."}),
    (serializers.DurationField(), {"type": "string", "description": "[days] HH:MM:SS."}),
    (
        serializers.ChoiceField(Colour.choices, help_text="Which?"),
        {"type": "string", "enum": ["r", "b"], "description": "Which? r: Red; b: Blue"},
    ),
    (
        serializers.ChoiceField([1, 2], allow_null=True),
        {"type": ["integer", "null"], "enum": [1, 2, None]},
    ),
    (
        serializers.ChoiceField(["a"], allow_blank=True),
        {"type": "string", "enum": ["a", ""]},
    ),
    (
        serializers.ChoiceField([("Group", [("a", "A"), (2, "B")])]),
        {"type": ["string", "integer"], "enum": ["a", 2], "description": "a: A; 2: B"},
    ),
    (
        serializers.MultipleChoiceField(choices=["a", "b"], allow_empty=False),
        {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
    ),
    (
        serializers.ListField(child=serializers.IntegerField(), max_length=3),
        {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    ),
    (
        serializers.DictField(child=serializers.IntegerField(allow_null=True)),
        {"type": "object", "additionalProperties": {"type": ["integer", "null"]}},
    ),
    (serializers.JSONField(), anything()),
    (serializers.IntegerField(default=3), {"type": "integer", "default": 3}),
    (serializers.IntegerField(default=int), {"type": "integer"}),
    (serializers.IntegerField(label="How many"), {"type": "integer", "title": "How many"}),
]


@pytest.mark.parametrize(("field", "schema"), CASES)
def test_schema_of_what_a_field_accepts(field, schema):
    assert accepted(field) == schema


@pytest.mark.parametrize(
    "field",
    [
        serializers.SlugField(allow_blank=True),
        serializers.EmailField(allow_blank=True),
        serializers.URLField(allow_blank=True),
        serializers.RegexField(r"^\d{3}$", allow_blank=True),
        serializers.CharField(min_length=2, max_length=5, allow_blank=True),
        serializers.ChoiceField([1, 2], allow_blank=True),
    ],
)
def test_field_that_may_be_blank_accepts_an_empty_text(field):
    made = serializer(x=field)
    assert made.__class__(data={"x": ""}).is_valid()
    assert violations(SerializerInput(made).schema, {"x": ""}, formats=True) == []


def test_required_fields_and_those_that_nobody_may_write():
    made = serializer(
        a=serializers.CharField(),
        b=serializers.CharField(required=False),
        c=serializers.CharField(read_only=True),
        d=serializers.HiddenField(default=1),
        e=serializers.CharField(write_only=True),
    )
    whole, partial = SerializerInput(made).schema, SerializerInput(made, partial=True).schema
    assert list(whole["properties"]) == ["a", "b", "e"] == list(partial["properties"])
    assert whole["required"] == ["a", "e"] and "required" not in partial
    assert list(output_schema(made)["properties"]) == ["a", "b", "c", "d"][:3]


class Line(serializers.Serializer):
    price = serializers.IntegerField()


def test_nested_serializers_are_objects_and_arrays():
    one, several = accepted(Line()), accepted(Line(many=True, allow_empty=False))
    assert one == {
        "type": "object", "properties": {"price": {"type": "integer"}},
        "additionalProperties": False, "required": ["price"],
    }  # fmt: skip
    assert several == {"type": "array", "items": one, "minItems": 1}
    assert accepted(Line(allow_null=True))["type"] == ["object", "null"]


class Tree(serializers.Serializer):
    name = serializers.CharField()

    def get_fields(self):
        return super().get_fields() | {"children": Tree(many=True, required=False)}


def test_serializer_that_contains_itself_has_a_schema():
    assert len(json.dumps(SerializerInput(Tree()).schema)) < 5000
    assert len(json.dumps(output_schema(Tree()))) < 5000


class Lenient(Line):
    def to_internal_value(self, data):
        return data

    def to_representation(self, row):
        return "any"


def test_overridden_conversions_have_any_type():
    assert accepted(Lenient()) == anything()
    assert written(Lenient()) == anything()
    assert output_schema(Lenient()) == {"type": "object"}


class Base64File(serializers.FileField):
    def to_internal_value(self, data):
        return data


def test_files_are_left_out_unless_they_are_text():
    made = SerializerInput(
        serializer(
            a=serializers.FileField(), b=serializers.ImageField(required=False), c=Base64File()
        )
    )
    assert (list(made.schema["properties"]), made.files) == (["c"], ["a"])


def test_related_rows_are_keys_and_are_not_listed(django_assert_num_queries, db):
    with django_assert_num_queries(0):
        related = {
            "customer": serializers.PrimaryKeyRelatedField(queryset=Customer.objects.all()),
            "note": serializers.PrimaryKeyRelatedField(queryset=Note.objects.all()),
            "badge": serializers.SlugRelatedField("colour", queryset=Badge.objects.all()),
            "path": serializers.SlugRelatedField("company__name", queryset=Customer.objects.all()),
            "url": serializers.HyperlinkedRelatedField("x", queryset=Badge.objects.all()),
            "tags": serializers.PrimaryKeyRelatedField(queryset=Tag.objects.all(), many=True),
        }
        found = SerializerInput(serializer(**related)).schema["properties"]
    assert found["customer"] == {"type": "integer"}
    assert found["note"] == {"type": "string", "format": "uuid"}
    assert found["badge"] == {"type": "string"} == found["url"]
    assert found["path"] == anything()
    assert found["tags"] == {"type": "array", "items": {"type": "integer"}}


class Methods(serializers.Serializer):
    number = serializers.SerializerMethodField()
    perhaps = serializers.SerializerMethodField()
    unknown = serializers.SerializerMethodField()
    rows = serializers.SerializerMethodField()

    def get_number(self, row) -> int:
        return 1

    def get_perhaps(self, row) -> str | None:
        return None

    def get_unknown(self, row):
        return 1

    def get_rows(self, row) -> list[dict[str, int]]:
        return []


def test_annotations_of_method_fields_are_types():
    shown = output_schema(Methods())["properties"]
    assert shown["number"] == {"type": ["integer", "null"]}
    assert shown["perhaps"] == {"type": ["string", "null"]}
    assert shown["unknown"] == shown["rows"] == anything()


def test_secrets_are_found_in_nested_serializers():
    nested = type("Login", (serializers.Serializer,), {"password": serializers.CharField()})
    assert SerializerInput(serializer(login=nested())).secrets == ["password"]


def hinted(hint, **options):
    """Return a field with a hint of drf-spectacular."""
    attributes = {"_spectacular_annotation": {"field": hint}}
    return type("Hinted", (serializers.CharField,), attributes)(**options)


@pytest.mark.parametrize("field", [
    serializers.CharField(write_only=True),
    serializers.CharField(style={"input_type": "password"}),
    serializers.CharField(write_only=True, allow_blank=True, allow_null=True),
    serializers.ListField(child=serializers.CharField(style={"input_type": "password"})),
    hinted({"type": "string"}, write_only=True),
    hinted({"type": "string", "format": "password"}),
    hinted({"type": "string", "writeOnly": True}),
])  # fmt: skip
def test_write_only_and_password_fields_are_not_stored(field):
    redaction = Redaction(SerializerInput(serializer(x=field, y=serializers.CharField())).schema)
    value = ["hunter2"] if isinstance(field, serializers.ListField) else "hunter2"
    assert "hunter2" not in repr(redaction.of({"x": value}))
    assert redaction.of({"y": "text"}) == {"y": "text"}


MODELS = [Badge, Company, Customer, Invoice, Note, Sample, Tag, Wearer]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("coerces", [True, False])
def test_what_model_serializers_write_fits_their_schema(db, settings, invoice, model, coerces):
    names = ("COERCE_DECIMAL_TO_STRING", "COERCE_BIGINT_TO_STRING")
    settings.REST_FRAMEWORK = dict.fromkeys(names, coerces)
    meta = type("Meta", (), {"model": model, "fields": "__all__", "depth": 0})
    deep = type("Meta", (), {"model": model, "fields": "__all__", "depth": 2})
    exclude = {"blob"} if model is Sample else set()
    rows = [*model.objects.all()] or [_row(model)]
    for one in (meta, deep):
        if exclude:
            one = type("Meta", (), {"model": model, "exclude": [*exclude]})
        made = type("Made", (serializers.ModelSerializer,), {"Meta": one})
        shown = json.loads(JSONRenderer().render(made(rows, many=True).data))
        schema = output_schema(made())
        assert [violations(schema, row, formats=False) for row in shown] == [[] for _ in shown]
        assert all("type" in prop for prop in schema["properties"].values())
        assert all("type" in prop for prop in SerializerInput(made()).schema["properties"].values())


def _row(model):
    if model is Wearer:
        Badge.objects.create(code="a", colour="red")
        return Wearer.objects.create(badge_id="red")
    if model is Sample:
        return Sample.objects.create(name="s", price=Decimal("1.5"), weight=1.5, rank=2)
    values = {Note: {"text": "t"}, Badge: {"code": "a"}, Tag: {"label": "t"}}
    return model.objects.create(**values[model])
