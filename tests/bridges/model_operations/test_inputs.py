"""Values of columns: read as strictly as they are written, and told apart from what is there."""

import base64
import json
from decimal import Decimal

import pytest
from django.core.files.base import ContentFile
from django.core.files.storage import default_storage
from django.db import connection, models

import django_mcp as mcp
from django_mcp.bridges.model_arguments import UNCHANGED, TypeInput
from django_mcp.declarations.schemas import violations
from tests.declarations.world import right
from tests.shop.models import Invoice, Sample

from ..billing import declare

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
    right(server)
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
def test_a_value_of_each_kind(samples, name, given, shown):
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
def test_what_is_of_no_kind(samples, name, given):
    more = {} if name == "name" else {"name": "one"}
    assert name in samples.failure("create_sample", **more, **{name: given})
    assert not Sample.objects.exists()


def test_a_number_is_within_what_its_column_holds(samples):
    tool = samples.request("tools/list")["tools"][0]
    assert tool["inputSchema"]["properties"]["rank"] == {
        "type": "integer", "default": 0,
    }  # fmt: skip
    _, high = connection.ops.integer_field_range("IntegerField")
    words = samples.failure("create_sample", name="one", rank=high + 1)
    assert words.startswith(("rank: Ensure this value is less", "Invalid arguments. rank:"))


def test_a_long_list_is_told_what_is_wrong_with_it(bills, invoice):
    words = bills.failure("update_invoice", invoice=invoice.pk, tags=[1] * 200)
    assert words == "Invalid arguments. tags: this value is too long."


# JSON.


@pytest.mark.parametrize("given", [{"a": [1, None, {"b": True}]}, [1], "text", 5, 1.5, False, {}])
def test_any_json(bills, invoice, given):
    row = json.loads(bills.text("update_invoice", invoice=invoice.pk, metadata=given))
    assert row["metadata"] == given and type(row["metadata"]) is type(given)


def test_json_is_as_deep_as_every_database_keeps_it(bills, invoice):
    deep: object = 1
    for level in range(30):
        deep = {"a": deep} if level % 2 else [deep]
    bills.text("update_invoice", invoice=invoice.pk, metadata=deep)
    assert Invoice.objects.get().metadata == deep
    words = bills.failure("update_invoice", invoice=invoice.pk, metadata=[deep])
    assert words == "Invalid arguments. metadata: It has more than 30 levels."


def test_no_value_is_none(bills, invoice):
    assert "metadata" in bills.failure("update_invoice", invoice=invoice.pk, metadata=None)


# Bytes.


def test_bytes_are_base64():
    field = models.BinaryField(null=True, blank=True, editable=True)
    field.set_attributes_from_name("blob")
    argument, row = TypeInput("blob", field), Sample(blob=memoryview(b"hello"))
    assert argument.schema() == {
        "type": ["string", "null"], "contentEncoding": "base64",
    }  # fmt: skip
    assert argument.read(TEXT) == b"hello" and argument.read(None) is None
    assert argument.change(None, row, b"hello") is UNCHANGED
    assert argument.change(None, row, b"bye") == b"bye"
    assert argument.change(None, Sample(), None) is UNCHANGED
    with pytest.raises(ValueError, match="This is not base64"):
        argument.read("hello!")


# Files.


def test_a_file_is_stored(bills, media, invoice):
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
def test_a_path_is_no_name(bills, media, invoice, name):
    file = {"name": name, "data": TEXT}
    words = bills.failure("update_invoice", invoice=invoice.pk, attachment=file)
    assert words == "Invalid arguments. attachment: The name of a file must not be a path."
    assert not Invoice.objects.get().attachment and not [*media.rglob("*.txt")]


def test_a_file_is_taken_away(bills, invoice):
    bills.text("update_invoice", invoice=invoice.pk, attachment={"name": "a.txt", "data": TEXT})
    row = json.loads(bills.text("update_invoice", invoice=invoice.pk, attachment=None))
    assert row["attachment"] is None and not Invoice.objects.get().attachment


def test_a_file_is_bounded(bills, invoice, settings):
    settings.DJANGO_MCP = {**settings.DJANGO_MCP, "RESULT_SIZE": 4}
    words = bills.failure(
        "update_invoice", invoice=invoice.pk, attachment={"name": "a.txt", "data": TEXT}
    )
    assert words == "Invalid arguments. attachment: A file must have at most 4 bytes."


def test_a_row_that_is_not_saved_leaves_no_file(bills, media, server, invoice):
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


# What is shown fits what is taken.


def test_what_a_row_shows_it_takes(bills, invoice, server):
    """A client that sends back what it was shown changes nothing."""
    schema = server._catalog.tools["update_invoice"]._arguments.schema
    row = json.loads(bills.text("update_invoice", invoice=invoice.pk))
    same = {name: row[name] for name in schema["properties"] if name in row}
    given = {"invoice": row["_uri"]} | {name: same[name] for name in same if name != "attachment"}
    assert violations(schema, given) == [] and len(given) > 8
    assert json.loads(bills.text("update_invoice", **given)) == row
    assert Invoice.objects.get().total == Decimal("12.50")
