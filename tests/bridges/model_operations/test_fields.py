"""Which fields of a model have an argument, for a new row and for one that is there."""

import pytest
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.test.utils import isolate_apps

import django_mcp as mcp
from django_mcp.bridges.model_arguments import fields_of
from tests.declarations.world import ids, only, right
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

from ..billing import declare


class Rows(mcp.ModelResource):
    operations = ["create", "update"]


class Place_(mcp.ModelResource):
    fields = ["name"]


class Badge_(mcp.ModelResource):
    fields = ["code"]


class Company_(mcp.ModelResource):
    fields = ["name"]


PLAIN = {Place: Place_, Badge: Badge_, Company: Company_}


def taken(server, model, fields, **attributes):
    """The arguments of ``create`` and ``update``."""
    kinds = PLAIN | {model: type("Written", (Rows,), {"fields": fields} | attributes)}
    for one, kind in kinds.items():
        server.register(one, kind)
    tools = right(server).tools
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
def test_what_may_be_written(server, model, fields, new, old):
    assert taken(server, model, fields) == [new, old]


def test_what_is_read_only_is_not(server):
    assert taken(server, Place, ["name", "city"], readonly_fields=["city"]) == [{"name"}] * 2


def test_reverse_relations_are_not_written(server):
    class Tagged(mcp.ModelResource):
        fields = ["label", "invoices"]
        operations = ["update"]

    server.register(Invoice.tags.rel.model, Tagged)
    schema = right(server).tools["update_tag"]._arguments.schema
    assert set(schema["properties"]) == {"tag", "label"}


def made(**fields):
    """A model that no database has."""
    meta = type("Meta", (), {"app_label": "shop", "managed": False})
    return type("Made", (models.Model,), {"__module__": __name__, "Meta": meta} | fields)


@pytest.fixture
def unknown():
    """Forgets the models of a test."""
    from django.apps import apps

    before = dict(apps.all_models["shop"])
    yield
    apps.all_models["shop"].clear()
    apps.all_models["shop"].update(before)
    apps.clear_cache()


def test_columns_that_fill_themselves_are_not_written(server, unknown):
    model = made(
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
    assert taken(server, model, names) == [{"first", "open"}] * 2


def test_links_with_a_model_of_their_own_are_not_written(server, unknown):
    through = made(place=models.ForeignKey(Place, models.CASCADE, related_name="+"))
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
    assert taken(server, model, ["name", "places"]) == [{"name"}] * 2


def test_a_field_that_is_read_only_is_so_by_all_its_names(server):
    names = ["code", "pk", "colour"]
    assert taken(server, Badge, names, readonly_fields=["pk"], save_model=print)[0] == {"colour"}


def test_what_a_generic_relation_is_made_of_is_not_written(server, unknown):
    model = made(
        name=models.TextField(),
        content_type=models.ForeignKey(ContentType, models.CASCADE),
        object_id=models.PositiveIntegerField(),
        thing=GenericForeignKey(),
    )
    names = ["name", "content_type", "object_id"]
    assert taken(server, model, names, get_initial=print) == [{"name"}] * 2


# What is wrong with it.


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
def test_mistakes(server, attributes, id):
    server.register(Place, type("Wrong", (Rows,), {"fields": ["name", "city"]} | attributes))
    assert only(server).id == f"django_mcp.{id}"


def test_a_relation_to_what_is_not_registered(server):
    rows = {"fields": ["name", "company"], "operations": ["update"]}
    server.register(Customer, type("Rows", (Rows,), rows))
    message = only(server)
    assert message.id == "django_mcp.E139" and "readonly_fields" in message.hint
    assert "update_customer: 'company' names rows, but shop.Company is not" in message.msg


def test_a_relation_to_what_several_resources_show(server):
    rows = {"fields": ["name", "company"], "operations": ["update"]}
    server.register(Customer, type("Rows", (Rows,), rows))
    server.register(Company, Company_)
    server.register(Company, type("Again", (Company_,), {"uri": "c://{pk}"}))
    assert ids(server) == ["E139"]


@pytest.mark.parametrize("method", ["get_initial", "save_model"])
def test_a_value_that_the_project_gives_is_none_that_lacks(server, method):
    given = {"fields": ["city"], method: lambda self, *args: {}}
    server.register(Place, type("Rows", (Rows,), given))
    right(server)


def test_a_value_that_the_model_makes_up_is_none_that_lacks(server, unknown):
    plain_name = models.CharField(max_length=9, editable=False)
    model = made(name=models.TextField(), plain_name=plain_name)
    assert taken(server, model, ["name", "plain_name"]) == [{"name"}] * 2


def test_a_method_that_is_needed_at_once_is_not_async(server):
    async def save_model(self, request, obj, created): ...

    declare(server, save_model=save_model)
    assert ids(server) == ["E015"]


# What the arguments say.


def test_every_kind_of_column(server):
    names = [f.name for f in Sample._meta.fields if f.name not in ("id", "blob")]
    taken(server, Sample, names)
    properties = right(server).tools["create_sample"]._arguments.schema["properties"]
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
    assert right(server).tools["create_sample"]._arguments.schema["required"] == ["name"]
    update = right(server).tools["update_sample"]._arguments.schema
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
    schema = right(server).tools["create_setting"]._arguments.schema
    assert schema.get("required", []) == ([] if sets_it else ["count"])


def test_choices_are_listed(server):
    declare(server, readonly_fields=[])
    properties = right(server).tools["update_invoice"]._arguments.schema["properties"]
    assert properties["status"]["enum"] == ["draft", "open", "paid"]
    assert "open: Awaiting payment" in properties["status"]["description"]
    assert properties["number"]["description"] == "Printed on the paper."
    assert properties["tags"] == {
        "type": "array", "maxItems": 100,
        "items": {"type": ["integer", "string"], "description": "Key or URI of the tag."},
    }  # fmt: skip


@isolate_apps("tests.shop", "django.contrib.contenttypes")
@pytest.mark.parametrize("shown", [["name"], ["name", "number"]])
def test_model_with_a_generic_relation_is_written(server, shown):
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
    # No migration made permissions of this model, of which a warning tells.
    assert not [message for message in server.check() if message.is_serious()]
    schema = server._catalog.tools["create_page"]._arguments.schema
    assert set(schema["properties"]) == set(shown)


@isolate_apps("tests.shop")
@pytest.mark.parametrize("kind", [models.ForeignObject, type("Own", (models.ForeignObject,), {})])
def test_columns_of_a_foreign_object_are_not_written(kind):
    class Line(models.Model):
        one, two, text = models.IntegerField(), models.IntegerField(), models.TextField()
        target = kind(Place, models.CASCADE, from_fields=["one"], to_fields=["id"])

        class Meta:
            app_label = "shop"

        def __str__(self):
            return self.text

    resource = Rows()
    resource.model, resource.fields = Line, ["one", "two", "text"]
    assert [name for name, _ in fields_of(resource)] == ["two", "text"]
