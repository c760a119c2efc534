"""
All combinations of a user's permissions and a token's scopes, and what each may output.

Each declaration has two canaries, one in lists and one in results. ``THINGS`` and sets define when
each may appear, independently of the tested code. What may appear must appear, because a client
without any output would prove nothing.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from django import forms
from django.contrib.auth.models import Permission, User

import django_mcp as mcp
from django_mcp.auth.principal import Auth, LookupVerifier, Principal, key_parts
from django_mcp.bridges.forms import FormTool
from django_mcp.declarations.server import Server
from tests.client import RpcError

from .clients import Pipe, Web
from .models import Author, Label, Paper, Tenant

JSON = dict[str, Any]
SCOPES = {
    "look": mcp.Scope("Look", covers=["canaries.view_*"]),
    "work": mcp.Scope("Work", covers=["canaries.change_*", "tool:*"]),
    "speak": mcp.Scope("Speak", covers=["prompt:*", "resource:*"]),
}
VIEW, CHANGE, AUTHORS = "view_paper", "change_paper", "view_author"
PERMISSIONS = (VIEW, CHANGE, AUTHORS)
OPEN, SEALED, AUTHOR, NEVER = 11, 12, 13, 999  # keys
WRITTEN = "written by who may"


@dataclass(frozen=True)
class Combination:
    """A user's permissions and access to sealed rows, and a token's scopes."""

    permissions: frozenset[str]
    scopes: frozenset[str]  # none: it is not narrowed
    sees_sealed: bool
    is_clients: bool  # a client could ask for more

    def __str__(self) -> str:
        words = (*sorted(self.permissions), "|", *sorted(self.scopes))
        return " ".join((*words, "sealed" * self.sees_sealed, "client" * self.is_clients)).strip()

    @property
    def views(self) -> bool:
        return bool(self.permissions & {VIEW, CHANGE})  # as in the admin

    @property
    def changes(self) -> bool:
        return self.views and CHANGE in self.permissions

    @property
    def sees_authors(self) -> bool:
        return AUTHORS in self.permissions


def _subsets(of: Any) -> Iterator[frozenset[str]]:
    some = [itertools.combinations(of, length) for length in range(len(of) + 1)]
    return (frozenset(one) for one in itertools.chain.from_iterable(some))


COMBINATIONS = [
    Combination(*each)
    for each in itertools.product(
        _subsets(PERMISSIONS), _subsets(tuple(SCOPES)), (False, True), (False, True)
    )
]


@dataclass(frozen=True)
class Thing:
    """``is_for`` says who may know of it, ``needs`` what a narrowed token must be good for.

    ``binds``: what it brings is for who may view a paper besides.
    """

    method: str
    name: str
    needs: tuple[str, ...]
    is_for: str = ""
    binds: bool = False
    arguments: Any = ()

    def may_know(self, one: Combination) -> bool:
        return not self.is_for or bool(getattr(one, self.is_for))

    def is_good(self, one: Combination) -> bool:
        return not one.scopes or one.scopes >= set(self.needs)

    def is_listed(self, one: Combination) -> bool:
        return self.may_know(one) and (self.is_good(one) or one.is_clients)

    def may_use(self, one: Combination) -> bool:
        return self.may_know(one) and self.is_good(one)

    def is_asked(self, one: Combination) -> bool:
        """Whether the response is a 403."""
        return self.is_listed(one) and not self.is_good(one)

    def brings(self, one: Combination) -> bool:
        return self.may_use(one) and (one.views or not self.binds)

    def params(self, key: int = OPEN) -> JSON:
        if self.method == "resources/read":
            return {"uri": self.name.format(key)}
        given = {name: value if value is not None else key for name, value in self.arguments}
        if self.method == "prompts/get":
            given = {name: str(value) for name, value in given.items()}
        return {"name": self.name, "arguments": given}


CALL, GET, READ = "tools/call", "prompts/get", "resources/read"
PAPER, TITLE = ("paper", None), ("title", WRITTEN)
THINGS = [
    Thing(CALL, "search_paper", ("look",), "views"),
    Thing(CALL, "search_author", ("look",), "sees_authors"),
    Thing(CALL, "update_paper", ("work", "look"), "changes", arguments=(PAPER, TITLE)),
    Thing(CALL, "retitle", ("work", "look"), "changes", arguments=(PAPER, TITLE)),
    Thing(CALL, "audit", ("look",), "sees_authors"),
    Thing(CALL, "count", ("work",)),
    Thing(CALL, "describe", ("work", "look"), binds=True, arguments=(PAPER,)),
    Thing(GET, "review", ("speak", "look"), binds=True, arguments=(PAPER,)),
    Thing(GET, "poem", ("speak",)),
    Thing(GET, "letter", ("look",), "sees_authors"),
    Thing(READ, "report://one", ("look",), "sees_authors"),
    Thing(READ, "page://{}", ("speak",)),
    Thing(READ, "abstract://{}", ("speak", "look"), binds=True),
    Thing(READ, "model://canaries/paper/{}", ("look",), "views"),
    Thing(READ, "model://canaries/author/13", ("look",), "sees_authors"),
]  # fmt: skip
# What a canary is of: a value of a row is looked for apart from what brought it.
ROWS = {
    "kanary-open": lambda one: _sees_papers(one),
    "kanary-sealed": lambda one: _sees_papers(one) and one.sees_sealed,
    "kanary-author": lambda one: one.sees_authors and (not one.scopes or "look" in one.scopes),
}


def _sees_papers(one: Combination) -> bool:
    return one.views and (not one.scopes or "look" in one.scopes)


def tag(name: str) -> str:
    """A name as part of a canary."""
    return "".join(letter for letter in name.partition("{")[0] if letter.isalnum())


def about(name: str) -> str:
    return f"kanary-about-{tag(name)}."


def value(name: str) -> str:
    return f"kanary-value-{tag(name)}."


# The dataset, and its declarations.


def fill() -> Any:
    """Create alice, and rows of each kind."""
    tenant = Tenant.objects.create(name="Ours")
    author = Author.objects.create(pk=AUTHOR, tenant=tenant, name="kanary-author")
    for key, title in ((OPEN, "kanary-open"), (SEALED, "kanary-sealed")):
        Paper.objects.create(
            pk=key, tenant=tenant, author=author, number=f"P-{key}", title=title, amount=1,
            day="2026-01-01", sealed=key == SEALED,
        )  # fmt: skip
    return User.objects.create_user("alice")


def become(alice: Any, one: Combination) -> Any:
    """Return alice with the permissions of the combination."""
    codenames = Permission.objects.filter(codename__in=one.permissions)
    alice.user_permissions.set(codenames.filter(content_type__app_label="canaries"))
    User.objects.filter(pk=alice.pk).update(is_staff=one.sees_sealed)
    return User.objects.get(pk=alice.pk)


class Papers(mcp.ModelResource):
    name = "paper"
    fields = ["number", "title"]
    search_fields = ["title"]
    operations = ["update"]
    readonly_fields = ["number"]
    listed = True
    description = about("model://canaries/paper/{}")

    def has_object_permission(self, request: Any, obj: Any, operation: str) -> bool:
        return bool(request.user.is_staff) or not obj.sealed

    def get_title(self, request: Any, row: Any) -> str:
        return str(row.title)


class Authors(mcp.ModelResource):
    name = "author"
    fields = ["name"]
    search_fields = ["name"]
    permission = f"canaries.{AUTHORS}"


class TitleForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Paper
        fields = ["title"]


class Retitle(FormTool):
    update = True
    description = about("retitle")


def expose(server: Server) -> Server:
    server.register(Paper, Papers)
    server.register(Author, Authors)
    server.register(TitleForm, Retitle)
    own = f"canaries.{AUTHORS}"

    def says(name: str) -> JSON:
        return {"name": tag(name), "description": about(name)}

    server.tool(**says("audit"), permission=own)(lambda request: value("audit"))
    server.tool(**says("count"))(lambda request: value("count"))
    server.prompt(**says("poem"))(lambda request: value("poem"))
    server.prompt(**says("letter"), permission=own)(lambda request: value("letter"))
    report = says("report://one")
    server.resource("report://one", **report, permission=own)(lambda request: value("report://one"))

    @server.resource("page://{name}", **says("page://{}"))
    def page(request: mcp.Request, name: str) -> str:
        return value("page://{}")

    @server.tool(**says("describe"))
    def describe(request: mcp.Request, paper: Paper) -> str:
        return f"{value('describe')} {paper.title}"

    @server.prompt(**says("review"))
    def review(request: mcp.Request, paper: Paper) -> str:
        return f"{value('review')} {paper.title}"

    @server.resource("abstract://{paper}", **says("abstract://{}"))
    def abstract(request: mcp.Request, paper: Paper) -> str:
        return f"{value('abstract://{}')} {paper.title}"

    return server


# Who comes.


def auth_of(one: Combination) -> Auth:
    application = SimpleNamespace(pk=1) if one.is_clients else None
    return Auth(one.scopes, application, key="" if one.is_clients else "token")


class Tokens(LookupVerifier):
    """Verifies tokens of alice that consist of their scopes."""

    def lookup(self, token: str, server: Any) -> Principal:
        scopes, _, is_clients = token.partition("/")
        one = Combination(frozenset(), frozenset(scopes.split()), False, bool(is_clients))
        return Principal(User.objects.get(username="alice"), auth_of(one))

    def applications(self, keys: Any) -> dict[str, Any]:
        return {key: SimpleNamespace(pk=(key_parts(key) or ("",) * 3)[1]) for key in keys}


class CombinedPipe(Pipe):
    def __init__(self, user: Any, server: Any, revision: str, one: Combination) -> None:
        self.one = one
        super().__init__(user, server, revision)

    async def _principal(self) -> Principal:
        return Principal(self.user, auth_of(self.one))


class CombinedWeb(Web):
    def __init__(self, user: Any, server: Any, revision: str, one: Combination) -> None:
        token = f"{' '.join(sorted(one.scopes))}/{'client' * one.is_clients}"
        super().__init__(user, server, revision, token)


# Trying it.

COMPLETIONS = [
    ({"type": "ref/resource", "uri": "model://canaries/paper/{pk}"}, "pk"),
    ({"type": "ref/resource", "uri": "abstract://{paper}"}, "paper"),
    ({"type": "ref/prompt", "name": "review"}, "paper"),
]
LISTS = ["tools/list", "prompts/list", "resources/list", "resources/templates/list"]


def attempts() -> Iterator[tuple[str, JSON]]:
    """Iterate over all requests, with each of the keys."""
    yield from ((method, {}) for method in LISTS)
    for thing in THINGS:
        for key in (OPEN, SEALED, NEVER) if thing.params(OPEN) != thing.params(NEVER) else (OPEN,):
            yield thing.method, thing.params(key)
    for ref, name in COMPLETIONS:
        argument = {"name": name, "value": ""}
        yield "completion/complete", {"ref": ref, "argument": argument}


def tried(client: Any) -> tuple[str, dict[str, str]]:
    """Return all output as one text, and the output of each request for the open row."""
    answers: dict[str, str] = {}
    for method, params in attempts():
        try:
            answers[json.dumps([method, params])] = json.dumps(client.request(method, **params))
        except RpcError as error:
            answers[json.dumps([method, params])] = f"refused: {error}"
    return json.dumps(client.received), answers


def label() -> Any:
    """Declared, but usable by nobody."""
    return Label.objects.create(tenant=Tenant.objects.get(), word="kanary-label")
