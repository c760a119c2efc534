"""
``manage.py mcp_inspect``: show what a server exposes, for people, programs and CI.

With ``--user`` it shows what that user may use. Without it, it shows all declarations with the
permission that each requires.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import CommandError, CommandParser
from django.template.defaultfilters import pluralize

from .. import arguments
from ..output import HelpfulCommand, near

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from ...declarations.declaration import Declaration
    from ...declarations.server import Server

DeclarationsByKind = dict[str, list[Any]]
# Model tools are those that clients call by a generic tool. The protocol's lists lack them.
KINDS = ("tools", "model_tools", "resources", "templates", "prompts")


class Command(HelpfulCommand):
    help = (
        "Show what a server exposes: all declarations or, with --user, those that the user\n"
        "may use. Keep a snapshot file in version control, and compare it in CI with --check."
    )
    examples = [
        ("", "every tool, resource and prompt, and the permission that it requires"),
        ("refund", "one declaration, with its arguments"),
        ("--user alice", "what alice may use"),
        ("--output mcp.json", "write a snapshot of all declarations"),
        (
            "--check mcp.json",
            "in CI: list differences from the snapshot; exit code 1 if there are any",
        ),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "name", metavar="NAME", nargs="?", help="name or URI of one declaration"
        )
        arguments.add_user(parser, "show only what this user may use (default: all declarations)")
        arguments.add_server(parser)
        parser.add_argument(
            "--format", choices=["table", "json", "snapshot"],
            help="json: definitions as the protocol's lists show them; snapshot: the same, sorted "
            "(default: table)",
        )  # fmt: skip
        snapshot = parser.add_mutually_exclusive_group()
        snapshot.add_argument(
            "--output", metavar="FILE", type=Path, help="write a snapshot to this file"
        )
        snapshot.add_argument("--check", metavar="FILE", type=Path, help="compare with a snapshot")

    def handle(self, *args: Any, name: str | None, user: str | None, **options: Any) -> None:
        principal = None if user is None else arguments.principal(user, options["scope"])
        if user is None and options["scope"]:
            raise CommandError("--scope needs --user.", returncode=2)
        server = arguments.server_with_declarations(options["server"])
        if options["output"] or options["check"]:
            if name is not None:
                raise CommandError(
                    "NAME cannot be combined with --output or --check.", returncode=2
                )
            self._snapshot(_definitions(server, principal), options["output"], options["check"])
        elif options["format"] in (None, "table"):
            self._tables(server, principal, user, name)
        else:
            self._write(_definitions(server, principal), name, options["format"])

    # Snapshots.

    def _snapshot(self, found: DeclarationsByKind, output: Path | None, check: Path | None) -> None:
        from ...testing.snapshots import canonical, text

        now = canonical(found)
        if check is not None:
            self._check(check, now)
        if output is not None:
            try:
                output.write_text(text(now), encoding="utf-8")
            except OSError as error:
                raise CommandError(f"{output}: {error.strerror}") from None
            self.note(f"Written to {output}.")

    def _check(self, file: Path, now: dict[str, Any]) -> None:
        from ...testing.snapshots import differences

        found = differences(_read(file), now)
        if found:
            for line in found:
                self.show(line)
            hint = f"If this is intended, update the file with --output {file}."
            raise CommandError(f"The server differs from {file}. {hint}")
        self.note(f"No differences from {file}.", self.style.SUCCESS)

    def _write(self, found: DeclarationsByKind, name: str | None, format: str) -> None:
        from ...testing.snapshots import canonical, text

        if name is not None:
            found = {kind: [one for one in found[kind] if _has_name(one, name)] for kind in found}
            if not any(found.values()):
                raise CommandError(f"There is no {name!r}.")
        if format == "snapshot":
            self.stdout.write(text(canonical(found)), ending="")
        else:
            self.show(json.dumps(found, indent=2, ensure_ascii=False))

    # Tables.

    def _tables(
        self, server: Server, principal: Principal | None, user: str | None, name: str | None
    ) -> None:
        found = _declarations_by_kind(server, principal)
        if name is not None:
            self._details([*_find_declarations(server, found, name, user)])
            return
        count = sum(map(len, found.values()))
        declarations = f"{count or 'no'} declaration{pluralize(count)}"
        if user:
            summary = f"{user} may use {declarations} of the server {server.public_name}."
        else:
            summary = f"The server {server.public_name} has {declarations}."
        self.stdout.write(summary)
        for kind in KINDS:
            if found[kind]:
                self._heading(kind.capitalize().replace("_", " "))
                self.write_table([_row(one) for one in found[kind]], self.style.SUCCESS)

    def _heading(self, heading: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(f"\n{heading}"))

    def _details(self, declarations: Iterable[Declaration]) -> None:
        for declaration in declarations:
            self.stdout.write(self.style.SUCCESS(declaration.name) + f", a {declaration._kind}")
            self.show(f"\n{declaration.description}\n" if declaration.description else "")
            self.write_table([*_facts(declaration)])
            for heading, schema in _schemas(declaration):
                self._heading(heading)
                self.write_table([*_lines(schema)], self.style.SUCCESS)


# Declarations and definitions.


def _declarations_by_kind(server: Server, principal: Principal | None) -> DeclarationsByKind:
    from ...calls.listing import usable

    source: Any = server._catalog
    if principal is not None:
        source = usable(arguments.local_request(principal, server))
    found = {kind: getattr(source, kind) for kind in KINDS}  # a catalog has dicts, not lists
    return {
        kind: list(declarations.values() if isinstance(declarations, dict) else declarations)
        for kind, declarations in found.items()
    }


def _definitions(server: Server, principal: Principal | None) -> DeclarationsByKind:
    """Return the definitions in the protocol's lists.

    Without a user, return those of all declarations with the permissions that they require.
    """
    if principal is None:
        declarations = _declarations_by_kind(server, None)
        return {
            kind: [_full_definition(declaration) for declaration in declarations[kind]]
            for kind in KINDS
            if declarations[kind] or kind != "model_tools"
        }
    from ...testing.client import Client

    scopes = None if principal.auth is None else principal.auth.scopes
    with Client(principal.user, server=server, scopes=scopes) as client:
        found: DeclarationsByKind = client.catalog()
        return found


def _full_definition(declaration: Any) -> dict[str, Any]:
    definition: dict[str, Any] = declaration._definition() | {"permission": declaration._rule}
    # Also of prompts, whose definitions do not contain the types of their arguments.
    if declaration._arguments.schema.get("properties"):
        definition["inputSchema"] = declaration._arguments.schema
    return definition | ({"rowSchema": declaration._row_schema()} if _has_rows(declaration) else {})


def _has_rows(declaration: Any) -> bool:
    from ...declarations.model_resources import ModelResource

    return isinstance(declaration, ModelResource)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        hint = f"'--output {file}' writes it."
        raise CommandError(f"{file}: {error.strerror}. {hint}", returncode=2) from None
    except ValueError as error:
        raise CommandError(f"{file} is not a snapshot: {error}", returncode=2) from None
    if not isinstance(found, dict):
        raise CommandError(f"{file} is not a snapshot.", returncode=2)
    return found


# Details.


def _has_name(definition: dict[str, Any], name: str) -> bool:
    return name in (definition.get(key) for key in ("name", "uri", "uriTemplate"))


def _find_declarations(
    server: Server, found: DeclarationsByKind, name: str, user: str | None
) -> Iterator[Any]:
    declarations = [declaration for kind in KINDS for declaration in found[kind]]
    named = [one for one in declarations if name in (one.name, getattr(one, "uri", None))]
    if not named:
        hint = near(name, [one.name for one in declarations])
        if user is not None:
            hint += f" 'manage.py mcp_explain {user}' lists what {user} may not use, and why."
        raise CommandError(f"The server {server.public_name} has no {name!r} here.{hint}")
    yield from named


def _row(declaration: Declaration) -> Sequence[str]:
    about = str(declaration.description or declaration.title or "").partition("\n\n")[0]
    return declaration.name, declaration._rule, " ".join(about.split())


def _facts(declaration: Any) -> Iterator[tuple[str, str]]:
    yield "permission", declaration._rule
    yield "declared", declaration._origin()
    if place := _place(declaration._source):
        yield "file", place
    if runs := declaration._runs:
        yield "runs", runs
    if uri := getattr(declaration, "uri", ""):
        yield "URI", uri
    if (generic := getattr(declaration, "_called_by", None)) is not None:
        yield "called by", generic.name
    for name in ("read_only", "destructive", "idempotent", "open_world", "listed", "mime_type"):
        if (value := getattr(declaration, name, None)) is not None:
            yield name, str(value)
    for name in ("search_fields", "filter_fields", "aggregate_fields", "group_fields", "ordering"):
        if value := getattr(declaration, name, ()):
            yield name, ", ".join(value)


def _place(source: Any) -> str:
    """Return the file and line of a function or class, or "" for a class without source code."""
    source = inspect.unwrap(source)
    try:
        file = Path(inspect.getsourcefile(source) or "")
        _, line = inspect.findsource(source)
    except (OSError, TypeError):
        return ""
    here = Path.cwd()
    return f"{file.relative_to(here) if file.is_relative_to(here) else file}:{line + 1}"


def _schemas(declaration: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if declaration._arguments.schema.get("properties"):
        yield "Arguments", declaration._arguments.schema
    if (schema := getattr(getattr(declaration, "_output", None), "schema", None)) is not None:
        yield "Returns", schema
    if _has_rows(declaration):
        yield "Fields", declaration._row_schema()


def _lines(schema: dict[str, Any]) -> Iterator[Sequence[str]]:
    from ...declarations.schema_summary import kind, lines

    found = lines(schema)
    if not found:
        yield (kind(schema),)
    for line in found:
        needed = "required" if line.required else f"default {line.default}" if line.default else ""
        yield line.name, line.type, needed, line.description
