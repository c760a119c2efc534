"""``Server``: a set of declarations at one URL path, like Django's ``AdminSite``.

Decorators only record what they are applied to and return it unchanged. The record is resolved
once, when checks run or the server starts to serve. A server with mistakes does not start.

``mcp.tool``, ``mcp.prompt``, ``mcp.resource``, ``mcp.register`` and ``mcp.register_models`` add a
declaration to the default server, or to ``server`` if it is given, like the server's methods of the
same names.

``address`` and ``sse_address`` are the URLs that clients are told. Their origin is the setting
``DJANGO_MCP["URL"]``, never the ``Host`` header of a request.
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_script_prefix
from django.utils.encoding import escape_uri_path

from ..conf import settings
from ..exceptions import AlreadyRegistered, Misdeclared
from . import permissions
from .attribute_checks import TYPES, did_you_mean, is_ours, permission_problem
from .permissions import PUBLIC, Permission
from .registry import (
    PENDING,
    REGISTER,
    REGISTER_MODELS,
    Registration,
    is_declaration,
    model_registered,
)

if TYPE_CHECKING:
    from django.db.models import Model
    from django.forms import BaseForm
    from django.utils.functional import Promise

    from .catalog import Catalog
    from .content import Icon
    from .declaration import Declaration
    from .throttles import Throttle, Throttles

    Subject = type[Model] | type[BaseForm]  # what a class is registered with


def address(server: Server) -> str:
    """Return the URL of ``server``: its path after ``DJANGO_MCP["URL"]`` and the script prefix."""
    return _url(server.path)


def sse_address(server: Server) -> str | None:
    """Return the URL for clients that only support HTTP+SSE, or None if that is off."""
    return _url(server._sse_path) if server.sse else None


def _url(path: str) -> str:
    return f"{settings.URL.rstrip('/')}{escape_uri_path(get_script_prefix() + path)}"


F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D", bound="Declaration")

# Common names of the settings' package, or of a project's folder in a container. They say
# nothing about the project.
GENERIC_NAMES = frozenset((
    "api", "app", "apps", "backend", "code", "conf", "config", "core", "django", "main", "project",
    "server", "settings", "site", "src", "web", "www",
))  # fmt: skip
UNKNOWN_PROJECT = "django"
VARIABLE = re.compile(r"\{\W?(\w+)")
_servers: dict[str, weakref.ref[Server]] = {}
_version = 0


class Server:
    """A set of tools, resources and prompts, served at one path.

    ``name`` distinguishes it from the project's other servers. ``path`` is its URL path
    ("mcp/billing"). ``title``, ``description``, ``version``, ``website`` and ``icons`` are for
    people, ``instructions`` are for models. ``page`` is the permission to see its page in a
    browser, or None for no page. ``durable`` stores every call of a tool before it runs.
    ``throttle`` limits the calls of all tools, resources and prompts together, and None means the
    setting ``THROTTLES``. ``sse`` also serves HTTP+SSE, for old clients. ``audit`` stores every
    call in the audit log. ``experimental`` and ``extensions`` are capabilities to declare, by name.
    """

    def __init__(
        self,
        name: str,
        *,
        path: str | None = None,
        title: str | Promise | None = None,
        version: str = "1.0",
        description: str | Promise | None = None,
        website: str | None = None,
        icons: Sequence[Icon] = (),
        instructions: str | Promise | None = None,
        page: Permission | None = PUBLIC,
        durable: bool = False,
        throttle: Throttles | None = None,
        sse: bool = False,
        audit: bool = False,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        taken = _servers.get(name)
        if taken is not None and taken() is not None:
            raise AlreadyRegistered(f"A server {name!r} already exists.")
        _servers[name] = weakref.ref(self)
        self.name, self.path = name, (f"mcp/{name}" if path is None else path).strip("/")
        self.title, self.version, self.description = title, version, description
        self.website, self.icons, self.instructions = website, icons, instructions
        self.page, self.durable, self.throttle = page, durable, throttle
        self.sse, self.audit = sse, audit
        self.experimental = dict(experimental or {})
        self.extensions = dict(extensions or {})
        self._public_name = ""
        self._records: list[Registration] = []

    if not TYPE_CHECKING:  # with __setattr__, type checkers would take any name

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute. Raise ``AttributeError`` for a name that does not exist."""
            if name == "name" and "name" in self.__dict__:
                # Rows of sessions, tokens and switches contain the name and would be orphaned.
                raise AttributeError("The name of a server cannot be changed. Set its public_name.")
            known = inspect.signature(Server).parameters
            if not (name in known or name.startswith("_") or hasattr(Server, name)):
                near = did_you_mean(name, [*known, "public_name"])
                raise AttributeError(f"A server has no attribute {name!r}. {near}".strip())
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<Server {self.name!r} at /{self.path}>"

    @property
    def public_name(self) -> str:
        """The name that clients and people see.

        By default it is ``name``, and for the default server the name of the project. Set it with
        ``mcp.server.public_name = "shop"``. Rows in the database contain ``name``.
        """
        if self._public_name:
            return self._public_name
        if self is not default_server:
            return self.name
        return _project_name(str(django_settings.SETTINGS_MODULE or ""))

    @public_name.setter
    def public_name(self, name: str) -> None:
        self._public_name = name

    @property
    def _sse_path(self) -> str:
        """The path where clients expect HTTP+SSE.

        If it is on, it is served here and at ``path``.
        """
        return f"{self.path}/sse".lstrip("/")

    @property
    def _paths(self) -> tuple[str, ...]:
        return (self.path, self._sse_path) if self.sse else (self.path,)

    # Declaring.

    @overload
    def tool(self, function: F, /) -> F: ...
    @overload
    def tool(self, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: Any = None, /, **options: Any) -> Any:
        """Expose a function as a tool: ``@tool`` or ``@tool(permission=..., read_only=...)``.

        Options: name, title, permission, read_only, destructive, atomic, and the other attributes
        of ``Tool``.
        """
        return self._decorate("tool", function, options)

    @overload
    def prompt(self, function: F, /) -> F: ...
    @overload
    def prompt(self, /, **options: Any) -> Callable[[F], F]: ...
    def prompt(self, function: Any = None, /, **options: Any) -> Any:
        """Expose a function as a prompt: ``@prompt`` or ``@prompt(title=...)``."""
        return self._decorate("prompt", function, options)

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Expose a function as the resource or resources at ``uri``."""
        decorate: Callable[[F], F] = self._decorate("resource", None, options | {"uri": uri})
        return decorate

    def _decorate(self, kind: str, function: Any, options: dict[str, Any]) -> Any:
        if function is None:
            return self._applied(Registration(PENDING, kind, options))
        self._record(Registration(kind, function, options))
        return function

    @overload
    def register(self, cls: type[D], /) -> type[D]: ...
    @overload
    def register(self, subject: Subject, cls: type[D], /) -> type[D]: ...
    @overload
    def register(self, *subjects: Subject) -> Callable[[type[D]], type[D]]: ...
    @overload  # several models and their class, which no signature can tell apart
    def register(self, first: Subject, second: Subject, /, *things: type[Any]) -> Any: ...
    def register(self, *things: Any) -> Any:
        """Expose classes: ``register(Model, Resource)``, ``@register(Model)`` or ``@register``.

        As a decorator it returns the class. Raise ``AlreadyRegistered``.
        """
        last = things[-1] if things else None
        if isinstance(last, type) and is_declaration(last):
            self._record(Registration(REGISTER, last, {}, things[:-1]))
            return last
        return self._applied(Registration(PENDING, REGISTER, {}, things))

    def _applied(self, pending: Registration) -> Callable[[F], F]:
        """Return a decorator that registers the decorated function or class.

        A check reports a decorator that never decorates anything.
        """
        self._record(pending)

        def apply(target: F) -> F:
            if pending in self._records:
                self._records.remove(pending)
            self._record(pending.apply_to(target))
            return target

        return apply

    def _record(self, record: Registration) -> None:
        """Record a declaration.

        Raise ``AlreadyRegistered``, or ``ImproperlyConfigured`` if it is too late.
        """
        if "_catalog" in self.__dict__:
            raise ImproperlyConfigured(
                f"{self!r} is already being served. Declare everything in mcp.py modules."
            )
        if not record.is_pending and any(r.same_as(record) for r in self._records):
            raise AlreadyRegistered(f"{record} is already registered on {self!r}.")
        self._records.append(record)
        _change(record)

    @property
    def _registered_models(self) -> Iterator[tuple[type[Any], str]]:
        """Yield the registered models, and the field by which each one's URI identifies rows.

        It resolves nothing, because code that saves a row calls it.
        """
        for record in self._records:
            yield from _models(record)

    # Resolving.

    @cached_property
    def _catalog(self) -> Catalog:
        """All declarations, resolved. The mistakes are in its ``messages``."""
        from .catalog import Catalog

        found = [problem for check in SERVER_CHECKS for problem in check(self)]
        found += [record.problem() for record in self._records if record.is_pending]
        made: list[Declaration] = []
        for record in self._records:
            made += record.declarations(found)
        catalog = Catalog(self, made)
        catalog.messages[:0] = found
        return catalog

    @property
    def _may_audit(self) -> bool:
        """Whether calls of any of its declarations are stored in the audit log."""
        return self.audit or self._catalog.has_audited

    @property
    def _throttles(self) -> tuple[Throttle, ...]:
        """The throttles that count every call: those of ``throttle``, or else the setting."""
        if self.throttle is not None:
            return self._catalog.throttles
        rate = settings.THROTTLES.get("calls")
        return _throttles_of(rate) if rate else ()

    @property
    def _is_empty(self) -> bool:
        """Whether nothing was declared. It imports nothing."""
        return not self._records

    def check(self) -> list[CheckMessage]:
        """Return what is wrong with the declarations."""
        return [] if self._is_empty else list(self._catalog.messages)

    def ready(self) -> Catalog:
        """Return the catalog before serving starts. Raise ``Misdeclared`` if there are errors."""
        from .fields.field_types import registration_problems

        found = [*self.check(), *registration_problems()]
        serious = [message for message in found if message.is_serious()]
        if serious:
            raise Misdeclared(serious)
        return self._catalog

    def _forget(self) -> None:
        """Resolve the declarations again at the next use. For tests."""
        self.__dict__.pop("_catalog", None)


def version() -> int:
    """Return a number that changes whenever something is registered."""
    return _version


def _change(record: Registration) -> None:
    global _version
    _version += 1
    for model, _ in _models(record):
        for hook in model_registered:
            hook(model)


def _models(record: Registration) -> Iterator[tuple[type[Any], str]]:
    if getattr(record.target, "_kind", "") == "model resource":
        found = VARIABLE.search(str(record.target.uri or ""))
        for model in record.subjects:  # may be anything: checks report other things than models
            if isinstance(model, type) and hasattr(model, "_meta"):
                yield model, found[1] if found else "pk"


def servers() -> list[Server]:
    """Return all servers of the project, the default one first."""
    alive = [server for made in _servers.values() if (server := made()) is not None]
    return alive


def server_named(name: str) -> Server:
    """Return the server with this name or public name.

    Raise ``LookupError`` with the known names.
    """
    found = {server.name: server for server in servers()}
    public = {server.public_name: server for server in found.values()}
    if name not in found and name not in public:
        raise LookupError(f"There is no server {name!r}; there are: {', '.join(public)}.")
    return found.get(name) or public[name]


@cache  # every response contains the name, and finding a package reads folders
def _project_name(settings_module: str) -> str:
    """Return the package of the settings, or its folder if the package has a generic name."""
    package = settings_module.partition(".")[0]
    if package and package.lower() not in GENERIC_NAMES:
        return package
    spec = find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return UNKNOWN_PROJECT
    file = Path(spec.origin)
    folder = (file.parent.parent if spec.submodule_search_locations else file.parent).name
    return folder if folder and folder.lower() not in GENERIC_NAMES else UNKNOWN_PROJECT


@lru_cache(maxsize=16)
def _throttles_of(rate: str) -> tuple[Throttle, ...]:
    from .throttles import listed

    return listed(rate)


# System checks of a server.

TEXT, LAZY_TEXT = ("str",), ("str", "Promise", "None")
# The types of each attribute. Other checks cover the page, throttles, capabilities and ``sse``.
ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "path": TEXT,
    "version": TEXT,
    "public_name": TEXT,
    "title": LAZY_TEXT,
    "description": LAZY_TEXT,
    "instructions": LAZY_TEXT,
    "website": ("str", "None"),
    "icons": ("Sequence[Icon]",),
    "durable": ("bool",),
    "audit": ("bool",),
}
OPTIONS = (*ATTRIBUTES, "page", "throttle", "sse", "experimental", "extensions")


def _attribute_problems(server: Server) -> Iterator[CheckMessage]:
    """Yield an error for each attribute of the wrong type, and for values in a subclass's body.

    The constructor sets all attributes, so that a value in a class body has no effect.
    """
    for name, parts in ATTRIBUTES.items():
        value = getattr(server, name)
        if not any(TYPES[part][1](value) for part in parts):
            words = " or ".join(filter(None, (TYPES[part][0] for part in parts)))
            message = f"{name} is {value!r:.80}."
            yield Error(message, hint=f"Write {words}.", obj=server, id="django_mcp.E153")
    for cls in type(server).__mro__:
        for name, value in vars(cls).items() if not is_ours(cls) and cls is not object else ():
            if name.startswith("_") or hasattr(value, "__get__"):
                continue
            near = "" if name in OPTIONS else did_you_mean(name, OPTIONS)
            hint = f"{near} Pass it to the constructor: {cls.__name__}(..., page=None).".strip()
            message = (
                f"The attribute {name!r} in the class body of {cls.__qualname__} has no effect."
            )
            yield Error(message, hint=hint, obj=server, id="django_mcp.E154")


def _page_problems(server: Server) -> Iterator[CheckMessage]:
    """Yield what is wrong with the permission for the server's page."""
    if server.page is None:
        return
    if wrong := permissions.problem(server.page) or permission_problem(server.page):
        hint = (
            "Write mcp.PUBLIC, mcp.AUTHENTICATED, a codename, a function of the request, or None."
        )
        yield Error(f"page: {wrong}", hint=hint, obj=server, id="django_mcp.E008")
    elif isinstance(server.page, str):
        near = permissions.unknown_codename(server.page)
        if near is not None:
            message = f"page: the permission {server.page!r} does not exist."
            yield Warning(message, hint=near, obj=server, id="django_mcp.W155")


def _name_problems(server: Server) -> Iterator[CheckMessage]:
    """Yield an error if an earlier server shows the same name: commands could not tell them apart.

    A command takes the name or the public name of a server.
    """
    for earlier in takewhile(lambda each: each is not server, servers()):
        if {earlier.name, earlier.public_name} & {server.name, server.public_name}:
            message = f"{earlier!r} and {server!r} have the same public name or name."
            hint = f"Give one of them a public_name other than {server.public_name!r}."
            yield Error(message, hint=hint, obj=server, id="django_mcp.E152")


def _path_problems(server: Server) -> Iterator[CheckMessage]:
    for earlier in takewhile(lambda each: each is not server, servers()):
        if earlier.path == server.path:
            message = f"{earlier!r} and {server!r} have the same path."
            hint = "Give one of them another path."
            yield Error(message, hint=hint, obj=server, id="django_mcp.E004")
        elif shared := {*earlier._paths} & {*server._paths}:
            message = f"{earlier!r} and {server!r} both serve HTTP+SSE at /{shared.pop()}."
            hint = "Give one of them another path."
            yield Error(message, hint=hint, obj=server, id="django_mcp.E150")


def _icon_problems(server: Server) -> Iterator[CheckMessage]:
    from .declaration import ICON_HINT, icon_problem, static_icon_problems

    for icon in server.icons:
        if wrong := icon_problem(icon):
            yield Error(wrong, hint=ICON_HINT, obj=server, id="django_mcp.E005")
        else:
            yield from static_icon_problems(icon, server)


def _extension_problems(server: Server) -> Iterator[CheckMessage]:
    from .content import extension_problem

    for name, values in server.extensions.items():
        if wrong := extension_problem(name, values):
            hint = 'Write an object under a prefixed name: {"com.example/ui": {}}.'
            yield Error(wrong, hint=hint, obj=server, id="django_mcp.E006")


def _sse_problems(server: Server) -> Iterator[CheckMessage]:
    if not isinstance(server.sse, bool):
        message, hint = f"sse is {server.sse!r}.", "Write True or False."
        yield Error(message, hint=hint, obj=server, id="django_mcp.E151")


def _throttle_problems(server: Server) -> Iterator[CheckMessage]:
    if server.throttle is not None:
        from . import throttles

        for message, hint in throttles.problems(server.throttle):
            yield Error(message, hint=hint, obj=server, id="django_mcp.E156")


SERVER_CHECKS = (
    _attribute_problems, _name_problems, _path_problems, _icon_problems, _extension_problems,
    _page_problems, _sse_problems, _throttle_problems,
)  # fmt: skip


default_server = Server("default", path="mcp")


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(*, server: Server | None = None, **options: Any) -> Callable[[F], F]: ...
def tool(function: Any = None, /, *, server: Server | None = None, **options: Any) -> Any:
    """Expose a function as a tool: ``@mcp.tool`` or ``@mcp.tool(permission=...)``.

    Options: ``server``, and the attributes of ``Tool``, such as name, title, permission, read_only,
    destructive and atomic.
    """
    return (server or default_server)._decorate("tool", function, options)


@overload
def prompt(function: F, /) -> F: ...
@overload
def prompt(*, server: Server | None = None, **options: Any) -> Callable[[F], F]: ...
def prompt(function: Any = None, /, *, server: Server | None = None, **options: Any) -> Any:
    """Expose a function as a prompt. Options: ``server``, and the attributes of ``Prompt``."""
    return (server or default_server)._decorate("prompt", function, options)


def resource(uri: str, /, *, server: Server | None = None, **options: Any) -> Callable[[F], F]:
    """Expose a function as the resource at ``uri``, which is a URI or an RFC 6570 template.

    Options: ``server``, and the attributes of ``Resource``.
    """
    return (server or default_server).resource(uri, **options)


@overload
def register(cls: type[D], /, *, server: Server | None = None) -> type[D]: ...
@overload
def register(subject: Subject, cls: type[D], /, *, server: Server | None = None) -> type[D]: ...
@overload
def register(*subjects: Subject, server: Server | None = None) -> Callable[[type[D]], type[D]]: ...
@overload
def register(
    first: Subject, second: Subject, /, *things: type[Any], server: Server | None = None
) -> Any: ...
def register(*things: Any, server: Server | None = None) -> Any:
    """Expose classes.

    ``@register(Invoice)`` declares the ``ModelResource`` below it, for one or more models.
    ``@register(InvoiceForm)`` declares a form tool, and ``@register`` any other class. Without a
    decorator, write ``register(Invoice, InvoiceResource)``: if the last argument is a declaration,
    it is registered and returned.
    """
    return (server or default_server).register(*things)


def register_models(
    *subjects: str | type[Model],
    generic: bool,
    exclude: Sequence[type[Model]] = (),
    server: Server | None = None,
) -> None:
    """Serve model resources by five generic tools instead of tools of their own.

    ``subjects`` are labels of apps, or models. Each means the model resources that are registered
    for them on the server. ``exclude`` are models of these apps that keep their own tools.
    ``generic`` must be True. Raise ``AlreadyRegistered``.
    """
    options = {"generic": generic, "exclude": exclude}
    made = Registration(REGISTER_MODELS, register_models, options, subjects)
    (server or default_server)._record(made)
