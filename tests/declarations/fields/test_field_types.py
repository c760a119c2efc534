"""Registration of field types: how they encode, decode and describe values, and their checks."""

from __future__ import annotations

import secrets
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import models
from django.test.utils import isolate_apps

import django_mcp as mcp
from django_mcp.checks import check_declarations
from django_mcp.declarations.fields import field_types
from django_mcp.declarations.fields.keyset import Keyset
from django_mcp.declarations.fields.search import Search, filters_of
from django_mcp.declarations.fields.values import field_schema, field_value, read_value
from django_mcp.declarations.fields.whitelist import FieldSet
from django_mcp.exceptions import Misdeclared


class Point(models.Field):
    """A field that Django does not know, with two numbers."""

    def get_internal_type(self) -> str:
        return "Point"


class WrappedTextField(models.TextField):
    """A column of text whose values are objects."""

    def to_python(self, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    def get_prep_value(self, value: Any) -> Any:
        return value[0] if isinstance(value, list) else value


class PointType(mcp.FieldType):
    schema = {"type": "array", "items": {"type": "number"}}

    def to_json(self, value: Any) -> Any:
        return [value.real, value.imag]

    def from_json(self, data: Any) -> Any:
        return complex(*data)


@pytest.fixture(autouse=True)
def restore_field_types(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget after the test which field types it registered."""
    monkeypatch.setattr(field_types, "_TYPES", dict(field_types._TYPES))
    field_types.conversion.cache_clear()
    yield
    field_types.conversion.cache_clear()


@pytest.fixture
def model() -> Any:
    with isolate_apps("tests.shop"):

        class Site(models.Model):
            at = Point(null=True)
            inner = type("Inner", (Point,), {})()
            place = WrappedTextField()

            class Meta:
                app_label = "shop"

            def __str__(self) -> str:
                return ""

        yield Site


def test_unknown_field_is_refused_by_name_until_a_type_is_registered(model):
    (problem,) = FieldSet(model, ["at"]).problems()
    assert problem.startswith("'at' is a Point, which cannot be written as JSON")
    mcp.register_field_type(Point)(PointType)
    assert FieldSet(model, ["at"]).problems() == []


def test_registered_type_reads_writes_and_describes_the_field(model):
    mcp.register_field_type(Point)(PointType)
    field = model._meta.get_field("at")
    assert field_value(field, 1 + 2j) == [1, 2] and field_value(field, None) is None
    assert read_value(field, [3, 4]) == 3 + 4j and read_value(field, None) is None
    numbers = {"items": {"type": "number"}}
    assert field_schema(field, True) == {"type": ["array", "null"], **numbers}
    assert field_schema(model._meta.get_field("inner"), False) == {"type": "array", **numbers}


def test_type_of_a_subclass_replaces_that_of_its_base(model):
    inner = model._meta.get_field("inner")
    mcp.register_field_type(Point)(PointType)
    mcp.register_field_type(type(inner))(type("Own", (PointType,), {}))
    assert type(field_types.field_type(inner)).__name__ == "Own"
    assert type(field_types.field_type(model._meta.get_field("at"))) is PointType


def test_type_without_from_json_is_read_only():
    assert not PointType(None).is_read_only
    assert type("Shown", (mcp.FieldType,), {"to_json": str})(None).is_read_only


def test_field_with_a_registered_type_cannot_be_a_filter(model):
    mcp.register_field_type(WrappedTextField)(PointType)
    assert "which has no filters" in Search(model, (), ["place"]).problems()[0]


def test_field_with_python_objects_is_encoded_by_get_prep_value(model):
    assert field_value(model._meta.get_field("place"), ["Wellington"]) == "Wellington"
    assert [each.name for each in filters_of(model, "place")] == ["place"]


def test_invalid_schema_of_a_type_is_refused(model):
    mcp.register_field_type(Point)(type("Odd", (PointType,), {"schema": {"type": "point"}}))
    (problem,) = FieldSet(model, ["at"]).problems()
    assert problem.startswith("'at': Odd.schema: The JSON Schema is not valid")


def test_registering_an_invalid_field_type_raises():
    with pytest.raises(TypeError, match="is not a subclass of mcp.FieldType"):
        mcp.register_field_type(Point)(object)
    with pytest.raises(TypeError, match="has no to_json"):
        mcp.register_field_type(Point)(type("Empty", (mcp.FieldType,), {}))
    with pytest.raises(TypeError, match="at least one field class"):
        mcp.register_field_type()
    with pytest.raises(TypeError, match="ForeignKey is shown as the key of its row"):
        mcp.register_field_type(models.ForeignKey)


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("shema", {"type": "array"}, "schema"),
        ("readonly", True, "is_read_only"),
        ("from_jsn", PointType.from_json, "from_json"),
        ("fromjson", PointType.from_json, "from_json"),
        ("from_json", None, "from_json"),
    ],
)
def test_unknown_attribute_of_a_field_type_raises(name, value, meant):
    def from_json(self, data: Any) -> Any:
        return data

    from_json.__name__ = name
    given = from_json if callable(value) else value
    made = type("Misspelled", (mcp.FieldType,), {"to_json": PointType.to_json, name: given})
    with pytest.raises(TypeError, match=f"Misspelled.{name}.*'{meant}'"):
        mcp.register_field_type(Point)(made)


def test_field_type_may_have_its_own_attributes_methods_and_mixins():
    class Rounded:
        digits = 2

    @mcp.register_field_type(Point)
    class Own(Rounded, PointType):
        digits = 3
        _unit = "m"
        is_read_only = True

        def rounded(self, value: Any) -> Any:
            return value


class Encrypted(models.TextField):
    """A text that is stored with a salt."""

    def get_prep_value(self, value: Any) -> Any:
        return f"{secrets.token_hex(4)}{value}"


def test_encrypted_field_is_not_searched_filtered_or_ordered():
    with isolate_apps("tests.shop"):

        class Vault(models.Model):
            text = Encrypted()

            class Meta:
                app_label = "shop"

            def __str__(self) -> str:
                return ""

    assert FieldSet(Vault, ["text"]).problems() == []
    searched, filtered = Search(Vault, ["text"], []), Search(Vault, [], ["text"])
    ordered = Keyset(Vault, ["text"])
    for part in (searched, filtered, ordered):
        (problem,) = part.problems()
        assert "'text' cannot be queried" in problem


def test_dotted_path_that_cannot_be_imported_is_a_check_error():
    mcp.register_field_type("tests.nowhere.Field")(PointType)
    mcp.register_field_type("tests.declarations.fields.test_field_types.PointType")(PointType)
    found = [message for message in check_declarations() if message.id == "django_mcp.E064"]
    assert len(found) == 2
    assert "No module named 'tests.nowhere'" in found[0].msg
    assert "is not a model field class" in found[1].msg


def test_server_does_not_start_with_a_dotted_path_that_cannot_be_imported(server):
    mcp.register_field_type("tests.nowhere.Field")(PointType)
    with pytest.raises(Misdeclared, match=r"tests\.nowhere"):
        server.ready()


def test_dotted_path_of_a_re_exported_class_registers_the_class():
    mcp.register_field_type("django.db.models.TextField")(PointType)
    assert isinstance(field_types.field_type(models.TextField()), PointType)
    assert isinstance(field_types.field_type(WrappedTextField()), PointType)
    assert [*field_types.registration_problems()] == []


@pytest.mark.parametrize("name", ["ForeignKey", "ManyToManyField", "OneToOneField"])
def test_relation_fields_cannot_have_a_field_type(name):
    with pytest.raises(TypeError, match="cannot have a field type"):
        mcp.register_field_type(getattr(models, name))
    mcp.register_field_type(f"django.db.models.{name}")(PointType)
    (message,) = field_types.registration_problems()
    assert "cannot have a field type" in message.msg


@pytest.mark.parametrize(("lower", "upper"), [(2, 1), (10, -10)])
def test_range_with_ends_in_the_wrong_order_is_refused(lower, upper):
    ranges = pytest.importorskip("django.contrib.postgres.fields")
    field = ranges.IntegerRangeField()
    with pytest.raises(ValueError, match="lower must not be above upper"):
        read_value(field, {"lower": lower, "upper": upper})
    assert read_value(field, {"lower": 1, "upper": 1}).lower == 1


def test_packages_of_field_classes_are_not_imported_for_projects_without_them():
    """They take time to import, and need libraries such as GDAL and psycopg."""
    packages = ("django.contrib.gis", "django.contrib.postgres", "pgvector", "taggit", "wagtail")
    code = (
        "import sys, django; django.setup()\n"
        "from django_mcp.declarations.fields.whitelist import FieldSet\n"
        "from tests.shop.models import Invoice\n"
        "assert FieldSet(Invoice, ['number', 'total']).problems() == []\n"
        f"print([name for name in sys.modules if name.startswith({packages})])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
