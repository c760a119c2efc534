"""
Whom a command acts as, and on which server: the arguments that say so, and what they name.

Rule: a name that means nobody is an error with a hint, never somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser
from django.db.utils import DatabaseError, OperationalError, ProgrammingError

from ..declare.requests import Request
from ..declare.servers import Server, server_named, servers
from ..exceptions import Misdeclared
from ..principal import Auth, Principal, anonymous
from ..tokens import check_scopes
from ..web.clients import TOKEN

EMPTY = (
    "The server {name!r} declares nothing. What is exposed is declared in the mcp.py of an app: "
    "'manage.py startmcp APP' writes one."
)

UNMIGRATED = (OperationalError, ProgrammingError)  # what databases say of tables they have not


def add_server(parser: CommandParser) -> None:
    parser.add_argument(
        "--server", metavar="NAME", default="default", help="the server (default: default)"
    )


def add_user(parser: CommandParser, told: str) -> None:
    parser.add_argument("--user", metavar="NAME", help=told)
    add_scopes(parser)


def add_scopes(parser: CommandParser) -> None:
    parser.add_argument(
        "--scope", metavar="SCOPE", action="append", default=[],
        help="a scope, as of an access token; may be repeated (default: without any token)",
    )  # fmt: skip


def served(name: str) -> Server:
    """The server of that name, which declares something, and rightly. Raises ``CommandError``."""
    if named(name).is_empty:
        found = ", ".join(one.name for one in servers() if not one.is_empty)
        hint = f" Or name another server, by --server: {found}." if found else ""
        raise CommandError(EMPTY.format(name=name) + hint)
    return resolved(name)


def resolved(name: str) -> Server:
    """The server of that name, with nothing wrong in it. Raises ``CommandError``."""
    server = named(name)
    try:
        server.ready()
    except Misdeclared as error:
        raise CommandError(f"What is declared cannot be served:\n{error}") from None
    return server


def named(name: str) -> Server:
    """The server of that name, whatever it declares. Raises ``CommandError``."""
    try:
        return server_named(name)
    except LookupError as error:
        raise CommandError(str(error)) from None


def user_named(name: str) -> Any:
    """The user of that name, active or not. Raises ``CommandError``."""
    from django.contrib.auth import get_user_model

    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        hint = (
            f"A user goes by their {model.USERNAME_FIELD}; 'manage.py createsuperuser' makes one."
        )
        raise CommandError(f"There is no user {name!r}. {hint}") from None
    except UNMIGRATED as error:
        raise unmigrated(error) from error


def principal(name: str | None, scopes: Sequence[str] = ()) -> Principal:
    """Who acts: nobody without a name. Raises ``CommandError`` for who may do nothing."""
    if name is None:
        if scopes:
            raise CommandError("--scope narrows what a user may do: say --user too.", returncode=2)
        return anonymous()
    user = user_named(name)
    if not user.is_active:
        raise CommandError(f"{name!r} is not active, and may use nothing but what is PUBLIC.")
    return Principal(user, auth(scopes))


def auth(scopes: Sequence[str]) -> Auth | None:
    """A token of these scopes; none without. Raises ``CommandError``."""
    return Auth(frozenset(checked(scopes))) if scopes else None


def checked(scopes: Sequence[str]) -> Sequence[str]:
    """``scopes``, each of which may be one. Raises ``CommandError``."""
    try:
        check_scopes(scopes)
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from None
    return scopes


def token(text: str | None) -> str | None:
    """An access token as it was given. Raises ``CommandError``, which does not repeat it."""
    if text is not None and not TOKEN.fullmatch(text):
        raise CommandError("The token is letters, digits and ._~+/- alone.")
    return text


def unmigrated(error: DatabaseError) -> CommandError:
    """What is said of tables that are probably not there yet."""
    return CommandError(f"{error}\nHas 'manage.py migrate' been run?")


def asking(principal: Principal, server: Server) -> Request:
    """A request of theirs that no client sent."""
    return Request(principal, server)
