"""Model resources of the shop's billing for the tests of operations.

Users see only their company.
"""

from __future__ import annotations

import json
from typing import Any

import django_mcp as mcp
from django_mcp.declarations.server import Server
from tests.shop.models import Company, Customer, Invoice, Tag

EVERYBODY = {"create": mcp.AUTHENTICATED, "update": mcp.AUTHENTICATED, "delete": mcp.AUTHENTICATED}
ALL = list(EVERYBODY)


class Own(mcp.ModelResource):
    """Rows of the companies that the user is a member of."""

    permission = mcp.AUTHENTICATED
    _way = "company__members"

    def get_queryset(self, request):
        return super().get_queryset(request).filter(**{self._way: request.user})


class Companies(Own):
    fields = ["name"]
    _way = "members"


class Customers(Own):
    fields = ["name", "company"]


class Tags(mcp.ModelResource):
    permission = mcp.AUTHENTICATED
    fields = ["label"]

    def get_queryset(self, request):
        return super().get_queryset(request).exclude(label__startswith="secret")


class Bills(Own):
    fields = [
        "id", "number", "company", "customer", "customer__name", "status", "total", "issued",
        "paid_at", "tags", "attachment", "metadata", "overdue",
    ]  # fmt: skip
    operations = ALL
    operation_permissions = EVERYBODY


BASE = {Company: Companies, Customer: Customers, Tag: Tags}


def declare(server: Server, model: Any = Invoice, base: Any = Bills, **attributes: Any) -> None:
    """Register the billing on ``server``, with ``base`` and ``attributes`` for ``model``."""
    kinds: dict[Any, Any] = {Invoice: Bills, **BASE}
    kinds[model] = type("Written", (base,), attributes)
    for one, kind in kinds.items():
        server.register(one, kind)


class Free(mcp.ModelResource):
    """Rows that every authenticated user may see and write."""

    permission = mcp.AUTHENTICATED
    operations = ALL
    operation_permissions = EVERYBODY

    def get_queryset(self, request):
        return self.model.objects.all()


def writer(server: Server, connect: Any, user: Any) -> Any:
    """Return a function that registers models, the first as writable, and connects a client."""

    def opened(first: Any, *others: Any, **attributes: Any) -> Any:
        reading = {"operations": [], "operation_permissions": {}}
        for (model, fields), more in [(first, attributes), *((one, reading) for one in others)]:
            server.register(model, type("Rows", (Free,), {"fields": fields} | more))
        server.ready()
        return connect(user, server=server)

    return opened


def read(text: str) -> Any:
    """Parse the row in the text of a result."""
    return json.loads(text)
