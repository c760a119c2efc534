"""``manage.py mcp_call``: call one tool as a user, with that user's permissions.

The call uses the same code as a client's call, and the tool's changes are committed. ``--dry-run``
rolls them back. stdout has the result and nothing else. If the tool fails, the exit code is 1.

The command calls the tool through the test client, which calls ``elicit``, ``visit`` and ``sample``
of ``TerminalQuestions`` when the tool asks. If nobody can be prompted, as in a pipe or with
``--no-input``, a question that the options do not answer is an error that names the option. Prompts
go to stderr, so that stdout has only the tool's result.
"""

from __future__ import annotations

import asyncio
import base64
import json
import mimetypes
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from django.core.management.base import CommandError, CommandParser
from django.db import connections, transaction

from ...declarations.schema_summary import PropertyLine, kind, lines
from ...declarations.schemas import violations
from ...protocol.jsonrpc import MISSING_CAPABILITY
from ...testing.peers import CANCEL, DECLINE, Refusal
from .. import arguments as command_arguments
from ..arguments import PAIR, arguments, typed_value
from ..output import HelpfulCommand, near, printable

if TYPE_CHECKING:
    from ...auth.principal import Principal
    from ...declarations.server import Server
    from ...testing import AsyncClient, Result

JSON = dict[str, Any]

INTERACTIVE_TIMEOUT_SECONDS = 86_400  # so long, because a person can press Ctrl-C
INTERRUPTED = 130
ROLLED_BACK = "Rolled back: no database has changed. Other effects, such as emails, remain."
BINARY = {"image": "data", "audio": "data", "resource": "blob"}


class InputEnded(Exception):
    """The user ended the input (Ctrl-D)."""


class TerminalQuestions:
    """Answer questions from ``answers``, which are ``KEY=VALUE`` texts, or by prompting.

    Prompts go to ``write``. ``answers_yes`` answers yes to every yes-or-no field that ``answers``
    lacks. ``can_prompt`` is whether a person can be prompted. If not, a question whose required
    fields lack an answer raises ``CommandError``.
    """

    def __init__(
        self,
        input_stream: TextIO,
        write: Callable[[str], None],
        answers: Sequence[str],
        *,
        answers_yes: bool,
        can_prompt: bool,
    ) -> None:
        self._input_stream, self._write = input_stream, write
        self._answers_yes, self.can_prompt = answers_yes, can_prompt
        self._answers: dict[str, list[str]] = {}
        for one in answers:
            pair = PAIR.fullmatch(one)
            if pair is None or pair["sign"] != "=":  # ":=" is for the JSON of arguments
                hint = "write --answer KEY=VALUE."
                raise CommandError(f"{one!r} is not an answer: {hint}", returncode=2)
            self._answers.setdefault(pair["name"], []).append(pair["text"])

    # The functions that the test client calls (``testing.peers``).

    async def elicit(self, message: str, schema: JSON) -> Any:
        fields = {line.name: line for line in lines(schema)}
        known = self._answers_of_options(fields, schema)
        if not self.can_prompt:
            missing = {name: one for name, one in fields.items() if name not in known}
            if not known or any(one.required for one in missing.values()):
                raise CommandError(_unanswered_message(message, missing))
        self._say(message)
        return self._answer_or_refusal(lambda: self._fill_in(fields, schema, known))

    async def visit(self, message: str, url: str) -> Any:
        self._say(f"{message}\n{url}")
        if not self.can_prompt:
            raise CommandError(
                "The tool sends the user to a web page. Run the command in a terminal, without "
                "--no-input."
            )
        answer = self._answer_or_refusal(lambda: self._read_line("Press Enter when it is done: "))
        return answer if isinstance(answer, Refusal) else True

    async def sample(self, messages: Sequence[JSON]) -> Any:
        self._say("The tool asks for the answer of a language model to this:")
        for message in messages:
            self._say(f"  {message.get('role', '')}: {_text(message.get('content'))}")
        answer = self._answer_or_refusal(lambda: self._read_line("> "))
        if isinstance(answer, Refusal):  # only elicitations have a result that declines
            raise CommandError("The tool asked for the answer of a language model and got none.")
        return answer

    def _answer_or_refusal(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except InputEnded:
            self._say("")
            return DECLINE
        except KeyboardInterrupt:
            self._say("")
            return CANCEL

    # Forms.

    def _answers_of_options(self, fields: Mapping[str, PropertyLine], schema: JSON) -> JSON:
        """Return the answers that options give.

        If an option gives several values for one field, each answers one question, and the last
        one all that follow. A field that is an array takes all of them each time.
        """
        found: JSON = {}
        for name in fields:
            if listed := self._answers.get(name):
                part = schema["properties"][name]
                several = part.get("type") == "array"
                texts = listed if several else [listed.pop(0) if len(listed) > 1 else listed[0]]
                found[name] = _checked_value(name, texts, part, schema)
            elif self._answers_yes and schema["properties"][name].get("type") == "boolean":
                found[name] = True
        return found

    def _fill_in(self, fields: Mapping[str, PropertyLine], schema: JSON, known: JSON) -> JSON:
        answers = dict(known)
        for name, field in fields.items():
            if name not in answers and self.can_prompt:
                found = self._ask_field(field, schema, alone=len(fields) == 1)
                answers |= {} if found is None else {name: found}
        return answers

    def _ask_field(self, field: PropertyLine, schema: JSON, *, alone: bool) -> Any:
        """Prompt for one field. Return None if it is left out."""
        part = schema["properties"][field.name]
        title = part.get("title") or ("" if alone else field.name)
        default = f" [{field.default}]" if field.default else ""
        label = f"{title} ({field.type}){default}: ".strip()
        for choice in part.get("oneOf", ()):
            self._say(f"  {choice.get('const')}  {choice.get('title', '')}".rstrip())
        while True:
            text = self._read_line(label)
            if not text and (field.default or not field.required):
                return part.get("default")
            if not text:
                self._say("It is required; Ctrl-D declines to answer.")
                continue
            try:
                return _checked_value(field.name, _parts(text, part), part, schema)
            except CommandError as error:
                self._say(str(error))

    # The terminal.

    def _say(self, text: str) -> None:
        # The tool wrote the text: escape sequences in it could rewrite the terminal.
        self._write(printable(text, keep="\n") + "\n")

    def _read_line(self, label: str) -> str:
        with _interruptible():
            self._write(printable(label) + " ")
            text = self._input_stream.readline()
        if not text:
            raise InputEnded
        return text.strip()


def _checked_value(name: str, texts: Sequence[str], part: JSON, schema: JSON) -> Any:
    """Return the value of a field. Raise ``CommandError`` if the tool would reject it."""
    try:
        found = typed_value(name, texts, part, schema)
    except ValueError as error:
        raise CommandError(str(error)) from None
    if problems := violations({"properties": {name: part}}, {name: found}):
        type, message = kind(part), problems[0]
        raise CommandError(message if type in message else f"{message} ({type})")
    return found


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C interrupt reading. The event loop would handle it only after a line was read."""
    before = signal.getsignal(signal.SIGINT)
    with suppress(ValueError):  # only the main thread may set handlers
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        # ValueError: not the main thread. TypeError: the old handler was not set by Python.
        with suppress(ValueError, TypeError):
            signal.signal(signal.SIGINT, before)


def _parts(text: str, part: Mapping[str, Any]) -> list[str]:
    """Return the values in a line. Several choices are separated by commas."""
    if part.get("type") != "array" or text.startswith("["):
        return [text]
    return [one.strip() for one in text.split(",")]


def _text(content: Any) -> str:
    blocks = content if isinstance(content, list) else [content]
    return " ".join(
        str(one.get("text") or one.get("type")) for one in blocks if isinstance(one, dict)
    )


def _unanswered_message(message: str, fields: Mapping[str, PropertyLine]) -> str:
    options = " ".join(f"--answer {line.name}=VALUE ({line.type})" for line in fields.values())
    return f"The tool asks: {message}\nNo user can be asked here. Answer by {options}."


class Command(HelpfulCommand):
    help = (
        "Call one tool as a user, with that user's permissions. The tool's database writes are\n"
        "committed, unless --dry-run rolls them back. Values are converted to the types of the\n"
        "tool's arguments, which 'mcp_inspect TOOL' lists."
    )
    examples = [
        ("search_invoice query=paper limit=5 --user alice", "texts and numbers"),
        ("plan_trip title=North cities=1 cities=2 --user alice", "a list: repeat the argument"),
        ("""order 'items:=[{"id": 7}]' --user alice""", "an argument as JSON"),
        ("order --json @order.json --user alice", "all arguments from a file; - is stdin"),
        ("refund invoice=A-1 reason=broken --user alice --answer answer=yes", "answer a question"),
        ("refund invoice=A-1 reason=broken --user alice --dry-run", "roll back all changes"),
        ("draw_map country=FR --output map.png", "save an image; call anonymously"),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tool", metavar="TOOL", help="name of the tool")
        parser.add_argument(
            "arguments", metavar="KEY=VALUE", nargs="*", help="arguments of the tool"
        )
        command_arguments.add_user(
            parser, "user who calls the tool (default: anonymous, which allows only PUBLIC tools)"
        )
        command_arguments.add_server(parser)
        parser.add_argument("--json", metavar="JSON", help="arguments as JSON, @FILE or - (stdin)")
        parser.add_argument(
            "--revision", metavar="DATE", help="protocol revision (default: newest)"
        )
        parser.add_argument(
            "--answer", metavar="KEY=VALUE", action="append", default=[],
            help="answer to a question of the tool: name of the form field, and value",
        )  # fmt: skip
        parser.add_argument(
            "--yes", action="store_true", help="answer yes to all yes-or-no questions"
        )
        parser.add_argument("--no-input", action="store_true", help="never prompt at the terminal")
        parser.add_argument("--dry-run", action="store_true", help="roll back what the tool writes")
        parser.add_argument(
            "--format", choices=["text", "json"], default="text", help="(default: text)"
        )
        parser.add_argument(
            "--output", metavar="FILE", type=Path, help="save the result in this file"
        )

    def handle(self, *args: Any, tool: str, **options: Any) -> None:
        server = command_arguments.server_with_declarations(options["server"])
        principal = command_arguments.principal(options["user"], options["scope"])
        if options["user"] is None:
            self.note(
                "Calling as an anonymous client, which can use only PUBLIC tools. See --user."
            )
        try:
            result = asyncio.run(self._call(server, principal, tool, options))
        except KeyboardInterrupt:
            raise CommandError("Cancelled.", returncode=INTERRUPTED) from None
        self._show(result, server, tool, options)

    # Calling.

    async def _call(self, server: Server, principal: Principal, tool: str, options: JSON) -> Result:
        from ...testing import AsyncClient, RpcError

        given = self._options(principal, options)
        try:
            async with AsyncClient(_user(principal), server=server, **given) as client:
                definition = await _definition(client, tool)
                values = _arguments(definition, options)
                with self._dry_run_if_asked(server, tool, options["dry_run"]):
                    return await self._run_with_output(client, tool, values)
        except (RpcError, ValueError) as error:
            raise CommandError(str(getattr(error, "message", error))) from None

    def _options(self, principal: Principal, options: JSON) -> JSON:
        questions = self._questions(options)
        answers = {
            "elicit": questions.elicit,
            "visit": questions.visit,
            "roots": [Path.cwd().as_uri()],
        }
        capabilities: JSON = {"elicitation": {"form": {}, "url": {}}, "roots": {}}
        if questions.can_prompt:  # a person can write what a language model would
            answers, capabilities = (
                answers | {"sample": questions.sample},
                capabilities | {"sampling": {}},
            )
        given = {
            "scopes": None if principal.auth is None else principal.auth.scopes,
            "capabilities": capabilities, "answers": answers,
            "seconds": INTERACTIVE_TIMEOUT_SECONDS,
            "raise_exceptions": False,
            "log_level": "debug" if options["verbosity"] > 1 else "info",
        }  # fmt: skip
        return given | ({"revision": options["revision"]} if options["revision"] else {})

    def _questions(self, options: JSON) -> TerminalQuestions:
        can_prompt = sys.stdin.isatty() and not options["no_input"] and options["json"] != "-"
        return TerminalQuestions(
            sys.stdin,
            self._prompt,
            options["answer"],
            answers_yes=options["yes"],
            can_prompt=can_prompt,
        )

    def _prompt(self, text: str) -> None:
        self.stderr.write(text, str, ending="")
        self.stderr.flush()

    @contextmanager
    def _dry_run_if_asked(self, server: Server, name: str, dry_run: bool) -> Iterator[None]:
        from ...calls.execution import around

        tool = server._catalog.tools[name]
        if not dry_run:
            if not tool.read_only:
                self.note(f"Changes of {name} will be saved. Use --dry-run to roll them back.")
            yield
            return
        if tool._is_async or not (tool.read_only or tool.atomic):
            raise CommandError(f"{name} runs in no transaction, so --dry-run cannot roll it back.")
        around.append(_rolled_back)
        try:
            yield
        finally:
            around.remove(_rolled_back)
            self.note(ROLLED_BACK)

    async def _run_with_output(self, client: AsyncClient, tool: str, values: JSON) -> Result:
        """Return the result. Meanwhile, write the tool's progress and log messages to stderr."""
        shown = ShownMessages()
        call = client.start(tool, **values)
        while not call.done():
            await asyncio.wait([call], timeout=0.05)
            for line in _new_messages(client, shown):
                self.note(line)
        return call.result()

    # Output.

    def _show(self, result: Result, server: Server, tool: str, options: JSON) -> None:
        if result.is_error:
            raise CommandError(self._error_text(result, server, tool))
        if options["output"] is not None:
            self._save(result, options["output"])
        elif options["format"] == "json":
            data = result.raw.get("structuredContent", {"content": result.content})
            self.show(json.dumps(data, indent=2, ensure_ascii=False))
        else:
            # Blocks beside the data, such as links to rows, go to stderr: stdout may be piped to a
            # JSON parser.
            beside = result.content[1:] if "structuredContent" in result.raw else []
            for block in result.content:
                self._write_block(block, self.note if block in beside else self.show)

    def _error_text(self, result: Result, server: Server, tool: str) -> str:
        """Return the tool's error, a bug's exception, or an argument error with the arguments.

        Only this command shows the exception of a bug. Clients get a generic error.
        """
        from ...declarations.schema_summary import lines
        from ..output import table

        if result.error is not None and result.code == MISSING_CAPABILITY:
            required = (result.error.data or {}).get("requiredCapabilities", ())
            needs = ", ".join(sorted(required)) or "something"
            return f"{tool} needs a client that supports {needs}: run the command in a terminal."
        if result.bugs:
            bug = result.bugs[0]
            return f"{tool} has a bug: {type(bug).__name__}: {bug}"
        if not result.text.startswith("Invalid arguments"):
            return result.text
        found = lines(server._catalog.tools[tool]._arguments.schema)
        rows = [(one.name, one.type, "required" if one.required else "") for one in found]
        return "\n".join([result.text, *table(rows, self.width, indent="  ")])

    def _write_block(self, block: JSON, write: Callable[[str], None]) -> None:
        kind, inner = block.get("type"), block.get("resource", block)
        if kind == "resource_link":
            name, uri = block.get("title") or block["name"], block["uri"]
            write(uri if name == uri else f"{name}: {uri}")
        elif "text" in inner:
            write(inner["text"])
        else:
            size = len(base64.b64decode(_data(block) or ""))
            about = f"{kind} ({inner.get('mimeType', 'bytes')}, {size:,} bytes)"
            self.note(f"The result also has {about}. Use --output FILE to save it.")

    def _save(self, result: Result, file: Path) -> None:
        found = [block for block in result.content if _data(block)]
        saved = [(file, result.text.encode())] if not found else []
        for number, block in enumerate(found, start=1):
            saved.append((_block_path(file, number, block), base64.b64decode(_data(block) or "")))
        for path, data in saved:
            try:
                path.write_bytes(data)
            except OSError as error:
                raise CommandError(f"{path}: {error.strerror}") from None
            self.note(f"Saved {path} ({len(data):,} bytes).")


def _user(principal: Principal) -> Any:
    return principal.user if principal.is_authenticated else None


async def _definition(client: AsyncClient, name: str) -> JSON:
    """Return the tool's definition if the user may use it. Raise ``CommandError``."""
    tools = await client.tools()
    if name in tools.names:
        return tools.named(name)
    hint = near(name, tools.names)
    raise CommandError(f"There is no tool {name!r} for this user.{hint} See mcp_explain.")


def _arguments(definition: JSON, options: JSON) -> JSON:
    given = _from_json(options["json"]) if options["json"] else {}
    found = arguments(options["arguments"], definition["inputSchema"])
    if twice := sorted(given.keys() & found):
        raise CommandError(f"{', '.join(twice)}: given twice, also in --json.", returncode=2)
    return given | found


def _from_json(text: str) -> JSON:
    try:
        if text == "-":
            text = sys.stdin.read()
        elif text.startswith("@"):
            text = Path(text[1:]).read_text(encoding="utf-8")
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise CommandError(f"--json: {error}", returncode=2) from None
    if not isinstance(found, dict):
        raise CommandError("--json must be a JSON object.", returncode=2)
    return found


@contextmanager
def _rolled_back(request: Any) -> Iterator[None]:
    """Run the project's code in a transaction in each database, and roll all of them back."""
    with ExitStack() as stack:
        for alias in connections:
            stack.enter_context(transaction.atomic(using=alias))
        try:
            yield
        finally:
            for alias in connections:
                transaction.set_rollback(True, using=alias)


@dataclass
class ShownMessages:
    """How many messages of the tool were written to stderr."""

    progress: int = 0
    logs: int = 0


def _new_messages(client: AsyncClient, shown: ShownMessages) -> Iterator[str]:
    """Yield progress and log messages since the last call, and count them in ``shown``."""
    for done, total, message in client.progress[shown.progress :]:
        progress = f"{done:g}" + (f"/{total:g}" if total is not None else "")
        yield f"[{progress}] {message or ''}".rstrip()
    for level, data, logger in client.logs[shown.logs :]:
        text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
        yield f"{level}: {f'{logger}: ' if logger else ''}{text}"
    shown.progress, shown.logs = len(client.progress), len(client.logs)


def _data(block: JSON) -> str | None:
    """Return the base64 data of a content block, or None."""
    found = block.get("resource", block).get(BINARY.get(block.get("type", ""), ""))
    return found if isinstance(found, str) else None


def _block_path(file: Path, number: int, block: JSON) -> Path:
    """Return the file for one of several blocks. In a folder, the name is a number."""
    kind = block.get("resource", block).get("mimeType", "")
    if file.is_dir():
        return file / f"{number}{mimetypes.guess_extension(kind) or '.bin'}"
    return file if number == 1 else file.with_name(f"{file.stem}-{number}{file.suffix}")
