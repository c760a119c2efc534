"""
``manage.py mcp_token``: create, list and revoke personal access tokens.

stdout has only the result, so that a new token can be piped to where it belongs. No message repeats
a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser, no_translations
from django.db.models import QuerySet
from django.utils import timezone

from ...declarations.server import servers
from ...models import Token
from ...verifiers.personal_tokens import SECRET, VALID, revoke, state
from ..arguments import DATABASE_ERRORS, checked_scopes, database_error, find_server, find_user
from ..output import table

DEFAULT_DAYS, MAX_DAYS = 90, 36_500
HEADER = ("ID", "USER", "NAME", "TOKEN", "SERVER", "SCOPES", "EXPIRES", "LAST USED", "STATE")


def lifetime(text: str) -> int:
    """Parse a number of days."""
    days = int(text)
    if not 0 <= days <= MAX_DAYS:
        raise ValueError(text)
    return days


def create_options(parser: CommandParser) -> None:
    parser.add_argument("--user", metavar="NAME", required=True, help="user that the token acts as")
    parser.add_argument(
        "--name", metavar="LABEL", required=True, help="purpose, such as 'my laptop'"
    )
    parser.add_argument(
        "--scope", metavar="SCOPE", nargs="+", action="extend", default=[],
        help="scope that limits the token; repeat it for several (default: no limit)",
    )  # fmt: skip
    parser.add_argument(
        "--days", metavar="N", type=lifetime, default=DEFAULT_DAYS,
        help=f"days until the token expires, 0 for never (default: {DEFAULT_DAYS})",
    )  # fmt: skip
    parser.add_argument(
        "--server", metavar="NAME", help="server that accepts the token (default: all servers)"
    )


def list_options(parser: CommandParser) -> None:
    parser.add_argument("--user", metavar="NAME", help="only tokens of this user")
    parser.add_argument("--all", action="store_true", help="include expired and revoked tokens")


def revoke_options(parser: CommandParser) -> None:
    parser.add_argument(
        "tokens", metavar="TOKEN", nargs="*",
        help="ID from the list, or the token itself",
    )  # fmt: skip
    parser.add_argument("--user", metavar="NAME", help="revoke all tokens of this user")


ACTIONS: dict[str, tuple[str, Callable[[CommandParser], None]]] = {
    "create": (
        "create a token and print it to stdout, where it is shown only once",
        create_options,
    ),
    "list": ("list valid tokens, without their secrets", list_options),
    "revoke": ("revoke tokens immediately and permanently", revoke_options),
}


class Command(BaseCommand):
    help = (
        "Create, list and revoke personal access tokens. A program that sends the header "
        "'Authorization: Bearer TOKEN' acts as the token's user, with that user's permissions."
    )
    requires_system_checks: list[str] = []  # a token must be revocable even if checks fail

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
        for name, (description, add_options) in ACTIONS.items():
            add_options(
                actions.add_parser(
                    name, help=description, description=f"{description.capitalize()}."
                )
            )

    @no_translations
    def handle(self, *args: Any, action: str, **options: Any) -> None:
        run: Callable[..., None] = getattr(self, f"_{action}")
        try:
            run(**options)
        except DATABASE_ERRORS as error:
            raise database_error(error) from error

    def _create(
        self, user: str, name: str, scope: list[str], days: int, server: str | None, **other: Any
    ) -> None:
        token, secret = make(user, name, scope, days, server)
        end = f"expires {_moment(token.expires)}" if token.expires else "never expires"
        self.stderr.write(f"Token {token.pk} acts for {user!r} and {end}. It is not shown again:")
        self.stdout.write(secret)

    def _list(self, user: str | None, all: bool, **other: Any) -> None:
        found = Token.objects.select_related("user").order_by("pk")
        if user is not None:
            found = found.filter(user=find_user(user))
        shown = [token for token in found if all or state(token) == VALID]
        if not shown:
            self.stderr.write("No tokens." if all else "No valid tokens. --all shows all tokens.")
            return
        for line in table([HEADER, *map(_cells, shown)]):
            self.stdout.write(line)

    def _revoke(self, tokens: list[str], user: str | None, **other: Any) -> None:
        if bool(tokens) == (user is not None):
            raise CommandError("Give IDs of tokens to revoke, or a user with --user.", returncode=2)
        found = [_find_token(token) for token in tokens]
        found += [_tokens_of(find_user(user))] if user is not None else []
        count = sum(map(revoke, found))
        already = sum(one.count() for one in found) - count
        self.stderr.write(f"Revoked: {count}. Revoked before: {already}.")


def make(
    user: str,
    name: str,
    scopes: Sequence[str] = (),
    days: int = DEFAULT_DAYS,
    server: str | None = None,
) -> tuple[Token, str]:
    """Return a new token for the user of that name, and its secret. Raise ``CommandError``."""
    owner = find_user(user)
    if not owner.is_active:
        raise CommandError(f"{user!r} is inactive: the server would reject the token.")
    expires = timezone.now() + timedelta(days=days) if days else None
    server_name = "" if server is None else find_server(server).name
    allowed = checked_scopes(scopes)
    return Token.make(owner, _label(name), scopes=allowed, server=server_name, expires=expires)


def _label(name: str) -> str:
    longest = Token._meta.get_field("name").max_length or 0
    if not 0 < len(name) <= longest or not name.isprintable():
        raise CommandError(f"--name must be one line of 1 to {longest} characters.")
    return name


def _find_token(text: str) -> QuerySet[Token]:
    """Return the token with that id or secret. Error messages repeat no part of a secret."""
    if SECRET.fullmatch(text):
        found, shown = Token.objects.filter(digest=Token.digest_of(text)), "such token"
    elif text.isdecimal() and len(text) < 19:
        found, shown = Token.objects.filter(pk=int(text)), f"token {text}"
    else:
        raise CommandError("Give the ID of a token: see 'mcp_token list --all'.")
    if not found.exists():
        raise CommandError(f"There is no {shown}. 'mcp_token list --all' shows all tokens.")
    return found


def _tokens_of(user: Any) -> QuerySet[Token]:
    return Token.objects.filter(user=user)


def _cells(token: Token) -> tuple[str, ...]:
    return (
        str(token.pk),
        token.user.get_username(),
        token.name,
        f"{token.prefix}...",
        _server(token.server),
        " ".join(token.scopes) or "-",
        _moment(token.expires),
        _moment(token.last_used),
        state(token),
    )


def _server(name: str) -> str:
    """Return the public name of a server, or the stored name if the project has it no more."""
    public = {one.name: one.public_name for one in servers()}
    return public.get(name, name) or "all"


def _moment(moment: datetime | None) -> str:
    if moment is None:
        return "never"
    here = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{here:%Y-%m-%d %H:%M}"
