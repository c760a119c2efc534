"""Size of ``tools/list`` for many model resources, because it is part of every model's context."""

import json

import pytest

import django_mcp as mcp
from tests.shop.models import Company, Customer, Invoice, Note, Place, Sample, Warehouse

from .helpers import valid_catalog

FIELDS = {
    Company: ["name", "members"],
    Customer: ["name", "company", "email", "referred_by"],
    Invoice: [
        "number", "company", "customer", "customer__name", "status", "total", "issued", "paid_at",
        "tags", "attachment", "metadata", "overdue",
    ],
    Note: ["text", "written"],
    Place: ["name", "city"],
    Sample: ["name", "nickname", "weight", "rank", "price", "checked", "day", "moment", "lasts"],
    Warehouse: ["name", "city", "capacity"],
}  # fmt: skip
TEXTS = {"name", "number", "email", "text", "city", "nickname"}
UNFILTERED = {"attachment", "metadata", "overdue"}


class Rows(mcp.ModelResource):
    permission = mcp.AUTHENTICATED

    def get_queryset(self, request):
        return self.model.objects.all()


def declare(server, model, name, operations):
    fields = FIELDS[model]
    filters = [name for name in fields if name not in UNFILTERED]
    single = [name for name in filters if name not in ("members", "tags")]
    attributes = {
        "name": name,
        "uri": f"model://{name}/{{pk}}",
        "default": name.endswith("0"),
        "fields": fields,
        "search_fields": [name for name in fields if name in TEXTS],
        "filter_fields": filters,
        "ordering": single[:2],
        "operations": operations,
        "readonly_fields": [name for name in ("members", "tags") if name in fields],
        "operation_permissions": dict.fromkeys(operations, mcp.AUTHENTICATED),
    }
    server.register(model, type("Resource", (Rows,), attributes))


def size(server):
    """Return the bytes of ``tools/list``."""
    tools = [tool._definition() for tool in valid_catalog(server).tools.values()]
    return len(json.dumps(tools, separators=(",", ":")).encode())


@pytest.mark.parametrize(
    ("operations", "earlier_size", "limit"),
    [
        ([], 69_813, 31_500),
        (["update", "delete"], 123_661, 58_500),
        (["create", "update", "delete"], 157_653, 73_500),
    ],
)
def test_tools_of_28_resources_are_less_than_half_of_their_earlier_size(
    server, operations, earlier_size, limit
):
    for number in range(4):
        for model in FIELDS:
            declare(server, model, f"{model._meta.model_name}{number}", operations)
    assert size(server) <= limit < 0.5 * earlier_size
