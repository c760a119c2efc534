"""
``register_admin``: what staff do in Django's admin, as tools.

For each model there is a tool that searches the change list and one that reads a row.
``operations`` and ``actions`` add tools that write. A tool runs the views of the registered
``ModelAdmin`` (``admin_pages``), so its permissions, ``get_queryset``, forms, inlines and history
apply, and also what the project overrides there.

A user sees a tool if the site and the ``ModelAdmin`` permit this user to open the page. The schemas
are the same for all users. They are made when the server starts, for an unsaved superuser and
without a query to the database. At each call, the page that the admin makes for the caller decides
which fields the caller sees and sets.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from io import BytesIO
from typing import TYPE_CHECKING, Any

from django import forms
from django.apps import apps
from django.contrib.admin import AdminSite, ModelAdmin
from django.contrib.admin.utils import model_format_dict
from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR, SEARCH_VAR
from django.contrib.auth import get_permission_codename, get_user_model
from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured, PermissionDenied, ValidationError
from django.core.handlers.wsgi import WSGIRequest
from django.db import models, router
from django.http import HttpResponseBase
from django.http.response import HttpResponseRedirectBase
from django.urls import NoReverseMatch, reverse
from django.utils.datastructures import MultiValueDict

from ..calls.execution import queries_through
from ..declarations import permissions
from ..declarations.arguments import MAX_KEYS_PER_ARGUMENT, Arguments
from ..declarations.attribute_checks import did_you_mean
from ..declarations.declaration import Declaration, Find, ToolDeclaration, ascii_name
from ..declarations.fields.keys import key_problems, key_schema, key_value
from ..declarations.fields.search import MAX_QUERY_LENGTH
from ..declarations.outputs import Output
from ..declarations.permissions import Decision
from ..declarations.registry import Registration
from ..declarations.schemas import is_model, object_schema
from ..declarations.server import Server, default_server
from ..declarations.tools import Tool
from ..exceptions import InvalidArguments, ToolError
from ..protocol.content import is_textual
from ..protocol.http_rules import Mirrored
from .admin_pages import (
    DELETE,
    KEY,
    MAX_OBJECTS_NAMED,
    TEXT,
    AdminCall,
    AdminRequest,
    accepted_fields,
    column_name,
    is_secret,
    listed_texts,
    posted_body,
    shown_value,
    without_key,
)
from .admin_schemas import (
    ListFilterArgument,
    deleted_schema,
    empty_form,
    filter_arguments,
    inline_name,
    list_schema,
    page_schema,
    saved_schema,
    sortable_columns,
    unsaved_row,
)
from .api_tools import ApiOutput, deny_queries
from .form_input import FormInput, error_lines, post_data
from .views.execution import ViewResponse, request_environment
from .views.response_bodies import body_of, decoded, file_of, is_html, is_json, media_type
from .views.tools import host_problems

if TYPE_CHECKING:
    from ..declarations.request import Request
    from ..declarations.throttles import Throttles

JSON = dict[str, Any]
DEFAULT_ROWS_PER_PAGE = 20
SELECTED_KEYS = "_keys"  # the argument of an action: the keys of the rows
# Arguments of the search tool. A list filter of the same name is left out.
RESERVED_ARGUMENTS = ("query", "ordering", "page", "limit")
FORM_HINT = "get_form() must give a field the same type for all users"
# Values of ``permissions`` in ``@admin.action`` that allow a change of rows.
WRITE_PERMISSIONS = ("add", "change", "delete")


def register_admin(
    site: AdminSite,
    models: Sequence[type[models.Model]],
    *,
    operations: Sequence[str] = (),
    actions: Sequence[str] = (),
    prefix: str = "",
    audit: bool | None = None,
    throttle: Throttles | None = None,
    timeout: float | None = None,
    approval: str = "",
    server: Server | None = None,
) -> None:
    """Expose models of an admin site: tools that search and read, as the same user in the admin.

    ``operations`` ("create", "update", "delete") and ``actions``, names of the admin's actions, add
    tools that write. ``prefix`` begins the names of all tools. ``audit``, ``throttle``,
    ``timeout`` and ``approval`` are those of a ``Tool``. The tools of one model share a throttle's
    count. Raise ``AlreadyRegistered``.
    """
    options = {
        "operations": operations, "actions": actions, "prefix": prefix,
        "audit": audit, "throttle": throttle, "timeout": timeout, "approval": approval,
    }  # fmt: skip
    (server or default_server)._record(AdminRegistration(site, models, options))


class AdminRegistration(Registration):
    """One call of ``register_admin``."""

    def __init__(self, site: Any, listed: Any, options: dict[str, Any]) -> None:
        subjects = tuple(listed) if isinstance(listed, list | tuple) else (listed,)
        super().__init__("register_admin", site, options, subjects)

    def __str__(self) -> str:
        names = (getattr(one, "__name__", repr(one)) for one in self.subjects)
        return f"register_admin for {', '.join(names)}"

    def _make_declarations(self) -> list[Declaration]:
        return [AdminTools(self.target, model, self) for model in self.subjects or (None,)]


class AdminTools(ToolDeclaration):
    """One model of a ``register_admin`` call. It makes the tools of the model, and checks them."""

    _kind = "admin"
    _entry_method = "_derived"  # the class itself is no tool
    operations: Sequence[str] = ()
    actions: Sequence[str] = ()
    prefix: str = ""

    def __init__(self, site: Any, model: Any, registration: AdminRegistration) -> None:
        self.site, self.model, self._registration = site, model, registration
        for option, value in registration.options.items():
            setattr(self, option, value)
        # Throttles count by this name. Like the names of the tools, it exists once on a server.
        self.name = (
            f"{self.prefix}{ascii_name(model._meta.model_name)}" if is_model(model) else "admin"
        )

    @property
    def model_admin(self) -> Any:
        """The ``ModelAdmin`` of the site, which all requests share. A call uses ``AdminCall``."""
        return self.site.get_model_admin(self.model)

    def _origin(self) -> str:
        if self._is_registered:
            return permissions.path(type(self.model_admin))
        return str(self._registration)

    @property
    def _is_registered(self) -> bool:
        known = isinstance(self.site, AdminSite) and is_model(self.model)
        return known and self.site.is_registered(self.model)

    @cached_property
    def _tools(self) -> list[AdminTool]:
        kinds: list[type[AdminTool]] = [SearchAdminTool, ReadAdminTool]
        kinds += [OPERATIONS[one] for one in self.operations]
        return [kind(self) for kind in kinds] + [ActionTool(self, one) for one in self.actions]

    def _derived(self) -> Iterator[Declaration]:
        yield from self._tools

    # Resolution.

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        if wrong := [*self._registration_problems()]:
            yield from wrong
            return
        yield from self._common_problems()
        with queries_through(deny_queries):
            wrong = [*self._option_problems()] or [*self._name_problems(find)]
        yield from wrong
        yield from host_problems(self)
        if not (self.model_admin.search_fields or self._overrides("get_search_fields")):
            words = f"{permissions.path(type(self.model_admin))} has no search_fields."
            hint = "Add search_fields to it: clients find rows by filters only."
            yield Warning(words, hint=hint, obj=self, id="django_mcp.W218")

    def _overrides(self, method: str) -> bool:
        return getattr(type(self.model_admin), method) is not getattr(ModelAdmin, method)

    def _registration_problems(self) -> Iterator[CheckMessage]:
        if not isinstance(self.site, AdminSite):
            hint = "Write mcp.register_admin(admin.site, models=[Invoice])."
            yield self._error(f"{self.site!r:.80} is not an admin site.", 210, hint)
        elif not is_model(self.model):
            hint = "Write a list of models: models=[Invoice]."
            shown = (
                "models is empty" if self.model is None else f"{self.model!r:.80} is not a model"
            )
            yield self._error(f"{shown}: nothing is exposed.", 212, hint)
        elif not self._is_registered:
            hint = f"Register it in admin.py: @admin.register({self.model.__name__})."
            words = f"{self.model._meta.label} is not registered in the admin site "
            yield self._error(f"{words}{self.site.name!r}.", 211, hint)
        elif not self._has_urls:
            hint = f"Include the urls of the site {self.site.name!r} in the URLconf."
            yield self._error("The pages of the admin site have no URL.", 222, hint)
        elif self._registration.subjects.count(self.model) > 1:
            words = f"{self.model._meta.label} is listed twice."
            yield self._error(words, 217, "Remove one of them.")
        elif wrong := key_problems(self.model):
            yield self._error(wrong[0], 223, "Leave the model out.")

    @property
    def _has_urls(self) -> bool:
        try:
            reverse(f"{self.site.name}:index")
        except NoReverseMatch:
            return False
        return True

    def _option_problems(self) -> Iterator[CheckMessage]:
        for name in self.operations:
            if name not in OPERATIONS:
                hint = did_you_mean(name, OPERATIONS) or f"There are: {', '.join(OPERATIONS)}."
                yield self._error(f"There is no operation {name!r}.", 213, hint)
        for name in self.actions:
            if name == "delete_selected":
                hint = 'Write operations=["delete"]. It deletes one row at a time.'
                yield self._error("delete_selected asks for a confirmation.", 224, hint)
            elif name not in self.known_actions:
                near = did_you_mean(name, self.known_actions)
                hint = near or f"There are: {', '.join(self.known_actions) or 'none'}."
                yield self._error(f"{self._origin()} has no action {name!r}.", 214, hint)

    @cached_property
    def known_actions(self) -> dict[str, tuple[Any, str]]:
        """The function and the description of each action of the admin, by name."""
        found = self.model_admin.get_actions(schema_request()).items()
        return {name: _action_parts(action) for name, action in found}

    def _name_problems(self, find: Find) -> Iterator[CheckMessage]:
        try:
            resource = find(self.model, None)
        except ImproperlyConfigured:  # there is none
            return
        taken = {*_names_of(resource)}
        for tool in self._tools:
            if tool.name in taken:
                words = f"{tool.name!r} is also a tool of {resource}."
                hint = 'Write prefix="admin_", so that clients can tell the two apart.'
                yield self._error(words, 215, hint)


def _action_parts(action: Any) -> tuple[Any, str]:
    """Return the function and the description of an action. Before Django 6.1 it is a tuple."""
    if isinstance(action, tuple):
        return action[0], str(action[2])
    return action.func, str(action.plural_description)


def _names_of(resource: Any) -> Iterator[str]:
    """Yield the names of the tools that a model resource adds."""
    if resource.search_fields or resource.filter_fields:
        yield f"search_{resource.name}"
    yield from (f"{operation}_{resource.name}" for operation in resource.operations)


# A request for schemas.


def schema_request() -> Any:
    """Return a request by an unsaved superuser, to make schemas with.

    The user has the primary key 0, because a queryset cannot be filtered by a row without a key.
    """
    made = WSGIRequest({"REQUEST_METHOD": "GET", "PATH_INFO": "/", "wsgi.input": BytesIO()})
    user: Any = get_user_model()()
    try:
        user.pk = user._meta.pk.to_python(0)
    except ValidationError:
        user.pk = None
    user.is_active = user.is_staff = user.is_superuser = True
    user.has_perm = user.has_perms = user.has_module_perms = lambda *args: True
    made.user = user
    return made


# The tools.


class GivenArguments(Arguments):
    """The arguments of a tool of the admin, passed to ``handle`` as one dict, ``given``.

    If ``strict``, the schema validates them. If not, the form of the page does, because it may
    offer other choices to this user than the schema contains.
    """

    def __init__(self, schema: JSON, *, strict: bool = True) -> None:
        super().__init__(schema=schema, handwritten=True)
        self._strict = strict

    def read(self, given: Mapping[str, Any], mirrored: Mirrored | None = None) -> dict[str, Any]:
        self._check_headers(given, mirrored)
        if self._strict:
            return {"given": self._read_by_schema(given)}
        required = [name for name in (KEY,) if name in self.schema["properties"]]
        if lacking := [name for name in required if name not in given]:
            raise InvalidArguments(f"{lacking[0]}: this argument is required.")
        return {"given": dict(given)}


class AdminTool(Tool):
    """Base of the tools of one model's admin."""

    open_world = False
    _verb = "view"
    _description_template = ""

    def __init__(self, tools: AdminTools, name: str = "") -> None:
        self._tools = tools
        self.model, self.site = tools.model, tools.site
        options = self.model._meta
        self.name = f"{tools.prefix}{name or self._prefix}_{ascii_name(options.model_name)}"
        self.description = self._description_template.format(
            one=options.verbose_name, many=options.verbose_name_plural
        )
        self.atomic = router.db_for_write(self.model)

    _prefix = ""

    def _origin(self) -> str:
        return self._tools._origin()

    @property
    def _source(self) -> Any:
        return type(self._tools.model_admin)

    @property
    def _owner(self) -> Declaration:
        return self._tools

    # Permissions.

    def _decide_permission(self, request: Request) -> Decision:
        if not request.principal.is_authenticated:
            return permissions.ANONYMOUS
        site = permissions.decided_by(
            f"has_permission of the admin site {self.site.name!r}",
            self.site.has_permission(request.http),
        )
        return self._decide_model(request) if site.allowed else site

    def _decide_model(self, request: Request) -> Decision:
        method = getattr(self._tools.model_admin, self._permission_method)
        return permissions.decided_by(permissions.path(method), method(request.http))

    @property
    def _permission_method(self) -> str:
        """The method of the ``ModelAdmin`` that decides who may use the tool."""
        verb = "view_or_change" if self._verb == "view" else self._verb
        return f"has_{verb}_permission"

    def _codenames(self) -> tuple[str, ...]:
        options = self.model._meta
        return (f"{options.app_label}.{get_permission_codename(self._verb, options)}",)

    @property
    def _decides_without_database(self) -> bool:
        return False

    @property
    def _rule(self) -> str:
        admin = type(self._tools.model_admin).__name__
        return f"the admin site {self.site.name!r} and {admin}.{self._permission_method}"

    # Resolution.

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        yield from self._common_problems()
        # Everybody who may list tools sees the schema. Choices from rows would show these rows.
        with queries_through(deny_queries):
            problems = [*self._take_schema()]
            schema = self._output_schema()
        yield from problems
        self._output = Output() if schema is None else ApiOutput(schema, self.name, hint=FORM_HINT)

    def _take_schema(self) -> Iterator[CheckMessage]:
        """Set ``_arguments``, and yield problems."""
        self._arguments = GivenArguments(object_schema({KEY: self._key_schema()}, [KEY]))
        yield from ()

    def _key_schema(self) -> JSON:
        words = f"The key of the {self.model._meta.verbose_name}."
        return key_schema(self.model) | {"description": words}

    def _output_schema(self) -> JSON | None:
        """Return the schema of the result, or None if it is not known."""
        return None

    # Execution.

    def handle(self, /, *args: Any, **values: Any) -> Any:
        (request,) = args
        with request_environment():
            call = AdminCall(self.site, self.model, request)
            return self._run(call, values["given"])

    def _run(self, call: AdminCall, given: JSON) -> Any:
        """Return the result for the arguments. Each subclass must define this method."""
        raise NotImplementedError


class ReadAdminTool(AdminTool):
    """Show one row: the fields of the admin's page, and the rows of its inlines."""

    _prefix = "read"
    _description_template = "Show one {one}, as its page in the admin does."
    read_only = True

    def _output_schema(self) -> JSON:
        try:
            return page_schema(self._tools.model_admin, schema_request())
        except Exception:  # forms and inlines run the project's code, which may query
            # Without the fields, the schema is still right. The arguments do not need the form.
            properties = {KEY: key_schema(self.model), TEXT: {"type": "string"}}
            return {"type": "object", "properties": properties, "required": [KEY]}

    def _run(self, call: AdminCall, given: JSON) -> JSON:
        return call.page("change", given[KEY]).values()


class SearchAdminTool(AdminTool):
    """Search the admin's list of rows."""

    _prefix = "search"
    _description_template = "Find {many} in the admin, page by page. Each has its key as _key."
    read_only = True

    def _take_schema(self) -> Iterator[CheckMessage]:
        admin, http = self._tools.model_admin, schema_request()
        self._filters: dict[str, ListFilterArgument] = {}
        for entry in admin.get_list_filter(http):
            try:
                found = [*filter_arguments(entry, admin, http)]
            except Exception as error:  # filters run the project's code
                words = f"There is no argument for the list filter {column_name(entry)!r}: {error}"
                hint = "Make its __init__ and lookups() work without a query and for any superuser."
                yield Warning(words, hint=hint, obj=self, id="django_mcp.W220")
                continue
            self._filters |= {one.name: one for one in found if one.name not in RESERVED_ARGUMENTS}
        properties = {name: one.schema for name, one in self._filters.items()}
        self._arguments = GivenArguments(
            object_schema(self._query_schema(http) | properties | self._page_schema(http))
        )

    def _query_schema(self, http: Any) -> JSON:
        found = self._tools.model_admin.get_search_fields(http)
        if not found:
            return {}
        names = ", ".join(str(one).lstrip("^=@") for one in found)
        words = f'Words or "phrases" to find in {names}.'
        if help_text := self._tools.model_admin.search_help_text:
            words = f"{words} {help_text}"
        # Each word is a condition on all fields. A URL would limit their number.
        limit = {"maxLength": MAX_QUERY_LENGTH}
        return {"query": {"type": "string", "description": words} | limit}

    def _page_schema(self, http: Any) -> JSON:
        admin = self._tools.model_admin
        most = admin.list_per_page
        names = [*sortable_columns(admin, admin.get_list_display(http), http)]
        both = [order for name in names for order in (name, f"-{name}")]
        ordering = {"ordering": {"enum": both}} if both else {}
        limit = {"type": "integer", "minimum": 1, "maximum": most}
        return ordering | {
            "page": {"type": "integer", "minimum": 1, "default": 1},
            "limit": limit | {"default": min(DEFAULT_ROWS_PER_PAGE, most)},
        }

    def _output_schema(self) -> JSON:
        return list_schema(self._tools.model_admin, schema_request())

    def _run(self, call: AdminCall, given: JSON) -> JSON:
        query = {SEARCH_VAR: given["query"]} if given.get("query") else {}
        filtering = {name: one for name, one in self._filters.items() if name in given}
        query |= {one.parameter: one.text(given[name]) for name, one in filtering.items()}
        query |= self._order(call, given["ordering"]) if "ordering" in given else {}
        page = given.get("page", 1)
        limit = given.get("limit", DEFAULT_ROWS_PER_PAGE)
        found = call.change_list(query | {PAGE_VAR: page}, limit)
        for name, one in filtering.items():
            one.check_applied(found, given[name])
        if page > found.paginator.num_pages:
            raise InvalidArguments(f"page: there are {found.paginator.num_pages} pages.")
        names = [name for name in found.list_display if name != "action_checkbox"]
        shown = [name for name in names if not is_secret(column_name(name))]
        rows = [
            {KEY: key_value(row)}
            | {column_name(name): shown_value(name, row, call.admin) for name in shown}
            for row in found.result_list
        ]
        pages = {"count": found.result_count, "page": page, "pages": found.paginator.num_pages}
        return {"results": rows} | pages

    def _order(self, call: AdminCall, ordering: str) -> JSON:
        """Return the parameter for an order: the number of a column of this user's list."""
        http = AdminRequest(call.request, call._target("changelist", None, {}), None)
        columns = [*call.admin.get_list_display(http)]
        sortable = sortable_columns(call.admin, columns, http)
        name = ordering.removeprefix("-")
        if name not in sortable:
            raise InvalidArguments(f"ordering: you cannot order by {name!r}.")
        # If the user may run any action, the admin inserts a column of checkboxes as the first.
        number = columns.index(sortable[name]) + bool(call.admin.get_actions(http))
        return {ORDER_VAR: f"{'-' if ordering.startswith('-') else ''}{number}"}


# Writing.


class WriteAdminTool(AdminTool):
    """Base of the tools that post the admin's form."""

    _adds_row = False

    def _take_schema(self) -> Iterator[CheckMessage]:
        admin, http = self._tools.model_admin, schema_request()
        try:
            form = _schema_form(admin, http, new=self._adds_row)
        except Exception as error:  # forms and admins run the project's code
            yield self._form_warning(f"{type(error).__name__}: {error}")
            try:
                form = _form_without_request(admin)
            except Exception as wrong:
                hint = "Let the form query rows only when it validates, or leave the operation out."
                yield self._error(f"The form of {self.name} cannot be made: {wrong}", 216, hint)
                return
        accepted = accepted_fields(form)
        if not self._adds_row:
            accepted = without_key(accepted, form)
        withheld = set(form.fields) - set(accepted)
        for name in withheld if self._adds_row else ():
            field = form.fields[name]
            if field.required and not (field.disabled or field.widget.is_hidden):
                hint = "Make the field optional, or leave the operation out."
                words = f"{self.name} requires {name!r}, which no client may set."
                yield self._error(words, 221, hint)
        schema = FormInput(form, exclude=withheld, partial=not self._adds_row).schema
        properties = dict(schema["properties"])
        yield from self._add_inlines(properties, admin, http)
        key = {} if self._adds_row else {KEY: self._key_schema()}
        required = schema.get("required", []) if self._adds_row else [KEY]
        self._arguments = GivenArguments(object_schema(key | properties, required), strict=False)

    def _output_schema(self) -> JSON:
        return saved_schema(self.model)

    def _form_warning(self, reason: str) -> CheckMessage:
        words = f"{self.name}: the schema may differ from the page, as a form failed ({reason})."
        hint = "Make get_form() or get_formset() work for any superuser, without a query."
        return Warning(words, hint=hint, obj=self, id="django_mcp.W219")

    def _add_inlines(self, properties: JSON, admin: Any, http: Any) -> Iterator[CheckMessage]:
        """Add an argument for the rows of each inline."""
        prefixes: list[str] = []
        obj = None if self._adds_row else unsaved_row(admin.model)
        try:
            inlines = admin.get_inline_instances(http, obj)
        except Exception as error:
            yield self._form_warning(f"{type(error).__name__}: {error}")
            return
        for inline in inlines:
            try:
                made = inline.get_formset(http, obj)
                name = inline_name(made, prefixes)
                form = empty_form(inline, made, unsaved_row(admin.model))
                properties[name] = self._inline_schema(inline, form, made.can_delete)
            except Exception as error:  # noqa: PERF203
                yield self._form_warning(f"{type(error).__name__}: {error}")

    def _inline_schema(self, inline: Any, form: Any, can_delete: bool) -> JSON:
        withheld = set(form.fields) - set(accepted_fields(form))
        row = FormInput(form, exclude=withheld, partial=not self._adds_row).schema
        many = inline.verbose_name_plural
        if self._adds_row:
            return {"type": "array", "items": row, "description": f"New {many}."}
        own: JSON = {KEY: key_schema(inline.model)}
        if can_delete:
            own[DELETE] = {"type": "boolean"}
        words = f"The {many} to add, or with {KEY} to change. Others stay as they are."
        items = object_schema(own | row["properties"])
        return {"type": "array", "items": items, "description": words}


def _schema_form(admin: Any, http: Any, *, new: bool) -> Any:
    """Return the unbound form of the add page, or of the page of an unsaved row."""
    obj = None if new else unsaved_row(admin.model)
    form = admin.get_form(http, obj, change=not new)
    return form() if new else form(instance=obj)


def _form_without_request(admin: Any) -> Any:
    """Return an unbound form of the model, without calling methods that depend on a request."""
    hidden = {*admin.readonly_fields, *(admin.exclude or ())}
    exclude = [name for name in hidden if isinstance(name, str)]
    made = forms.modelform_factory(
        admin.model, form=admin.form, fields=forms.ALL_FIELDS, exclude=exclude
    )
    return made()


class CreateAdminTool(WriteAdminTool):
    """Add a row, by the admin's page."""

    _prefix, _verb, _adds_row = "create", "add", True
    _description_template = "Create one new {one}, as in the admin."
    destructive = False

    def _run(self, call: AdminCall, given: JSON) -> JSON:
        return call.page("add").save("add", None, given)


class UpdateAdminTool(WriteAdminTool):
    """Change a row, by the admin's page."""

    _prefix, _verb = "update", "change"
    _description_template = (
        "Change one {one}, as in the admin: the fields that are given, and no others."
    )

    def _run(self, call: AdminCall, given: JSON) -> JSON:
        key = given[KEY]
        if type(key) not in (int, str):
            raise call.not_found(key, "change")
        call.lock(key)
        page = call.page("change", key, verb="change")
        fields = {name: value for name, value in given.items() if name != KEY}
        return page.save("change", key, fields)


class DeleteAdminTool(AdminTool):
    """Delete a row, by the admin's page."""

    _prefix = _verb = "delete"
    _description_template = "Delete one {one}, and what the admin deletes with it."

    def _output_schema(self) -> JSON:
        return deleted_schema(self.model)

    def _run(self, call: AdminCall, given: JSON) -> JSON:
        key = given[KEY]
        call.lock(key)
        try:
            http, response = call.open("delete", key)
        except PermissionDenied:
            raise call.not_found(key, "delete") from None
        context = getattr(response, "context_data", None) or {}
        if "perms_lacking" not in context:
            raise call.not_found(key, "delete")
        _check_deletion(context)
        links = _names_of_links()
        counts = {
            str(name): count for name, count in context["model_count"] if str(name) not in links
        }
        http, _ = call.open("delete", key, body=posted_body({"post": ["yes"]}))
        if not call.saved:
            raise call.refused(http)
        return {KEY: key, "deleted": counts, "messages": http.message_texts}


def _names_of_links() -> set[str]:
    """Return the names of the tables of many-to-many relations, as the admin lists deleted rows.

    Their rows are not counted in results: they are also links to rows that the user may not see.
    """
    models_ = apps.get_models(include_auto_created=True)
    return {str(model._meta.verbose_name_plural) for model in models_ if model._meta.auto_created}


def _check_deletion(context: Mapping[str, Any]) -> None:
    """Raise ``ToolError`` if the admin's page says that the row cannot be deleted."""
    about = f"Deleting the {context['object_name']} '{context['object']}'"
    if lacking := sorted(str(name) for name in context["perms_lacking"]):
        words = "would result in deleting related objects, but your account doesn't have permission"
        raise ToolError(
            f"{about} {words} to delete the following types of objects: {', '.join(lacking)}."
        )
    if protected := listed_texts(context["protected"]):
        shown = ", ".join(protected[:MAX_OBJECTS_NAMED])
        words = "would require deleting the following protected related objects"
        raise ToolError(f"{about} {words}: {shown}.")


OPERATIONS: Mapping[str, type[AdminTool]] = {
    kind._prefix: kind for kind in (CreateAdminTool, UpdateAdminTool, DeleteAdminTool)
}


class ActionTool(AdminTool):
    """Run one action of the admin on some rows."""

    def __init__(self, tools: AdminTools, action: str) -> None:
        super().__init__(tools, action)
        self._action = action

    def _decide_model(self, request: Request) -> Decision:
        viewing = super()._decide_model(request)
        if not viewing.allowed:
            return viewing
        admin = self._tools.model_admin
        method = permissions.path(admin.get_actions)
        return permissions.decided_by(method, self._action in admin.get_actions(request.http))

    def _codenames(self) -> tuple[str, ...]:
        """Return the permissions that ``@admin.action`` names, or that to change the model.

        A token with a scope to view rows must not run an action that changes them.
        """
        function = self._tools.known_actions[self._action][0]
        named = [
            one for one in getattr(function, "allowed_permissions", ()) if one in WRITE_PERMISSIONS
        ]
        options = self.model._meta
        verbs = named or ["change"]
        return tuple(
            f"{options.app_label}.{get_permission_codename(verb, options)}" for verb in verbs
        )

    def _take_schema(self) -> Iterator[CheckMessage]:
        function, text = self._tools.known_actions[self._action]
        description = text % model_format_dict(self.model._meta)
        words = inspect.getdoc(function) if getattr(function, "__doc__", None) else None
        self.description = f"{description}: an action of the admin." + (
            f" {words}" if words else ""
        )
        keys = {
            "type": "array",
            "items": key_schema(self.model),
            "minItems": 1,
            "maxItems": MAX_KEYS_PER_ARGUMENT,
        }
        found = FormInput(_action_form(self._tools.model_admin)).schema
        required = [SELECTED_KEYS, *found.get("required", [])]
        self._arguments = GivenArguments(
            object_schema({SELECTED_KEYS: keys} | found["properties"], required)
        )
        yield from ()

    def _run(self, call: AdminCall, given: JSON) -> Any:
        keys = list(dict.fromkeys(given[SELECTED_KEYS]))
        self._check_keys(call, keys)
        fields = {name: value for name, value in given.items() if name != SELECTED_KEYS}
        data, files = post_data(_action_form(call.admin), fields)
        self._check_form(call, data, files)
        data |= {"action": [self._action], "index": ["0"], "select_across": ["0"]}
        data["_selected_action"] = [str(key) for key in keys]
        http, response = call.open("changelist", body=posted_body(data, files))
        if not call.saved:
            raise ToolError("\n".join(http.message_texts) or "The admin did not run the action.")
        return self._result(http, response)

    def _check_keys(self, call: AdminCall, keys: list[Any]) -> None:
        """Raise ``InvalidArguments`` unless the user's list has a row for each key."""
        field = self.model._meta.pk
        found = call.change_list({}, 1)
        try:
            wanted = {field.to_python(key): key for key in keys}
            rows = found.queryset.order_by().filter(pk__in=list(wanted))
            present = set(rows.values_list("pk", flat=True))
        except (ValidationError, ValueError, TypeError):
            raise call.not_found(", ".join(map(str, keys)), "choose") from None
        for value, key in wanted.items():
            if value not in present:
                raise call.not_found(key, "choose")

    def _check_form(self, call: AdminCall, data: Any, files: Any) -> None:
        form = _action_form(call.admin, MultiValueDict(data), files)
        if not form.is_valid():
            raise InvalidArguments("\n".join(error_lines(form)))

    def _result(self, http: AdminRequest, response: HttpResponseBase) -> Any:
        if isinstance(response, HttpResponseRedirectBase):
            if response.url == http.get_full_path():
                return http.message_texts or ["Done."]
            where = f"The action redirected to the page {response.url}, which clients cannot see."
            return [*http.message_texts, where]
        answer = ViewResponse(http, response)
        kind = media_type(response)
        if is_html(kind):
            words = "The action returned a page, such as one that asks for a confirmation. "
            raise ToolError(
                f"{words}Its changes were rolled back. A person can run it in the admin."
            )
        if response.status_code >= 400:
            raise ToolError(f"The action failed with the status {response.status_code}.")
        body = body_of(answer)
        textual = is_textual(kind) or is_json(kind)
        value = decoded(body, response) if textual else file_of(answer, body)
        return [*http.message_texts, value]


def _action_form(admin: Any, data: Any = None, files: Any = None) -> Any:
    """Return the form of the admin's actions with only the fields that the project adds to it."""
    form = admin.action_form(data, files, auto_id=None)
    for name in ("action", "select_across"):
        form.fields.pop(name, None)
    return form
