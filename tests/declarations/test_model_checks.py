"""Checks of model resources: each problem has an id and a hint."""

import pytest
from django.db import models

import django_mcp as mcp
from tests.shop.models import Badge, Company, Customer, Invoice, LedgerLine, Sample, Warehouse

from .helpers import problem_ids, single_problem, valid_catalog


class Rows(mcp.ModelResource):
    fields = ["number", "total", "issued", "customer"]


def declare(server, model=Invoice, base=Rows, **attributes):
    server.register(model, type("Rows", (base,), attributes))


def all_rows(self, request):
    return self.model.objects.all()


# Valid resources.


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"ordering": ["-issued", "number"], "search_fields": ["number"]},
        {"filter_fields": ["customer", "issued"], "ordering": ("pk",)},
        {"ordering": ["-id"]},
        {"uri": "invoice://{number}"},
        {"uri": "invoice://{pk}", "permission": "shop.view_invoice"},
        {"permission": mcp.AUTHENTICATED, "get_queryset": all_rows},
        {"permission": mcp.PUBLIC, "get_queryset": all_rows},
        {"fields": ["customer__name", "overdue", "tags", "attachment", "status"]},
        {"fields": ["customer__name"], "search_fields": ["customer__name"]},
    ],
)
def test_valid_resource_has_no_problems(server, attributes):
    declare(server, **attributes)
    valid_catalog(server)


@pytest.mark.parametrize("model", [Company, Warehouse, Badge, LedgerLine, Sample])
def test_models_with_all_types_of_keys_are_valid(server, model):
    declare(server, model, fields=["pk"])
    valid_catalog(server)


# Permissions.


@pytest.mark.parametrize("permission", [mcp.AUTHENTICATED, mcp.PUBLIC])
def test_permission_for_everybody_requires_get_queryset(server, permission):
    declare(server, permission=permission)
    message = single_problem(server)
    assert message.id == "django_mcp.E051" and repr(permission) in message.msg
    assert "return .all()" in message.hint


def test_inherited_get_queryset_is_sufficient(server):
    base = type("Base", (Rows,), {"get_queryset": all_rows})
    declare(server, base=base, permission=mcp.AUTHENTICATED)
    valid_catalog(server)


@pytest.mark.parametrize("permission", ["nonsense", 5, None, type("IsAdmin", (), {})])
def test_invalid_permission_is_an_error(server, permission):
    declare(server, permission=permission)
    assert single_problem(server).id == "django_mcp.E011"


@pytest.mark.parametrize(
    "method", ["has_permission", "has_object_permission", "get_queryset", "get_listed", "get_title"]
)
def test_asynchronous_hook_is_an_error(server, method):
    async def later(self, *args):
        return True

    declare(server, **{method: later})
    message = single_problem(server)
    assert message.id == "django_mcp.E015" and method in message.msg


def test_shared_model_resource_is_an_error(server):
    declare(server, shared=True, permission=mcp.PUBLIC, get_queryset=all_rows)
    assert single_problem(server).id == "django_mcp.E057"


# Fields.


def test_missing_fields_are_an_error(server):
    server.register(Invoice, type("Rows", (mcp.ModelResource,), {}))
    message = single_problem(server)
    assert message.id == "django_mcp.E050" and "List every field" in message.hint


@pytest.mark.parametrize(
    "fields", [["nonsense"], ["number", "customer__nonsense"], ["number", "number"], [], ["save"]]
)
def test_invalid_fields_are_an_error(server, fields):
    declare(server, fields=fields)
    assert single_problem(server).id == "django_mcp.E056"


def test_each_invalid_field_is_an_error(server):
    declare(server, fields=["number", "nope", "neither"], ordering=["number"])
    assert problem_ids(server) == ["E056", "E056"]


def test_password_in_fields_is_an_error(server):
    from django.contrib.auth.models import User

    declare(server, User, fields=["username", "password"])
    message = single_problem(server)
    assert message.id == "django_mcp.E056" and "secret" in message.msg


@pytest.mark.parametrize("option", ["fields", "search_fields", "filter_fields", "ordering"])
@pytest.mark.parametrize("names", ["number", "__all__", [1], [models.F("number")], [None]])
def test_names_that_are_no_list_are_an_error(server, option, names):
    declare(server, **{option: names})
    message = single_problem(server)
    assert message.id == "django_mcp.E060" and message.msg.startswith(f"{option} is ")


# Search, filters and ordering.


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
def test_search_filter_or_ordering_by_a_field_not_in_fields_is_an_error(server, option, name):
    declare(server, **{option: [name]})
    message = single_problem(server)
    assert (
        message.id == "django_mcp.E055" and message.msg == f"{option}: {name!r} is not in fields."
    )


def test_ordering_by_a_primary_key_that_the_uri_does_not_show_is_an_error(server):
    declare(server, uri="invoice://{number}", ordering=["-pk"], filter_fields=["id"])
    assert problem_ids(server) == ["E055", "E055"]


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
def test_field_that_cannot_be_searched_filtered_or_ordered_is_an_error(server, option, name):
    declare(server, fields=["number", "total", "overdue", "tags"], **{option: [name]})
    message = single_problem(server)
    assert message.id == "django_mcp.E061" and name.removeprefix("-") in message.msg


# URIs.


@pytest.mark.parametrize("uri", ["invoice://all", "invoice://{number}/{total}", "invoice://"])
def test_uri_without_exactly_one_variable_is_an_error(server, uri):
    declare(server, uri=uri)
    assert single_problem(server).id == "django_mcp.E052"


@pytest.mark.parametrize(
    ("uri", "number"),
    [
        ("no uri", "E040"),
        ("https://shop.example/{pk}", "W041"),
    ],
)
def test_invalid_uri_is_a_problem(server, uri, number):
    declare(server, uri=uri)
    assert number in problem_ids(server)


@pytest.mark.parametrize("name", ["total", "nonsense", "overdue", "customer", "tags", "paid_at"])
def test_uri_with_a_field_that_is_not_unique_is_an_error(server, name):
    declare(server, uri=f"invoice://{{{name}}}", fields=["number", "total", "customer"])
    message = single_problem(server)
    assert message.id == "django_mcp.E053" and name in message.msg


def test_uri_with_a_field_that_is_not_in_fields_is_an_error(server):
    declare(server, uri="invoice://{number}", fields=["total"])
    message = single_problem(server)
    assert message.id == "django_mcp.E054" and "number" in message.msg


def make_model(name, /, **fields):
    """Create a model class that has no table."""
    fields |= {"__module__": __name__, "Meta": type("Meta", (), fields.pop("meta", {}) | {
        "app_label": "shop", "managed": False})}  # fmt: skip
    from django.apps import apps

    apps.all_models["shop"].pop(name.lower(), None)
    return type(name, (models.Model,), fields)


@pytest.fixture
def forget_models():
    """Remove models that a test creates."""
    from django.apps import apps

    before = dict(apps.all_models["shop"])
    yield
    apps.all_models["shop"].clear()
    apps.all_models["shop"].update(before)
    apps.clear_cache()


def test_unique_constraint_makes_a_field_valid_in_a_uri(server, forget_models):
    unique = models.UniqueConstraint(fields=["code"], name="one_code")
    partly = models.UniqueConstraint(
        fields=["other"], name="one_other", condition=models.Q(code="a")
    )
    coded = make_model(
        "Coded", code=models.CharField(max_length=9), other=models.CharField(max_length=9),
        meta={"constraints": [unique, partly]},
    )  # fmt: skip
    declare(server, coded, fields=["code", "other"], uri="coded://{code}")
    valid_catalog(server)
    server._forget()
    server._records.clear()
    declare(server, coded, fields=["code", "other"], uri="coded://{other}")
    assert problem_ids(server) == ["E053"]


def test_primary_key_that_a_uri_cannot_contain_is_an_error(server, forget_models):
    odd = make_model("OddKey", id=models.BinaryField(primary_key=True), name=models.TextField())
    declare(server, odd, fields=["name"])
    assert single_problem(server).id == "django_mcp.E059"


def test_abstract_model_is_an_error(server, forget_models):
    abstract = make_model("Nothing", meta={"abstract": True})
    declare(server, abstract)
    message = single_problem(server)
    assert message.id == "django_mcp.E058" and "Nothing" in message.msg


def test_swapped_model_is_an_error(server, forget_models, settings):
    settings.SHOP_SWAPPED = "shop.Invoice"
    swapped = make_model("Swapped", meta={"swappable": "SHOP_SWAPPED"})
    declare(server, swapped, fields=["pk"])
    assert single_problem(server).id == "django_mcp.E058"


def test_invalid_name_of_a_search_tool_is_an_error(server):
    declare(server, Customer, fields=["name"], search_fields=["name"], name="not allowed")
    assert problem_ids(server) == ["E010"]
