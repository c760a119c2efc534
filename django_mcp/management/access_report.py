"""
Who may use what on a server, and which rule decides, for commands and the admin.

The decision is the one that clients get. Its reason distinguishes hidden from missing declarations,
so it is for people who run the server, never for clients.

``explain_read`` returns decisions in the order in which reading a URI checks them, up to the first
that denies access.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from django.utils.translation import gettext

from ..auth.principal import Auth
from ..declarations.arguments import KeyBinding
from ..declarations.declaration import decide
from ..declarations.model_resources import ModelResource
from ..declarations.model_rows import ModelRows
from ..declarations.model_tools import FileResource
from ..declarations.permissions import Decision, decided_by, method_of
from ..declarations.resources import Resource
from ..exceptions import InvalidArguments, ToolError

if TYPE_CHECKING:
    from ..declarations.declaration import Declaration
    from ..declarations.request import Request
    from ..declarations.server import Server

# Stands for any OAuth client: the report says what a client with the given scopes could do.
ANY_CLIENT_ID = "some client"
SECTIONS = ("tools", "model_tools", "resources", "templates", "prompts")


@dataclass(frozen=True)
class AccessReportRow:
    """Whether one declaration may be used, and why."""

    kind: str
    name: str
    allowed: bool
    reason: str
    rule: str
    scopes: str  # scopes that a token with scopes needs
    origin: str


def client_auth(scopes: Collection[str], client_id: str = "") -> Auth | None:
    """Return the token of a client with these scopes, or None without scopes and client id.

    The token is treated as one of an OAuth client, which can request further scopes.
    """
    if not (scopes or client_id):
        return None
    client = SimpleNamespace(pk="some", client_id=client_id or ANY_CLIENT_ID)
    return Auth(frozenset(scopes), application=client)


def declarations_of(server: Server) -> Iterator[tuple[str, Declaration]]:
    for kind in SECTIONS:
        shown = kind.replace("_", " ")
        yield from ((shown, declaration) for declaration in getattr(server._catalog, kind).values())


def access_report(
    declarations: Iterable[tuple[str, Declaration]], request: Request
) -> list[AccessReportRow]:
    """Return one row for each declaration, decided for the request's principal."""
    return [
        AccessReportRow(
            kind,
            declaration.name,
            *_allowed_and_reason(declaration, request),
            declaration._rule,
            " ".join(declaration._scopes) or gettext("none"),
            declaration._origin(),
        )
        for kind, declaration in declarations
    ]


def _allowed_and_reason(declaration: Declaration, request: Request) -> tuple[bool, str]:
    """Return the decision and its reason. The project's code may raise in either."""
    try:
        decision = decide(declaration, request)
        return decision.allowed, decision.reason
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        text = gettext(
            "%(rule)s raised an error, so lists with this declaration fail too: %(message)s"
        )
        return False, text % {"rule": declaration._rule, "message": message}


# The conditions under which a URI can be read.

Decisions = Iterator[Decision]


def explain_read(
    resource: Resource, variables: Mapping[str, str], request: Request
) -> list[Decision]:
    """Return the decisions on reading ``resource`` with these variables of its URI."""
    decisions = [decide(resource, request)]
    if decisions[0].allowed:
        decisions += _until_denied(_conditions_of(resource, variables, request))
    return decisions


def _until_denied(decisions: Decisions) -> Decisions:
    for decision in decisions:
        yield decision
        if not decision.allowed:
            return


def _decision(allowed: bool, reason: str) -> Decision:
    # ``Decision`` takes a function, because the reasons of permissions may take queries.
    return Decision(allowed, lambda: reason)


def _conditions_of(resource: Resource, variables: Mapping[str, str], request: Request) -> Decisions:
    if isinstance(resource, ModelResource):
        yield from _for_key(resource, variables[resource._lookup], request)
    elif isinstance(resource, FileResource):
        yield from _for_file(resource, variables, request)
    else:
        yield from _for_arguments(resource, variables, request)


# Rows.


def _for_key(resource: ModelResource, given: Any, request: Request) -> Decisions:
    try:
        key = resource._key(given)
    except ValueError:
        yield _decision(False, f"{str(given)[:80]!r} is not a key of {resource._verbose_name}")
        return
    yield from _for_row(resource, resource._lookup, key, request)


def _for_row(resource: ModelRows, lookup: str, key: Any, request: Request) -> Decisions:
    model, name = resource.model, f"{resource._verbose_name} {str(key)[:80]}"
    # Unfiltered, to distinguish a hidden row from a missing one. Never shown to clients.
    exists = model._base_manager.filter(**{lookup: key}).exists()
    yield _decision(exists, f"{name} {'is' if exists else 'is not'} in the database")
    method = method_of(resource, "get_queryset")
    row = resource.get_queryset(request).filter(**{lookup: key}).first()
    yield _decision(row is not None, f"{method} {'has it' if row else 'leaves it out'}")
    if row is not None and resource._overrides("has_object_permission"):
        answer = resource.has_object_permission(request, row, "view")
        yield decided_by(method_of(resource, "has_object_permission"), answer)


def _for_file(resource: FileResource, variables: Mapping[str, str], request: Request) -> Decisions:
    rows, name = resource._resource, variables["file"]
    yield from _for_key(rows, variables[rows._lookup], request)
    is_file = name in rows._field_set.files
    reason = f"{name[:80]!r} {'is' if is_file else 'is not'} a file that fields shows"
    yield _decision(is_file, reason)


# Functions.


def _for_arguments(resource: Resource, variables: Mapping[str, str], request: Request) -> Decisions:
    try:
        values = resource._values(variables)
    except ToolError as error:
        yield _decision(False, str(error))
        return
    for name, parameter in resource._arguments.parameters.items():
        if parameter.binding is not None and values.get(name) is not None:
            yield from _add_prefix(name, _for_bound_rows(parameter.binding, values[name], request))
    yield _decision(resource._exists(request, variables), resource._read_by_text)


def _for_bound_rows(binding: KeyBinding, value: Any, request: Request) -> Decisions:
    yield decide(binding.resource, request)
    for one in value if binding.many else [value]:
        try:
            lookup, key = binding.key(one)
        except InvalidArguments as error:
            yield _decision(False, str(error))
        else:
            yield from _for_row(binding.resource, lookup, key, request)


def _add_prefix(name: str, decisions: Decisions) -> Decisions:
    yield from (_decision(one.allowed, f"{name}: {one.reason}") for one in decisions)
