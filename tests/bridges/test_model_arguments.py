"""Values of columns, JSON, bytes and files as arguments of operations."""

import base64
import json
from datetime import date
from decimal import Decimal

import pytest
from django.core import validators
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection, models

import django_mcp as mcp
from django_mcp.bridges.model_arguments import UNCHANGED, FieldTypeArgument, limits
from django_mcp.declarations.schemas import violations
from tests.declarations.helpers import valid_catalog
from tests.shop.models import Invoice, Sample

from .billing import declare

TEXT = base64.b64encode(b"hello").decode()


@pytest.fixture
def samples(server, connect, alice):
    class Samples(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = [f.name for f in Sample._meta.fields if f.name not in ("blob", "place")]
        operations = ["create", "update"]
        operation_permissions = {"create": mcp.AUTHENTICATED, "update": mcp.AUTHENTICATED}

        def get_queryset(self, request):
            return Sample.objects.all()

    server.register(Sample, Samples)
    valid_catalog(server)
    return connect(alice, server=server)


@pytest.fixture
def media(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return tmp_path


@pytest.fixture
def bills(server, connect, alice, media):
    declare(server)
    return connect(alice, server=server)


VALUES = [
    ("nickname", "Bo", "Bo"),
    ("nickname", None, None),
    ("weight", 2, 2.0),
    ("weight", 2.5, 2.5),
    ("rank", -7, -7),
    ("price", "1.5", "1.500"),
    ("price", 1.5, "1.500"),
    ("price", 12, "12.000"),
    ("checked", True, True),
    ("day", "2026-02-28", "2026-02-28"),
    ("moment", "2026-02-28T12:00:00+02:00", "2026-02-28T10:00:00+00:00"),
    ("clock", "08:30:00", "08:30:00"),
    ("lasts", "P1DT02H00M00S", "P1DT02H00M00S"),
    ("lasts", "01:30:00", "P0DT01H30M00S"),
    ("token", "0b5ad1d2-5ce4-4c8d-9c3d-5fd6b6f9ea52", "0b5ad1d2-5ce4-4c8d-9c3d-5fd6b6f9ea52"),
    ("address", "2001:db8::1", "2001:db8::1"),
]


@pytest.mark.parametrize(("name", "given", "shown"), VALUES)
def test_value_of_each_column_type_is_saved(samples, name, given, shown):
    row = json.loads(samples.text("create_sample", name="one", **{name: given}))
    assert row[name] == shown
    again = json.loads(samples.text("update_sample", sample=row["id"], **{name: given}))
    assert again == row
    assert Sample.objects.count() == 1


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("weight", "2"),
        ("weight", True),
        ("rank", 2.5),
        ("rank", "2"),
        ("rank", True),
        ("rank", 2**64),
        ("rank", None),
        ("rank", 10**60),
        ("price", "1,5"),
        ("price", " 1.5"),
        ("price", "9" * 200),
        ("price", 1e300),
        ("price", "NaN"),
        ("checked", 1),
        ("checked", "true"),
        ("checked", None),
        ("day", "28.02.2026"),
        ("day", "2026-02-28T00:00:00"),
        ("day", 20260228),
        ("moment", "now"),
        ("moment", "0001-01-01T00:00:00+14:00"),
        ("clock", "25:00:00"),
        ("clock", "08:30:00+02:00"),
        ("lasts", "long"),
        ("token", "1234"),
        ("address", "localhost"),
        ("address", "1.2.3.4\0"),
        ("name", "a\0b"),
        ("name", "x" * 31),
        ("name", ""),
        ("name", None),
    ],
)
def test_value_of_another_type_or_out_of_range_is_refused(samples, name, given):
    more = {} if name == "name" else {"name": "one"}
    assert name in samples.failure("create_sample", **more, **{name: given})
    assert not Sample.objects.exists()


def test_number_beyond_the_range_of_its_column_is_refused(samples):
    tool = samples.request("tools/list")["tools"][0]
    assert tool["inputSchema"]["properties"]["rank"] == {
        "type": "integer", "default": 0,
    }  # fmt: skip
    _, high = connection.ops.integer_field_range("IntegerField")
    words = samples.failure("create_sample", name="one", rank=high + 1)
    assert words.startswith(("rank: Ensure this value is less", "Invalid arguments. rank:"))


def test_list_that_is_too_long_has_a_short_message(bills, invoice):
    words = bills.failure("update_invoice", invoice=invoice.pk, tags=[1] * 200)
    assert words == "Invalid arguments. tags: this value is too long."


# JSON.


@pytest.mark.parametrize("given", [{"a": [1, None, {"b": True}]}, [1], "text", 5, 1.5, False, {}])
def test_any_json_value_is_saved(bills, invoice, given):
    row = json.loads(bills.text("update_invoice", invoice=invoice.pk, metadata=given))
    assert row["metadata"] == given and type(row["metadata"]) is type(given)


def test_depth_of_json_is_limited(bills, invoice):
    deep: object = 1
    for level in range(30):
        deep = {"a": deep} if level % 2 else [deep]
    bills.text("update_invoice", invoice=invoice.pk, metadata=deep)
    assert Invoice.objects.get().metadata == deep
    words = bills.failure("update_invoice", invoice=invoice.pk, metadata=[deep])
    assert words == "Invalid arguments. metadata: The JSON has more than 30 nested levels."


def test_null_for_a_json_field_is_refused(bills, invoice):
    assert "metadata" in bills.failure("update_invoice", invoice=invoice.pk, metadata=None)


# Bytes.


def test_bytes_are_base64_and_compared_with_the_row():
    field = models.BinaryField(null=True, blank=True, editable=True)
    field.set_attributes_from_name("blob")
    argument, row = FieldTypeArgument("blob", field), Sample(blob=memoryview(b"hello"))
    assert argument.schema() == {
        "type": ["string", "null"], "contentEncoding": "base64",
    }  # fmt: skip
    assert argument.read(TEXT) == b"hello" and argument.read(None) is None
    assert argument.changed_value(None, row, b"hello") is UNCHANGED
    assert argument.changed_value(None, row, b"bye") == b"bye"
    assert argument.changed_value(None, Sample(), None) is UNCHANGED
    with pytest.raises(ValueError, match="This is not base64"):
        argument.read("hello!")


# Files.


def test_file_is_stored_and_can_be_read(bills, media, invoice):
    file = {"name": "a b.txt", "data": TEXT}
    row = json.loads(bills.text("update_invoice", invoice=invoice.pk, attachment=file))
    stored = Invoice.objects.get().attachment
    with stored.open() as file_:
        assert (stored.name, file_.read()) == ("invoices/a_b.txt", b"hello")
    assert row["attachment"] == {
        "name": "a_b.txt", "size": 5, "uri": f"model://shop/invoice/{invoice.pk}/attachment",
    }  # fmt: skip
    contents = bills.request("resources/read", uri=row["attachment"]["uri"])["contents"]
    assert contents[0]["text"] == "hello"


NAMES = ["c:\\windows\\a.txt", "/etc/a.txt", "..\\a.txt", "..", "a\nb", ""]


@pytest.mark.parametrize("name", NAMES)
def test_path_as_a_file_name_is_refused(bills, media, invoice, name):
    file = {"name": name, "data": TEXT}
    words = bills.failure("update_invoice", invoice=invoice.pk, attachment=file)
    assert words == "Invalid arguments. attachment: The name of a file must not be a path."
    assert not Invoice.objects.get().attachment and not [*media.rglob("*.txt")]


def test_null_removes_a_file(bills, invoice):
    bills.text("update_invoice", invoice=invoice.pk, attachment={"name": "a.txt", "data": TEXT})
    row = json.loads(bills.text("update_invoice", invoice=invoice.pk, attachment=None))
    assert row["attachment"] is None and not Invoice.objects.get().attachment


def test_size_of_a_file_is_limited(bills, invoice, settings):
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "RESULT_SIZE": 4}
    words = bills.failure(
        "update_invoice", invoice=invoice.pk, attachment={"name": "a.txt", "data": TEXT}
    )
    assert words == "Invalid arguments. attachment: A file must have at most 4 bytes."


def test_file_of_a_refused_change_is_deleted(bills, media, server, invoice):
    invoice.attachment.save("kept.txt", ContentFile(b"kept"))
    file = {"name": "a.txt", "data": TEXT}

    class Refused(type(server._catalog.models[Invoice][0])):
        def _permits(self, request, row, *operations):
            return row.attachment.name.endswith("kept.txt")

    server._catalog.models[Invoice][0].__class__ = Refused
    words = bills.failure("update_invoice", invoice=invoice.pk, attachment=file)
    assert words == "You may not change the invoice like this."
    assert [path.name for path in media.rglob("*.txt")] == ["kept.txt"]
    assert default_storage.exists(Invoice.objects.get().attachment.name)
    words = bills.failure("update_invoice", invoice=invoice.pk, attachment=file, total="1.234")
    assert words.startswith("total") and default_storage.exists("invoices/kept.txt")


# Round trip.


def test_values_of_a_row_are_accepted_as_arguments(bills, invoice, server):
    """Sending them back changes nothing."""
    schema = server._catalog.tools["update_invoice"]._arguments.schema
    row = json.loads(bills.text("update_invoice", invoice=invoice.pk))
    same = {name: row[name] for name in schema["properties"] if name in row}
    given = {"invoice": row["_uri"]} | {name: same[name] for name in same if name != "attachment"}
    assert violations(schema, given) == [] and len(given) > 8
    assert json.loads(bills.text("update_invoice", **given)) == row
    assert Invoice.objects.get().total == Decimal("12.50")


# Limits of validators.


def limited(*found, kind=models.TextField, **options):
    field = kind(validators=list(found), **options)
    field.set_attributes_from_name("made")
    return limits(field, "string" if kind in (models.TextField, models.CharField) else "number")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (limited(), {"minLength": 1}),
        (limited(blank=True), {}),
        (limited(validators.MinLengthValidator(3)), {"minLength": 3}),
        (limited(validators.MinLengthValidator(3), blank=True), {"minLength": 3}),
        (limited(validators.MaxLengthValidator(9), validators.MaxLengthValidator(7), blank=True),
         {"maxLength": 7}),
        (limited(kind=models.CharField, max_length=5, blank=True), {"maxLength": 5}),
        (limited(validators.RegexValidator("x"), blank=True), {}),
        (limited(validators.MinValueValidator(2), kind=models.FloatField), {"minimum": 2}),
        (limited(validators.MinValueValidator(2), validators.MinValueValidator(4),
                 kind=models.FloatField), {"minimum": 4}),
        (limited(validators.MaxValueValidator(Decimal("2.50")), kind=models.FloatField),
         {"maximum": 2.5}),
        (limited(validators.MaxValueValidator(Decimal("2.00")), kind=models.FloatField),
         {"maximum": 2}),
        (limited(validators.MinValueValidator(lambda: 5), kind=models.FloatField), {}),
        (limited(validators.MinValueValidator(date(2026, 1, 1)), blank=True), {}),
    ],
)  # fmt: skip
def test_limits_of_validators_are_in_the_schema(found, expected):
    assert found == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (models.IntegerField(), {}),
        (models.PositiveSmallIntegerField(), {"minimum": 0}),
        (models.PositiveIntegerField(validators=[validators.MinValueValidator(1)]), {"minimum": 1}),
        (models.SmallIntegerField(validators=[validators.MaxValueValidator(9)]), {"maximum": 9}),
    ],
)
def test_range_of_the_database_is_not_in_the_schema(field, expected):
    field.set_attributes_from_name("made")
    assert limits(field, "integer") == expected
