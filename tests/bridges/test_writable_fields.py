"""Fields that the tools for creating and updating rows accept, and checks of operations."""

import pytest
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.test.utils import isolate_apps

import django_mcp as mcp
from django_mcp.bridges import model_arguments
from tests.declarations.helpers import problem_ids, single_problem, valid_catalog
from tests.shop.models import (
    Badge,
    Company,
    Customer,
    Invoice,
    LedgerLine,
    LocalPlace,
    Note,
    Place,
    Sample,
    Warehouse,
    Wearer,
)

from .billing import declare


class Rows(mcp.ModelResource):
    operations = ["create", "update"]


class PlaceNames(mcp.ModelResource):
    fields = ["name"]


class BadgeCodes(mcp.ModelResource):
    fields = ["code"]


class CompanyNames(mcp.ModelResource):
    fields = ["name"]


PLAIN = {Place: PlaceNames, Badge: BadgeCodes, Company: CompanyNames}


def writable_fields(server, model, fields, **attributes):
    """Return the fields that the tools ``create`` and ``update`` accept."""
    kinds = PLAIN | {model: type("Written", (Rows,), {"fields": fields} | attributes)}
    for one, kind in kinds.items():
        server.register(one, kind)
    tools = valid_catalog(server).tools
    name = model._meta.model_name
    found = [tools[f"{verb}_{name}"]._arguments.schema for verb in ("create", "update")]
    return [set(schema["properties"]) - {name} for schema in found]


@pytest.mark.parametrize(
    ("model", "fields", "new", "old"),
    [
        (Place, ["id", "name", "city"], {"name", "city"}, {"name", "city"}),
        (LocalPlace, ["pk", "name"], {"name"}, {"name"}),
        (Note, ["id", "text", "written"], {"text"}, {"text"}),
        (Warehouse, ["place_ptr", "id", "name", "capacity"], *[{"name", "capacity"}] * 2),
        (Badge, ["pk", "colour"], {"pk", "colour"}, {"colour"}),
        (Badge, ["code", "pk", "colour"], {"code", "colour"}, {"colour"}),
        (Wearer, ["badge", "badge__code", "locker"], *[{"badge", "locker"}] * 2),
        (
            LedgerLine,
            ["pk", "company", "line", "text", "amount"],
            {"company", "line", "text", "amount"},
            {"text", "amount"},
        ),
        (Place, ["name", "warehouse", "wearer"], {"name"}, {"name"}),
    ],
)
def test_fields_of_new_and_existing_rows(server, model, fields, new, old):
    assert writable_fields(server, model, fields) == [new, old]


def test_read_only_field_is_not_accepted(server):
    assert (
        writable_fields(server, Place, ["name", "city"], readonly_fields=["city"]) == [{"name"}] * 2
    )


def test_reverse_relation_is_not_accepted(server):
    class Tagged(mcp.ModelResource):
        fields = ["label", "invoices"]
        operations = ["update"]

    server.register(Invoice.tags.rel.model, Tagged)
    schema = valid_catalog(server).tools["update_tag"]._arguments.schema
    assert set(schema["properties"]) == {"tag", "label"}


def make_model(**fields):
    """Create a model class that has no table."""
    meta = type("Meta", (), {"app_label": "shop", "managed": False})
    return type("Made", (models.Model,), {"__module__": __name__, "Meta": meta} | fields)


@pytest.fixture
def forget_models():
    """Remove models that a test creates."""
    from django.apps import apps

    before = dict(apps.all_models["shop"])
    yield
    apps.all_models["shop"].clear()
    apps.all_models["shop"].update(before)
    apps.clear_cache()


def test_automatic_generated_and_non_editable_columns_are_not_accepted(server, forget_models):
    model = make_model(
        first=models.TextField(),
        since=models.DateTimeField(auto_now_add=True),
        last=models.DateField(auto_now=True),
        path=models.FilePathField(path="/", blank=True),
        twice=models.GeneratedField(
            expression=models.F("first"), output_field=models.TextField(), db_persist=True
        ),
        bytes=models.BinaryField(default=b""),
        open=models.BinaryField(default=b"", editable=True),
    )
    names = ["id", "first", "since", "last", "path", "twice", "bytes", "open"]
    assert writable_fields(server, model, names) == [{"first", "open"}] * 2


def test_many_to_many_relation_with_a_through_model_is_not_accepted(server, forget_models):
    through = make_model(place=models.ForeignKey(Place, models.CASCADE, related_name="+"))
    model = type(
        "Other",
        (models.Model,),
        {
            "__module__": __name__,
            "Meta": type("Meta", (), {"app_label": "shop", "managed": False}),
            "name": models.TextField(),
            "places": models.ManyToManyField(Place, through=through, related_name="+"),
        },
    )
    through.add_to_class("other", models.ForeignKey(model, models.CASCADE, related_name="+"))
    assert writable_fields(server, model, ["name", "places"]) == [{"name"}] * 2


def test_read_only_pk_is_not_accepted_by_its_field_name(server):
    names = ["code", "pk", "colour"]
    assert writable_fields(server, Badge, names, readonly_fields=["pk"], save_model=print)[0] == {
        "colour"
    }


def test_columns_of_a_generic_foreign_key_are_not_accepted(server, forget_models):
    model = make_model(
        name=models.TextField(),
        content_type=models.ForeignKey(ContentType, models.CASCADE),
        object_id=models.PositiveIntegerField(),
        thing=GenericForeignKey(),
    )
    names = ["name", "content_type", "object_id"]
    assert writable_fields(server, model, names, get_initial=print) == [{"name"}] * 2


# Checks.


@pytest.mark.parametrize(
    ("attributes", "id"),
    [
        ({"operations": ["make"]}, "E135"),
        ({"operations": "create"}, "E060"),
        ({"operations": {"create": True}}, "E060"),
        ({"operations": [["create"]]}, "E060"),
        ({"operation_permissions": {"delete": mcp.AUTHENTICATED}}, "E136"),
        ({"operation_permissions": {"update": mcp.PUBLIC}}, "E137"),
        ({"operation_permissions": {"update": "nonsense"}}, "E137"),
        ({"operation_permissions": {"update": 5}}, "E137"),
        ({"readonly_fields": "city"}, "E060"),
        ({"readonly_fields": ["city"], "fields": ["name"]}, "E138"),
        ({"readonly_fields": ["name", "city"], "operations": ["update"]}, "E140"),
        ({"fields": ["city"], "operations": ["create"]}, "E141"),
    ],
)
def test_invalid_operation_options_are_errors(server, attributes, id):
    server.register(Place, type("Wrong", (Rows,), {"fields": ["name", "city"]} | attributes))
    assert single_problem(server).id == f"django_mcp.{id}"


def test_relation_to_an_unregistered_model_is_an_error(server):
    rows = {"fields": ["name", "company"], "operations": ["update"]}
    server.register(Customer, type("Rows", (Rows,), rows))
    message = single_problem(server)
    assert message.id == "django_mcp.E139" and "readonly_fields" in message.hint
    assert "update_customer: 'company' names rows, but shop.Company is not" in message.msg


def test_relation_to_a_model_with_several_resources_is_an_error(server):
    rows = {"fields": ["name", "company"], "operations": ["update"]}
    server.register(Customer, type("Rows", (Rows,), rows))
    server.register(Company, CompanyNames)
    server.register(Company, type("Again", (CompanyNames,), {"uri": "c://{pk}"}))
    assert problem_ids(server) == ["E139"]


@pytest.mark.parametrize("method", ["get_initial", "save_model"])
def test_required_field_may_be_omitted_if_the_project_sets_values(server, method):
    given = {"fields": ["city"], method: lambda self, *args: {}}
    server.register(Place, type("Rows", (Rows,), given))
    valid_catalog(server)


def test_non_editable_field_is_not_missing(server, forget_models):
    plain_name = models.CharField(max_length=9, editable=False)
    model = make_model(name=models.TextField(), plain_name=plain_name)
    assert writable_fields(server, model, ["name", "plain_name"]) == [{"name"}] * 2


def test_asynchronous_save_model_is_an_error(server):
    async def save_model(self, request, obj, created): ...

    declare(server, save_model=save_model)
    assert problem_ids(server) == ["E015"]


# Schemas.


def test_schema_of_columns_of_all_types(server):
    names = [f.name for f in Sample._meta.fields if f.name not in ("id", "blob")]
    writable_fields(server, Sample, names)
    properties = valid_catalog(server).tools["create_sample"]._arguments.schema["properties"]
    types = {name: prop.get("type", prop.get("anyOf")) for name, prop in properties.items()}
    assert types == {
        "name": "string",
        "nickname": ["string", "null"],
        "weight": ["number", "null"],
        "rank": "integer",
        "price": ["string", "number", "null"],
        "checked": "boolean",
        "day": ["string", "null"],
        "moment": ["string", "null"],
        "clock": ["string", "null"],
        "lasts": ["string", "null"],
        "token": ["string", "null"],
        "address": ["string", "null"],
        "place": ["integer", "string", "null"],
    }
    assert properties["name"] == {
        "type": "string", "minLength": 1, "maxLength": 30,
    }  # fmt: skip
    assert properties["lasts"]["format"] == "duration"
    assert properties["rank"]["default"] == 0 and properties["checked"]["default"] is False
    assert valid_catalog(server).tools["create_sample"]._arguments.schema["required"] == ["name"]
    update = valid_catalog(server).tools["update_sample"]._arguments.schema
    assert not [prop for prop in update["properties"].values() if "default" in prop]


@isolate_apps("tests.shop")
@pytest.mark.parametrize("sets_it", [False, True])
def test_blank_column_without_null_and_default_is_required(server, sets_it):
    class Setting(models.Model):
        count = models.IntegerField(blank=True)
        name = models.CharField(max_length=5, blank=True)
        day = models.DateField(blank=True, null=True)
        rank = models.IntegerField(blank=True, default=1)

        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

        if sets_it:

            def save(self, *args, **options):
                self.count = self.count or 1
                super().save(*args, **options)

    attributes = {
        "permission": "shop.view_place",
        "fields": ["count", "name", "day", "rank"],
        "search_fields": ["name"],
        "operation_permissions": dict.fromkeys(["create", "update"], "shop.change_place"),
    }
    server.register(Setting, type("Settings", (Rows,), attributes))
    schema = valid_catalog(server).tools["create_setting"]._arguments.schema
    assert schema.get("required", []) == ([] if sets_it else ["count"])


def test_schema_lists_choices(server):
    declare(server, readonly_fields=[])
    properties = valid_catalog(server).tools["update_invoice"]._arguments.schema["properties"]
    assert properties["status"]["enum"] == ["draft", "open", "paid"]
    assert "open: Awaiting payment" in properties["status"]["description"]
    assert properties["number"]["description"] == "Printed on the paper."
    assert properties["tags"] == {
        "type": "array", "maxItems": 100,
        "items": {"type": ["integer", "string"], "description": "Key or URI of the tag."},
    }  # fmt: skip


@isolate_apps("tests.shop", "django.contrib.contenttypes")
@pytest.mark.parametrize("shown", [["name"], ["name", "number"]])
def test_model_with_a_generic_relation_can_be_created(server, shown):
    class Page(models.Model):
        name = models.CharField(max_length=9)
        number = models.IntegerField(default=0)
        remarks = GenericRelation("shop.Remark", content_type_field="kind", object_id_field="about")

        class Meta:
            app_label = "shop"

        def __str__(self):
            return self.name

    class Remark(models.Model):
        kind = models.ForeignKey(ContentType, models.CASCADE)
        about = models.IntegerField()
        page = GenericForeignKey("kind", "about")

        class Meta:
            app_label = "shop"

        def __str__(self):
            return ""

    server.register(Page, type("Written", (Rows,), {"fields": shown}))
    # The model has no migration, so a warning says that its permissions do not exist.
    assert not [message for message in server.check() if message.is_serious()]
    schema = server._catalog.tools["create_page"]._arguments.schema
    assert set(schema["properties"]) == set(shown)


@isolate_apps("tests.shop")
@pytest.mark.parametrize("kind", [models.ForeignObject, type("Own", (models.ForeignObject,), {})])
def test_columns_of_a_foreign_object_are_not_accepted(kind):
    class Line(models.Model):
        one, two, text = models.IntegerField(), models.IntegerField(), models.TextField()
        target = kind(Place, models.CASCADE, from_fields=["one"], to_fields=["id"])

        class Meta:
            app_label = "shop"

        def __str__(self):
            return self.text

    resource = Rows()
    resource.model, resource.fields = Line, ["one", "two", "text"]
    assert [name for name, _ in model_arguments.writable_fields(resource)] == ["two", "text"]
