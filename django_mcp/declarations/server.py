"""Where servers are, as clients are told.

Rule: of the setting's origin, whatever host was asked for.

Servers: what is exposed, and where - as an ``AdminSite`` is.

Rule: decorators only record and give back what they were given; the record is
resolved once, by the checks or by whoever starts to serve, and a server with
mistakes in it does not start.
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error
from django.core.exceptions import ImproperlyConfigured
from django.urls import get_script_prefix
from django.utils.encoding import escape_uri_path

from ..conf import settings
from ..exceptions import AlreadyRegistered, Misdeclared
from .permissions import PUBLIC, Permission
from .registry import PENDING, REGISTER, Registration, is_declaration

if TYPE_CHECKING:
    from django.db.models import Model
    from django.forms import BaseForm
    from django.utils.functional import Promise

    from .catalog import Catalog
    from .content import Icon
    from .declaration import Declaration

    Subject = type[Model] | type[BaseForm]  # what a class is registered with


def address(server: Server) -> str:
    """The URL of ``server``: below ``DJANGO_MCP["URL"]`` and where the site is mounted."""
    return _url(server.path)


def sse_address(server: Server) -> str | None:
    """The URL for clients that know HTTP+SSE alone; None where that is off."""
    return _url(server._sse_path) if server.sse else None


def _url(path: str) -> str:
    return f"{settings.URL.rstrip('/')}{escape_uri_path(get_script_prefix() + path)}"


F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D", bound="Declaration")

# What the package of the settings, or the folder of a project in a container, is often called.
GENERIC_NAMES = frozenset((
    "api", "app", "apps", "backend", "code", "conf", "config", "core", "django", "main", "project",
    "server", "settings", "site", "src", "web", "www",
))  # fmt: skip
UNKNOWN_PROJECT = "django"
VARIABLE = re.compile(r"\{\W?(\w+)")
_servers: dict[str, weakref.ref[Server]] = {}
_version = 0
registering: list[Callable[[type[Any]], object]] = []  # are told of each model. Filled by the app


class Server:
    """A set of tools, resources and prompts, served at one path.

    ``name`` distinguishes it from the project's other servers, ``path`` is its
    place below the site ("mcp/billing"). ``title``, ``description``,
    ``version``, ``website`` and ``icons`` present it to people,
    ``instructions`` to models. ``page`` is who may see it in a browser: a
    permission, or None for no page. ``durable`` writes every call of a tool
    down before it runs. ``sse`` serves HTTP+SSE too, for clients that know
    nothing newer. ``experimental`` and ``extensions`` are capabilities to
    advertise, by name.
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
        sse: bool = False,
        experimental: Mapping[str, Mapping[str, Any]] | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        taken = _servers.get(name)
        if taken is not None and taken() is not None:
            raise AlreadyRegistered(f"There is a server {name!r} already.")
        _servers[name] = weakref.ref(self)
        self.name, self.path = name, (f"mcp/{name}" if path is None else path).strip("/")
        self.title, self.version, self.description = title, version, description
        self.website, self.icons, self.instructions = website, icons, instructions
        self.page, self.durable, self.sse = page, durable, sse
        self.experimental = dict(experimental or {})
        self.extensions = dict(extensions or {})
        self._public_name = ""
        self._records: list[Registration] = []

    if not TYPE_CHECKING:  # with __setattr__, type checkers would take any name

        def __setattr__(self, name: str, value: Any) -> None:
            """Set an attribute. Raises ``AttributeError`` where its name is misspelled."""
            if name == "name" and "name" in self.__dict__:
                # Sessions, tokens and switches are rows with this name: they would be lost.
                raise AttributeError("The name of a server does not change. Set its public_name.")
            known = inspect.signature(Server).parameters
            if not (name in known or name.startswith("_") or hasattr(Server, name)):
                from .attribute_checks import did_you_mean

                near = did_you_mean(name, [*known, "public_name"])
                raise AttributeError(f"A server has no attribute {name!r}. {near}".strip())
            super().__setattr__(name, value)

    def __repr__(self) -> str:
        return f"<Server {self.name!r} at /{self.path}>"

    @property
    def public_name(self) -> str:
        """The name that clients and people are told: ``name``, or the project's of the default one.

        Set it by ``mcp.server.public_name = "shop"``. Rows in the database have the ``name``.
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
        """Where clients expect HTTP+SSE. It is served there and at the path, where it is on."""
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

        Options: name, title, permission, read_only, destructive, atomic. The
        rest is for ``Tool`` classes.
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
        """Expose a function as the resource, or resources, at ``uri``."""
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

        As a decorator it gives the class back. Raises ``AlreadyRegistered``.
        """
        last = things[-1] if things else None
        if isinstance(last, type) and is_declaration(last):
            self._record(Registration(REGISTER, last, {}, things[:-1]))
            return last
        return self._applied(Registration(PENDING, REGISTER, {}, things))

    def _applied(self, pending: Registration) -> Callable[[F], F]:
        """A decorator that records what it is applied to; if it never is, that is a mistake."""
        self._record(pending)

        def apply(thing: F) -> F:
            if pending in self._records:
                self._records.remove(pending)
            self._record(pending.of(thing))
            return thing

        return apply

    def _record(self, record: Registration) -> None:
        if "_catalog" in self.__dict__:
            raise ImproperlyConfigured(
                f"{self!r} is being served already: declare everything in mcp.py modules."
            )
        if not record.is_pending and any(r.same_as(record) for r in self._records):
            raise AlreadyRegistered(f"{record} is registered on {self!r} already.")
        self._records.append(record)
        _change(record)

    @property
    def _registered_models(self) -> Iterator[tuple[type[Any], str]]:
        """The models that are registered, and by which field each names its rows.

        Nothing is resolved to find that out: who saves a row should not pay for it.
        """
        for record in self._records:
            yield from _models(record)

    # Resolving.

    @cached_property
    def _catalog(self) -> Catalog:
        """Everything declared, resolved. Mistakes are in its ``messages``."""
        from . import server_checks
        from .catalog import Catalog

        found = [*server_checks.attribute_problems(self), *server_checks.name_problems(self)]
        found += [*self._path_problems(), *self._icon_problems(), *self._extension_problems()]
        found += [*server_checks.page_problems(self), *self._sse_problems()]
        found += [record.problem() for record in self._records if record.is_pending]
        made: list[Declaration] = []
        for record in self._records:
            made += record.declarations(found)
        catalog = Catalog(self, made)
        catalog.messages[:0] = found
        return catalog

    def _path_problems(self) -> Iterator[CheckMessage]:
        for earlier in takewhile(lambda server: server is not self, servers()):
            if earlier.path == self.path:
                message = f"{earlier!r} and {self!r} have the same path."
                hint = "Give one of them another path."
                yield Error(message, hint=hint, obj=self, id="django_mcp.E004")
            elif shared := {*earlier._paths} & {*self._paths}:
                message = f"{earlier!r} and {self!r} are both at /{shared.pop()}, for HTTP+SSE."
                hint = "Give one of them another path."
                yield Error(message, hint=hint, obj=self, id="django_mcp.E150")

    def _icon_problems(self) -> Iterator[CheckMessage]:
        from .declaration import icon_problem

        for icon in self.icons:
            if wrong := icon_problem(icon):
                hint = "mcp.Icon with an https: or data: URL."
                yield Error(wrong, hint=hint, obj=self, id="django_mcp.E005")

    def _extension_problems(self) -> Iterator[CheckMessage]:
        from .content import extension_problem

        for name, values in self.extensions.items():
            if wrong := extension_problem(name, values):
                hint = 'An object by a prefixed name: {"com.example/ui": {}}.'
                yield Error(wrong, hint=hint, obj=self, id="django_mcp.E006")

    def _sse_problems(self) -> Iterator[CheckMessage]:
        if not isinstance(self.sse, bool):
            message, hint = f"sse is {self.sse!r}.", "True or False."
            yield Error(message, hint=hint, obj=self, id="django_mcp.E151")

    @property
    def _is_empty(self) -> bool:
        """Whether nothing was declared, and nothing need be imported to know it."""
        return not self._records

    def check(self) -> list[CheckMessage]:
        """What is wrong with the declarations."""
        return [] if self._is_empty else list(self._catalog.messages)

    def ready(self) -> Catalog:
        """The catalog, for whoever starts to serve it. Raises ``Misdeclared``."""
        from .fields.field_types import registration_problems

        found = [*self.check(), *registration_problems()]
        serious = [message for message in found if message.is_serious()]
        if serious:
            raise Misdeclared(serious)
        return self._catalog

    def _forget(self) -> None:
        """Resolve again at the next look, with what is declared then. For tests."""
        self.__dict__.pop("_catalog", None)


def version() -> int:
    """Another number whenever something was registered."""
    return _version


def _change(record: Registration) -> None:
    global _version
    _version += 1
    for model, _ in _models(record):
        for tell in registering:
            tell(model)


def _models(record: Registration) -> Iterator[tuple[type[Any], str]]:
    if getattr(record.thing, "_kind", "") == "model resource":
        found = VARIABLE.search(str(record.thing.uri or ""))
        for model in record.subjects:  # whatever was given: the checks tell what is wrong
            if isinstance(model, type) and hasattr(model, "_meta"):
                yield model, found[1] if found else "pk"


def servers() -> list[Server]:
    """Every server of the project, the default one first."""
    alive = [server for made in _servers.values() if (server := made()) is not None]
    return alive


def server_named(name: str) -> Server:
    """The server of that name or public name. Raises ``LookupError`` with the names there are."""
    found = {server.name: server for server in servers()}
    public = {server.public_name: server for server in found.values()}
    if name not in found and name not in public:
        raise LookupError(f"There is no server {name!r}; there are: {', '.join(public)}.")
    return found.get(name) or public[name]


@cache  # every response names the server, and finding a package reads folders
def _project_name(settings_module: str) -> str:
    """The package of the settings; where it is called as in many projects, the folder it is in."""
    package = settings_module.partition(".")[0]
    if package and package.lower() not in GENERIC_NAMES:
        return package
    spec = find_spec(package) if package else None
    if spec is None or spec.origin is None:
        return UNKNOWN_PROJECT
    file = Path(spec.origin)
    folder = (file.parent.parent if spec.submodule_search_locations else file.parent).name
    return folder if folder and folder.lower() not in GENERIC_NAMES else UNKNOWN_PROJECT


default_server = Server("default", path="mcp")
