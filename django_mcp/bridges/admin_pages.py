"""
Open and post pages of Django's admin as the caller of a tool.

An ``AdminCall`` runs the views of a ``ModelAdmin`` for the change list, add, change and delete
pages, and reads the context of their responses. No template is rendered. The admin's own code, and
what the project overrides there, decides what the user may see and do.

A write opens the page first, as a browser does. The page has the fields, the inlines and the rows
that this user may change. The write then posts the page's form with the arguments in it.

The project's ``MIDDLEWARE`` does not run. The request has the caller, an in-memory session, the URL
of the page, and nothing that the client sent. ``django.contrib.messages`` are collected for the
tool's result.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.contrib.admin.exceptions import DisallowedModelAdminLookup
from django.contrib.admin.utils import flatten_fieldsets, lookup_field, quote
from django.contrib.auth import get_permission_codename
from django.contrib.messages.storage.base import BaseStorage
from django.core.exceptions import (
    FieldDoesNotExist,
    ObjectDoesNotExist,
    PermissionDenied,
    RequestDataTooBig,
    TooManyFieldsSent,
    TooManyFilesSent,
    ValidationError,
)
from django.db import DataError, IntegrityError, connections, models, router
from django.db.models.fields.files import FieldFile
from django.forms.formsets import DEFAULT_MAX_NUM
from django.urls import resolve, reverse
from django.utils.datastructures import MultiValueDict
from django.utils.html import strip_tags

from ..auth import scopes
from ..declarations.elicitation_forms import asks_secret
from ..declarations.fields.keys import filter_by_keys, key_value
from ..declarations.fields.values import basename, field_value, has_json_form, plain_value
from ..declarations.redaction import NOT_SECRET, SECRET, SECRET_COLUMN, words
from ..exceptions import InvalidArguments, ToolError
from .form_input import MAX_ERRORS, error_lines, post_data
from .model_operations import conflict_error
from .views.requests import Body, CallSession, ViewRequest, multipart
from .views.urls import Target, path_info

if TYPE_CHECKING:
    from django.contrib.admin import AdminSite

    from ..declarations.request import Request

JSON = dict[str, Any]
# Names in arguments and results that are not fields. No field of a model starts with an underscore
# by accident. ``_uri`` in the rows of model resources is such a name too.
KEY, TEXT, DELETE = "_key", "_text", "_delete"
MAX_RELATED_ROWS = 100  # that are shown of a many-to-many relation
MAX_OBJECTS_NAMED = 20  # in the error of a refused deletion
LINE_ENDS = re.compile(r"<(br|/p|/li|/div|/tr|/h\d)\b[^>]*>", re.IGNORECASE)


class CallMessages(BaseStorage):
    """Collects the messages of one request, and stores nothing."""

    def _get(self, *args: Any, **kwargs: Any) -> tuple[list[Any], bool]:
        return [], True

    def _store(self, messages: Any, response: Any, *args: Any, **kwargs: Any) -> list[Any]:
        return []


class AdminRequest(ViewRequest):
    """A request by the caller for a page of the admin."""

    def __init__(self, request: Request, target: Target, body: Body | None) -> None:
        super().__init__(request, target, body, CallSession(request.user))
        self.session = self.call_session
        self._messages = CallMessages(self)
        # Code of projects finds the edited row by its ``kwargs``.
        self.resolver_match = resolve(target.path)

    @property
    def message_texts(self) -> list[str]:
        """The messages to the user, as plain text."""
        return [plain_text(message.message) for message in self._messages]


class AdminCall:
    """One call of a tool in the admin of one model, as the caller of ``request``."""

    def __init__(self, site: AdminSite, model: type[models.Model], request: Request) -> None:
        self.request, self.model = request, model
        self.saved: list[Any] = []
        # Linked rows that a form does not offer, by the name of the many-to-many field.
        self.hidden_links: dict[str, list[Any]] = {}
        # A copy for this call. The admin's own object serves the requests of all threads, and this
        # one gets other attributes: below, and by projects that store the request in it.
        registered: Any = site.get_model_admin(model)
        self.admin: Any = copy(registered)
        self.admin.show_full_result_count = False  # saves a query for a count that no tool shows
        self.admin.list_editable = ()  # saves the forms of the rows, which no tool shows
        for name in ("response_add", "response_change", "response_delete", "response_action"):
            setattr(self.admin, name, self._recording_saves(getattr(self.admin, name)))
        self.admin.save_related = self._keeping_links(self.admin.save_related)

    def _keeping_links(self, save_related: Callable[..., None]) -> Callable[..., None]:
        """Return ``save_related`` that keeps the links to rows that the form does not offer.

        A browser would remove them, and its user would not know of it. An error instead would
        reveal that there are such rows.
        """

        def save_with_hidden_links(http: Any, form: Any, *args: Any, **kwargs: Any) -> None:
            for name, rows in self.hidden_links.items():
                if name in form.cleaned_data:
                    form.cleaned_data[name] = [*form.cleaned_data[name], *rows]
            save_related(http, form, *args, **kwargs)

        return save_with_hidden_links

    def _recording_saves(self, respond: Callable[..., Any]) -> Callable[..., Any]:
        """Return a wrapper of ``respond`` that appends the saved object to ``saved``.

        The admin calls ``respond`` only after it has saved the form or run the action.
        """

        def wrapper(http: Any, *args: Any, **kwargs: Any) -> Any:
            response = respond(http, *args, **kwargs)
            if response is not None:  # ``response_action`` returns None if it ran no action
                self.saved.append(args[0] if args else None)
            return response

        return wrapper

    # Requests.

    def open(
        self, page: str, key: Any = None, *, query: JSON | None = None, body: Body | None = None
    ) -> tuple[AdminRequest, Any]:
        """Return the request for a page and the view's response. Raise the view's errors."""
        http = AdminRequest(self.request, self._target(page, key, query or {}), body)
        if not self.admin.admin_site.has_permission(http):
            raise PermissionDenied()
        view = getattr(self.admin, f"{page}_view")
        arguments = () if key is None else (quote(str(key)),)
        try:
            return http, view(http, *arguments)
        except DisallowedModelAdminLookup as error:
            raise InvalidArguments(str(error)) from None
        except (TooManyFieldsSent, TooManyFilesSent, RequestDataTooBig):
            message = "This is too much for one call. Use several calls."
            raise InvalidArguments(message) from None
        except (IntegrityError, DataError) as error:
            raise conflict_error(error, self.admin) from None

    def _target(self, page: str, key: Any, query: JSON) -> Target:
        url = self.url(page, key)
        name = f"{self.admin.admin_site.name}:{self._url_name(page)}"
        path = path_info(url)
        assert path is not None
        kwargs = {} if key is None else {"object_id": quote(str(key))}
        return Target(name, path, kwargs, urlencode(query))

    def _url_name(self, page: str) -> str:
        options = self.model._meta
        return f"{options.app_label}_{options.model_name}_{page}"

    def url(self, page: str, key: Any = None) -> str:
        """Return the URL of a page of the admin."""
        site = self.admin.admin_site
        arguments = None if key is None else [quote(str(key))]
        return reverse(f"{site.name}:{self._url_name(page)}", args=arguments, current_app=site.name)

    def change_list(self, query: JSON, limit: int) -> Any:
        """Return the admin's ``ChangeList`` for a query string."""
        self.admin.list_per_page = min(limit, self.admin.list_per_page)
        _, response = self.open("changelist", query=query)
        found = (getattr(response, "context_data", None) or {}).get("cl")
        if found is None:  # the admin redirects to the list without filters
            raise InvalidArguments(
                "There is no such page, or a filter has a value of a wrong type."
            )
        return found

    def page(self, page: str, key: Any = None, *, verb: str = "view") -> ChangePage:
        """Return the page to add a row or to change the row ``key``."""
        try:
            http, response = self.open(page, key)
        except PermissionDenied:
            if key is None:
                raise
            raise self.not_found(key, verb) from None
        context = getattr(response, "context_data", None) or {}
        if "adminform" not in context:
            # The admin redirects to its index with a message if there is no such row.
            raise self.not_found(key, verb) if key is not None else self.refused(http)
        if verb == "change" and not context.get("has_change_permission"):
            raise self.not_found(key, verb)  # the user may only view the row
        return ChangePage(self, context)

    def not_found(self, key: Any, verb: str) -> InvalidArguments:
        """Return the error for a row that is missing, hidden or forbidden: the same for all."""
        name = self.model._meta.verbose_name
        return InvalidArguments(f"There is no {name} with the key {str(key)[:80]!r} to {verb}.")

    def refused(self, http: AdminRequest) -> ToolError:
        """Return the error for a response without the form, such as a redirect of the project."""
        return ToolError("\n".join(http.message_texts) or "The admin did not return the form.")

    def lock(self, key: Any) -> None:
        """Lock the row ``key`` until the transaction ends, if the caller's queryset has it.

        The page and the form that is posted must have the same values. Otherwise the write would
        undo what somebody else saves in between, because it posts every field.
        """
        using = router.db_for_write(self.model)
        if not connections[using].features.has_select_for_update:
            return
        http = AdminRequest(self.request, self._target("change", key, {}), None)
        found = self.admin.get_object(http, str(key))
        if found is not None:
            # A separate query, because the project's queryset may have joins that cannot be locked.
            every: models.QuerySet[Any] = models.QuerySet(self.model, using=using)
            list(every.filter(pk=found.pk).select_for_update())

    def result(self, http: AdminRequest) -> JSON:
        """Return the result of a write: the key of the row, and the admin's messages."""
        key = key_value(self.saved[0])
        return {KEY: key, "messages": http.message_texts}


def posted_body(data: Mapping[str, list[str]], files: Any = None) -> Body:
    """Return the body of a form's POST."""
    if files:
        return Body(*multipart(data, files))
    return Body(urlencode(data, doseq=True).encode())


# The page with the form of one row.


class ChangePage:
    """A page to add or to change a row, as the admin made it for the caller."""

    def __init__(self, call: AdminCall, context: Mapping[str, Any]) -> None:
        self._call = call
        self._admin_form = context["adminform"]
        self.row: Any = context.get("original")
        self.form = self._admin_form.form
        self.inlines = {
            one.formset.prefix: Inline(one, call.request)
            for one in context["inline_admin_formsets"]
        }

    # Reading.

    def values(self) -> JSON:
        """Return what the page shows of the row, and the rows of its inlines."""
        names = flatten_fieldsets(self._admin_form.fieldsets)
        readonly = self._admin_form.readonly_fields
        form = FormValues([self.form], names, readonly, self._call.admin)
        (shown,) = form.values()
        inlines = {
            name: inline.values()
            for name, inline in self.inlines.items()
            if not inline.missing_scope("view")
        }
        return {KEY: key_value(self.row), TEXT: str(self.row)} | shown | inlines

    # Writing.

    def posted(self, given: Mapping[str, Any]) -> Body:
        """Return the body that a browser would post: all fields of the page, changed by ``given``.

        Raise ``InvalidArguments``.
        """
        accepted = accepted_fields(self.form)
        if self.row is not None:
            accepted = without_key(accepted, self.form)
        known = {*accepted, *self.inlines}
        if unknown := [name for name in given if name not in known]:
            message = "you cannot set this here. The arguments are: " + ", ".join(sorted(known))
            lines = [f"{name[:80]}: {message}." for name in unknown[:MAX_ERRORS]]
            raise InvalidArguments("\n".join(lines))
        self._withhold_hidden_links()
        data, files = post_data(self.form, {n: v for n, v in given.items() if n in accepted})
        for name, inline in self.inlines.items():
            more, uploads = inline.posted(name, given.get(name, []))
            data |= more
            files.update(uploads)
        return posted_body(data | {"_save": ["1"]}, files)

    def _withhold_hidden_links(self) -> None:
        """Remove from the form's initial value the linked rows that the form does not offer."""
        for name, field in self.form.fields.items():
            if not isinstance(field, forms.ModelMultipleChoiceField):
                continue
            current = self.form.get_initial_for_field(field, name)
            if current is None:  # the page adds a row, which has no links yet
                continue
            linked = [*current]
            lookup = field.to_field_name or "pk"
            keys = [_field_key(field, one) for one in linked]
            choices: Any = field.queryset
            # Without links, the query runs, too: a row that has only links that the form does not
            # offer must not take longer than a row without links.
            found = filter_by_keys(choices, keys, lookup)
            offered = set(found.values_list(lookup, flat=True))
            pairs = [*zip(keys, linked, strict=True)]
            hidden = [one for key, one in pairs if key not in offered]
            if all(isinstance(one, models.Model) for one in hidden):  # else the field's own values
                self.form.initial[name] = [one for key, one in pairs if key in offered]
                self._call.hidden_links[name] = hidden

    def save(self, page: str, key: Any, given: Mapping[str, Any]) -> JSON:
        """Post the form, and return the result. Raise ``InvalidArguments`` with all errors."""
        call = self._call
        http, response = call.open(page, key, body=self.posted(given))
        if call.saved:
            return call.result(http)
        context = getattr(response, "context_data", None) or {}
        if "adminform" not in context:
            raise call.refused(http)
        rejected = ChangePage(call, context)
        lines = _posted_error_lines(rejected.form, given)
        for name, inline in rejected.inlines.items():
            lines += inline.error_lines(name, given.get(name, []), self.inlines[name])
        raise InvalidArguments("\n".join(lines[:MAX_ERRORS]) or "The admin did not save it.")


class Inline:
    """One inline of a page: the rows of another model that belong to the page's row."""

    def __init__(self, shown: Any, request: Request) -> None:
        self._shown, self._formset = shown, shown.formset
        self._auth = request.principal.auth

    def missing_scope(self, verb: str) -> str:
        """Return the scope that the caller's token lacks for these rows, or "".

        The scope of the page does not cover them: they are rows of another model.
        """
        options = self._formset.model._meta
        if self._auth is None or options.auto_created:  # a many-to-many field of the page's row
            return ""
        needed = f"{options.app_label}.{get_permission_codename(verb, options)}"
        return "".join(scopes.lacking(frozenset(self._auth.scopes), (needed,)))

    @cached_property
    def _keys(self) -> list[Any]:
        """The keys of the rows that the inline shows."""
        return [key_value(form.instance) for form in self._formset.initial_forms]

    def values(self) -> list[JSON]:
        """Return the rows of the inline that the user may see."""
        names = flatten_fieldsets(self._shown.fieldsets)
        parent = getattr(self._formset, "fk", None)
        names = [name for name in names if parent is None or name != parent.name]
        readonly = [*self._shown.readonly_fields]
        readonly += [] if self._shown.has_change_permission else names
        forms_ = FormValues(self._formset.initial_forms, names, readonly, self._shown.opts)
        return [{KEY: key} | row for key, row in zip(self._keys, forms_.values(), strict=True)]

    def posted(self, name: str, rows: Any) -> tuple[dict[str, list[str]], Any]:
        """Return the part of the body for the inline. Rows not in ``rows`` stay as they are."""
        named, new = self._split_rows(name, rows)
        formset, count = self._formset, len(self._formset.initial_forms)
        # A browser has no button to add more. The admin itself would save them.
        if new and count + len(new) > formset.max_num < DEFAULT_MAX_NUM:
            raise InvalidArguments(f"{name}: there can be at most {formset.max_num} rows.")
        counts = {"TOTAL": count + len(new), "INITIAL": count, "MIN_NUM": 0, "MAX_NUM": 1000}
        data = {f"{formset.prefix}-{kind}_FORMS": [str(value)] for kind, value in counts.items()}
        files: MultiValueDict[str, Any] = MultiValueDict()
        for form, key in zip(formset.initial_forms, self._keys, strict=True):
            number, row = named.get(key, (0, {}))
            more, uploads = _row_data(form, row, f"{name}.{number}")
            data |= more
            files.update(uploads)
        for place, (number, row) in enumerate(new, count):
            more, uploads = _row_data(formset.empty_form, row, f"{name}.{number}")
            # The admin's JavaScript numbers an added row in the same way.
            data |= {field.replace("__prefix__", str(place)): text for field, text in more.items()}
            for field, found in uploads.lists():
                files.setlist(field.replace("__prefix__", str(place)), found)
        return data, files

    def _split_rows(self, name: str, rows: Any) -> tuple[JSON, list[tuple[int, JSON]]]:
        """Return the existing rows among ``rows`` by key, and the new ones, with their numbers.

        Raise ``InvalidArguments`` for what the user may not do here. The admin would ignore it.
        """
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise InvalidArguments(f"{name}: give a list of objects.")
        named: JSON = {}
        new: list[tuple[int, JSON]] = []
        for number, row in enumerate(rows):
            fields = {key: value for key, value in row.items() if key not in (KEY, DELETE)}
            if row.get(DELETE) is True:
                fields = {"DELETE": True}
            if wrong := self._refusal(row, fields, named):
                raise InvalidArguments(f"{name}.{number}: {wrong}")
            if KEY in row:
                named[row[KEY]] = (number, fields)
            else:
                new.append((number, fields))
        return named, new

    def _refusal(self, row: JSON, fields: JSON, named: JSON) -> str:
        """Return why the user may not do this to a row of the inline, or ""."""
        shown, key, deletes = self._shown, row.get(KEY), "DELETE" in fields
        verb = "delete" if deletes else "change" if KEY in row else "add"
        if missing := self.missing_scope(verb):
            return f"the token lacks the scope {missing}."
        known = accepted_fields(self._formset.empty_form)
        if KEY in row:
            known = without_key(known, self._formset.empty_form)
        if KEY in row and (type(key) not in (int, str) or key not in self._keys or key in named):
            return f"there is no row with the key {str(key)[:80]!r} here."
        if unknown := [one for one in fields if one not in known and not deletes]:
            return f"{unknown[0][:80]}: you cannot set this. The fields are: {', '.join(known)}."
        if deletes and not (
            self._formset.can_delete and shown.has_delete_permission and KEY in row
        ):
            return "you may not delete this row."
        if KEY in row and not deletes and not shown.has_change_permission:
            return "you may not change this row."
        if KEY not in row and not shown.has_add_permission:
            return "you may not add a row."
        return ""

    def error_lines(self, name: str, rows: list[JSON], shown: Inline) -> list[str]:
        """Return the errors of the posted inline. ``shown`` is the inline of the opened page."""
        named, new = shown._split_rows(name, rows)
        places = [named.get(key, ("", {})) for key in shown._keys] + new
        lines = [f"{name}: {text}" for text in self._formset.non_form_errors()]
        for form, (number, row) in zip(self._formset.forms, places, strict=False):
            label = f"{name}.{number}" if row else f"{name} (a row that you did not send)"
            lines += [f"{label}.{line}" for line in _posted_error_lines(form, row)]
        return lines


def _row_data(form: Any, row: JSON, label: str) -> tuple[dict[str, list[str]], Any]:
    """Return the part of the body for one form of an inline."""
    try:
        return post_data(form, row)
    except InvalidArguments as error:
        lines = [f"{label}.{line}" for line in str(error).splitlines()]
        raise InvalidArguments("\n".join(lines)) from None


def _posted_error_lines(form: Any, given: Mapping[str, Any]) -> list[str]:
    """Return the errors of a posted form. Change the form: disable all fields not in ``given``.

    ``error_lines`` does not quote the value of a disabled field. The caller did not send these
    values, and may not be allowed to see them.
    """
    for name, field in form.fields.items():
        field.disabled = field.disabled or name not in given
    return error_lines(form)


# Which fields a caller can set or see.


def accepted_fields(form: forms.BaseForm) -> list[str]:
    """Return the names of the fields that an argument can set."""
    return [
        name
        for name, field in form.fields.items()
        if not (field.disabled or field.widget.is_hidden or name == "DELETE")
        and not (shows_secret(name, field) or _asks_for_secret(name, field))
        and not isinstance(field, forms.FilePathField)  # its choices are paths of the server
    ]


def without_key(names: Iterable[str], form: Any) -> list[str]:
    """Return ``names`` without the primary key, which no update can change.

    The admin would add a row with the new key, whether or not the user may add one.
    """
    return [name for name in names if name != form._meta.model._meta.pk.name]


def _asks_for_secret(name: str, field: forms.Field) -> bool:
    typed = isinstance(field, forms.CharField | forms.IntegerField)
    return typed and asks_secret(name, {"type": "string", "title": str(field.label or "")})


def is_secret(name: str, field: forms.Field | None = None) -> bool:
    """Whether a column, or a field of a form, contains a secret that no client may see."""
    has_password_input = field is not None and isinstance(field.widget, forms.PasswordInput)
    return has_password_input or SECRET_COLUMN.search(name) is not None


def shows_secret(name: str, field: Any, column: Any = None) -> bool:
    """Whether a field of a page looks like a credential, by its name or its label.

    A page shows every field of the model unless the project says otherwise, so the wider list of
    names applies, which ``list_display`` does not need. ``field`` is None for a read-only field,
    whose ``column`` is the model field. Check boxes and choices contain no credentials.
    """
    if is_secret(name, field):
        return True
    if field is None:
        is_chosen = isinstance(column, models.BooleanField) or getattr(column, "choices", None)
        label = getattr(column, "verbose_name", "")
    else:
        is_typed = not isinstance(field, forms.BooleanField | forms.ChoiceField)
        is_chosen = not (is_typed or isinstance(field, forms.ModelChoiceField))
        label = field.label or ""
    if is_chosen:
        return False
    return SECRET.search(NOT_SECRET.sub("|", f"{words(name)} {words(str(label))}")) is not None


def model_field(model: type[models.Model], name: Any) -> Any:
    """Return the field that a column shows. None for methods, properties, paths and keys.

    The admin looks up ``customer_id`` and generic relations as attributes.
    """
    try:
        found = model._meta.get_field(name) if isinstance(name, str) else None
    except FieldDoesNotExist:
        return None
    is_own = isinstance(found, models.Field) and found.name == name and not found.one_to_many
    return found if is_own else None


class FormValues:
    """The values that the forms of a page show, as JSON: of one form, or of the rows of an inline.

    One query for each field finds the related rows of all forms.
    """

    def __init__(self, shown: list[Any], names: list[Any], readonly: Any, admin: Any) -> None:
        self._forms, self._readonly, self._admin = shown, readonly, admin
        self._names = names
        self._found: dict[str, JSON] = {}

    def values(self) -> Iterator[JSON]:
        """Yield the values of each form, by the name of the field."""
        for form in self._forms:
            found = {}
            for name in self._names:
                if name in self._readonly:
                    column = model_field(form.instance._meta.model, name)
                    if not shows_secret(column_name(name), None, column):
                        found[column_name(name)] = shown_value(name, form.instance, self._admin)
                elif name in form.fields and not self._is_withheld(name, form.fields[name]):
                    found[name] = self._editable(form, name)
            yield found

    def _is_withheld(self, name: str, field: forms.Field) -> bool:
        return field.widget.is_hidden or shows_secret(name, field)

    def _editable(self, form: Any, name: str) -> Any:
        field = form.fields[name]
        initial = form.get_initial_for_field(field, name)
        if isinstance(field, forms.ModelChoiceField):
            return self._related_values(name, field, initial)
        try:
            column = form.instance._meta.get_field(name)
        except FieldDoesNotExist:
            column = None
        return json_value(column, initial)

    def _related_values(self, name: str, field: Any, initial: Any) -> Any:
        """Return the rows that the field shows: those among its choices, as in the admin."""
        offered = self._offered(name)
        if isinstance(field, forms.ModelMultipleChoiceField):
            keys = [_field_key(field, one) for one in initial or ()]
            return [offered[key] for key in keys if key in offered]
        return offered.get(_field_key(field, initial))

    def _offered(self, name: str) -> JSON:
        """Return the rows among a field's choices that any of the forms shows, by key."""
        if name not in self._found:
            self._found[name] = self._look_up(name)
        found: JSON = self._found[name]
        return found

    def _look_up(self, name: str) -> JSON:
        field = self._forms[0].fields[name]
        keys: set[Any] = set()
        for form in self._forms:
            initial = form.get_initial_for_field(form.fields[name], name)
            listed = initial if isinstance(initial, list | tuple | models.QuerySet) else [initial]
            keys |= {_field_key(field, one) for one in listed if one not in (None, "")}
        lookup = field.to_field_name or "pk"
        # Without related rows, the query runs, too: rows whose related rows are all hidden must not
        # take longer than rows without related rows.
        rows = filter_by_keys(field.queryset, [*keys], lookup)
        return {getattr(row, lookup): related_value(row, lookup) for row in rows}


def _field_key(field: Any, value: Any) -> Any:
    return getattr(value, field.to_field_name or "pk") if isinstance(value, models.Model) else value


def related_value(row: models.Model, lookup: str = "pk") -> JSON:
    """Return a related row as the choice of a form shows it: its key and its text."""
    return {KEY: key_value(row, lookup), TEXT: str(row)}


# Values.


def column_name(name: Any) -> str:
    """Return the name in results for an entry of ``list_display`` or ``readonly_fields``."""
    if name == "__str__":
        return TEXT
    return name if isinstance(name, str) else str(getattr(name, "__name__", name))


def shown_value(name: Any, row: Any, admin: Any) -> Any:
    """Return the JSON of what a list or a read-only field shows. Related rows are their text."""
    try:
        field, _, value = lookup_field(name, row, admin)
    except (ObjectDoesNotExist, AttributeError, ValueError):  # as in the admin's templates
        return None
    if field is not None and field.many_to_many and value is not None:
        return [str(one) for one in value.all()[:MAX_RELATED_ROWS]]
    return json_value(field, value)


def json_value(field: Any, value: Any) -> Any:
    """Return the JSON of a value. ``field`` is the field of the model, or None for other values."""
    if isinstance(value, FieldFile | os.PathLike) or isinstance(field, models.FilePathField):
        return basename(str(value)) if value else None
    if isinstance(value, models.Model):
        return str(value)
    if hasattr(value, "__html__"):
        return plain_text(value)
    try:
        if field is not None and has_json_form(field):
            return field_value(field, value)
        return plain_value(value)
    except (TypeError, ValueError, ValidationError):  # the last is raised by ``to_python``
        return plain_text(value)


def plain_text(value: Any) -> str:
    """Return the text of a value. If the value is marked as safe HTML, remove the tags."""
    text = str(value)
    if not hasattr(value, "__html__"):
        return text
    return html.unescape(strip_tags(LINE_ENDS.sub("\n", text))).strip()


def listed_texts(nested: Iterable[Any]) -> list[str]:
    """Return the texts in the nested lists in which the admin names the objects of a deletion."""
    found: list[str] = []
    for one in nested:
        found += listed_texts(one) if isinstance(one, list | tuple) else [plain_text(one)]
    return found
