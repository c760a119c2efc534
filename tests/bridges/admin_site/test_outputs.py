"""The output schemas of the admin's tools: results of all kinds of fields and users fit them."""

from __future__ import annotations

import datetime
import logging
import uuid
from decimal import Decimal

import pytest
from django import forms
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.core.files.uploadedfile import SimpleUploadedFile
from jsonschema import Draft202012Validator

import django_mcp as mcp
from django_mcp.bridges.admin_pages import shows_secret
from django_mcp.protocol.revisions import REVISIONS
from tests.shop.models import Badge, Company, Customer, Invoice, Place, Sample, Tag, Wearer

from .office import office

pytestmark = [pytest.mark.urls("tests.bridges.admin_site.office"), pytest.mark.django_db]
WITH_OUTPUT = [name for name, facts in REVISIONS.items() if facts.structured_content]
WRITES = ["create", "update", "delete"]
READ_SAMPLE = {
    "name": "string", "checked": "boolean", "weight": "number", "rank": "integer",
    "price": "string", "moment": "string", "nickname": "string",
}  # fmt: skip


@pytest.fixture
def office_tools(server):
    models = [Badge, Company, Customer, Invoice, Sample, User, Wearer]
    mcp.register_admin(office, models, operations=WRITES, server=server)
    return server


@pytest.fixture(params=WITH_OUTPUT)
def checked(request, connect):
    """Return a function that calls a tool and returns its result, which must fit the schema."""

    def calls(user, server):
        client = connect(user, server=server, revision=request.param)
        listed = {tool["name"]: tool for tool in client.request("tools/list")["tools"]}

        def call(tool, **arguments):
            result = client.call(tool, **arguments)
            assert not result["isError"], result
            schema = listed[tool]["outputSchema"]
            Draft202012Validator.check_schema(schema)
            validator = Draft202012Validator(
                schema, format_checker=Draft202012Validator.FORMAT_CHECKER
            )
            validator.validate(result["structuredContent"])
            return result["structuredContent"]

        call.listed = listed
        return call

    return calls


@pytest.fixture
def root(db):
    return User.objects.create_superuser("root", password="x")


@pytest.fixture
def sample(db):
    return Sample.objects.create(
        name="One", moment=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        day=datetime.date(2026, 1, 2), clock=datetime.time(3, 4), price=Decimal("1.500"),
        lasts=datetime.timedelta(hours=1), token=uuid.UUID(int=7), checked=True,
        place=Place.objects.create(name="Here"), weight=1.5, address="10.0.0.1",
    )  # fmt: skip


@pytest.fixture
def full_invoice(invoice, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    invoice.attachment.save("bill.txt", SimpleUploadedFile("bill.txt", b"x"))
    invoice.tags.set([Tag.objects.create(label="new")])
    return invoice


def names(schema):
    return {*schema["properties"]}


def test_rows_of_all_types_of_fields_fit_the_schema(checked, office_tools, root, sample):
    call = checked(root, office_tools)
    Sample.objects.create(name="Empty")
    for row in (sample, Sample.objects.get(name="Empty")):
        assert {*call("read_sample", _key=row.pk)} == names(
            call.listed["read_sample"]["outputSchema"]
        )
    (row, _) = call("search_sample")["results"]
    schema = call.listed["search_sample"]["outputSchema"]["properties"]["results"]["items"]
    assert {*row} == names(schema)
    properties = call.listed["read_sample"]["outputSchema"]["properties"]
    types = {name: properties[name]["type"] for name in READ_SAMPLE}
    assert types == {name: [kind, "null"] for name, kind in READ_SAMPLE.items()}


def test_files_relations_and_methods_fit_the_schema(checked, office_tools, root, full_invoice):
    call = checked(root, office_tools)
    shown = call("read_invoice", _key=full_invoice.pk)
    assert shown["attachment"] == "bill.txt" and shown["tags"][0]["_text"] == "new"
    assert {*shown} == names(call.listed["read_invoice"]["outputSchema"])
    assert call("search_invoice")["count"] == 1
    company = call("read_company", _key=full_invoice.company_id)
    assert company["customers"][0]["name"] == "Carla"
    schema = call.listed["read_company"]["outputSchema"]["properties"]["customers"]["items"]
    assert {*company["customers"][0]} == names(schema)
    assert "password" not in str(call.listed["read_user"]["outputSchema"])
    assert call("read_user", _key=root.pk)["username"] == "root"


def test_rows_of_a_user_who_may_only_view_fit_the_schema(
    checked, office_tools, alice, full_invoice
):
    alice.is_staff = True
    alice.save()
    views = ["view_invoice", "view_company", "view_customer"]
    alice.user_permissions.set(Permission.objects.filter(codename__in=views))
    full_invoice.company.members.add(alice)
    call = checked(User.objects.get(pk=alice.pk), office_tools)
    Invoice.objects.filter(pk=full_invoice.pk).update(number="A-9")  # which she may not change
    shown = call("read_invoice", _key=full_invoice.pk)
    assert (shown["customer"], shown["tags"]) == ("Carla", ["new"])
    assert call("read_company", _key=full_invoice.company_id)["customers"][0]["name"] == "Carla"


def test_results_of_writes_fit_the_schema(checked, office_tools, root):
    call = checked(root, office_tools)
    key = call("create_badge", code="a/b", colour="red")["_key"]
    assert call("update_badge", _key=key, colour="blue")["messages"]
    shown = call("create_wearer", badge="blue", locker=Place.objects.create(name="Here").pk)
    assert call("read_wearer", _key=shown["_key"])["badge"]["_key"] == "blue"
    assert call("delete_wearer", _key=shown["_key"])["deleted"] == {"wearers": 1}


def test_field_that_the_form_declares_may_have_any_value(
    checked, server, monkeypatch, root, sample
):
    """A form may show another value than the column has, such as words in place of a number."""

    class Form(forms.ModelForm):
        rank = forms.CharField()
        tags = forms.CharField(required=False)

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.initial |= {"rank": "third", "tags": ["a", "b"]}

    site = admin.AdminSite(name="office")
    options = {"form": Form, "search_fields": ["name"], "__module__": __name__}
    site.register(Sample, type("Admin", (admin.ModelAdmin,), options))
    mcp.register_admin(site, [Sample], server=server)
    shown = checked(root, server)("read_sample", _key=sample.pk)
    assert (shown["rank"], shown["tags"]) == ("third", ["a", "b"])


def test_page_that_cannot_be_made_without_a_user_has_a_schema_of_its_key(
    checked, server, root, sample
):
    def get_form(self, request, obj=None, **options):
        assert User.objects.filter(pk=request.user.pk).exists()
        return admin.ModelAdmin.get_form(self, request, obj, **options)

    site = admin.AdminSite(name="office")
    options = {"get_form": get_form, "search_fields": ["name"], "__module__": __name__}
    site.register(Sample, type("Admin", (admin.ModelAdmin,), options))
    mcp.register_admin(site, [Sample], server=server)
    assert server.check() == []
    call = checked(root, server)
    assert names(call.listed["read_sample"]["outputSchema"]) == {"_key", "_text"}
    assert call("read_sample", _key=sample.pk)["name"] == "One"


def test_value_of_another_type_is_sent_and_logged_without_the_value(
    connect, server, root, sample, caplog
):
    """A form of one user may have other fields than that of the superuser for the schema."""

    class Form(forms.ModelForm):
        rank = forms.CharField()

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.initial["rank"] = "secret rank"

    def get_form(self, request, obj=None, **options):
        form = Form if request.user.pk else forms.ModelForm
        return admin.ModelAdmin.get_form(self, request, obj, **options | {"form": form})

    site = admin.AdminSite(name="office")
    options = {"get_form": get_form, "search_fields": ["name"], "__module__": __name__}
    site.register(Sample, type("Admin", (admin.ModelAdmin,), options))
    mcp.register_admin(site, [Sample], server=server)
    with caplog.at_level(logging.WARNING, "django_mcp.calls"):
        result = connect(root, server=server).call("read_sample", _key=sample.pk)
    assert result["structuredContent"]["rank"] == "secret rank"
    (message,) = [one.getMessage() for one in caplog.records]
    assert "tool=read_sample fields=rank" in message and "secret" not in message


def test_actions_have_no_output_schema(connect, server, root):
    mcp.register_admin(office, [Invoice], actions=["mark_paid"], server=server)
    listed = connect(root, server=server).request("tools/list")["tools"]
    (action,) = [tool for tool in listed if tool["name"] == "mark_paid_invoice"]
    assert "outputSchema" not in action


@pytest.mark.parametrize("verb", ["view", "change"])
def test_page_shows_no_field_that_looks_like_a_credential(
    connect, office_tools, alice, sample, verb
):
    """A user who may only view the row gets all fields as read-only ones."""
    alice.is_staff = True
    alice.save()
    alice.user_permissions.add(Permission.objects.get(codename=f"{verb}_sample"))
    client = connect(User.objects.get(pk=alice.pk), server=office_tools)
    shown = client.call("read_sample", _key=sample.pk)["structuredContent"]
    assert shown["name"] == "One" and "token" not in shown


@pytest.mark.parametrize(
    ("name", "field", "is_withheld"),
    [
        ("payment_token", forms.CharField(), True),
        ("code", forms.CharField(label="API key"), True),
        ("iban", None, True),
        ("token", forms.ModelChoiceField(User.objects.none()), True),
        ("total_tokens", forms.IntegerField(), False),
        ("token_valid", forms.BooleanField(), False),
        ("token", forms.ChoiceField(choices=[("a", "A")]), False),
        ("number", forms.CharField(label="Number"), False),
    ],
)
def test_names_and_labels_of_credentials(name, field, is_withheld):
    assert shows_secret(name, field) is is_withheld
