"""
``CommandTool`` and ``command_tool``: management commands as tools.

The arguments come from the command's own argparse parser, and every value passes through its types
and choices. No command line is built: a value such as ``--all`` is a value and never becomes an
option, and ``@file`` is never read as a file of arguments.

A command runs with the rights of the server process and not with those of the user. So each
command needs a ``permission``, and ``options`` limit what it does for a user.

The command writes to streams of the call, not to ``sys.stdout``. Each write first checks whether
the call was cancelled, and ends the command if so.
"""

from __future__ import annotations

import argparse
import difflib
import io
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.core.checks import CheckMessage, Warning
from django.core.management import get_commands, load_command_class
from django.core.management.base import BaseCommand, CommandError, CommandParser

from ..conf import settings
from ..declarations import permissions
from ..declarations.arguments import Arguments
from ..declarations.content import json_problem
from ..declarations.declaration import REQUIRED, Declaration, Find, prose
from ..declarations.outputs import Output
from ..declarations.permissions import AUTHENTICATED, PUBLIC, Permission
from ..declarations.server import register
from ..declarations.tools import Tool
from ..exceptions import InvalidArguments, Stopped, ToolError
from ..protocol.http_rules import Mirrored
from .form_input import refuse_unknown

if TYPE_CHECKING:
    from ..declarations.request import Request
    from ..declarations.server import Server

JSON = dict[str, Any]
MAX_OUTPUT_LENGTH, MAX_ERRORS_LENGTH = 100_000, 10_000  # characters of a result
MAX_LINE_LENGTH = 2_000  # characters of one progress or log message
MAX_CHOICES = 200  # of one argument that a schema lists
NO_INPUT_OPTIONS = ("--no-input", "--noinput")
# The schema of a value, by the ``type`` of its argument in argparse. All other types are strings.
SCHEMAS_BY_TYPE: Sequence[tuple[Any, JSON]] = (
    (int, {"type": "integer"}),
    (float, {"type": "number"}),
    (bool, {"type": "boolean"}),
    (date.fromisoformat, {"type": "string", "format": "date"}),
    (UUID, {"type": "string", "format": "uuid"}),
)
RUNS_ANY_CODE = "It runs any code or SQL that it is given."
NEVER_ENDS = "It starts another server, or waits for input, and does not end by itself."
SHOWS_ALL_DATA = "Its output shows data of all users."
GIVES_ACCESS = "It gives access as any user."
DELETES_DATA = "It deletes or replaces data of all users."
CHANGES_CODE = "It changes the database schema or files of the project."
# Why a command should not be a tool.
DANGEROUS_COMMANDS = {
    **dict.fromkeys(("runscript", "shell", "shell_plus"), RUNS_ANY_CODE),
    **dict.fromkeys(
        ("dbshell", "mcp_stdio", "runserver", "runserver_plus", "test", "testserver"), NEVER_ENDS
    ),
    **dict.fromkeys(("diffsettings", "dumpdata", "print_settings"), SHOWS_ALL_DATA),
    **dict.fromkeys(("changepassword", "createsuperuser", "mcp_call", "mcp_token"), GIVES_ACCESS),
    **dict.fromkeys(("flush", "loaddata", "reset_db", "sqlflush"), DELETES_DATA),
    **dict.fromkeys(
        (
            "makemigrations", "migrate", "optimizemigration", "squashmigrations", "startapp",
            "startmcp", "startproject",
        ),
        CHANGES_CODE,
    ),
}  # fmt: skip


def command_tool(command: str, /, *, server: Server | None = None, **options: Any) -> None:
    """Expose a management command as a tool.

    Options: ``server``, and the attributes of ``CommandTool``. ``permission`` is required.
    """
    # As a plain attribute, a permission function would be a method and get ``self`` too.
    body = {name: staticmethod(one) if callable(one) else one for name, one in options.items()}
    # Messages show the module of the class, which must be the mcp.py that calls this function.
    body |= {"command": command, "__module__": sys._getframe(1).f_globals["__name__"]}
    register(type(command, (CommandTool,), body), server=server)


class CommandTool(Tool):
    """A management command as a tool. Register a subclass with a ``command`` and a ``permission``.

    ``arguments`` are the names of the arguments that clients may give. None offers all, except
    those of every Django command, such as ``--settings``.

    ``options`` are values that clients cannot give, as ``call_command`` takes them.

    A command manages its transactions itself, so ``atomic`` is False by default.
    """

    permission: Permission = REQUIRED
    atomic: bool | str = False
    command: str = ""
    arguments: Sequence[str] | None = None
    options: Mapping[str, Any] = {}

    _ignored_attributes = frozenset({"input_schema", "output_schema"})

    def get_options(self, request: Request) -> Mapping[str, Any]:
        """Return the options that clients cannot give, by the names that ``call_command`` takes."""
        return self.options

    def handle(self, request: Request, **options: Any) -> str:
        """Run the command and return what it wrote. Raise ``ToolError`` if it fails.

        ``options`` are those of the command's own ``handle``.
        """
        output = LineStream(request, MAX_OUTPUT_LENGTH, self._send_progress(request))
        errors = LineStream(request, MAX_ERRORS_LENGTH, self._send_log(request))
        positional = options.pop("args", ())
        # The escape codes of colors are unreadable outside of a terminal.
        options |= {"stdout": output, "stderr": errors, "skip_checks": True}
        options |= {"no_color": True, "force_color": False}
        try:
            load_command(self.command).execute(*positional, **options)
        except CommandError as error:
            raise self._failure(str(error), error.returncode, output, errors) from error
        except SystemExit as error:
            if error.code not in (None, 0):
                code = error.code if isinstance(error.code, int) else 1
                message = "" if error.code is code else str(error.code)
                raise self._failure(message, code, output, errors) from error
        errors.finish()
        return output.finish() or f"{self.command} has finished and wrote nothing."

    def _send_progress(self, request: Request) -> Callable[[str], None]:
        count = 0

        def send(line: str) -> None:
            nonlocal count
            count += 1
            request.progress(count, message=line)

        return send

    def _send_log(self, request: Request) -> Callable[[str], None]:
        return lambda line: request.log("warning", line, logger=self.command)

    def _failure(
        self, message: str, code: int, output: LineStream, errors: LineStream
    ) -> ToolError:
        """Return the error of a command that failed, with what it wrote before."""
        parts = [message, errors.finish(), output.finish()]
        words = "\n".join(part for part in parts if part)
        return ToolError(f"{self.command} failed with exit code {code}. {words}".strip())

    @property
    def _runs(self) -> str:
        return permissions.path(type(load_command(self.command)))

    # Resolution.

    @cached_property
    def _parser(self) -> OfferedParser:
        """The command's parser, for the schema and the checks."""
        return OfferedParser(load_command(self.command), self.arguments, self.options)

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        self.name = self.name or self.command
        states_permission = self.permission is not REQUIRED
        if not states_permission:
            # ``Declaration._resolve`` needs a permission. E261 reports that there is none.
            self.permission = AUTHENTICATED
        yield from (wrong := [*self._loading_problems()])
        if wrong:
            return
        help_text = str(load_command(self.command).help or "")
        own = prose(vars(type(self)).get("__doc__"))
        self.description = self.description or own or help_text or None
        yield from Declaration._resolve(self, find)
        yield from self._permission_problems(states_permission)
        yield from (wrong := [*self._offer_problems()])
        if not wrong:
            self._arguments, self._output = CommandArguments(self), Output()
            yield from self._argument_problems()
            yield from self._hint_problems()

    def _loading_problems(self) -> Iterator[CheckMessage]:
        known = get_commands()
        if self.command not in known:
            near = difflib.get_close_matches(self.command, known, 1)
            hint = f"Did you mean {near[0]!r}?" if near else "See the list of manage.py help."
            yield self._error(f"There is no management command {self.command!r}.", 260, hint)
            return
        try:
            _ = self._parser
        except Exception as error:  # commands run the project's code
            words = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            message = f"The command {self.command!r} cannot be loaded ({words})."
            yield self._error(message, 268, f"Run manage.py help {self.command}.")

    def _permission_problems(self, is_stated: bool) -> Iterator[CheckMessage]:
        hint = 'Write a codename such as permission="billing.close_month", or a function.'
        overrides = type(self).has_permission is not Declaration.has_permission
        if self.permission is PUBLIC or not (is_stated or overrides):
            given = "mcp.PUBLIC" if self.permission is PUBLIC else "no permission"
            message = f"A command runs with the rights of the server, and this tool has {given}."
            yield self._error(message, 261, hint)
        elif self.permission is AUTHENTICATED and not overrides:
            message = "Every user may run this command with the rights of the server."
            yield Warning(message, hint=hint, obj=self, id="django_mcp.W260")
        if why := DANGEROUS_COMMANDS.get(self.command):
            hint = "Write a command or tool that does only what clients need."
            message = f"The command {self.command!r} is dangerous as a tool. {why}"
            yield Warning(message, hint=hint, obj=self, id="django_mcp.W261")

    def _offer_problems(self) -> Iterator[CheckMessage]:
        parser = self._parser
        for name in self.arguments or ():
            if name not in parser.offered:
                hint = f"The arguments are: {', '.join(parser.known) or 'none'}."
                why = (
                    "options sets it"
                    if name in parser.known
                    else "the command has no such argument"
                )
                yield self._error(f"arguments names {name!r}, but {why}.", 262, hint)
        for one in parser.offered.values():
            if wrong := one.problem:
                hint = "Leave it out: list the arguments to offer in arguments."
                yield self._error(f"The argument {one.name!r} {wrong}.", 263, hint)
        for name in self.options:
            if name not in parser.option_names:
                hint = f"The options are: {', '.join(sorted(parser.option_names))}."
                yield self._error(
                    f"options has {name!r}, which call_command does not accept.", 264, hint
                )
        if type(self).get_options is CommandTool.get_options:
            for one in parser.missing_required(self.options):
                message = f"The command requires {one.name!r}, which clients cannot give."
                yield self._error(
                    message, 265, "Add it to arguments, or give its value in options."
                )


def load_command(name: str) -> BaseCommand:
    """Return a new instance of a command. Each call needs its own, which stores its streams."""
    app = get_commands()[name]
    return app if isinstance(app, BaseCommand) else load_command_class(app, name)


# Arguments.


@dataclass(frozen=True)
class CommandArgument:
    """One argument of a command: its action in argparse, and the name that clients use."""

    name: str
    action: argparse.Action

    @property
    def is_flag(self) -> bool:
        return self.action.nargs == 0

    @property
    def repeats(self) -> bool:
        """Whether the option may be given several times, with one value each."""
        return isinstance(self.action, argparse._AppendAction) and self.action.nargs is None

    @property
    def is_list(self) -> bool:
        return self.repeats or self.action.nargs not in (None, argparse.OPTIONAL)

    @property
    def is_required(self) -> bool:
        # argparse marks a positional argument "*" without a default as required, and accepts none.
        return self.action.required and self.action.nargs != argparse.ZERO_OR_MORE

    @property
    def problem(self) -> str | None:
        """Why a client cannot give this argument, or None."""
        if _opens_files(self.action.type):
            return "opens any file of the server"
        if self.action.nargs in (argparse.PARSER, argparse.REMAINDER):
            return "is a command line of its own"
        if type(self.action) is argparse._AppendAction and self.action.nargs is not None:
            return "is a list of lists"
        return None

    def schema(self, parser: CommandParser) -> JSON:
        """Return the JSON Schema of the argument."""
        if self.is_flag:
            schema: JSON = {"type": "boolean"}
        elif self.is_list:
            schema = {"type": "array", "items": self._item_schema()} | self._length()
        else:
            schema = self._item_schema()
        if words := self._description(parser):
            schema["description"] = words
        default = self.action.default
        has_default = default not in (None, argparse.SUPPRESS) and not self.is_flag
        if has_default and json_problem(default) is None:
            schema["default"] = default
        return schema

    def _item_schema(self) -> JSON:
        schema = next(
            (dict(one) for kind, one in SCHEMAS_BY_TYPE if kind == self.action.type), None
        )
        schema = schema or {"type": "string"}
        choices = self.action.choices
        if choices is None or len(listed := [*choices]) > MAX_CHOICES:
            return schema
        plain = schema["type"] in ("integer", "number")
        return schema | {"enum": [one if plain else str(one) for one in listed]}

    def _length(self) -> JSON:
        if isinstance(count := self.action.nargs, int):
            return {"minItems": count, "maxItems": count}
        return {"minItems": 1} if self.repeats or count == argparse.ONE_OR_MORE else {}

    def _description(self, parser: CommandParser) -> str:
        """Return the help text with its values, such as ``%(default)s``."""
        return parser._get_formatter()._expand_help(self.action) if self.action.help else ""

    def apply(self, parser: CommandParser, namespace: argparse.Namespace, value: Any) -> None:
        """Set the value in ``namespace``, by the action of argparse.

        Raise ``ArgumentError``, or what the action raises.
        """
        strings = self.action.option_strings
        option = strings[0] if strings else None
        if self.is_flag:
            if not value and isinstance(self.action, argparse.BooleanOptionalAction):
                option = next(one for one in strings if one.startswith("--no-"))
            elif not value:
                return
            self.action(parser, namespace, [], option)
            return
        texts = [_text(one) for one in (value if self.is_list else [value])]
        values = [parser._get_value(self.action, text) for text in texts]
        for one in values:
            parser._check_value(self.action, one)
        if self.repeats or not self.is_list:
            for one in values:
                self.action(parser, namespace, one, option)
        else:
            self.action(parser, namespace, values, option)


def _text(value: Any) -> str:
    """Return a JSON value as the text that the ``type`` of an argument reads."""
    if isinstance(value, bool):
        return "1" if value else ""  # ``bool()`` of any other text, such as "False", is True
    return str(value)


def _opens_files(kind: Any) -> bool:
    """Whether the ``type`` of an argument opens the file that a client names.

    Functions of a project that open files cannot be recognized.
    """
    while isinstance(kind, partial):
        kind = kind.func
    return kind is open or isinstance(kind, argparse.FileType)


class OfferedParser:
    """The parser of a command, and the arguments that clients may give.

    ``known`` are all arguments that the command adds, by name. ``offered`` are those of them that
    clients may give.
    """

    def __init__(
        self, command: BaseCommand, names: Sequence[str] | None, options: Mapping[str, Any]
    ) -> None:
        self._command, self._options = command, options
        self.parser = command.create_parser("manage.py", "")
        common_options = {
            each.dest for each in BaseCommand().create_parser("manage.py", "")._actions
        }
        self._no_input = [
            each for each in self.parser._actions if {*each.option_strings} & {*NO_INPUT_OPTIONS}
        ]
        self.known = {
            (name := _client_name(each)): CommandArgument(name, each)
            for each in self.parser._actions
            if each.dest not in common_options and each not in self._no_input
        }
        self.offered = {
            name: one
            for name, one in self.known.items()
            if one.action.dest not in options
            and (one.action.help != argparse.SUPPRESS if names is None else name in names)
        }

    @property
    def option_names(self) -> set[str]:
        """The options that ``call_command`` accepts for this command."""
        stealth = {*self._command.stealth_options}
        return {each.dest for each in self.parser._actions} - {argparse.SUPPRESS, "help"} | stealth

    def missing_required(self, options: Mapping[str, Any]) -> list[CommandArgument]:
        """Return required arguments that are neither offered nor in ``options``."""
        return [
            one
            for name, one in self.known.items()
            if one.is_required and name not in self.offered and one.action.dest not in options
        ]

    @property
    def schema(self) -> JSON:
        properties = {name: one.schema(self.parser) for name, one in self.offered.items()}
        for names, is_required in self._groups:
            rule = "Give exactly one of" if is_required else "Give at most one of"
            for name in names:
                words = properties[name].get("description", "")
                properties[name]["description"] = f"{words} {rule} {', '.join(names)}.".strip()
        required = [name for name, one in self.offered.items() if one.is_required]
        schema: JSON = {"type": "object", "additionalProperties": False}
        schema |= {"properties": properties} if properties else {}
        return schema | ({"required": required} if required else {})

    @property
    def _groups(self) -> Iterator[tuple[list[str], bool]]:
        """Yield the offered names of each mutually exclusive group, and whether one is required."""
        for group in self.parser._mutually_exclusive_groups:
            members = group._group_actions
            names = [name for name, one in self.offered.items() if one.action in members]
            is_required = group.required and not any(each.dest in self._options for each in members)
            if len(names) > 1 or (names and is_required):
                yield names, is_required

    def parse(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of the command's ``handle``. Raise ``InvalidArguments``."""
        namespace = argparse.Namespace()
        try:
            for action in self.parser._actions:
                self._set_default(namespace, action)
            for action in self._no_input:
                action(self.parser, namespace, [], action.option_strings[0])
            for name, value in given.items():
                self.offered[name].apply(self.parser, namespace, value)
        except (argparse.ArgumentError, CommandError) as error:
            message = str(error)[:MAX_LINE_LENGTH]  # it quotes the value
            raise InvalidArguments(f"Invalid arguments. {message}") from error
        for names, is_required in self._groups:
            # ``false`` means that the flag is not given.
            count = sum(given.get(name) not in (None, False) for name in names)
            if count > 1 or (is_required and not count):
                rule = "exactly one" if is_required else "at most one"
                raise InvalidArguments(f"Invalid arguments. Give {rule} of {', '.join(names)}.")
        return vars(namespace)

    def _set_default(self, namespace: argparse.Namespace, action: argparse.Action) -> None:
        """Set the default of an argument. As in argparse, ``type`` converts a default text."""
        default = action.default
        if action.dest == argparse.SUPPRESS or default == argparse.SUPPRESS:
            return
        if isinstance(default, str):
            default = self.parser._get_value(action, default)
        if default is None and action.nargs == argparse.ZERO_OR_MORE and not action.option_strings:
            default = []
        if not hasattr(namespace, action.dest):
            setattr(namespace, action.dest, default)


def _client_name(action: argparse.Action) -> str:
    """Return the name that clients use: that of the long option, or of the positional argument."""
    if action.option_strings:
        named = max(action.option_strings, key=lambda one: (one.startswith("--"), len(one)))
        if isinstance(action, argparse.BooleanOptionalAction):
            named = action.option_strings[0]
        return re.sub(r"\W", "_", named.lstrip("-"))
    # Commands of Django that take labels store them in "args". Their metavar is the readable name.
    shown = action.metavar if action.dest == "args" else action.dest
    return re.sub(r"\W", "_", shown if isinstance(shown, str) else action.dest).strip("_")


class CommandArguments(Arguments):
    """The arguments of a ``CommandTool``, which become the options of its command."""

    def __init__(self, tool: CommandTool) -> None:
        super().__init__(schema=tool._parser.schema, handwritten=True)
        self._tool = tool

    def read(self, given: Mapping[str, Any], mirrored: Mirrored | None = None) -> dict[str, Any]:
        refuse_unknown(given, self.schema.get("properties", {}))
        return super().read(given, mirrored)

    @property
    def binds(self) -> bool:
        return True  # the types of arguments are functions of the project, which may query

    def bind(self, values: dict[str, Any], request: Request, *, write: bool) -> dict[str, Any]:
        tool = self._tool
        options = dict(tool.get_options(request))
        # A new parser for each call, because its actions may change their command.
        parser = OfferedParser(load_command(tool.command), tool.arguments, tool.options)
        return parser.parse(values) | options


# Output.


class LineStream(io.TextIOBase):
    """A stream for a command's output. It passes each line to ``send``.

    It keeps the last ``limit`` characters for the result. If the call was cancelled, a write raises
    ``Stopped``, which ends the command.
    """

    def __init__(self, request: Request, limit: int, send: Callable[[str], None]) -> None:
        self._request, self._send = request, send
        self._limit = min(limit, settings.RESULT_SIZE // 4)  # leave room for both streams
        self._chunks: deque[str] = deque()
        self._length = self._total = 0  # characters in ``_chunks``, and of all that was written
        self._line = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._request.cancelled:
            raise Stopped()
        self._keep(text)
        *lines, self._line = re.split(r"[\r\n]", self._line + text)
        for line in lines:
            self._send_line(line)
        if len(self._line) > MAX_LINE_LENGTH:
            self._send_line(self._line)
            self._line = ""
        return len(text)

    def _keep(self, text: str) -> None:
        """Keep the last ``limit`` characters, so that endless output does not fill the memory."""
        self._chunks.append(text[-self._limit :])
        self._length += len(self._chunks[-1])
        self._total += len(text)
        while self._length - len(self._chunks[0]) >= self._limit:
            self._length -= len(self._chunks.popleft())

    def _send_line(self, line: str) -> None:
        if line.strip():
            self._send(line.rstrip()[:MAX_LINE_LENGTH])

    def finish(self) -> str:
        """Send the last line if it has no line break. Return the last ``limit`` characters."""
        self._send_line(self._line)
        self._line = ""
        text = "".join(self._chunks)[-self._limit :]
        omitted = self._total - len(text)
        note = f"(The first {omitted:,} characters are left out.)\n" if omitted else ""
        return note + text.rstrip()
