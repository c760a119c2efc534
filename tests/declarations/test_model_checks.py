"""What can be wrong with a ModelResource: each mistake has an id, and words that say what to do."""

import pytest
from django.db import models

import django_mcp as mcp
from tests.shop.models import Badge, Company, Customer, Invoice, LedgerLine, Sample, Warehouse

from .world import ids, only, right


class Rows(mcp.ModelResource):
    fields = ["number", "total", "issued", "customer"]


def declare(server, model=Invoice, base=Rows, **attributes):
    server.register(model, type("Rows", (base,), attributes))


def some(self, request):
    return self.model.objects.all()


# What is fine.


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"ordering": ["-issued", "number"], "search_fields": ["number"]},
        {"filter_fields": ["customer", "issued"], "ordering": ("pk",)},
        {"ordering": ["-id"]},
        {"uri": "invoice://{number}"},
        {"uri": "invoice://{pk}", "permission": "shop.view_invoice"},
        {"permission": mcp.AUTHENTICATED, "get_queryset": some},
        {"permission": mcp.PUBLIC, "get_queryset": some},
        {"fields": ["customer__name", "overdue", "tags", "attachment", "status"]},
        {"fields": ["customer__name"], "search_fields": ["customer__name"]},
    ],
)
def test_nothing_is_wrong(server, attributes):
    declare(server, **attributes)
    right(server)


@pytest.mark.parametrize("model", [Company, Warehouse, Badge, LedgerLine, Sample])
def test_models_of_every_kind_of_key(server, model):
    declare(server, model, fields=["pk"])
    right(server)


# Who may see.


@pytest.mark.parametrize("permission", [mcp.AUTHENTICATED, mcp.PUBLIC])
def test_every_row_to_everybody_is_written_out(server, permission):
    declare(server, permission=permission)
    message = only(server)
    assert message.id == "django_mcp.E051" and repr(permission) in message.msg
    assert "return .all()" in message.hint


def test_a_queryset_of_a_base_class_is_written_out_too(server):
    base = type("Base", (Rows,), {"get_queryset": some})
    declare(server, base=base, permission=mcp.AUTHENTICATED)
    right(server)


@pytest.mark.parametrize("permission", ["nonsense", 5, None, type("IsAdmin", (), {})])
def test_permissions_there_are_not(server, permission):
    declare(server, permission=permission)
    assert only(server).id == "django_mcp.E011"


@pytest.mark.parametrize(
    "method", ["has_permission", "has_object_permission", "get_queryset", "get_listed", "get_title"]
)
def test_what_is_needed_at_once_is_not_async(server, method):
    async def later(self, *args):
        return True

    declare(server, **{method: later})
    message = only(server)
    assert message.id == "django_mcp.E015" and method in message.msg


def test_rows_are_never_shared(server):
    declare(server, shared=True, permission=mcp.PUBLIC, get_queryset=some)
    assert only(server).id == "django_mcp.E057"


# What is shown.


def test_fields_are_required(server):
    server.register(Invoice, type("Rows", (mcp.ModelResource,), {}))
    message = only(server)
    assert message.id == "django_mcp.E050" and "List every field" in message.hint


@pytest.mark.parametrize(
    "fields", [["nonsense"], ["number", "customer__nonsense"], ["number", "number"], [], ["save"]]
)
def test_fields_that_are_none(server, fields):
    declare(server, fields=fields)
    assert only(server).id == "django_mcp.E056"


def test_every_field_that_is_none_is_named(server):
    declare(server, fields=["number", "nope", "neither"], ordering=["number"])
    assert ids(server) == ["E056", "E056"]


def test_a_password_is_never_shown(server):
    from django.contrib.auth.models import User

    declare(server, User, fields=["username", "password"])
    message = only(server)
    assert message.id == "django_mcp.E056" and "secret" in message.msg


@pytest.mark.parametrize("option", ["fields", "search_fields", "filter_fields", "ordering"])
@pytest.mark.parametrize("names", ["number", "__all__", [1], [models.F("number")], [None]])
def test_names_come_in_lists(server, option, names):
    declare(server, **{option: names})
    message = only(server)
    assert message.id == "django_mcp.E060" and message.msg.startswith(f"{option} is ")


# What can be learnt.


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("search_fields", "customer__notes"),
        ("search_fields", "status"),
        ("filter_fields", "company"),
        ("filter_fields", "total__gte"),
        ("ordering", "paid_at"),
        ("ordering", "-paid_at"),
        ("ordering", "?"),
        ("ordering", "--number"),
        ("ordering", "nonsense"),
    ],
)
def test_what_is_not_shown_is_not_searched_filtered_or_ordered_by(server, option, name):
    declare(server, **{option: [name]})
    message = only(server)
    assert (
        message.id == "django_mcp.E055" and message.msg == f"{option}: {name!r} is not in fields."
    )


def test_the_key_that_no_address_shows_is_not_ordered_by(server):
    declare(server, uri="invoice://{number}", ordering=["-pk"], filter_fields=["id"])
    assert ids(server) == ["E055", "E055"]


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("search_fields", "total"),
        ("search_fields", "overdue"),
        ("search_fields", "-number"),
        ("filter_fields", "overdue"),
        ("ordering", "overdue"),
        ("ordering", "tags"),
    ],
)
def test_what_cannot_be_in_order_or_searched(server, option, name):
    declare(server, fields=["number", "total", "overdue", "tags"], **{option: [name]})
    message = only(server)
    assert message.id == "django_mcp.E061" and name.removeprefix("-") in message.msg


# Addresses.


@pytest.mark.parametrize("uri", ["invoice://all", "invoice://{number}/{total}", "invoice://"])
def test_an_address_has_one_variable(server, uri):
    declare(server, uri=uri)
    assert only(server).id == "django_mcp.E052"


@pytest.mark.parametrize(
    ("uri", "number"),
    [
        ("no uri", "E040"),
        ("https://shop.example/{pk}", "W041"),
    ],
)
def test_addresses_that_are_none(server, uri, number):
    declare(server, uri=uri)
    assert number in ids(server)


@pytest.mark.parametrize("name", ["total", "nonsense", "overdue", "customer", "tags", "paid_at"])
def test_an_address_names_one_row(server, name):
    declare(server, uri=f"invoice://{{{name}}}", fields=["number", "total", "customer"])
    message = only(server)
    assert message.id == "django_mcp.E053" and name in message.msg


def test_the_value_in_an_address_is_shown(server):
    declare(server, uri="invoice://{number}", fields=["total"])
    message = only(server)
    assert message.id == "django_mcp.E054" and "number" in message.msg


def made(name, /, **fields):
    """A model of its own that no database has."""
    fields |= {"__module__": __name__, "Meta": type("Meta", (), fields.pop("meta", {}) | {
        "app_label": "shop", "managed": False})}  # fmt: skip
    from django.apps import apps

    apps.all_models["shop"].pop(name.lower(), None)
    return type(name, (models.Model,), fields)


@pytest.fixture
def forgotten():
    """Models of a test are gone after it."""
    from django.apps import apps

    before = dict(apps.all_models["shop"])
    yield
    apps.all_models["shop"].clear()
    apps.all_models["shop"].update(before)
    apps.clear_cache()


def test_a_constraint_makes_a_field_unique(server, forgotten):
    unique = models.UniqueConstraint(fields=["code"], name="one_code")
    partly = models.UniqueConstraint(
        fields=["other"], name="one_other", condition=models.Q(code="a")
    )
    coded = made(
        "Coded", code=models.CharField(max_length=9), other=models.CharField(max_length=9),
        meta={"constraints": [unique, partly]},
    )  # fmt: skip
    declare(server, coded, fields=["code", "other"], uri="coded://{code}")
    right(server)
    server._forget()
    server._records.clear()
    declare(server, coded, fields=["code", "other"], uri="coded://{other}")
    assert ids(server) == ["E053"]


def test_a_key_that_no_address_can_name(server, forgotten):
    odd = made("OddKey", id=models.BinaryField(primary_key=True), name=models.TextField())
    declare(server, odd, fields=["name"])
    assert only(server).id == "django_mcp.E059"


def test_a_model_without_rows(server, forgotten):
    abstract = made("Nothing", meta={"abstract": True})
    declare(server, abstract)
    message = only(server)
    assert message.id == "django_mcp.E058" and "Nothing" in message.msg


def test_a_model_that_is_swapped_has_no_rows(server, forgotten, settings):
    settings.SHOP_SWAPPED = "shop.Invoice"
    swapped = made("Swapped", meta={"swappable": "SHOP_SWAPPED"})
    declare(server, swapped, fields=["pk"])
    assert only(server).id == "django_mcp.E058"


def test_a_tool_of_a_model_resource_has_its_name(server):
    declare(server, Customer, fields=["name"], search_fields=["name"], name="not allowed")
    assert ids(server) == ["E010"]
