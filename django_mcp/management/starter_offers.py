"""
Declarations for existing APIs and admins, which ``startmcp`` writes as comments.

A finder finds one kind of existing code in an app, such as views of Django REST framework, and
returns an ``Offer`` or None. ``FINDERS`` lists all finders. A finder offers only declarations that
pass the system checks. For the others it writes a comment with the error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import ERROR, CheckMessage

from ..declarations.server import default_server
from .starter_text import as_comments, comment, list_assignment


@dataclass(frozen=True)
class Offer:
    """Declarations of one kind, as text for the generated ``mcp.py``."""

    about: str  # the comment above them
    imports: Mapping[str, Sequence[str]]  # the names to import, by module
    classes: Sequence[str]  # the source of each declaration
    names: Sequence[str]  # the exposed views, APIs or models, for the output of ``startmcp``


def offers(app: AppConfig) -> Iterator[Offer]:
    """Yield what the finders offer for ``app``."""
    yield from (offer for find in FINDERS if (offer := find(app)) is not None)


# Django REST framework.

REST_FRAMEWORK = "django_mcp.bridges.rest_framework"
# Warnings for which ``startmcp`` leaves an operation out: a view that needs its own authenticator,
# and arguments that are secrets.
REJECTING_WARNINGS = ("django_mcp.W188", "django_mcp.W193", "django_mcp.W201")


def rest_framework_views(app: AppConfig) -> Offer | None:
    """Offer the viewsets and views of the app that have a URL."""
    if find_spec("rest_framework") is None:
        return None
    imports: dict[str, list[str]] = {REST_FRAMEWORK: []}
    classes, names = [], []
    for module, name, base, attribute, known in _rest_framework_views(app):
        subject = getattr(import_module(module), name)
        listed = {entry: _read_only_or_problem(base, subject, attribute, entry) for entry in known}
        if not any(isinstance(found, bool) for found in listed.values()):
            continue
        imports.setdefault(module, []).append(name)
        imports[REST_FRAMEWORK] = sorted({*imports[REST_FRAMEWORK], base.__name__})
        classes.append(_class_text(name, base.__name__, attribute, listed))
        names.append(name)
    about = "Views of Django REST framework. Remove what clients do not need."
    return Offer(about, imports, classes, names) if names else None


def _rest_framework_views(app: AppConfig) -> Iterator[tuple[str, str, Any, str, list[str]]]:
    """Yield module, name, base class, attribute and possible entries of each view."""
    from ..bridges.rest_framework import APIViewTools, ViewSetTools
    from ..bridges.views.urls import routes_to

    found = routes_to(lambda pattern: hasattr(pattern.callback, "cls"))
    views: dict[Any, None] = dict.fromkeys(vars(route.callback)["cls"] for route in found)
    for view in views:
        module, name = view.__module__, view.__name__
        # For a function with @api_view, the module has the function, and ``cls`` is its class.
        named = getattr(import_module(module), name, None)
        if f"{module}.".startswith(f"{app.name}.") and getattr(named, "cls", named) is view:
            base: Any = ViewSetTools if hasattr(view, "get_extra_actions") else APIViewTools
            yield module, name, base, base._list_attribute, _draft(base, named)._known


def _draft(base: Any, subject: Any, **attributes: Any) -> Any:
    """Return a declaration that is not registered with a server."""
    draft: Any = type("Draft", (base,), attributes)
    (made,) = draft._instances_for((subject,))
    return made


def _read_only_or_problem(base: Any, subject: Any, attribute: str, entry: str) -> bool | str:
    """Return whether the tools of an entry are read-only, or the error if they fail a check."""
    draft = _draft(base, subject, **{attribute: [entry]})
    find = default_server._catalog.find
    if why := _first_problem(draft._resolve(find)):
        return why
    tools = [*draft._derived()]
    for tool in tools:
        if why := _first_problem(tool._resolve(find)):
            return why
    return all(tool.read_only for tool in tools)


def _first_problem(problems: Iterator[CheckMessage]) -> str:
    wrong = (one for one in problems if one.level >= ERROR or one.id in REJECTING_WARNINGS)
    return next((str(one.msg) for one in wrong), "")


def _class_text(name: str, base: str, attribute: str, listed: Mapping[str, bool | str]) -> str:
    reading = [entry for entry, found in listed.items() if found is True]
    writing = [entry for entry, found in listed.items() if found is False]
    left_out = {entry: why for entry, why in listed.items() if isinstance(why, str)}
    title = "".join(part[:1].upper() + part[1:] for part in re.split("_+", name))
    lines = [f"@mcp.register({name})", f"class {title}Tools({base}):"]
    if reading:
        lines.append(list_assignment(attribute, reading))
    if writing and reading:
        lines += as_comments(["These write:", list_assignment(attribute, writing, "+=")])
    elif writing:
        lines += ["    # These write.", list_assignment(attribute, writing)]
    lines += [comment(f"Left out: {entry}. {why}", 4) for entry, why in left_out.items()]
    return "\n".join(lines)


# django-ninja.

NINJA = "django_mcp.bridges.ninja"


def ninja_operations(app: AppConfig) -> Offer | None:
    """Offer the operations of the app that have a URL, by the API or router that has them."""
    if find_spec("ninja") is None:
        return None
    from ..bridges.ninja import NinjaTools

    imports: dict[str, list[str]] = {NINJA: ["NinjaTools"]}
    classes, names = [], []
    for module, name, subject, entries in _ninja_routers(app):
        listed = {
            one: _read_only_or_problem(NinjaTools, subject, "operations", one) for one in entries
        }
        # If two modules have a router of the same name, only one can be imported under it.
        if name not in names and any(isinstance(found, bool) for found in listed.values()):
            imports.setdefault(module, []).append(name)
            classes.append(_class_text(name, "NinjaTools", "operations", listed))
            names.append(name)
    about = "Operations of django-ninja. Remove what clients do not need."
    return Offer(about, imports, classes, names) if names else None


def _ninja_routers(app: AppConfig) -> Iterator[tuple[str, str, Any, list[str]]]:
    """Yield module, name, object and entries of each router and API with operations of the app."""
    from ninja import NinjaAPI, Router

    from ..bridges.ninja_operations import mounted_operations, path_view_of
    from ..bridges.views.urls import patterns_to

    found = patterns_to(lambda pattern: path_view_of(pattern.callback) is not None)
    views = [view for _, one in found if (view := path_view_of(one.callback)) is not None]
    functions = [one.signature.view_func for view in views for one in view.operations]
    modules = dict.fromkeys(function.__module__ for function in functions)
    for module in (one for one in modules if f"{one}.".startswith(f"{app.name}.")):
        offered: set[str] = set()
        members = vars(import_module(module)).items()
        # Routers first: an API has the operations of its routers, too.
        for kind in (Router, NinjaAPI):
            for name, subject in [one for one in members if isinstance(one[1], kind)]:
                mounted = mounted_operations(subject)
                known = [one.function_name for one in mounted]
                own = [one for one in mounted if one.module == module]
                own = [one for one in own if one.operation_id not in offered]
                offered |= {one.operation_id for one in own}
                if own:
                    yield module, name, subject, [one.entry_among(known) for one in own]


# The admin.


def admin_models(app: AppConfig) -> Offer | None:
    """Offer the models that the app registers in the default admin site."""
    if not apps.is_installed("django.contrib.admin"):
        return None
    listed = [model for model in app.get_models() if _can_use_admin(model, [])]
    if not listed:
        return None
    writing = [
        operation
        for operation in ("create", "update", "delete")
        if all(_can_use_admin(model, [operation]) for model in listed)
    ]
    imports: dict[str, list[str]] = {"django.contrib": ["admin"]}
    for model in listed:
        imports.setdefault(model.__module__, []).append(model.__name__)
    names = [model.__name__ for model in listed]
    lines = ["mcp.register_admin(", "    admin.site,", f"    models=[{', '.join(names)}],"]
    # Model resources of the same models may have tools with the same names.
    lines.append('    prefix="admin_",')
    if writing:
        quoted = ", ".join(f'"{operation}"' for operation in writing)
        lines += as_comments(["These write:", f"operations=[{quoted}],"])
    about = "Models in Django's admin, for staff. Remove what clients do not need."
    return Offer(about, imports, ["\n".join([*lines, ")"])], [f"{name} (admin)" for name in names])


def _can_use_admin(model: Any, operations: list[str]) -> bool:
    """Whether the default admin site has the model, and its tools pass the checks."""
    from django.contrib import admin

    from ..bridges.admin_site import AdminRegistration

    if not admin.site.is_registered(model):
        return False
    options = {"operations": operations, "actions": [], "prefix": "admin_"}
    (tools,) = AdminRegistration(admin.site, [model], options)._make_declarations()
    find = default_server._catalog.find
    if _first_problem(tools._resolve(find)):
        return False
    return not any(_first_problem(tool._resolve(find)) for tool in tools._derived())


FINDERS: tuple[Callable[[AppConfig], Offer | None], ...] = (
    rest_framework_views, ninja_operations, admin_models,
)  # fmt: skip
