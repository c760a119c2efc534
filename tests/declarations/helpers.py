"""Helpers of the tests of declarations: requests without a client, and the results of checks."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage
from django.db.models import DecimalField, ExpressionWrapper, F, FloatField, Value

import django_mcp as mcp
from django_mcp.auth.principal import Principal, anonymous
from django_mcp.declarations.request import Request
from django_mcp.declarations.server import Server, default_server

# A third of the price, computed in the database and with more digits than its column.
A_THIRD = ExpressionWrapper(
    F("price") * Value(1 / 3, output_field=FloatField()), output_field=DecimalField()
)


class Rows(mcp.ModelResource):
    fields = ["name"]


class Do(mcp.Tool):
    """Do it."""

    def handle(self, request: Request) -> str:
        return "done"


def nothing(request: Request) -> str:
    """Do nothing."""
    return "nothing"


def make_request(user: Any = None, server: Server = default_server, **options: Any) -> Request:
    """Return a request of ``user``, or of an anonymous user, that no client has sent."""
    principal = anonymous() if user is None else Principal(user)
    return Request(principal, server, **options)


def problem_ids(server: Server) -> list[str]:
    """Return the ids of the server's check messages without ``django_mcp.``."""
    return [str(message.id).removeprefix("django_mcp.") for message in server.check()]


def single_problem(server: Server) -> CheckMessage:
    """Return the only check message of a server, and assert that it has a hint."""
    (message,) = server.check()
    assert message.hint, message
    return message


def valid_catalog(server: Server) -> Any:
    """Return the catalog of a server, and assert that its checks find no problem."""
    assert [str(message) for message in server.check()] == []
    return server._catalog
