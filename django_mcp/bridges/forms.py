"""
``FormTool``: a Django form as a tool, by ``@mcp.register(ContactForm)``.

The form validates and saves as on a page. Validation errors are returned field by field, so that a
language model can correct its arguments. A tool that changes a row checks before and after that the
caller may see the row: first the named row, then the row as it was saved.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from asgiref.sync import iscoroutinefunction
from django.core.checks import CheckMessage
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import router
from django.forms import BaseForm, BaseFormSet, BaseModelForm

from ..declarations import permissions
from ..declarations.arguments import Arguments
from ..declarations.declaration import REQUIRED, Declaration, Find, default_name, prose
from ..declarations.outputs import Output, RowOutput, output_of
from ..declarations.permissions import AUTHENTICATED, Decision, Permission, of_model
from ..declarations.tools import Tool
from ..exceptions import InvalidArguments
from ..protocol.http_rules import Mirrored
from .form_input import FormInput, errors, refuse_unknown
from .model_operations import (
    ADDED,
    ADDITION,
    CHANGE,
    change_message,
    locked_row,
    log_action,
    translate_errors,
    visible_row,
)

if TYPE_CHECKING:
    from django.db.models import Model

    from ..declarations.model_resources import ModelResource
    from ..declarations.request import Request

JSON = dict[str, Any]
SYNCHRONOUS_HOOKS = ("get_form_class", "get_form_kwargs", "get_schema_form")


SENTENCES = {
    False: "Create one new {}.",
    True: "Change one {}: the fields that are given, and no others.",
}


class FormTool(Tool):
    """A form as a tool. Register a subclass with a form class.

    The fields of the form are the arguments. ``exclude`` names fields that keep their initial value
    and are no arguments.

    A ``ModelForm`` saves a new row. With ``update = True`` it changes the row that an argument
    names. The result is the row through its registered model resource. Any other form needs
    ``form_valid``.

    Without a ``permission``, a ``ModelForm`` requires Django's permission to add or change its
    model, as the admin does.
    """

    permission: Permission = REQUIRED
    form_class: type[BaseForm] | None = None
    update: bool = False
    exclude: Sequence[str] = ()

    _entry_method = "form_valid"
    _input: FormInput
    _resource: ModelResource | None = None

    @classmethod
    def _instances_for(cls, subjects: tuple[Any, ...]) -> list[Declaration]:
        if len(subjects) > 1:
            raise TypeError(f"{cls.__name__} is registered with one form.")
        one = cls()
        one.form_class = subjects[0] if subjects else cls.form_class
        return [one]

    @property
    def _runs(self) -> str:
        return "" if self.form_class is None else permissions.path(self.form_class)

    # For a project to override.

    def get_form_class(self, request: Request) -> type[BaseForm]:
        """Return the form class for this request. Its fields must be among those of the schema."""
        assert self.form_class is not None
        return self.form_class

    def get_form_kwargs(self, request: Request) -> dict[str, Any]:
        """Return the form's keyword arguments, such as ``initial`` or ``instance``."""
        return {}

    def get_schema_form(self) -> BaseForm:
        """Return an unbound form for the schema, which is made before there is any request."""
        assert self.form_class is not None
        return self.form_class()

    def form_valid(self, request: Request, form: Any) -> Any:
        """Process the valid form. The return value becomes the tool's result.

        By default, save a ``ModelForm``, write an entry to the admin's log, and return the row.
        Raise ``PermissionDenied`` if the caller may not see the saved row.
        """
        resource = self._shown_through(request)
        new = form.instance._state.adding
        with translate_errors(resource):
            row = form.save()
        if new:
            log_action(request, row, ADDITION, ADDED)
            return visible_row(resource, request, row, "add")
        names = _changed_fields(row, form)
        log_action(request, row, CHANGE, change_message(type(row), names) if names else [])
        return visible_row(resource, request, row, "change")

    def _shown_through(self, request: Request) -> ModelResource:
        """Return the resource that renders the saved row. Raise ``PermissionDenied``.

        ``_resource`` is None if the project overrides ``form_valid`` and calls ``super()``.
        """
        assert self._model is not None
        resource = self._resource or request.server._catalog.find(self._model)
        if not resource._is_allowed(request):
            raise PermissionDenied()
        return resource

    # Permissions.

    def _decide_permission(self, request: Request) -> Decision:
        own = super()._decide_permission(request)
        if self._resource is None or not own.allowed:
            return own
        viewing = self._resource._decide(request)
        return own if viewing.allowed else viewing

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        bound = super()._depends_on
        return bound if self._resource is None else (self._resource, *bound)

    @property
    def _rule(self) -> str:
        own = super()._rule
        return own if self._resource is None else permissions.both(self._resource._rule, own)

    @property
    def _is_public(self) -> bool:
        return super()._is_public and (self._resource is None or self._resource._is_public)

    @property
    def _decides_without_database(self) -> bool:
        return super()._decides_without_database and self._resource is None

    # Execution.

    def _bound_form(self, request: Request, given: Mapping[str, Any]) -> Any:
        """Return the form bound to the arguments and valid. Raise ``InvalidArguments``."""
        kwargs = dict(self.get_form_kwargs(request))
        given = dict(given)
        if self.update:
            assert self._resource is not None
            kwargs["instance"] = locked_row(
                self._resource, request, given.pop(self._row_argument), "change"
            )
        form = self._input.form(request, given, self.get_form_class(request), **kwargs)
        if not form.is_valid():
            raise InvalidArguments(errors(form))
        return form

    # Resolution.

    @property
    def _model(self) -> type[Model] | None:
        """The model of a ``ModelForm``. None for other forms."""
        form = self.form_class
        is_models = isinstance(form, type) and issubclass(form, BaseModelForm)
        return form._meta.model if is_models else None  # type: ignore[union-attr]

    @property
    def _saves(self) -> bool:
        """Whether the default ``form_valid`` is used, which saves the form."""
        return type(self).form_valid is FormTool.form_valid

    @property
    def _row_argument(self) -> str:
        """The name of the argument that takes the row to change."""
        assert self._resource is not None
        name = self._resource.name
        return "_uri" if name in self._input.schema["properties"] else name

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        self._take_defaults()
        yield from Declaration._resolve(self, find)
        yield from (wrong := [*class_problems(self), *self._schema_problems()])
        if not wrong:
            yield from (wrong := [*self._form_problems(find)])
        if not wrong:
            yield from (wrong := [*self._output_problems(find)])
        if not wrong:
            self._arguments = FormArguments(self)
            yield from self._argument_problems()
            yield from self._hint_problems()

    def _take_defaults(self) -> None:
        """Fill in what the class does not state: name, description, permission and hints."""
        described = [one for one in (type(self), self.form_class) if one is not FormTool]
        self.name = self.name or default_name(next(filter(inspect.isclass, described), type(self)))
        docstrings = (vars(one).get("__doc__") for one in described if inspect.isclass(one))
        self.description = self.description or next(filter(None, map(prose, docstrings)), None)
        if self.permission is REQUIRED:
            operation = "update" if self.update else "create"
            self.permission = of_model(operation, self._model) if self._model else AUTHENTICATED
        if self._model is not None and self.atomic is True:
            self.atomic = router.db_for_write(self._model)
        if self._model is not None and (self._saves or self.update):
            sentence = SENTENCES[self.update].format(self._model._meta.verbose_name)
            self.description = self.description or sentence
            self.destructive = self.update if self.destructive is None else self.destructive

    def _form_problems(self, find: Find) -> Iterator[CheckMessage]:
        """Make the form's schema. Yield errors if that fails."""
        try:
            form = self.get_schema_form()
            self._input = FormInput(form, find, exclude=self.exclude, partial=self.update)
        except Exception as error:  # form classes run the project's code
            words = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            hint = "Write get_schema_form(self), which returns an unbound form without a request."
            yield self._error(f"No form could be made to show ({words}).", 121, hint)
            return
        for problem in self._input.problems:
            yield self._error(problem.message, problem.number, problem.hint)
        for name in self.exclude:
            if name not in form.fields:
                yield self._error(
                    f"exclude names {name!r}, which is not a field.", 129, "Remove it."
                )

    def _output_problems(self, find: Find) -> Iterator[CheckMessage]:
        """Find the resource of the row and the type of the result. Yield errors if that fails."""
        try:
            if self._model is not None and (self.update or self._saves):
                self._resource = find(self._model, None)
        except ImproperlyConfigured as error:
            hint = "Register a ModelResource, or write form_valid and return something else."
            yield self._error(str(error), 125, hint)
            return
        try:
            self._output = self._find_output(find)
        except ImproperlyConfigured as error:
            hint = (
                "Annotate form_valid with a type that has a JSON Schema, or remove the annotation."
            )
            yield self._error(str(error), 132, hint)

    def _find_output(self, find: Find) -> Output:
        if self.output_schema is None and self._saves:
            assert self._resource is not None
            return RowOutput(self._resource, written=True)
        returned = None if self._saves else self._returns()
        return output_of(returned, find, schema=self.output_schema)


class FormArguments(Arguments):
    """The arguments of a ``FormTool``: the form's fields and the row's key, bound to one form."""

    def __init__(self, tool: FormTool) -> None:
        super().__init__(schema=_schema(tool), handwritten=True)
        self._tool = tool

    def read(self, given: Mapping[str, Any], mirrored: Mirrored | None = None) -> dict[str, Any]:
        self._check_headers(given, mirrored)
        refuse_unknown(given, self.schema["properties"])
        if self._tool.update and self._tool._row_argument not in given:
            raise InvalidArguments(f"{self._tool._row_argument}: this argument is required.")
        return {"given": dict(given)}

    @property
    def binds(self) -> bool:
        return True

    def bind(self, values: dict[str, Any], request: Request, *, write: bool) -> dict[str, Any]:
        return {"form": self._tool._bound_form(request, values["given"])}


def _schema(tool: FormTool) -> JSON:
    schema = tool._input.schema
    if not tool.update:
        return schema
    assert tool._resource is not None
    named = {tool._row_argument: tool._resource._key_schema()}
    return schema | {"properties": named | schema["properties"], "required": [tool._row_argument]}


def _changed_fields(row: Model, form: BaseModelForm[Any]) -> list[str]:
    options = row._meta
    known = {field.name for field in (*options.fields, *options.many_to_many)}
    return [name for name in form.changed_data if name in known]


# Checks.


def class_problems(tool: FormTool) -> Iterator[CheckMessage]:
    """Yield what is wrong with the class before its form is built."""
    if tool.input_schema is not None:
        message = "input_schema has no effect, because the form is the schema."
        yield tool._error(message, 130, "Remove input_schema. To leave out fields, use exclude.")
    for name in SYNCHRONOUS_HOOKS:
        if iscoroutinefunction(getattr(tool, name)):
            hint = "Write def. Forms are made in a thread, where they may query the database."
            yield tool._error(f"{name} is asynchronous, but it is called synchronously.", 131, hint)
    if wrong := _no_form(tool.form_class):
        hint = "Write @mcp.register(ContactForm). For a formset, register the form of one row."
        yield tool._error(wrong, 120, hint)
    elif tool._saves and tool._model is None:
        hint = "Write form_valid(self, request, form)."
        message = "The form is not a ModelForm, and there is no form_valid: the tool does nothing."
        yield tool._error(message, 127, hint)
    elif tool.update:
        yield from _update_problems(tool)
    elif tool._saves and tool.read_only:
        hint = "Remove read_only, or override form_valid with code that does not write."
        yield tool._error("The tool is read_only, but it saves a ModelForm.", 133, hint)


def _no_form(form: Any) -> str | None:
    if not inspect.isclass(form) or not issubclass(form, BaseForm | BaseFormSet):
        return f"{form!r} is not a form class."
    return f"{form.__name__} is a formset." if issubclass(form, BaseFormSet) else None


def _update_problems(tool: FormTool) -> Iterator[CheckMessage]:
    if tool._model is None:
        message = f"update needs a ModelForm, but {tool.form_class!r} is not one."
        yield tool._error(message, 128, "Use a ModelForm, or remove update.")
    if tool.atomic is False or tool.read_only or tool._is_async:
        hint = "Remove read_only and atomic = False, and write def form_valid."
        yield tool._error("update needs a transaction, but the tool runs in none.", 126, hint)
