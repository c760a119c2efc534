"""``manage.py mcp_stdio``: serve one client over stdin and stdout."""

from __future__ import annotations

import asyncio
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, connections

from ...auth.principal import Principal, anonymous
from ...declarations.server import Server, servers
from ...runtime import threads
from ...transports.stdio import flush, redirected_streams, serve
from ..arguments import add_server, checked_server, database_error


class Command(BaseCommand):
    help = (
        "Serve the project to one MCP client over stdin and stdout, as a user and with that "
        "user's permissions. MCP clients start this command. stdout contains only MCP messages."
    )
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--user",
            metavar="NAME",
            help="user that the client acts as (default: anonymous, only PUBLIC declarations)",
        )
        add_server(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["user"]
        server = self._server(options["server"])
        try:
            is_unknown = name is not None and not load(name).is_authenticated
        except DatabaseError as error:
            raise database_error(error) from error
        if is_unknown:
            raise CommandError(f"There is no active user {name!r}. Create one or name another.")

        async def principal() -> Principal:
            return anonymous() if name is None else await threads.lookups.run(load, name)

        alone = getattr(self, "_called_from_command_line", False)
        if alone:
            # The main thread needs no connection while the event loop runs, and the process may
            # exit without cleaning up this thread.
            connections.close_all()
        with redirected_streams(permanent=alone) as (reading, writing):
            asyncio.run(serve(server, principal, reading, writing, exits_process=alone))
            # Flush while the time limit of the shutdown applies. On exit, the interpreter flushes
            # without one.
            flush()

    def _server(self, name: str) -> Server:
        server = checked_server(name)
        if server._is_empty:
            others = ", ".join(one.name for one in servers() if not one._is_empty) or "none"
            message = (
                f"The server {name!r} has no declarations. Servers with declarations: {others}."
            )
            self.stderr.write(self.style.WARNING(message))
        return server


def load(name: str) -> Principal:
    """Return the principal of that user as stored now. Anonymous if missing or inactive."""
    from django.contrib.auth import get_user_model

    model = get_user_model()
    try:
        user = model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        return anonymous()
    return Principal(user) if user.is_active else anonymous()
