"""
``manage.py mcp_connect``: show or write the configuration that a client needs to connect.

A token is printed only if it was given by an option or made by this command. It is never written to
a file that a project's developers share. stdout has only what is to be pasted.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser, no_translations
from django.db import router, transaction

from ...conf import settings
from ...declarations.server import Server, address, sse_address
from ...models import Token
from ...web.clients import (
    CLIENTS,
    NAME,
    PLACEHOLDER,
    ClientProgram,
    Entry,
    client,
    is_open,
    shell,
    short_name,
    signs_in,
)
from .. import arguments as command_arguments
from ..client_files import FileChange, Unwritable, own_command, write
from ..output import HelpfulCommand
from .mcp_token import make

COMMAND_TIMEOUT_SECONDS = 60  # timeout of a client's own command
SCOPE = ("--scope", "user")
PAIRS = (
    (
        ("--http", "the client sends requests to a running server (default)"),
        ("--stdio", "the client starts the server itself"),
    ),
    (
        ("--print", "print the configuration (default)"),
        ("--write", "write the client's configuration file"),
    ),
    (
        ("--global", "use your user configuration (default)"),
        ("--project", "use the configuration of the current folder"),
    ),
)


@dataclass(frozen=True)
class ServerEntry:
    """A server as a client should know it: started by ``command``, else at ``url``."""

    client: ClientProgram
    name: str
    url: str
    command: list[str] | None
    folder: Path | None  # the project's folder; None for the user's own configuration
    server: Server

    @property
    def path(self) -> Path | None:
        """The file to write to. None if the client has none, or writes it itself."""
        return self.client.file.path(self.folder) if self.client.file else None

    def entry(self, token: str | None) -> Entry:
        file = self.client.file
        assert file is not None
        return file.stdio(self.command) if self.command else file.http(self.url, token)

    def own_command(self, token: str | None) -> list[str]:
        """Return the client's own command that adds the server for all folders of the user."""
        assert self.client.add is not None and self.client.add_stdio is not None
        command = (
            self.client.add_stdio(self.name, self.command)
            if self.command
            else self.client.add(self.name, self.url, token)
        )
        return [*command[:3], *SCOPE, *command[3:]]


class Command(HelpfulCommand):
    help = (
        "Show what a client needs to connect to this project, or write it into the client's own "
        "configuration. Without CLIENT, list the supported clients."
    )
    examples = [
        ("cursor", "what to paste, and where"),
        (
            "cursor --user alice --new-token --write",
            "create a token and write Cursor's configuration file",
        ),
        (
            "claude-desktop --stdio --user alice --write",
            "let the client start the server over stdio",
        ),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "client",
            metavar="CLIENT",
            nargs="?",
            help="client to configure, such as cursor (default: list the clients)",
        )
        for pair in PAIRS:
            either = parser.add_mutually_exclusive_group()
            for option, help in pair:
                either.add_argument(option, action="store_true", help=help)
        parser.add_argument(
            "--user",
            metavar="NAME",
            help="user that the client acts as, with --stdio or --new-token",
        )
        secret = parser.add_mutually_exclusive_group()
        secret.add_argument(
            "--token",
            metavar="TOKEN",
            help="access token that the client sends; - reads it from stdin",
        )
        secret.add_argument(
            "--new-token", action="store_true", help="create an access token for --user"
        )
        command_arguments.add_server(parser)
        parser.add_argument(
            "--name", metavar="NAME", help="name of the server in the client's configuration"
        )

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        if options["client"] is None:
            self._list()
            return
        wanted = requested_entry(options)
        token = checked_token_option(options["token"])
        check(wanted, options, token)
        if token is None and needs_none(wanted.server):
            token = ""  # the snippet has no placeholder for a token
        if options["new_token"]:
            self._with_new_token(wanted, options["user"], options["write"])
        else:
            (self._write if options["write"] else self._print)(wanted, token)
        self._warn_about_options(wanted, token, options)

    # Output.

    def _list(self) -> None:
        rows = [(one.key, one.name, "http, stdio" if starts(one) else "http") for one in CLIENTS]
        self.write_table(rows, self.style.SUCCESS, indent="")
        self.note("To show the configuration of a client: manage.py mcp_connect CLIENT")

    def _print(self, wanted: ServerEntry, token: str | None) -> None:
        one, found = wanted.client, None
        if wanted.command:
            found = one.stdio_snippet(wanted.name, wanted.command)
        else:
            found = one.snippet(wanted.name, url=wanted.url, token=token)
        assert found is not None
        self.note(f"{one.name}. {found.where}:")
        self.stdout.write(found.text)

    def _write(self, wanted: ServerEntry, token: str | None) -> None:
        try:
            (write_file if wanted.path else run_client_command)(wanted, token, self.note)
        except Unwritable as error:
            hint = "mcp_connect --print shows what to put there by hand."
            raise CommandError(f"{error}\n{hint}") from None

    def _with_new_token(self, wanted: ServerEntry, user: str, writes: bool) -> None:
        """Make a token and print or write it. The token is rolled back if that fails."""
        label = f"{wanted.client.name}: {wanted.name}"
        try:
            with transaction.atomic(using=router.db_for_write(Token)):
                token, secret = make(user, label, server=wanted.server.name)
                (self._write if writes else self._print)(wanted, secret)
        except command_arguments.DATABASE_ERRORS as error:
            raise command_arguments.database_error(error) from error
        self.note(f"Token {token.pk} acts for {user!r} and expires {token.expires:%Y-%m-%d}.")

    def _warn_about_options(
        self, wanted: ServerEntry, token: str | None, options: dict[str, Any]
    ) -> None:
        """Warn about what may not be intended."""
        if wanted.command:
            if not options["user"]:
                self._warn("Without --user, the client can use only what is PUBLIC.")
            return
        if "URL" not in settings.given():
            self._warn(f'DJANGO_MCP["URL"] is not set, so the address is {wanted.url}.')
        if old := sse_address(wanted.server):
            self.note(f"Clients that support only HTTP+SSE use {old}.")
        if token is None and not options["new_token"] and not wanted.client.advice:
            self._warn(self._missing_token_message(wanted, options))

    def _missing_token_message(self, wanted: ServerEntry, options: dict[str, Any]) -> str:
        advice = f"mcp_connect {wanted.client.key} --user NAME --new-token creates one"
        if options["write"]:
            return f"Without a token, the client can use only what is PUBLIC: {advice}."
        return f"Replace {PLACEHOLDER} with an access token: {advice}."

    def _warn(self, words: str) -> None:
        self.note(words, self.style.WARNING)


# Options.


def requested_entry(options: dict[str, Any]) -> ServerEntry:
    """Return what the options ask for. Raise ``CommandError`` for unknown names."""
    try:
        found = client(options["client"])
    except LookupError as error:
        raise CommandError(str(error)) from None
    server = command_arguments.find_server(options["server"])
    name = options["name"] or short_name(server)
    if not NAME.fullmatch(name):
        raise CommandError("--name must be 1 to 64 letters, digits, - and _, the first not -.")
    command = own_command(options["user"], server) if options["stdio"] else None
    folder = Path.cwd() if options["project"] else None
    return ServerEntry(found, name, address(server), command, folder, server)


def checked_token_option(token: str | None) -> str | None:
    """Return the token of the option. Raise ``CommandError``, which does not contain it."""
    if token == "-":
        token = sys.stdin.readline(4096).strip()
    return command_arguments.checked_token(token)


def check(wanted: ServerEntry, options: dict[str, Any], token: str | None) -> None:
    """Raise ``CommandError`` if options do not fit together."""
    for wrong in problems(wanted, options, token is not None or options["new_token"]):
        raise CommandError(wrong, returncode=2)
    if wanted.command and options["user"]:
        command_arguments.principal(options["user"])


def problems(wanted: ServerEntry, options: dict[str, Any], secret: bool) -> Iterator[str]:
    one = wanted.client
    if wanted.command is None:
        if options["user"] and not options["new_token"]:
            yield "--user needs --stdio or --new-token: over HTTP, the token decides the user."
        if options["new_token"] and not options["user"]:
            yield "--new-token needs the user that the token acts as: --user NAME."
        if secret and one.advice:
            yield f"{one.name} cannot send an access token: it can use only what is PUBLIC."
    elif secret:
        yield "Over stdio there is no token: name the user with --user."
    elif not starts(one):
        yield f"{one.name} cannot start a program: it connects over HTTP."
    if options["write"]:
        yield from problems_of_writing(wanted, secret)


def problems_of_writing(wanted: ServerEntry, secret: bool) -> Iterator[str]:
    one = wanted.client
    if one.file is None:
        yield f"{one.name} has no configuration file to write to: --print shows what to do."
    elif wanted.folder and wanted.path is None:
        yield f"{one.name} has no configuration file for a project: use --global."
    elif wanted.folder and secret:
        yield (
            f"{one.file.project} may be shared with others, and the token is one user's: use "
            "--global to write it to your own configuration, or --stdio, which needs none."
        )


def starts(one: ClientProgram) -> bool:
    """Whether the client can start a program and use stdio."""
    return one.stdio_snippet("name", ["command"]) is not None


def needs_none(server: Server) -> bool:
    """Whether a token would allow nothing more, or clients get one by OAuth."""
    return not server._is_empty and (is_open(server) or signs_in(server))


# Writing.


def write_file(wanted: ServerEntry, token: str | None, say: Callable[[str], None]) -> None:
    """Write the client's file and report the change. Raise ``Unwritable``."""
    file, path = wanted.client.file, wanted.path
    assert file is not None and path is not None
    done = write(file, path, wanted.name, wanted.entry(token), secret=bool(token))
    say(change_summary(done, wanted.name))
    if done.backup:
        say(f"The file before the change: {done.backup}")


def change_summary(done: FileChange, name: str) -> str:
    if done.kind == "same":
        return f"{name!r} is in {done.path} already: nothing was changed."
    rest = f"; {done.others} others are unchanged" if done.others else ""
    if done.kind == "added":
        return f"Added {name!r} to {done.path}{rest}."
    return f"Replaced {', '.join(done.keys)} of {name!r} in {done.path}{rest}."


def run_client_command(wanted: ServerEntry, token: str | None, say: Callable[[str], None]) -> None:
    """Run the client's own command, which writes its configuration. Raise ``Unwritable``."""
    adding = wanted.own_command(token)
    program = shutil.which(adding[0])
    if program is None:
        name = wanted.client.name
        raise Unwritable(f"The command {adding[0]!r} of {name} is not on the PATH.")
    done = run(program, adding[1:])
    if "already exists" in f"{done.stdout}{done.stderr}":
        run(program, ["mcp", "remove", *SCOPE, wanted.name])
        done = run(program, adding[1:])
    if done.returncode:
        output = f"{done.stdout}{done.stderr}".strip()
        raise Unwritable(f"{shell(adding[:3])}: {mask_token(output, token)}")
    say(f"Added {wanted.name!r} to {wanted.client.name}, for all your folders.")


def run(program: str, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=COMMAND_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unwritable(f"{program}: {type(error).__name__}") from None


def mask_token(text: str, token: str | None) -> str:
    return text.replace(token, PLACEHOLDER) if token else text
