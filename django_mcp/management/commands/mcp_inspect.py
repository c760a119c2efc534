"""
``manage.py mcp_inspect``: show what a server exposes, for people, programs and CI.

With ``--user`` it shows what that user may use. Without it, it shows all declarations with the
permission that each requires.
"""

from __future__ import annotations

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

Things = dict[str, list[Any]]
KINDS = ("tools", "resources", "templates", "prompts")


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

    def _snapshot(self, found: Things, output: Path | None, check: Path | None) -> None:
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

    def _write(self, found: Things, name: str | None, format: str) -> None:
        from ...testing.snapshots import canonical, text

        if name is not None:
            found = {kind: [one for one in found[kind] if _has_name(one, name)] for kind in KINDS}
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
        found = _things(server, principal)
        if name is not None:
            self._details([*_find_things(server, found, name, user)])
            return
        count = sum(map(len, found.values()))
        declarations = f"{count or 'no'} declaration{pluralize(count)}"
        if user:
            words = f"{user} may use {declarations} of the server {server.public_name}."
        else:
            words = f"The server {server.public_name} has {declarations}."
        self.stdout.write(words)
        for kind in KINDS:
            if found[kind]:
                self._heading(kind.capitalize())
                self.write_table([_row(one) for one in found[kind]], self.style.SUCCESS)

    def _heading(self, words: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(f"\n{words}"))

    def _details(self, things: Iterable[Declaration]) -> None:
        for thing in things:
            self.stdout.write(self.style.SUCCESS(thing.name) + f", a {thing._kind}")
            self.show(f"\n{thing.description}\n" if thing.description else "")
            self.write_table([*_facts(thing)])
            for heading, schema in _schemas(thing):
                self._heading(heading)
                self.write_table([*_lines(schema)], self.style.SUCCESS)


# Declarations and definitions.


def _things(server: Server, principal: Principal | None) -> Things:
    from ...calls.listing import usable

    source: Any = server._catalog
    if principal is not None:
        source = usable(arguments.local_request(principal, server))
    found = {kind: getattr(source, kind) for kind in KINDS}  # a catalog has dicts, not lists
    return {
        kind: list(things.values() if isinstance(things, dict) else things)
        for kind, things in found.items()
    }


def _definitions(server: Server, principal: Principal | None) -> Things:
    """Return the definitions in the protocol's lists.

    Without a user, return those of all declarations with the permissions that they require.
    """
    if principal is None:
        things = _things(server, None)
        return {kind: [_full_definition(thing) for thing in things[kind]] for kind in KINDS}
    from ...testing.client import Client

    scopes = None if principal.auth is None else principal.auth.scopes
    with Client(principal.user, server=server, scopes=scopes) as client:
        found: Things = client.catalog()
        return found


def _full_definition(thing: Any) -> dict[str, Any]:
    definition: dict[str, Any] = thing._definition() | {"permission": thing._rule}
    # Also of prompts, whose definitions do not contain the types of their arguments.
    if thing._arguments.schema.get("properties"):
        definition["inputSchema"] = thing._arguments.schema
    return definition | ({"rowSchema": thing._row_schema()} if _has_rows(thing) else {})


def _has_rows(thing: Any) -> bool:
    from ...declarations.model_resources import ModelResource

    return isinstance(thing, ModelResource)


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


def _find_things(server: Server, found: Things, name: str, user: str | None) -> Iterator[Any]:
    things = [thing for kind in KINDS for thing in found[kind]]
    named = [one for one in things if name in (one.name, getattr(one, "uri", None))]
    if not named:
        hint = near(name, [one.name for one in things])
        if user is not None:
            hint += f" 'manage.py mcp_explain {user}' lists what {user} may not use, and why."
        raise CommandError(f"The server {server.public_name} has no {name!r} here.{hint}")
    yield from named


def _row(thing: Declaration) -> Sequence[str]:
    about = str(thing.description or thing.title or "").partition("\n\n")[0]
    return thing.name, thing._rule, " ".join(about.split())


def _facts(thing: Any) -> Iterator[tuple[str, str]]:
    yield "permission", thing._rule
    yield "declared", thing._origin()
    if uri := getattr(thing, "uri", ""):
        yield "URI", uri
    for name in ("read_only", "destructive", "idempotent", "open_world", "listed", "mime_type"):
        if (value := getattr(thing, name, None)) is not None:
            yield name, str(value)
    for name in ("search_fields", "filter_fields", "ordering"):
        if value := getattr(thing, name, ()):
            yield name, ", ".join(value)


def _schemas(thing: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    if thing._arguments.schema.get("properties"):
        yield "Arguments", thing._arguments.schema
    if (schema := getattr(getattr(thing, "_output", None), "schema", None)) is not None:
        yield "Returns", schema
    if _has_rows(thing):
        yield "Fields", thing._row_schema()


def _lines(schema: dict[str, Any]) -> Iterator[Sequence[str]]:
    from ...declarations.schema_summary import kind, lines

    found = lines(schema)
    if not found:
        yield (kind(schema),)
    for line in found:
        needed = "required" if line.required else f"default {line.default}" if line.default else ""
        yield line.name, line.type, needed, line.description
