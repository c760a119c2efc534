"""Generate a first ``mcp.py`` for an app from its models, views, APIs and admin.

The generated file exposes little, and comments in it name what it leaves out. It contains nothing
that the checks would reject and nothing that looks like a secret. Declarations that write are
comments.

Declarations for existing APIs and admins are comments too. ``FINDERS`` lists the functions that
look for them: each finds one kind of existing code in an app, such as views of Django REST
framework, and returns an ``Offer`` or None. A finder offers only declarations that pass the system
checks. For the others it writes a comment with the error.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from django.apps import AppConfig, apps
from django.contrib.auth import get_user_model
from django.core.checks import ERROR, CheckMessage
from django.core.exceptions import ImproperlyConfigured
from django.db import models

from ..bridges.model_arguments import writable_fields
from ..bridges.model_operations import is_needed
from ..declarations.fields.keys import key_problems
from ..declarations.fields.keyset import Keyset
from ..declarations.fields.search import Search
from ..declarations.fields.whitelist import FieldSet
from ..declarations.model_resources import ModelResource
from ..declarations.redaction import SECRET, SECRET_COLUMN, words
from ..declarations.server import default_server

VIEWS = "django_mcp.bridges.views"
# Columns with these words in their names pass the checks, but are rarely meant for clients.
SENSITIVE_WORDS = frozenset((
    "cookie", "digest", "hash", "hashed", "internal", "nonce", "passport", "private", "recovery",
    "salt", "session", "ssn",
))  # fmt: skip
NOT_SEARCHABLE_AS_TEXT = (models.UUIDField, models.GenericIPAddressField)
MAX_SEARCH_FIELDS = 4

WIDTH = 88  # line length, as formatters have it


@dataclass(frozen=True)
class StarterFile:
    """The generated text, and what it contains, for the command's output."""

    text: str
    shown: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)  # model name to reason
    views: list[str] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)  # in comments


def generate_starter_file(app: AppConfig, *, inside: bool = True) -> StarterFile:
    """Return an ``mcp.py`` for ``app``. With ``inside``, it is a module of the app's package."""
    found = [ResourceSketch(model, app) for model in app.get_models()]
    sketches = [one for one in found if not one.why_not]
    left_out = {one.model.__name__: one.why_not for one in found if one.why_not}
    views, offered = Views(app), [*offers(app)]
    models_shown = [one.model for one in sketches]
    parts = [resource_text(one, models_shown, first=one is sketches[0]) for one in sketches]
    parts += views.text()
    parts += [offer_text(one, app, inside) for one in offered]
    imported = _imports(app, models_shown, views, inside) if parts else [NOTHING]
    head = "\n\n".join([_docstring(app), *imported])
    text = "\n\n\n".join([head, *parts, *_omission_comments(left_out)])
    names = [name for one in offered for name in one.names]
    shown = [one.__name__ for one in models_shown]
    return StarterFile(f"{text}\n", shown, left_out, views.names, names)


def _docstring(app: AppConfig) -> str:
    return (
        f'"""What MCP clients may see and do in {app.label}. A first version, by startmcp.\n\n'
        "Clients see only what is named here. Read every list, and remove what clients do\n"
        'not need to know.\n"""'
    )


NOTHING = """\
# This app has no models or views that could be exposed. A function can be a tool:
#
# import django_mcp as mcp
#
#
# @mcp.tool(read_only=True)
# def whoami(request) -> str:
#     \"\"\"The name of the user you act for.\"\"\"
#     return request.user.get_username()"""


def _omission_comments(left_out: dict[str, str]) -> list[str]:
    comments = [comment(f"Left out: {name}, {why}.") for name, why in left_out.items()]
    return ["\n".join(comments)] if comments else []


def _imports(
    app: AppConfig, wanted: Sequence[type[models.Model]], views: Views, inside: bool
) -> list[str]:
    """Return blocks of imports: third-party, the project's own, and relative, each sorted."""
    places: dict[str, list[str]] = {}
    for model in wanted:
        places.setdefault(_module_of(app, model, inside), []).append(model.__name__)
    project = app.name.partition(".")[0] if inside else None
    own = [one for one in places if one.partition(".")[0] in ("", project)]
    others = {one: names for one, names in places.items() if one not in own}
    others |= {VIEWS: ["ViewTools"]} if views.are_written else {}
    absolute = [one for one in own if one[0] != "."]
    relative = [one for one in own if one[0] == "."]
    blocks = [
        [
            "import django_mcp as mcp",
            *(import_statement(one, others[one]) for one in sorted(others)),
        ],
        [import_statement(one, places[one]) for one in sorted(absolute)],
        [import_statement(one, places[one]) for one in sorted(relative)],
    ]
    return ["\n".join(block) for block in blocks if block]


def _module_of(app: AppConfig, model: type[models.Model], inside: bool) -> str:
    known = app.models_module is not None and (
        getattr(app.models_module, model.__name__, None) is model
    )
    return _relative(app, f"{app.name}.models" if known else model.__module__, inside)


def _relative(app: AppConfig, module: str, inside: bool) -> str:
    within = inside and module.startswith(f"{app.name}.")
    return module.removeprefix(app.name) if within else module


# Models.


class ResourceSketch:
    """What a model resource of a model might contain."""

    def __init__(self, model: type[models.Model], app: AppConfig) -> None:
        self.model, self.app = model, app

    @cached_property
    def why_not(self) -> str:
        """Why the model gets no resource. Empty if it gets one."""
        if self.model._meta.proxy:
            return f"a proxy of {self.model._meta.concrete_model.__name__}"  # type: ignore[union-attr]
        if key_problems(self.model):
            return "whose key cannot be part of a URI"
        return "" if self.fields else "no field of which can be shown"

    @cached_property
    def candidates(self) -> list[Any]:
        """The model's columns, without keys that a URI shows anyway."""
        every: Iterable[Any] = self.model._meta.get_fields()
        return [
            one for one in every
            if getattr(one, "concrete", False) and not one.many_to_many
            and not (one.primary_key and (one.has_default() or _is_made_up(one)))
        ]  # fmt: skip

    @cached_property
    def fields(self) -> list[str]:
        return [one.name for one in self.candidates if self._may_show(one)]

    @cached_property
    def hidden(self) -> list[str]:
        relations = [one.name for one in self.model._meta.many_to_many]
        return [one.name for one in self.candidates if one.name not in self.fields] + relations

    def _may_show(self, field: Any) -> bool:
        if isinstance(field, models.FileField | models.BinaryField | models.JSONField):
            return False
        return not _is_sensitive(field) and not FieldSet(self.model, [field.name]).problems()

    @cached_property
    def search_fields(self) -> list[str]:
        texts = [
            one for one in self._selected_fields()
            if isinstance(one, models.CharField | models.TextField)
            and not isinstance(one, NOT_SEARCHABLE_AS_TEXT) and not one.choices
        ]  # fmt: skip
        return self._passing(texts, lambda name: Search(self.model, [name]))[:MAX_SEARCH_FIELDS]

    @cached_property
    def filter_fields(self) -> list[str]:
        chosen = [
            one for one in self._selected_fields()
            if one.is_relation or one.choices or isinstance(one, models.BooleanField)
        ]  # fmt: skip
        return self._passing(chosen, lambda name: Search(self.model, (), [name]))

    @cached_property
    def ordering(self) -> list[str]:
        """The model's ordering, if all its fields are shown and it supports paging."""
        own = [*(self.model._meta.ordering or ())]
        if not all(isinstance(name, str) and name.removeprefix("-") in self.fields for name in own):
            return []
        found = [str(name) for name in own]
        return [] if Keyset(self.model, found).problems() else found

    def operations(
        self, models_shown: Collection[type[models.Model]]
    ) -> tuple[list[str], list[str]]:
        """Return the operations that would pass the checks, and the fields that they do not write.

        A relation is written only to a model with a resource: one of ``models_shown``, or one that
        the project registered. Rows can be created only if clients can give all required values.
        """
        resource = ModelResource()
        resource.model, resource.fields = self.model, self.fields
        fields = dict(writable_fields(resource))
        unwritten = [
            name for name, one in fields.items()
            if one.is_relation and not _target_has_one_resource(one, models_shown)
            or _keeps_tree(self.model, name)
        ]  # fmt: skip
        written = {one for name, one in fields.items() if name not in unwritten}
        lacks = (one for one in self.model._meta.fields if one not in written and is_needed(one))
        operations = ["create"] if written and not any(lacks) else []
        operations += ["update"] if any(not one.primary_key for one in written) else []
        return operations, unwritten

    @property
    def owner(self) -> str | None:
        """The foreign key to the user that owns the row, or None."""
        user = get_user_model()
        own = (one.name for one in self.candidates if one.related_model is user)
        return next(own, None)

    @cached_property
    def name(self) -> str | None:
        """A name that differs from the model's, if another app has taken that one. Else None."""
        own = self.model._meta.model_name
        taken = {
            tool.name for tool in default_server._catalog.tools.values()
            if _app_label_of(tool) != self.app.label
        }  # fmt: skip
        return f"{self.app.label}_{own}" if f"search_{own}" in taken else None

    def _selected_fields(self) -> list[Any]:
        return [one for one in self.candidates if one.name in self.fields]

    def _passing(self, found: Iterable[Any], part: Callable[[str], Any]) -> list[str]:
        return [one.name for one in found if not part(one.name).problems()]


def _target_has_one_resource(one: Any, models_shown: Collection[type[models.Model]]) -> bool:
    """Whether a relation leads to a model that has exactly one resource."""
    if one.related_model in models_shown:
        return True
    try:
        return default_server._catalog.find(one.related_model) is not None
    except ImproperlyConfigured:
        return False


def _keeps_tree(model: type[models.Model], name: str) -> bool:
    """Whether django-treebeard maintains the column. Writing it would break the tree."""
    is_node = any(cls.__module__.startswith("treebeard.") for cls in model.__mro__)
    return is_node and name in ("depth", "lft", "numchild", "path", "rgt", "tree_id")


def _is_made_up(one: Any) -> bool:
    """Whether a key has no meaning beyond identifying its row."""
    parent = one.remote_field is not None and getattr(one.remote_field, "parent_link", False)
    return isinstance(one, models.AutoField) or parent or isinstance(one, models.UUIDField)


def _is_sensitive(one: Any) -> bool:
    named = words(one.name)
    found = SECRET_COLUMN.search(one.name) or SECRET.search(named)
    return bool(found) or not SENSITIVE_WORDS.isdisjoint(named.split())


def _app_label_of(declaration: Any) -> str | None:
    resource = getattr(declaration, "_resource", None)
    return None if resource is None else str(resource.model._meta.app_label)


def resource_text(
    sketch: ResourceSketch, models_shown: Collection[type[models.Model]], *, first: bool
) -> str:
    """Return the source of the class. The first class has comments on what may be added."""
    model, own = sketch.model.__name__, sketch.model._meta.model_name
    lists = ("fields", "search_fields", "filter_fields", "ordering")
    written = [list_assignment(name, found) for name in lists if (found := getattr(sketch, name))]
    called = [f'    name = "{sketch.name}"  # another app uses {own}'] if sketch.name else []
    hidden = [comment(f"Not shown: {', '.join(sketch.hidden)}.", 4)] if sketch.hidden else []
    return "\n".join(
        [
            f"@mcp.register({model})",
            f"class {model}Resource(mcp.ModelResource):",
            *called,
            *written,
            *hidden,
            *(_explanation(sketch) if first else ()),
            *_writing(sketch, models_shown),
        ]
    )


EXPLANATION = """\
    # Users with Django's view permission see all rows. Restrictions in a ModelAdmin do
    # not apply here. To show other rows, or rows to other users:"""


def _explanation(sketch: ResourceSketch) -> list[str]:
    rows = f"filter({sketch.owner}=request.user)" if sketch.owner else "none()  # which rows?"
    return [
        *EXPLANATION.splitlines(),
        "    # permission = mcp.AUTHENTICATED",
        "    #",
        "    # def get_queryset(self, request):",
        f"    #     return super().get_queryset(request).{rows}",
        "    #",
        "    # To let users with Django's permissions for this model add and change rows:",
    ]


def _writing(sketch: ResourceSketch, models_shown: Collection[type[models.Model]]) -> list[str]:
    """Return commented-out operations, or nothing if nothing can be written."""
    operations, unwritten = sketch.operations(models_shown)
    lists = {"operations": operations} | ({"readonly_fields": unwritten} if unwritten else {})
    return as_comments(
        [list_assignment(name, found) for name, found in lists.items()] if operations else []
    )


# Views.


class Views:
    """The named views of an app: those that only read, function views, and those that write."""

    def __init__(self, app: AppConfig) -> None:
        self.app = app
        self.read_views: list[str] = []
        self.function_views: list[str] = []
        self.write_views: list[str] = []
        for name, route in self._routes().items():
            if route.reversible and self._is_own(name, route):
                self._sort(name, route.view_class)
        self.names = sorted({*self.read_views, *self.function_views, *self.write_views})

    def _routes(self) -> dict[str, Any]:
        from ..bridges.views.urls import routes

        return routes()

    def _is_own(self, name: str, route: Any) -> bool:
        # Views of Django REST framework and operations of django-ninja are offered apart.
        function = getattr(route.callback, "func", route.callback)  # of a functools.partial
        if hasattr(route.callback, "cls") or str(function.__module__).startswith("ninja."):
            return False
        view = route.view_class or route.callback
        module = f"{getattr(view, '__module__', '')}."
        return module.startswith(f"{self.app.name}.") or name.startswith(f"{self.app.label}:")

    def _sort(self, name: str, view_class: Any) -> None:
        """Put a view into a list. Only its code tells what a function view does on GET."""
        if view_class is None:
            self.function_views.append(name)
        elif hasattr(view_class, "post"):
            self.write_views.append(name)
        elif hasattr(view_class, "get"):
            self.read_views.append(name)

    @property
    def are_written(self) -> bool:
        """Whether there are read-only views, and the package that converts pages is installed."""
        return bool(self.read_views) and find_spec("markdownify") is not None

    def text(self) -> list[str]:
        if not self.names:
            return []
        title = "".join(part.capitalize() for part in self.app.label.split("_"))
        head = ["@mcp.register", f"class {title}Views(ViewTools):"]
        off = self._switched_off()
        if self.read_views:
            text = "\n".join([*head, list_assignment("get", self.read_views), *as_comments(off)])
            return [text] if self.are_written else [_commented_out(EXTRA, text)]
        return [_commented_out(off[0], "\n".join([*head, off[1], *as_comments(off[2:])]))]

    def _switched_off(self) -> list[str]:
        """Return commented-out lists of views, with what the developer must decide."""
        off = [
            FUNCTIONS,
            list_assignment("get", self.function_views, "+=" if self.read_views else "="),
        ]
        writing = [WRITING, list_assignment("post", self.write_views)]
        return [*(off if self.function_views else []), *(writing if self.write_views else [])]


FUNCTIONS = "Function views. Add those that only read and that check the user's permissions:"
WRITING = "Views that write. A client gives the values of their forms:"
EXTRA = "Views as tools need a package: pip install 'django-modelcontext[views]'."


def _commented_out(why: str, text: str) -> str:
    """Return code as comments."""
    return "\n".join(as_comments([why, f"from {VIEWS} import ViewTools", "", "", text], indent=0))


# What the finders offer.


def offer_text(offer: Offer, app: AppConfig, inside: bool) -> str:
    """Return an offer as comments, with its imports."""
    modules = {_relative(app, module, inside): names for module, names in offer.imports.items()}
    lines = {module: import_statement(module, names) for module, names in modules.items()}
    absolute = [line for module, line in lines.items() if module[0] != "."]
    relative = [line for module, line in lines.items() if module[0] == "."]
    blocks = ["\n".join(block) for block in (absolute, relative) if block]
    code = "\n\n\n".join(["\n\n".join(blocks), *offer.classes])
    return "\n".join(as_comments([offer.about, code], indent=0))


def list_assignment(name: str, values: Sequence[str], sign: str = "=") -> str:
    """Return an assignment of a list, on one line or with one item per line."""
    literals = [json.dumps(value, ensure_ascii=False) for value in values]
    line = f"    {name} {sign} [{', '.join(literals)}]"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"    {name} {sign} [", *(f"        {one}," for one in literals), "    ]"])


def import_statement(module: str, found: Iterable[str]) -> str:
    """Return an import of sorted names from a module."""
    names = sorted(found, key=_in_order)
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _in_order(name: str) -> tuple[bool, bool, str]:
    """Return a sort key: constants, classes and functions, as formatters have them."""
    return not (name.isupper() and len(name) > 1), not name[0].isupper(), name.lower()


def as_comments(parts: Iterable[str], indent: int = 4) -> list[str]:
    """Return lines as comments, at the indent that they have as code."""
    lines = (line for part in parts for line in part.splitlines() or [""])
    return [" " * indent + f"# {line.removeprefix(' ' * indent)}".rstrip() for line in lines]


def comment(text: str, indent: int = 0) -> str:
    start = " " * indent + "# "
    return textwrap.fill(
        text, WIDTH, initial_indent=start, subsequent_indent=start, break_long_words=False
    )


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
