"""
``manage.py mcp_explain``: who may use what, and which rule decides.

The decision is the one that clients get. The output is for developers: it distinguishes hidden from
missing declarations, which clients cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError, CommandParser, no_translations

from ...auth.principal import Principal, anonymous
from ...calls.execution import surrounded
from .. import arguments
from ..access_report import AccessReportRow, access_report, client_auth, declarations_of
from ..output import HelpfulCommand, near

if TYPE_CHECKING:
    from ...declarations.declaration import Declaration
    from ...declarations.model_resources import ModelResource
    from ...declarations.request import Request
    from ...declarations.resources import Resource
    from ...declarations.server import Server


class Command(HelpfulCommand):
    help = (
        "Show whether a user may use the declarations of a server, and which rule decides.\n"
        "NAME selects one declaration or one URI. The output distinguishes hidden from\n"
        "missing rows, which clients cannot."
    )
    examples = [
        ("alice", "each declaration, and whether alice may use it"),
        ("alice refund", "the tool, resource or prompt with this name"),
        ("alice invoice://A-1", "each permission check between alice and the row"),
        ("--anonymous", "a client without a token"),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", metavar="USER", nargs="?", help="name of the user")
        parser.add_argument("name", metavar="NAME", nargs="?", help="name or URI (default: all)")
        parser.add_argument(
            "--anonymous", action="store_true", help="explain for a client without a token"
        )
        arguments.add_scopes(parser)
        parser.add_argument(
            "--client", metavar="ID", default="",
            help="client id of the OAuth client that the token was given to (default: any)",
        )  # fmt: skip
        arguments.add_server(parser)
        parser.add_argument(
            "--format", choices=["table", "json"], default="table", help="(default: table)"
        )

    @no_translations
    def handle(
        self, *args: Any, user: str | None, name: str | None, anonymous: bool, **options: Any
    ) -> None:
        if anonymous and name is not None:
            raise CommandError("Give either a user or --anonymous, not both.", returncode=2)
        if anonymous:
            user, name = None, user
        elif user is None:
            raise CommandError(
                "Give a user, or --anonymous for a client without a token.", returncode=2
            )
        server = arguments.server_with_declarations(options["server"])
        found_user, principal = _user_and_principal(user, options["scope"], options["client"])
        explained = _explanation(arguments.local_request(principal, server), server, name)
        report = {
            "user": user,
            "active": _is_active(found_user),
            "server": server.public_name,
            **explained,
        }
        show: Callable[..., None] = self._json if options["format"] == "json" else self._tables
        show(report)

    def _json(self, report: dict[str, Any]) -> None:
        self.show(json.dumps(report, indent=2, ensure_ascii=False, default=vars))

    def _tables(self, report: dict[str, Any]) -> None:
        username = report["user"] or "an anonymous client"
        if not report["active"]:
            self.stdout.write(
                self.style.WARNING(f"{username} is inactive, so requests are anonymous.")
            )
        if "uri" in report:
            self._show_uri(username, report)
            return
        found: list[AccessReportRow] = report["declarations"]
        if "name" in report:
            self._show_each(username, found)
            return
        count = sum(one.allowed for one in found)
        of = f"{len(found)} declarations of the server {report['server']}"
        self.stdout.write(f"{username} may use {count} of {of}.")
        for kind in dict.fromkeys(one.kind for one in found):
            self.stdout.write(self.style.MIGRATE_HEADING(f"\n{kind.capitalize()}"))
            rows = [
                (_yes_or_no(one.allowed), one.name, one.reason) for one in found if one.kind == kind
            ]
            self.write_table(rows, self._colour)

    def _show_each(self, username: str, rows: list[AccessReportRow]) -> None:
        for one in rows:
            may = "may" if one.allowed else "may not"
            self.stdout.write(f"{username} {may} use the {one.kind.removesuffix('s')} {one.name}.")
            details = [
                ("because", one.reason),
                ("requires", one.rule),
                ("scopes", one.scopes),
                ("declared", one.origin),
            ]
            self.write_table(details)

    def _show_uri(self, username: str, report: dict[str, Any]) -> None:
        may = "may" if report["allowed"] else "may not"
        self.stdout.write(f"{username} {may} read {report['uri']}.")
        for found in report["resources"]:
            self.stdout.write(self.style.MIGRATE_HEADING(f"\n{found['resource']}"))
            rows = [(_yes_or_no(one["allowed"]), one["reason"]) for one in found["conditions"]]
            self.write_table(rows, self._colour)
            if found["fields"]:
                self.stdout.write(f"  fields: {', '.join(found['fields'])}")

    def _colour(self, word: str) -> str:
        styled: str = (self.style.SUCCESS if word == "yes" else self.style.ERROR)(word)
        return styled


def _yes_or_no(allowed: bool) -> str:
    return "yes" if allowed else "no"


def _user_and_principal(name: str | None, scopes: list[str], client: str) -> tuple[Any, Principal]:
    """Return the user, who may be inactive, and the principal. Without a name: None, anonymous."""
    if name is None:
        return None, anonymous()
    user = arguments.find_user(name)
    return user, Principal(user, client_auth(arguments.checked_scopes(scopes), client))


def _is_active(user: Any) -> bool:
    return user is None or bool(user.is_active)


def _explanation(request: Request, server: Server, name: str | None) -> dict[str, Any]:
    with surrounded(request):
        if name is not None and ":" in name:
            return _explain_uri(request, server, name)
        if name is not None:
            return {
                "name": name,
                "declarations": access_report(_find_declarations(server, name), request),
            }
        return {"declarations": access_report(declarations_of(server), request)}


def _find_declarations(server: Server, name: str) -> list[tuple[str, Declaration]]:
    declarations = [*declarations_of(server)]
    found = [(kind, one) for kind, one in declarations if one.name == name]
    if not found:
        names = [declaration.name for _kind, declaration in declarations]
        hint = near(name, names) or " Without a name: everything."
        raise CommandError(f"{server.public_name} has no {name!r}.{hint}")
    return found


# URIs.


def _explain_uri(request: Request, server: Server, uri: str) -> dict[str, Any]:
    from ...calls.visibility import visible

    found = [_explain(one, variables, request) for one, variables in server._catalog.at(uri)]
    if not found:
        known = ", ".join([*server._catalog.resources, *server._catalog.templates]) or "none"
        raise CommandError(
            f"The server {server.public_name} has no resource at {uri}. There are: {known}."
        )
    return {"uri": uri, "allowed": uri in visible(request, [uri]), "resources": found}


def _explain(resource: Resource, variables: dict[str, str], request: Request) -> dict[str, Any]:
    from ..access_report import explain_read

    decisions = explain_read(resource, variables, request)
    fields = _fields(resource) if all(one.allowed for one in decisions) else []
    report = [{"allowed": one.allowed, "reason": one.reason} for one in decisions]
    return {"resource": str(resource), "conditions": report, "fields": fields}


def _fields(resource: Resource | ModelResource) -> list[str]:
    return [str(name) for name in getattr(resource, "fields", ())]
