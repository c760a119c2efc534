"""``Declaration``: the base class of tools, resources, model resources and prompts, and ``decide``.

Class attributes are the declaration: name, texts and permission. For each attribute that may depend
on the user there is a method. The server resolves declarations once, after all modules of the
project are loaded. Nothing is checked before.

Public attributes and methods are those that the reference documents. All others start with an
underscore, so that a project's class may use any other name. The modules of this package use them
freely.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from textwrap import dedent
from typing import TYPE_CHECKING, Any, Self
from unicodedata import combining, normalize

from asgiref.sync import iscoroutinefunction
from django.apps import apps
from django.core.checks import CheckMessage, Error, Warning
from django.db.models import Model
from django.utils.text import get_text_list
from django.utils.translation import gettext

from ..auth import kill_switches, scopes
from . import permissions
from .attribute_checks import (
    did_you_mean,
    own_class,
    permission_problem,
    require_method,
    unknown_attributes,
    wrong_signatures,
    wrong_types,
)
from .content import Icon, json_problem, meta_problem, write_icons
from .permissions import AUTHENTICATED, PUBLIC, Decision, Permission

if TYPE_CHECKING:
    from django.utils.functional import Promise

    from ..auth.principal import Auth
    from .request import Request
    from .throttles import Throttle, Throttles

# Returns the model resource through which rows of a model are bound, for the model and the resource
# class that an annotation names or None. Raises ``ImproperlyConfigured``. The result is a
# ``ModelRows``, which is a ``Declaration``, so this module cannot import its class.
Find = Callable[[type[Model], Any], Any]
# The value of an option that a project must set.
REQUIRED: Any = object()
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")
# The start of a docstring's section about arguments, results or exceptions.
SECTION = re.compile(
    r"^\s*(?:Args|Arguments|Parameters|Returns|Yields|Raises):[ \t]*$"
    r"|^\s*:(?:param|type|returns?|rtype|raises?)\b",
    re.M,
)
MAX_ENCODED_DEFINITIONS = 50  # of a declaration: one for each revision and language
ICON_SIZE = re.compile(r"([1-9][0-9]*x[1-9][0-9]*|any)\Z")
ICON_HINT = (
    "Write mcp.Icon with an https: or data: URL, or with static and the path of a static file. "
    'Sizes are a list: ["48x48"], or ["any"].'
)
NEED = re.compile(r"(sampling|elicitation|roots|extensions)(\..+)?\Z")
# Methods of a project that are called synchronously, so they must not be coroutines.
SYNCHRONOUS_METHODS = (
    "has_permission", "has_object_permission", "get_queryset", "get_listed", "get_title",
    "get_size", "get_last_modified", "get_initial", "save_model", "delete_model",
    "has_operation_permission", "has_cascade_permission",
)  # fmt: skip


class Declaration:
    """A tool, resource or prompt, as the project declares it."""

    name: str = ""
    title: str | Promise | None = None  # a Promise is a lazy translation
    description: str | Promise | None = None
    permission: Permission = AUTHENTICATED
    # The scope that a token needs. None: the permission's codename, or "tool:<name>".
    scope: str | None = None
    icons: Sequence[Icon] = ()
    meta: Mapping[str, Any] | None = None
    # Whether calls are stored in the audit log. None: if the server's are.
    audit: bool | None = None
    # Client capabilities that it requires: "sampling", "elicitation"...
    needs: Sequence[str] = ()
    # How often it may be called, such as "60/min".
    throttle: Throttles | None = None
    timeout: float | None = None  # seconds that one run may take

    _kind = "declaration"
    _entry_method = "handle"  # the method that a class implements
    # Options of base classes that this class does not read, so that setting them is an error.
    _ignored_attributes: frozenset[str] = frozenset()
    _function: Callable[..., Any] | None = None
    # Whether making the result may query the database, whatever the function returned.
    _finish_queries: bool = False
    _always_fails: bool = False  # whether each of its own calls fails, so that none is counted

    @classmethod
    def _from_function(cls, function: Callable[..., Any], **options: Any) -> Self:
        """Return the declaration that a decorator makes of ``function``. Raise ``TypeError``."""
        if not callable(function) or isinstance(function, type):
            raise TypeError(f"{function!r} is not a function, so it cannot be a {cls._kind}.")
        unknown = sorted(set(options) - cls._options())
        if unknown:
            near = did_you_mean(unknown[0], cls._options())
            raise TypeError(f"A {cls._kind} has no option {unknown[0]!r}. {near}".strip())
        made = cls()
        made._function = function
        made.name = getattr(function, "__name__", "")
        docstring = function.__doc__  # of a functools.partial it is the docstring of its class
        own = docstring is not type(function).__doc__
        made.description = prose(docstring) if own else None
        for option, value in options.items():
            setattr(made, option, value)
        return made

    @classmethod
    def _options(cls) -> set[str]:
        """Return the options of a decorator: the public attributes that a class may set."""
        declared = {name for kind in cls.__mro__ for name in inspect.get_annotations(kind)}
        public = {name for name in declared if not name.startswith("_") and hasattr(cls, name)}
        return public - cls._ignored_attributes

    @classmethod
    def _instances_for(cls, subjects: tuple[Any, ...]) -> list[Declaration]:
        """Return the declarations of this class for ``subjects``, such as models.

        Raise ``TypeError``.
        """
        if subjects:
            raise TypeError(f"Register a {cls._kind} without arguments: @mcp.register.")
        return [cls()]

    @cached_property
    def _implementation(self) -> Callable[..., Any]:
        """The function or method that is called with the request and the arguments."""
        own: Callable[..., Any] = self._function or getattr(self, self._entry_method)
        return own

    @cached_property
    def _is_async(self) -> bool:
        function = self._implementation
        return iscoroutinefunction(function) or iscoroutinefunction(inspect.unwrap(function))

    def has_permission(self, request: Request) -> bool:
        """Whether ``request``'s user may see and use this. By default ``permission`` decides."""
        return self._decide_declared(request).allowed

    def _is_allowed(self, request: Request) -> bool:
        """Whether ``request``'s user may use this with the scopes of their token."""
        # Like ``decide``, but without the permission check if scopes are missing.
        return not self._missing_scopes(request.principal.auth) and self._decide(request).allowed

    def _decide(self, request: Request) -> Decision:
        """Decide by kill switches and the user's permissions, not by the token's scopes."""
        for name in self._switch_names:
            if switch := kill_switches.find(request.server.name, name, request.principal):
                return permissions.switched_off(switch)
        return self._decide_permission(request)

    def _decide_permission(self, request: Request) -> Decision:
        """Decide by ``permission``, or by the project's ``has_permission`` if it is overridden."""
        # A project's has_permission() may be true for anybody. Only PUBLIC admits anonymous users.
        if self.permission is not PUBLIC and not request.principal.is_authenticated:
            return permissions.ANONYMOUS
        if type(self).has_permission is Declaration.has_permission:
            return self._decide_declared(request)
        method = permissions.method_of(self, "has_permission")
        return permissions.decided_by(method, self.has_permission(request))

    def _decide_declared(self, request: Request) -> Decision:
        """Decide as ``has_permission`` does unless the project overrides it."""
        return permissions.decide_permission(self.permission, request)

    @cached_property
    def _owner(self) -> Declaration:
        """The declaration that the project wrote.

        It is this one, or for example the model resource that made this one. Its ``audit``,
        ``throttle``, ``timeout`` and ``approval`` apply.
        """
        return self

    @cached_property
    def _throttles(self) -> tuple[Throttle, ...]:
        from .throttles import listed

        return listed(self.throttle)

    @cached_property
    def _shared_rule(self) -> tuple[Permission, tuple[str, ...]] | None:
        """The permission and the scopes if nothing else but kill switches decides, else None.

        All declarations with the same rule have the same decision for one request.
        """
        own, plain = type(self), Declaration
        is_plain = (
            own._decide_permission is plain._decide_permission
            and own._decide_declared is plain._decide_declared
            and self._permission_is_declared
        )
        is_named = isinstance(self.permission, (str, permissions.Access))
        return (self.permission, self._scopes) if is_plain and is_named else None

    def _missing_scopes(self, auth: Auth | None) -> tuple[str, ...]:
        """Return the scopes in ``_scopes`` that a token lacks.

        A request without a token lacks none: its user is not limited by scopes.
        """
        return () if auth is None else scopes.lacking(frozenset(auth.scopes), self._scopes)

    @cached_property
    def _scopes(self) -> tuple[str, ...]:
        """The scopes that a token with limited scopes needs; () if everybody may use it."""
        own = () if self._is_public else self._own_scopes()
        return tuple(
            dict.fromkeys((*own, *(scope for other in self._depends_on for scope in other._scopes)))
        )

    def _own_scopes(self) -> tuple[str, ...]:
        """Return ``scope``, or else the codenames of its permission, or else its kind and name."""
        if self.scope is not None:
            return (self.scope,)
        return self._codenames() or (self._qualified_name,)

    @cached_property
    def _qualified_name(self) -> str:
        """Its name among scopes and kill switches, such as "tool:refund"."""
        return f"{self._kind.rpartition(' ')[2]}:{self.name}"

    @cached_property
    def _switch_names(self) -> tuple[str, ...]:
        """The names of the kill switches by which it can be off, besides the server's."""
        return (self._qualified_name,)

    @cached_property
    def _limit_names(self) -> frozenset[str]:
        """The names of the kill switches that can limit its calls, besides the server's."""
        # Tools of a model resource have its limits too, as they have its throttles.
        return frozenset((*self._switch_names, self._owner._qualified_name))

    def _codenames(self) -> tuple[str, ...]:
        """Return the declared codenames of Django's permissions that its users need."""
        return (self.permission,) if isinstance(self.permission, str) else ()

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        """Declarations that a user of this one must also be allowed to use."""
        return ()

    def _derived(self) -> Iterable[Declaration]:
        """Return declarations that the catalog adds if this one has no errors."""
        return ()

    @property
    def _rule(self) -> str:
        """The rule that its users must satisfy, as text for developers."""
        if not self._permission_is_declared:
            return permissions.method_of(self, "has_permission")
        return permissions.rule(self.permission)

    @property
    def _is_public(self) -> bool:
        """Whether everybody may use it, so that lists that contain it may be shared."""
        return self.permission is PUBLIC and self._permission_is_declared

    @property
    def _decides_without_database(self) -> bool:
        """Whether its permission is decided without the database and the project's code."""
        return permissions.is_free(self.permission) and self._permission_is_declared

    @property
    def _permission_is_declared(self) -> bool:
        return type(self).has_permission is Declaration.has_permission

    def _common_definition(self) -> dict[str, Any]:
        """Return name, title, description, icons and metadata, as lists show them."""
        shown: dict[str, Any] = {"name": self.name}
        if self.title:
            shown["title"] = str(self.title)
        if self.description:
            shown["description"] = str(self.description)
        if icons := write_icons(self.icons):
            shown["icons"] = icons
        if self.meta:
            shown["_meta"] = dict(self.meta)
        return shown

    def _definition(self) -> dict[str, Any]:
        """Return the definition that lists show."""
        return self._common_definition()

    def _encoded_definition(
        self, revision: Hashable, encoded: Callable[[dict[str, Any]], str]
    ) -> str:
        """Return the definition as ``encoded`` returns it for ``revision``, which is kept.

        A lazy translation makes another definition for each language.
        """
        key = (revision, str(self.title or ""), str(self.description or ""))
        text = self._encoded_definitions.get(key)
        if text is None:
            if len(self._encoded_definitions) >= MAX_ENCODED_DEFINITIONS:
                self._encoded_definitions.clear()
            text = self._encoded_definitions[key] = encoded(self._definition())
        return text

    @cached_property
    def _encoded_definitions(self) -> dict[tuple[Hashable, str, str], str]:
        return {}

    def _attribute_problems(self) -> Iterator[CheckMessage]:
        """Yield what is wrong with single class attributes."""
        for message, hint in wrong_types(self, self._options()):
            yield self._error(message, 60, hint)
        for message, hint in unknown_attributes(self, self._kind, own_class(self)._options()):
            yield self._error(message, 9, hint)
        for message, hint in wrong_signatures(self):
            yield self._error(message, 63, hint)

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        """Complete the declaration. Yield what is wrong with it.

        ``find`` is ``Catalog.find``.
        """
        self.name = self.name or default_name(type(self))
        if self._function is None:
            self.description = self.description or prose(type(self).__doc__)
        yield from self._common_problems()
        if inspect.isasyncgenfunction(self._implementation):
            yield self._error("It is an async generator.", 16, "Return a value, or a list.")

    def _require_method(self) -> None:
        """Raise ``ImproperlyConfigured`` if the class lacks the method that does its work."""
        if self._function is None:
            require_method(self, self._entry_method)

    def _common_problems(self) -> Iterator[CheckMessage]:
        """Yield what is wrong with the attributes that all declarations have."""
        if not NAME.match(self.name):
            hint = "Use 1 to 128 of the characters A-Z, a-z, 0-9, '_', '-' and '.'."
            yield self._error(f"The name {self.name!r} is not allowed.", 10, hint)
        if wrong := permissions.problem(self.permission) or permission_problem(self.permission):
            hint = "Write a codename, a function of the request, or mcp.AUTHENTICATED."
            yield self._error(wrong, 11, hint)
        elif isinstance(self.permission, str):
            yield from self._codename_problems([self.permission])
        if self.scope is not None and not scopes.NAME.fullmatch(self.scope):
            hint = 'Write a scope such as "reports:write".'
            yield self._error(f"{self.scope!r} is not a valid scope.", 19, hint)
        for icon in self.icons:
            if wrong := icon_problem(icon):
                yield self._error(wrong, 12, ICON_HINT)
            else:
                yield from static_icon_problems(icon, self)
        for key, value in (self.meta or {}).items():
            if wrong := meta_problem(key) or json_problem(value):
                hint = 'Write JSON under a key of your own, such as "com.example/key".'
                yield self._error(wrong, 13, hint)
        for need in self.needs:
            if not NEED.match(need):
                hint = 'Write client capabilities, such as ["sampling"].'
                yield self._error(f"{need!r} is not a client capability.", 14, hint)
        if self.throttle is not None:
            from . import throttles

            for message, hint in throttles.problems(self.throttle):
                yield self._error(message, 66, hint)
        if self.timeout is not None and not _is_positive(self.timeout):
            hint = "Write a number such as 30, or None for no limit."
            message = f"timeout is {self.timeout!r:.80}: it must be a number of seconds above 0."
            yield self._error(message, 67, hint)
        for name in SYNCHRONOUS_METHODS:
            if iscoroutinefunction(getattr(self, name, None)):
                hint = "Write def. It runs in a thread, where it may query the database."
                message = f"{name} is asynchronous, but it is called synchronously."
                yield self._error(message, 15, hint)

    def _codename_problems(self, codenames: Sequence[str]) -> Iterator[CheckMessage]:
        """Warn if only superusers can have any of ``codenames``."""
        hints = [permissions.unknown_codename(codename) for codename in codenames]
        if all(hint is not None for hint in hints):
            message = f"The permission {codenames[0]!r} does not exist."
            yield Warning(message, hint=hints[0], obj=self, id="django_mcp.W011")

    def _error(self, message: str, number: int, hint: str | None = None) -> CheckMessage:
        """Return a check error about this declaration, with the id ``django_mcp.E0NN``."""
        return Error(message, hint=hint, obj=self, id=f"django_mcp.E{number:03}")

    @property
    def _required_capabilities(self) -> dict[str, Any]:
        """``needs`` as client capabilities: "sampling.tools" is {"sampling": {"tools": {}}}."""
        required: dict[str, Any] = {}
        if not self.needs:
            return required
        for name, _, part in (need.partition(".") for need in self.needs):
            required.setdefault(name, {}).update({part: {}} if part else {})
        return required

    def __str__(self) -> str:
        return f"{self._kind} {self.name or type(self).__name__} ({self._origin()})"

    def _origin(self) -> str:
        """Return where it is written, for messages."""
        return permissions.path(self._source)

    @property
    def _source(self) -> Any:
        """The function or class that declares it."""
        source: Any = self._function or type(self)
        return source if hasattr(source, "__qualname__") else type(source)

    @property
    def _runs(self) -> str:
        """What of the project it runs, such as a view, if that is not the declaration itself."""
        return ""


class ToolDeclaration(Declaration):
    """A tool, or what adds several tools to a server."""

    # The codename of a permission: somebody else who has it must approve each call that may write.
    approval: str = ""

    def _approval_problems(self, tools: Iterable[Any]) -> Iterator[CheckMessage]:
        """Yield why a second person cannot approve the calls of ``tools``.

        They are the declaration itself, or what it adds to the catalog.
        """
        if not self.approval:
            return
        approved = [tool for tool in tools if tool._approval]
        message, hint = permissions.problem(self.approval), "Write the codename of a permission."
        if not approved:
            message = "approval has no effect: no tool here changes anything."
            hint = "Remove approval, or read_only. To protect data, set permission."
        elif any(tool._is_public for tool in approved):
            message = (
                "A tool with approval must not be PUBLIC: anonymous callers cannot be "
                "distinguished."
            )
            hint = "Set permission to something else than mcp.PUBLIC."
        if message:
            yield self._error(message, 31, hint)
        else:
            yield from self._codename_problems([self.approval])


def decide(declaration: Declaration, request: Request) -> Decision:
    """Decide whether ``request``'s user may use ``declaration`` with the scopes of their token."""
    missing = declaration._missing_scopes(request.principal.auth)
    if not missing:
        return declaration._decide(request)
    needed = grantable(declaration, request.principal.auth)
    if not needed:
        # Denied whatever the permission is. Do not check it now, because that may take a query.
        return Decision(False, lambda: _scope_reason(declaration._decide(request), missing, needed))
    decision = declaration._decide(request)
    # Without the permission, a scope would not help. Do not reveal by a scope challenge that the
    # declaration exists.
    if not decision.allowed:
        return decision
    return Decision(False, lambda: _scope_reason(decision, missing, needed), needed)


def _scope_reason(decision: Decision, missing: Iterable[str], needed: Sequence[str]) -> str:
    """Return the reason for a token without the scopes ``missing``."""
    if not decision.allowed:
        return decision.reason
    reason = gettext("%(reason)s, but the token lacks the scope %(scopes)s") % {
        "reason": decision.reason, "scopes": get_text_list(list(missing), gettext("and")),
    }  # fmt: skip
    if needed:
        text = gettext("%(reason)s. It is listed, and the client is told to request %(scopes)s")
        return text % {"reason": reason, "scopes": " ".join(needed)}
    return gettext("%(reason)s, and the client cannot request more scopes") % {"reason": reason}


def grantable(declaration: Declaration, auth: Auth | None) -> tuple[str, ...]:
    """Return the scopes that a client must request to use ``declaration``; () if it cannot.

    Only a token that an authorization server issued to an application can get more scopes.
    """
    if auth is None or auth.application is None:
        return ()
    return scopes.to_ask(auth.scopes, declaration._scopes) or ()


def _is_positive(number: Any) -> bool:
    return isinstance(number, int | float) and not isinstance(number, bool) and number > 0


def icon_problem(icon: Any) -> str | None:
    """Return what is wrong with an icon (basic, "Icons"), or None."""
    if not isinstance(icon, Icon):
        return f"{icon!r} is not an mcp.Icon."
    if bool(icon.src) == bool(icon.static):
        return f"{icon!r} must have either src or static."
    # "Clients MUST reject icon URIs that use unsafe schemes": they show https and data only.
    if icon.src and not icon.src.startswith(("https://", "data:")):
        return f"The icon {icon.src[:200]!r} is not an https or data URL."
    if icon.theme not in (None, "light", "dark"):
        return f"The icon's theme {icon.theme!r} is neither light nor dark."
    sizes = icon.sizes or ()
    if isinstance(sizes, str) or not all(map(ICON_SIZE.match, map(str, sizes))):
        return f"The icon's sizes {sizes!r} are not a list of sizes."
    return None


def static_icon_problems(icon: Icon, owner: Any) -> Iterator[CheckMessage]:
    """Yield a warning if no finder of Django's staticfiles finds the icon's static file."""
    if icon.static and apps.is_installed("django.contrib.staticfiles"):
        from django.contrib.staticfiles.finders import find

        # No error: a container may have the collected files only, without their sources.
        if find(icon.static) is None:
            message = f"There is no static file {icon.static!r}, so the icon may not be shown."
            hint = "Write the path as in {% static %}, such as shop/icon.png."
            yield Warning(message, hint=hint, obj=owner, id="django_mcp.W300")


def is_model_resource(value: Any) -> bool:
    """Whether ``value`` is ``ModelResource``, a subclass or an instance."""
    return getattr(value, "_kind", "") == "model resource"


def default_name(cls: type) -> str:
    """Return the name of a class in snake case: ``PDFReport`` is ``pdf_report``."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", cls.__name__)
    return spaced.lower()


def ascii_name(name: str) -> str:
    """Return a name with the characters that the protocol allows, and without accents.

    ``billing:invoice-close`` is ``billing_invoice_close``, and ``Café`` is ``Cafe``.
    """
    plain = "".join(one for one in normalize("NFKD", name) if not combining(one))
    return re.sub(r"[^A-Za-z0-9]+", "_", plain).strip("_")


def prose(docstring: str | None) -> str | None:
    """Return the docstring without the sections about arguments and results."""
    text = inspect.cleandoc(docstring or "")
    return SECTION.split(text)[0].strip() or None


def argument_descriptions(docstring: str | None) -> dict[str, str]:
    """Return the descriptions of arguments in a docstring, in Google's or Sphinx's style."""
    text = inspect.cleandoc(docstring or "")
    sphinx = re.findall(r"^:param (?:[\w\[\], |]+ )?(\w+):\s*(.+(?:\n[ \t]+.+)*)", text, re.M)
    section = re.search(r"^(?:Args|Arguments|Parameters):\s*\n((?:[ \t]+.*\n?|\n)+)", text, re.M)
    google = re.findall(
        r"^(\w+)(?: ?\(.*?\))?:\s*(.+(?:\n[ \t]+.+)*)", dedent(section[1] if section else ""), re.M
    )
    return {name: re.sub(r"\s+", " ", words).strip() for name, words in [*sphinx, *google]}
