"""A server on which companies see their own customers, and a counter of SQL statements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.backends.utils import CursorWrapper

import django_mcp as mcp
from django_mcp.declarations.server import Server
from tests.shop.models import Badge, Company, Customer, Warehouse


def of_members(request: Any) -> dict[str, Any]:
    return {"company__members": request.user}


def register_models(
    server: Server, *, listed: bool = True, mine: Callable[[Any], dict[str, Any]] = of_members
) -> Server:
    """Register customers filtered by ``mine``, all badges, and warehouses that have a capacity."""
    show = listed

    @server.register(Customer)
    class Customers(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]
        listed = show

        def get_queryset(self, request):
            return super().get_queryset(request).filter(**mine(request))

    @server.register(Badge)
    class Badges(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["colour"]
        uri = "badge://{colour}"

        def get_queryset(self, request):
            return super().get_queryset(request).all()

    @server.register(Warehouse)
    class Warehouses(mcp.ModelResource):
        permission = mcp.AUTHENTICATED
        fields = ["name"]

        def get_queryset(self, request):
            return super().get_queryset(request).exclude(capacity=0)

    server.ready()
    return server


def create_companies(count: int = 2) -> tuple[list[Company], list[User]]:
    """Create companies, and the one user of each."""
    companies = [Company.objects.create(name=f"c{n}") for n in range(count)]
    users = [User.objects.create(username=f"u{n}") for n in range(count)]
    for company, user in zip(companies, users, strict=True):
        company.members.add(user)
    return companies, users


@contextmanager
def counted_statements() -> Iterator[Counter[str]]:
    """Count the statements that any thread executes successfully."""
    found: Counter[str] = Counter()
    execute = CursorWrapper.execute

    def noted(self: Any, sql: str, params: Any = None) -> Any:
        made = execute(self, sql, params)
        found[sql] += 1
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CursorWrapper, "execute", noted)
        yield found
