"""
Arguments of the commands: ``key=value`` pairs for a tool, and the user, scopes and server.

``arguments`` converts texts to the types of the tool's schema. A text that fits none of them is
passed unchanged, and the server's validation reports it. ``key:=json`` is parsed as JSON, as in
httpie. A name without a user or server is an error with a hint, and is never replaced by a similar
one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db.utils import DatabaseError, OperationalError, ProgrammingError

from ..auth.principal import Auth, Principal, anonymous
from ..declarations.request import Request
from ..declarations.schema_summary import forms
from ..declarations.server import Server, server_named, servers
from ..exceptions import Misdeclared
from ..storage.databases import is_locked, is_unmigrated
from ..verifiers.personal_tokens import check_scopes
from ..web.clients import TOKEN

PAIR = re.compile(r"(?P<name>[^=:]+)(?P<sign>:?=)(?P<text>.*)", re.S)
BOOLEANS = {
    "true": True, "yes": True, "y": True, "on": True,
    "false": False, "no": False, "n": False, "off": False,
}  # fmt: skip
INTEGER = re.compile(r"-?[0-9]+\Z")
NO_VALUE = object()

Schema = Mapping[str, Any]


def arguments(given: Iterable[str], schema: Schema) -> dict[str, Any]:
    """Return the arguments in ``key=value`` texts. Raise ``ValueError`` with a readable message."""
    texts: dict[str, list[str]] = {}
    found: dict[str, Any] = {}
    for one in given:
        pair = PAIR.fullmatch(one)
        if pair is None:
            raise ValueError(f"{one!r} is not an argument: write key=value, or key:=json.")
        if pair["sign"] == "=":
            texts.setdefault(pair["name"], []).append(pair["text"])
        else:
            _set_value(found, pair["name"], _json(pair["name"], pair["text"]), schema)
    for name, values in texts.items():
        value = typed_value(name, values, _property_schema(name, schema), schema)
        _set_value(found, name, value, schema)
    return found


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ValueError(f"{name}: {text[:80]!r} is not JSON: {error}.") from None


# Names.


def _path_of(name: str, schema: Schema) -> list[str]:
    """Return the path to a value: "a.b" is b in a, unless a property has the name "a.b"."""
    return [name] if name in _properties(schema, schema) else name.split(".")


def _properties(part: Any, root: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for form in forms(part, root):
        found |= form.get("properties") or {}
    return found


def _property_schema(name: str, schema: Schema) -> Any:
    """Return the schema of the value with that name."""
    part: Any = schema
    for step in _path_of(name, schema):
        part = _properties(part, schema).get(step, {})
    return part


def _set_value(found: dict[str, Any], name: str, value: Any, schema: Schema) -> None:
    *path, last = _path_of(name, schema)
    for step in path:
        found = found.setdefault(step, {})
        if not isinstance(found, dict):
            raise ValueError(f"{name}: {step} is given as a value as well.")
    if last in found:
        raise ValueError(f"{name} is given twice.")
    found[last] = value


# Values.


def typed_value(name: str, texts: Sequence[str], part: Any, root: Schema) -> Any:
    """Return the value of an argument's texts. Raise ``ValueError`` with a readable message."""
    possible = forms(part, root)
    lists = [form for form in possible if form.get("type") == "array"]
    whole = len(texts) == 1 and texts[0].startswith("[")
    if lists and not whole:
        kinds = forms(lists[0].get("items", {}), root)
        others = [form for form in possible if form not in lists]
        single = _read(texts[0], others) if others and len(texts) == 1 else NO_VALUE
        return [parse_value(text, kinds) for text in texts] if single is NO_VALUE else single
    if len(texts) > 1:
        raise ValueError(f"{name} is given {len(texts)} times, and takes one value.")
    return parse_value(texts[0], possible)


def parse_value(text: str, possible: Sequence[Schema]) -> Any:
    """Return the value of a text by the first schema that fits, else the text."""
    read = _read(text, possible)
    return text if read is NO_VALUE else read


def _read(text: str, possible: Sequence[Schema]) -> Any:
    for form in possible:
        for choice in _choices(form):
            if _choice_text(choice) == text:
                return choice
    kinds = {kind for form in possible for kind in _kinds(form)}
    for kind, read in READERS.items():
        if kind in kinds and (found := read(text, kinds)) is not NO_VALUE:
            return found
    return NO_VALUE


def _choices(form: Schema) -> list[Any]:
    listed = form.get("enum") or ([form["const"]] if "const" in form else [])
    titled = form.get("oneOf") or form.get("anyOf") or []
    return [*listed, *(one["const"] for one in titled if "const" in one)]


def _choice_text(choice: Any) -> str:
    return choice if isinstance(choice, str) else json.dumps(choice)


def _kinds(form: Schema) -> list[str]:
    kinds = form.get("type", [])
    return kinds if isinstance(kinds, list) else [kinds]


def _null(text: str, kinds: set[str]) -> Any:
    return None if text == "null" or (not text and "string" not in kinds) else NO_VALUE


def _boolean(text: str, kinds: set[str]) -> Any:
    return BOOLEANS.get(text.lower(), NO_VALUE)


def _integer(text: str, kinds: set[str]) -> Any:
    return int(text) if INTEGER.match(text) else NO_VALUE


def _number(text: str, kinds: set[str]) -> Any:
    """Return a number, but ``NO_VALUE`` if text is allowed and a float would lose digits."""
    if INTEGER.match(text):
        return int(text)
    try:
        number = float(text)
        exact = Decimal(text) == Decimal(repr(number))
    except (ValueError, InvalidOperation):
        return NO_VALUE
    return number if isfinite(number) and (exact or "string" not in kinds) else NO_VALUE


def _structure(text: str, kinds: set[str]) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        return NO_VALUE
    return found if isinstance(found, dict | list) else NO_VALUE


READERS = {
    "null": _null, "boolean": _boolean, "integer": _integer, "number": _number,
    "object": _structure, "array": _structure,
}  # fmt: skip


EMPTY = (
    "The server {name!r} has no declarations. Declare models and tools in the mcp.py of an app: "
    "'manage.py startmcp APP' generates one."
)

DATABASE_ERRORS = (OperationalError, ProgrammingError)  # such as a missing table, or a lock


def add_server(parser: CommandParser) -> None:
    parser.add_argument(
        "--server",
        metavar="NAME",
        default="default",
        help="name of the MCP server, if not the default one",
    )


def add_user(parser: CommandParser, help: str) -> None:
    parser.add_argument("--user", metavar="NAME", help=help)
    add_scopes(parser)


def add_scopes(parser: CommandParser) -> None:
    parser.add_argument(
        "--scope", metavar="SCOPE", action="append", default=[],
        help="scope of the access token; repeat it for several (default: no token)",
    )  # fmt: skip


def server_with_declarations(name: str) -> Server:
    """Return the server of that name, with declarations and no errors. Raise ``CommandError``."""
    if find_server(name)._is_empty:
        found = ", ".join(one.public_name for one in servers() if not one._is_empty)
        hint = f" Or choose another server with --server: {found}." if found else ""
        raise CommandError(EMPTY.format(name=find_server(name).public_name) + hint)
    return checked_server(name)


def checked_server(name: str) -> Server:
    """Return the server of that name, without errors. Raise ``CommandError``."""
    server = find_server(name)
    try:
        server.ready()
    except Misdeclared as error:
        raise CommandError(
            f"The server cannot start because of its declarations:\n{error}"
        ) from None
    return server


def find_server(name: str) -> Server:
    """Return the server of that name, in whatever state. Raise ``CommandError``."""
    try:
        return server_named(name)
    except LookupError as error:
        raise CommandError(str(error)) from None


def find_user(name: str) -> Any:
    """Return the user of that name, active or not. Raise ``CommandError``."""
    from django.contrib.auth import get_user_model

    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        hint = f"Give the user's {model.USERNAME_FIELD}."
        raise CommandError(f"There is no user {name!r}. {hint}") from None
    except DATABASE_ERRORS as error:
        raise database_error(error) from error


def principal(name: str | None, scopes: Sequence[str] = ()) -> Principal:
    """Return the principal, anonymous without a name. Raise ``CommandError`` for inactive users."""
    if name is None:
        if scopes:
            raise CommandError("--scope limits what a user may do. Add --user.", returncode=2)
        return anonymous()
    user = find_user(name)
    if not user.is_active:
        raise CommandError(f"{name!r} is inactive, and may use only what is PUBLIC.")
    return Principal(user, auth(scopes))


def auth(scopes: Sequence[str]) -> Auth | None:
    """Return a token with these scopes, None without scopes. Raise ``CommandError``."""
    return Auth(frozenset(checked_scopes(scopes))) if scopes else None


def checked_scopes(scopes: Sequence[str]) -> Sequence[str]:
    """Return ``scopes`` after validation. Raise ``CommandError``."""
    try:
        check_scopes(scopes)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from None
    return scopes


def checked_token(text: str | None) -> str | None:
    """Return the given access token. Raise ``CommandError``, which does not contain it."""
    if text is not None and not TOKEN.fullmatch(text):
        raise CommandError("An access token may contain only letters, digits and ._~+/-.")
    return text


def database_error(
    error: DatabaseError, unmigrated_hint: str = "Run 'manage.py migrate'."
) -> CommandError:
    """Return the error of a command whose query failed, with a hint if the cause is known."""
    if is_unmigrated(error):
        return CommandError(f"{error}\n{unmigrated_hint}")
    if is_locked(error):
        hint = "Another transaction holds a lock for too long. Run this command again."
        return CommandError(f"{error}\n{hint}")
    return CommandError(str(error))


def local_request(principal: Principal, server: Server) -> Request:
    """Return a request of the principal that no client sent."""
    return Request(principal, server)
