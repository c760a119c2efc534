"""What the tests of declarations share: requests nobody sent, and the words of the checks."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage

import django_mcp as mcp
from django_mcp.auth.principal import Principal, anonymous
from django_mcp.declarations.request import Request
from django_mcp.declarations.server import Server, default_server


class Rows(mcp.ModelResource):
    fields = ["name"]


class Do(mcp.Tool):
    """Do it."""

    def handle(self, request: Request) -> str:
        return "done"


def nothing(request: Request) -> str:
    """Do nothing."""
    return "nothing"


def asked(user: Any = None, server: Server = default_server, **options: Any) -> Request:
    """A request of ``user``, or of nobody, that no client sent."""
    principal = anonymous() if user is None else Principal(user)
    return Request(principal, server, **options)


def ids(server: Server) -> list[str]:
    """The ids of what is wrong, without the package's name."""
    return [str(message.id).removeprefix("django_mcp.") for message in server.check()]


def only(server: Server) -> CheckMessage:
    """The one thing that is wrong; its hint says what to do."""
    (message,) = server.check()
    assert message.hint, message
    return message


def right(server: Server) -> Any:
    """The catalog of a server with nothing wrong."""
    assert [str(message) for message in server.check()] == []
    return server._catalog
