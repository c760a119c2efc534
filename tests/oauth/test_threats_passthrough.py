"""Token passthrough: code of the project never gets the token of its caller."""

from __future__ import annotations

import ast
import contextvars
import logging
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django import forms
from django.http import JsonResponse
from django.urls import include, path

import django_mcp as mcp
from django_mcp.bridges.forms import FormTool
from django_mcp.bridges.views import ViewTools
from tests.http import HttpClient
from tests.verifiers.test_personal_tokens import everything_stored

from .tokens import issued

pytestmark = pytest.mark.django_db
PACKAGE = Path(mcp.__file__).parent
FOUND: list[str] = []  # where the token was found
SEARCHED: list[str] = []  # which code searched for it
TOKEN: list[str] = []
# Objects that lead to the whole process, not to one call.
CLOSED = (types.ModuleType, types.BuiltinFunctionType, type, logging.Logger)


def search_for_token(what: str, *given: Any) -> None:
    """Search the token in everything reachable from the arguments and the context."""
    SEARCHED.append(what)
    context = dict(contextvars.copy_context())
    for start in (*given, context):
        FOUND.extend(f"{what}: {where}" for where in paths_to(start, TOKEN[0]))


def paths_to(start: Any, secret: str) -> list[str]:
    """Return the paths from ``start`` to a secret, by items, closures and public attributes."""
    seen, found, left = set(), [], [(type(start).__name__, start)]
    while left:
        where, one = left.pop()
        if id(one) in seen or isinstance(one, CLOSED):
            continue
        seen.add(id(one))
        text = one.decode("latin-1") if isinstance(one, bytes) else one
        if isinstance(text, str):
            found += [where] * (secret in text)
        else:
            left += [(f"{where}.{name}"[-200:], value) for name, value in parts_of(one)]
    return found


def parts_of(one: Any) -> list[tuple[str, Any]]:
    if isinstance(one, dict):
        return [(repr(part)[:40], part) for pair in one.items() for part in pair]
    if isinstance(one, list | tuple | set | frozenset):
        return [("[]", part) for part in one]
    if isinstance(one, types.FunctionType):
        return [("cell", cell.cell_contents) for cell in one.__closure__ or ()]
    if isinstance(one, types.MethodType):
        return [("self", one.__self__)]
    slots = (name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ()))
    held = {name: getattr(one, name) for name in slots if hasattr(one, name)}
    held |= getattr(one, "__dict__", {})
    return [(name, value) for name, value in held.items() if not name.startswith("_")]


def page(request):
    search_for_token("a view", request, dict(request.META), dict(request.headers), request.COOKIES)
    search_for_token(
        "a view's body", request.body, request.GET, request.POST, request.get_full_path()
    )
    return JsonResponse({"path": request.path})


class Note(forms.Form):
    text = forms.CharField()

    def clean(self):
        search_for_token("a form", self, self.data)


urlpatterns = [path("", include("django_mcp.oauth.urls")), path("page", page, name="page")]


@pytest.fixture
def searching_server(server, settings):
    """A server on which all code of the project searches for the token."""
    settings.ROOT_URLCONF, settings.ALLOWED_HOSTS = __name__, ["*"]
    [kept.clear() for kept in (FOUND, SEARCHED, TOKEN)]

    @server.tool
    def tool(request) -> str:
        search_for_token("a tool", request, request.auth, request.principal, request.principal.key)
        search_for_token(
            "a tool's request", request.http, dict(request.http.META), request.http.headers
        )
        return "done"

    @server.tool
    async def atool(request) -> str:
        search_for_token("an asynchronous tool", request, request.http)
        return "done"

    @server.resource("note://{name}")
    def resource(request, name: str) -> str:
        search_for_token("a resource", request, name)
        return "done"

    @server.register(Note)
    class Noted(FormTool):
        """Note it."""

        name, permission = "form", mcp.AUTHENTICATED

        def form_valid(self, request, form) -> str:
            search_for_token("a form that is valid", request, form)
            return "done"

    server.register(type("Pages", (ViewTools,), {"get": ["page"], "names": {"page": "view"}}))
    return server


@pytest.fixture
def client(http, searching_server, alice, public_client, revision):
    TOKEN.append(issued(alice, public_client, searching_server)[1])
    made: HttpClient = http(
        TOKEN[0], server=searching_server, more={"host": "shop.example"}, revision=revision
    )
    return made


CALLS = {
    "tool": ({}, {"a tool", "a tool's request"}),
    "atool": ({}, {"an asynchronous tool"}),
    "form": ({"text": "a"}, {"a form", "a form that is valid"}),
    "view": ({}, {"a view", "a view's body"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_tools_forms_and_views_do_not_get_the_token(client, name, caplog):
    """T7: neither in any request object, nor in the context, nor in the log."""
    caplog.set_level(logging.DEBUG)
    arguments, looked = CALLS[name]
    assert not client.call(name, **arguments).get("isError"), name
    assert FOUND == [] and looked <= set(SEARCHED)
    said = [repr(vars(record)) + record.getMessage() for record in caplog.records]
    assert not [text for text in said if TOKEN[0] in text]


def test_resources_do_not_get_the_token(client):
    """T7: and it is not stored."""
    client.request("resources/read", uri="note://one")
    assert FOUND == [] and "a resource" in SEARCHED
    assert TOKEN[0] not in everything_stored()


# The modules that read the header, and why.
READERS = {
    "transports/http/authentication.py": "who is calling",
    "transports/http/request.py": "which headers there may be once",
    "transports/http/security.py": "what a page may send",
    "verifiers/protected_resource.py": "what a page may send",
    "verifiers/fetching.py": "what the project itself is known by, to an issuer",
    "oauth/token_endpoint.py": "by which scheme a client showed its secret",
    "management/doctor/live.py": "a client",
    "testing/wires.py": "a client",
    "management/commands/mcp_server_json.py": "the settings of clients, in the registry",
    "web/clients.py": "the settings of clients",
}


@pytest.mark.slow
def test_only_listed_modules_read_the_authorization_header():
    """T7: code that does not read the token cannot pass it on."""
    assert set(map(str, named_in("authorization"))) == set(READERS)


def named_in(name: str) -> Iterator[Path]:
    """The modules in which a string is a header's name, in whatever spelling."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            text = text.decode("latin-1") if isinstance(text, bytes) else text
            if isinstance(text, str) and is_header(text, name):
                yield file.relative_to(PACKAGE)


def is_header(text: str, name: str) -> bool:
    return text.lower().removeprefix("http_").strip(": ") == name
