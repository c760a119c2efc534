"""System checks of ``register_admin``."""

from __future__ import annotations

import uuid

import pytest
from django import forms
from django.contrib import admin
from django.db import models
from django.test.utils import isolate_apps

import django_mcp as mcp
from django_mcp.exceptions import AlreadyRegistered
from tests.shop.models import Company, Customer, Invoice, Note, Sample

pytestmark = pytest.mark.urls("tests.bridges.admin_site.office")


@pytest.fixture
def problems(server):
    """Return a function that registers models of a site and returns the messages of the checks."""

    def found(site, models, **options):
        mcp.register_admin(site, models, server=server, **options)
        return {message.id.rpartition(".")[2]: message for message in server.check()}

    return found


@pytest.fixture
def site():
    """An admin site at the URLs of the site "office", where nothing is registered."""
    return admin.AdminSite(name="office")


def registered(site, model, **attributes):
    named = {"search_fields": ["pk"], "__module__": __name__}
    site.register(model, type("Admin", (admin.ModelAdmin,), named | attributes))
    return site


@pytest.mark.parametrize(
    ("arguments", "number", "words"),
    [
        (("office", [Note]), "E210", "is not an admin site"),
        ((None, []), "E212", "models is empty"),
        ((None, Note), "", ""),
        ((None, [Customer]), "E211", "shop.Customer is not registered"),
        ((None, ["Note"]), "E212", "'Note' is not a model"),
        ((None, [Note, Note]), "E217", "shop.Note is listed twice"),
    ],
)
def test_wrong_sites_and_models(problems, site, arguments, number, words):
    registered(site, Note)
    given, models = arguments
    found = problems(given or site, models)
    assert {one for one in found if one.startswith("E")} == {number} - {""}
    assert words in str(found.get(number, ""))
    assert all(message.hint for message in found.values())


def test_site_without_urls(problems):
    found = problems(registered(admin.AdminSite(name="nowhere"), Note), [Note])
    assert "have no URL" in found["E222"].msg and "'nowhere'" in found["E222"].hint


@pytest.mark.parametrize(
    ("options", "number", "hint"),
    [
        ({"operations": ["craete"]}, "E213", "create"),
        ({"operations": ["publish"]}, "E213", "There are: create, update, delete."),
        ({"actions": ["delete_selected"]}, "E224", 'operations=["delete"]'),
        ({"actions": ["mark_payd"]}, "E214", "mark_paid"),
    ],
)
def test_unknown_operations_and_actions(problems, site, options, number, hint):
    registered(site, Note, actions=["mark_paid"], mark_paid=lambda self, request, rows: None)
    assert hint in problems(site, [Note], **options)[number].hint


def test_admin_without_search_fields(problems, site):
    found = problems(registered(site, Note, search_fields=()), [Note])
    assert list(found) == ["W218"]


def test_name_of_a_tool_of_a_model_resource(problems, site, server):
    class Resource(mcp.ModelResource):
        fields = ["text"]
        operations = ["create"]

    registered(site, Note)
    server.register(Note, Resource)
    found = problems(site, [Note], operations=["create"])
    assert "'create_note' is also a tool of model resource note" in found["E215"].msg
    assert list(server._catalog.tools) == ["create_note"]


def test_prefix_tells_the_tools_apart(problems, site, server):
    class Resource(mcp.ModelResource):
        fields = ["text"]
        search_fields = ["text"]

    server.register(Note, Resource)
    assert problems(registered(site, Note), [Note], prefix="admin_") == {}
    names = ["search_note", "admin_search_note", "admin_read_note"]
    assert list(server._catalog.tools) == names


def test_registering_twice_raises(problems, site):
    problems(registered(site, Note), [Note])
    other = mcp.Server("another")
    mcp.register_admin(site, [Note], server=other)
    with pytest.raises(AlreadyRegistered, match="register_admin for Note"):
        mcp.register_admin(site, [Note], server=other)


def test_form_that_needs_a_real_user(problems, site, server, db):
    def get_form(self, request, obj=None, **kwargs):
        assert Company.objects.filter(members=request.user).exists()
        return admin.ModelAdmin.get_form(self, request, obj, **kwargs)

    registered(site, Customer, get_form=get_form, readonly_fields=["notes"])
    found = problems(site, [Customer], operations=["create"])
    assert list(found) == ["W219"] and "it queries the database" in found["W219"].msg
    schema = server._catalog.tools["create_customer"]._arguments.schema
    assert list(schema["properties"]) == ["company", "name", "email", "referred_by"]


def test_form_that_cannot_be_made(problems, site):
    class Form(forms.ModelForm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.fields["name"].choices = [*Company.objects.all()]

    found = problems(registered(site, Customer, form=Form), [Customer], operations=["update"])
    assert {*found} == {"W219", "E216"}


def test_filter_that_needs_rows(problems, site, server):
    class ByCompany(admin.SimpleListFilter):
        title, parameter_name = "company", "company"

        def lookups(self, request, model_admin):
            return [(company.pk, company.name) for company in Company.objects.all()]

    found = problems(registered(site, Customer, list_filter=[ByCompany, "email"]), [Customer])
    assert list(found) == ["W220"]
    properties = server._catalog.tools["search_customer"]._arguments.schema["properties"]
    assert "email" in properties and "company" not in properties


def test_required_secret(problems, site):
    class Form(forms.ModelForm):
        password = forms.CharField(widget=forms.PasswordInput)

    registered(site, Customer, form=Form, fields=["name", "password"])
    found = problems(site, [Customer], operations=["create", "update"])
    assert list(found) == ["E221"] and "'password'" in found["E221"].msg


def test_tools_name_the_admin_that_they_come_from(problems, site, server):
    problems(registered(site, Sample), [Sample])
    tool = server._catalog.tools["read_sample"]
    assert str(tool).startswith("tool read_sample (tests.bridges.admin_site.test_checks.Admin")
    assert tool._rule == "the admin site 'office' and Admin.has_view_or_change_permission"


@isolate_apps("tests.shop")
def test_unsupported_keys(problems, site):
    class Reading(models.Model):  # noqa: DJ008
        value = models.FloatField(primary_key=True)

        class Meta:
            app_label = "shop"

    assert [*problems(registered(site, Reading), [Reading])] == ["E223"]


@isolate_apps("tests.shop")
def test_generated_key_of_a_model_with_many_to_many(problems, site, server):
    class Parcel(models.Model):  # noqa: DJ008
        id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
        notes = models.ManyToManyField(Note)

        class Meta:
            app_label = "shop"

    class Label(models.Model):  # noqa: DJ008
        parcel = models.ForeignKey(Parcel, models.CASCADE)
        text = models.CharField(max_length=9)

        class Meta:
            app_label = "shop"

    inline = type("Labels", (admin.TabularInline,), {"model": Label, "__module__": __name__})
    registered(site, Parcel, inlines=[inline])
    assert problems(site, [Parcel], operations=["update"]) == {}
    tools = server._catalog.tools
    assert {"notes", "label_set"} <= {*tools["update_parcel"]._arguments.schema["properties"]}
    assert {"notes", "label_set"} <= {*tools["read_parcel"]._output.schema["properties"]}


@pytest.mark.parametrize("listed", [[Invoice], (Invoice,)])
def test_schema_has_no_rows(problems, site, server, listed, django_assert_num_queries, db):
    registered(site, Invoice, list_filter=["status", "customer", "tags", "issued"])
    with django_assert_num_queries(0):
        assert problems(site, listed, operations=["create", "update", "delete"]) == {}
    properties = server._catalog.tools["search_invoice"]._arguments.schema["properties"]
    assert properties["status"]["enum"] == ["draft", "open", "paid"]
    assert properties["customer"]["type"] == "integer"
    assert {"customer", "customer__isnull", "tags", "issued__gte", "issued__lt"} <= {*properties}
