"""
Find REST framework views that need their own authenticator, or headers of the client.

Calls of tools are authenticated by ``django_mcp``, so ``request.auth`` is an ``mcp.Auth`` and not
the token of the view's authentication class. A permission class that reads such a token denies
every call. Its code shows that by the attributes that it reads. A view that signs in users by
itself assigns ``request.user``, which is denied if it is not the caller.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from rest_framework.views import APIView

from ..auth.principal import Auth
from .api_endpoints import Endpoint, chains_of_functions

KNOWN = {field.name for field in fields(Auth)}
# Permission classes that store ``request.auth`` before they read it, which the code does not show.
TOKEN_PERMISSIONS = ("oauth2_provider.contrib.rest_framework.TokenHasScope",)
# Permission classes that read the token of an authenticator, and also accept other callers.
TOKEN_OR_USER_PERMISSIONS = (
    "oauth2_provider.contrib.rest_framework.IsAuthenticatedOrTokenHasScope",
)
PERMISSION_METHODS = ("has_permission", "has_object_permission")
# Methods of a view that REST framework calls for every request.
VIEW_METHODS = (
    "initial", "check_permissions", "get_permissions", "get_queryset", "get_serializer_class",
    "perform_create", "perform_update", "perform_destroy",
)  # fmt: skip


def needs_own_authenticator(endpoint: Endpoint) -> Iterator[str]:
    """Yield why the view would deny or fail callers that another authenticator signed in."""
    view = endpoint.view_class
    for kind in dict.fromkeys(_permission_classes(endpoint.view)):
        name = f"{kind.__module__}.{kind.__name__}"
        if _is_one_of(kind, TOKEN_OR_USER_PERMISSIONS):
            continue
        if _is_one_of(kind, TOKEN_PERMISSIONS):
            yield f"{kind.__name__} needs a token of django-oauth-toolkit in request.auth."
        elif read := _token_attributes(kind, PERMISSION_METHODS):
            yield f"{name} reads {read}, so it needs the view's own authenticator."
    if method := _assigns_user(view):
        yield f"{method}() of {view.__name__} assigns a user, so it denies other callers."
    own = (*VIEW_METHODS, endpoint.action or endpoint.method)
    if read := _token_attributes(view, own):
        yield f"{view.__name__} reads {read}, so it needs its own authenticator."


def _assigns_user(view: type) -> str | None:
    """Return the method of a view that assigns another user or authenticators to the request."""
    for name in ("initialize_request", "perform_authentication", "initial", "dispatch"):
        code = getattr(inspect.getattr_static(view, name, None), "__code__", None)
        if code is None or "mcp" in code.co_consts:
            continue
        stored = {one.argval for one in dis.get_instructions(code) if one.opname == "STORE_ATTR"}
        of_library = code is getattr(getattr(APIView, name, None), "__code__", None)
        if not of_library and stored & {"user", "_user", "authenticators"}:
            return name
    return None


def _permission_classes(view: Any) -> Iterator[type]:
    """Yield the permission classes of a view, also those that ``&``, ``|`` and ``~`` combine."""
    waiting = [*view.permission_classes]
    while waiting:
        one = waiting.pop(0)
        if isinstance(one, type):
            yield one
        else:
            parts = ("op1_class", "op2_class")
            waiting += [getattr(one, part) for part in parts if hasattr(one, part)]


def _is_one_of(kind: type, paths: tuple[str, ...]) -> bool:
    # By name: importing the package needs its app to be installed.
    names = {f"{one.__module__.partition('.')[0]}.{one.__name__}" for one in kind.__mro__}
    return any(f"{path.partition('.')[0]}.{path.rpartition('.')[2]}" in names for path in paths)


def _token_attributes(kind: type, methods: tuple[str, ...]) -> str | None:
    """Return what the code of methods reads of a token, such as ``request.auth.scope``."""
    for chain in _own_chains(kind, methods):
        if "successful_authenticator" in chain:
            return "request.successful_authenticator"
        for before, token, read in zip(chain, chain[1:], chain[2:], strict=False):
            if before == "request" and token in ("auth", "_auth") and read not in KNOWN:
                return f"request.{token}{'' if read == '[]' else '.'}{read}"
    return None


def reads_headers(endpoint: Endpoint) -> Iterator[str]:
    """Yield which permission classes and views read headers, which calls of tools do not have."""
    view = endpoint.view_class
    own = (*VIEW_METHODS, endpoint.action or endpoint.method)
    methods = dict.fromkeys(_permission_classes(endpoint.view), PERMISSION_METHODS)
    for kind, names in (methods | {view: own}).items():
        read = {
            name
            for chain in _own_chains(kind, names)
            for before, name in zip(chain, chain[1:], strict=False)
            if before in ("request", "_request") and name in ("headers", "META")
        }
        for name in sorted(read):
            yield f"{kind.__module__}.{kind.__name__} reads request.{name}."


def _own_chains(kind: type, methods: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the attribute chains of the project's methods that do not know calls of tools."""
    for name in methods:
        method = inspect.getattr_static(kind, name, None)
        if str(getattr(method, "__module__", "")).startswith("rest_framework."):
            continue
        # Code that asks ``hasattr(request, "mcp")`` knows calls of tools.
        if "mcp" in getattr(getattr(method, "__code__", None), "co_consts", ()):
            continue
        yield from (chain for chains in chains_of_functions(method) for chain in chains)
