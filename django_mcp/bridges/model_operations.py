"""The tools that create, update and delete rows: ``ModelResource.operations``.

Only fields that the resource shows and that are editable can be written. A caller needs the
permission to view rows and the permission for the operation, and must see the row before and after.
The row, its many-to-many links and the log entry are saved in one transaction.

Other bridges write rows with the same functions. ``locked_row`` finds and locks the row,
``validate_row`` validates it, and ``visible_row`` checks the saved row. ``translate_errors`` makes
error messages that name only fields which the caller can see. It logs messages of the database and
does not return them.

``log_action`` writes an entry of ``django.contrib.admin`` in the same transaction. The entry names
the changed fields and contains no values. Without the admin or without a user it writes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.checks import CheckMessage
from django.core.exceptions import (
    NON_FIELD_ERRORS,
    ImproperlyConfigured,
    PermissionDenied,
    ValidationError,
)
from django.db import DataError, IntegrityError, connections, models, router
from django.db.models import Model
from django.db.models.deletion import Collector, ProtectedError, RestrictedError
from django.utils.text import capfirst
from django.utils.translation import override

from ..declarations import permissions
from ..declarations.arguments import Arguments, row_not_found
from ..declarations.outputs import Output, RowOutput
from ..declarations.permissions import MODEL_PERMISSIONS, Decision
from ..declarations.schemas import object_schema
from ..declarations.tools import Tool
from ..exceptions import InvalidArguments, ToolError
from .model_arguments import UNCHANGED, FieldArgument, field_arguments

if TYPE_CHECKING:
    from ..declarations.declaration import Declaration, Find
    from ..declarations.model_resources import ModelResource
    from ..declarations.request import Request

# The values of django.contrib.admin.models, which cannot be imported if the admin is not installed.
ADDITION, CHANGE, DELETION = 1, 2, 3
ADDED: list[Any] = [{"added": {}}]

JSON = dict[str, Any]
# What the protocol says of a tool without annotations.
DEFAULT_HINTS = {
    ("readOnlyHint", False), ("destructiveHint", True), ("idempotentHint", False),
    ("openWorldHint", True),
}  # fmt: skip


def change_message(model: type[Model], names: Iterable[str]) -> list[Any]:
    """Return the log message of a change.

    It has the labels of the fields, untranslated, as the admin stores them.
    """
    with override(None):
        labels = [_label(model._meta.get_field(name)) for name in names]
    return [{"changed": {"fields": labels}}]


def _label(field: Any) -> str:
    return str(capfirst(getattr(field, "verbose_name", field.name)))


def log_action(request: Request, row: Model, flag: int, message: list[Any] | str = "") -> None:
    """Write an entry to the admin's log: ``request``'s user did this to ``row``.

    Call it before the row is deleted, because afterwards the row has no primary key.
    """
    user = request.user
    if user.pk is None or not isinstance(user, get_user_model()):
        return
    if not apps.is_installed("django.contrib.admin"):
        return
    # Import it here: a model cannot be imported if its app is not installed.
    from django.contrib.admin.models import LogEntry

    LogEntry.objects.log_actions(user.pk, [row], flag, message, single_object=True)


logger = logging.getLogger("django_mcp.calls")
HIDDEN_FIELD_INVALID = "Something that is not shown here would not be valid."
DUPLICATE = re.compile(r"Duplicate entry '.*'(?= for key )")
CONFLICT = "Nothing was saved: it would be in conflict with other data."


def locked_row(resource: ModelResource, request: Request, name: Any, verb: str) -> Any:
    """Return the row with the key or URI ``name`` if the caller may see and ``verb`` it.

    The row is locked until the transaction ends, if the database supports it. A missing, hidden or
    forbidden row raises the same ``InvalidArguments`` after the same queries, so that neither the
    error nor its timing tells which rows exist.
    """
    using = router.db_for_write(resource.model)
    absent = row_not_found(resource, name, f" that you may {verb}")
    try:
        key = resource._key(name)
    except ValueError:
        raise absent from None
    found = resource.get_queryset(request).using(using).filter(**{resource._lookup: key})
    if connections[using].features.has_select_for_update:
        # The lock is taken by a separate query: select_for_update() fails with parts that the
        # project's queryset may have, such as outer joins or GROUP BY.
        unfiltered: models.QuerySet[Any] = models.QuerySet(resource.model, using=using)
        rows = unfiltered.filter(pk__in=found.values("pk"))
        list(rows.select_for_update())
    for row in found[:1]:
        if resource._permits(request, row, "view", verb):
            return row
    raise absent


def visible_row(resource: ModelResource, request: Request, row: Any, verb: str) -> Any:
    """Return the saved row as the caller sees it. Raise ``PermissionDenied`` if they cannot."""
    # Query again: a caller must not move a row out of their own queryset, such as to another owner.
    rows = resource.get_queryset(request).using(row._state.db).filter(pk=row.pk)
    for one in resource._selected(rows, request)[:1]:
        if resource._permits(request, one, "view", verb):
            return one
    raise PermissionDenied(f"You may not {verb} the {resource._verbose_name} like this.")


def validate_row(row: models.Model, written: Collection[str]) -> None:
    """Validate the ``written`` fields and the row as a whole. Raise ``ValidationError``.

    A ``ModelForm`` skips constraints that name a field it does not have. Here all fields have
    values, so all constraints are checked. Otherwise the database would refuse them without a
    usable message.
    """
    not_written = {field.name for field in row._meta.fields if field.name not in written}
    row.full_clean(exclude=not_written, validate_unique=False, validate_constraints=False)
    row.validate_unique()
    row.validate_constraints()


@contextmanager
def translate_errors(resource: ModelResource) -> Iterator[None]:
    """Translate errors of saving into errors that reveal nothing the caller cannot see."""
    try:
        yield
    except ValidationError as error:
        raise _without_hidden_fields(error, resource) from None
    except (ProtectedError, RestrictedError):
        raise deletion_blocked_error(resource) from None
    except (IntegrityError, DataError) as error:
        raise conflict_error(error, resource) from None


def conflict_error(error: Exception, saved_by: object) -> ToolError:
    """Log why the database did not save a row, and return an error that hides the reason."""
    # Only the first line is logged: PostgreSQL's next lines may show the whole row. MySQL
    # quotes the duplicate value, so it is removed.
    reason = DUPLICATE.sub("a duplicate", str(error).partition("\n")[0])
    logger.warning("Row not saved: resource=%s reason=%s", saved_by, reason)
    return ToolError(CONFLICT)


def _without_hidden_fields(error: ValidationError, resource: ModelResource) -> ValidationError:
    if not hasattr(error, "error_dict"):
        return error
    visible = {*resource.fields, NON_FIELD_ERRORS}
    found: dict[str, Any] = {n: wrong for n, wrong in error.error_dict.items() if n in visible}
    if len(found) < len(error.error_dict):
        # The message of a hidden field may quote its value. Say only that there is an error.
        found[NON_FIELD_ERRORS] = [*found.get(NON_FIELD_ERRORS, ()), HIDDEN_FIELD_INVALID]
    return ValidationError(found)


def check_cascade(resource: ModelResource, request: Request, row: Any) -> None:
    """Raise ``ToolError`` if the row is protected, or if its cascade deletes forbidden rows."""
    collector = Collector(using=row._state.db, origin=row)
    collector.collect([row])
    own = {type(row), *type(row)._meta.all_parents}

    def is_forbidden(model: type[models.Model]) -> bool:
        return not (model._meta.auto_created or resource.has_cascade_permission(request, model))

    # Of the row's own model, only the row itself is expected. More than one means that the cascade
    # deletes other rows of this model, which needs permission too.
    loaded = (model for model, rows in collector.data.items() if model not in own or len(rows) > 1)
    # Django deletes these with one query and without loading them, so their number is not known.
    unloaded = (rows for rows in collector.fast_deletes if is_forbidden(rows.model))
    if any(map(is_forbidden, loaded)) or any(rows.exists() for rows in unloaded):
        raise deletion_blocked_error(resource)


def deletion_blocked_error(resource: ModelResource) -> ToolError:
    # Do not name the dependent rows or their model: the caller may not see them.
    return ToolError(f"This {resource._verbose_name} cannot be deleted: other rows depend on it.")


def operations_of(resource: ModelResource) -> Iterator[Tool]:
    """Yield the tools for ``resource.operations``."""
    yield from (OPERATIONS[name](resource) for name in resource.operations)


class Operation(Tool):
    """Base of the tools that write one row of a model resource."""

    _row_operation = ""
    _description_template = ""
    read_only = False
    open_world = False
    _field_arguments: Mapping[str, FieldArgument]

    def __init__(self, resource: ModelResource) -> None:
        self._resource = resource
        name = resource._verbose_name
        self.name = f"{self._row_operation}_{resource.name}"
        self.title = str(capfirst(f"{self._row_operation} {name}"))
        self.description = self._description_template.format(name)
        self.permission = resource._operation_permission(self._row_operation)
        self.icons = resource.icons
        self.atomic = router.db_for_write(resource.model)

    def _definition(self) -> JSON:
        """Return the definition, without defaults and a title that only repeats the name.

        A language model reads the definition in every list, so each word costs tokens.
        """
        shown = super()._definition()
        hints = shown["annotations"].items()
        shown["annotations"] = dict(hint for hint in hints if hint not in DEFAULT_HINTS)
        if shown["title"].casefold() == self.name.replace("_", " ").casefold():
            del shown["title"]
        return shown

    @property
    def _verb(self) -> str:
        """Django's verb for the operation: "add", "change" or "delete"."""
        return MODEL_PERMISSIONS[self._row_operation]

    def _origin(self) -> str:
        return self._resource._origin()

    @property
    def _source(self) -> Any:
        return self._resource._source

    @cached_property
    def _owner(self) -> Declaration:
        return self._resource

    # Permissions.

    def _decide_declared(self, request: Request) -> Decision:
        """Decide whether the caller may view rows and perform the operation."""
        resource = self._resource
        viewing = resource._decide(request)
        if not viewing.allowed:
            return viewing
        if not self._method:
            return resource._decide_operation(request, self._row_operation)
        answer = resource.has_operation_permission(request, self._row_operation)
        return permissions.decided_by(self._method, answer)

    @property
    def _is_public(self) -> bool:
        return False

    @property
    def _decides_without_database(self) -> bool:
        return False

    @property
    def _rule(self) -> str:
        own = self._method or permissions.rule(self.permission)
        return permissions.both(self._resource._rule, own)

    @property
    def _method(self) -> str:
        """The name of the project's ``has_operation_permission``, or "" if it is not overridden."""
        name = "has_operation_permission"
        return (
            permissions.method_of(self._resource, name) if self._resource._overrides(name) else ""
        )

    @property
    def _depends_on(self) -> Iterable[Declaration]:
        return (self._resource, *super()._depends_on)

    # Resolution.

    def _resolve(self, find: Find) -> Iterator[CheckMessage]:
        try:
            self._set_arguments(find)
        except ImproperlyConfigured as error:
            hint = "Register the model, or name the field in readonly_fields."
            yield self._error(f"{self.name}: {error}", 139, hint)
            return
        yield from self._field_problems()
        yield from self._common_problems()

    def _set_arguments(self, find: Find) -> None:
        new = self._row_operation == "create"
        writes = self._row_operation != "delete"
        found = field_arguments(self._resource, find, new=new) if writes else []
        self._field_arguments = {each.name: each for each in found}
        parameters = {name: each.parameter for name, each in self._field_arguments.items()}
        self._arguments = Arguments(parameters, self._schema(), handwritten=True)
        self._output = RowOutput(self._resource, written=True)

    def _field_problems(self) -> Iterator[CheckMessage]:
        if not self._field_arguments:
            hint = "Name fields of the model that are editable and not in readonly_fields."
            yield self._error(f"{self.name}: nothing in fields can be written.", 140, hint)

    def _schema(self) -> JSON:
        """The JSON Schema of the arguments."""
        raise NotImplementedError

    # Execution.

    def _read(self, given: Mapping[str, Any]) -> dict[FieldArgument, Any]:
        """Return the values of the fields. Raise ``InvalidArguments`` with all errors."""
        found, wrong = {}, []
        for name, value in given.items():
            try:
                found[self._field_arguments[name]] = self._field_arguments[name].read(value)
            except (ValueError, ValidationError) as error:
                words = error.messages if isinstance(error, ValidationError) else [str(error)]
                wrong.append(f"{name}: {' '.join(words)}")
        if wrong:
            raise InvalidArguments("Invalid arguments. " + " ".join(wrong))
        return found

    def _save(
        self, request: Request, row: Any, values: dict[FieldArgument, Any], *, new: bool
    ) -> Any:
        """Write ``values``, validate and save the row, and return it as the caller sees it."""
        for each, value in values.items():
            each.write(row, value)
        try:
            with translate_errors(self._resource):
                validate_row(row, {each.field.name for each in self._field_arguments.values()})
                self._resource.save_model(request, row, new)
                for each, value in values.items():
                    each.finish(row, value)
            return visible_row(self._resource, request, row, self._verb)
        except BaseException:
            for each in values:
                each.undo(row)
            raise


class CreateTool(Operation):
    """Create a row of a model resource."""

    _row_operation = "create"
    _description_template = "Create one new {}."
    destructive = False
    idempotent = False

    def handle(self, /, *args: Any, **given: Any) -> Any:
        (request,) = args  # positional, because a field may be named "request"
        values = self._read(given)
        row = self._resource.model(**self._resource.get_initial(request))
        made = self._save(request, row, values, new=True)
        log_action(request, row, ADDITION, ADDED)
        return made

    def _schema(self) -> JSON:
        properties = {
            name: each.schema() | each.default() for name, each in self._field_arguments.items()
        }
        return object_schema(
            properties, [n for n, each in self._field_arguments.items() if each.required]
        )

    def _field_problems(self) -> Iterator[CheckMessage]:
        yield from super()._field_problems()
        resource = self._resource
        if resource._overrides("get_initial") or resource._overrides("save_model"):
            return
        written = {each.field for each in self._field_arguments.values()}
        for field in resource.model._meta.fields:
            if field not in written and is_needed(field):
                hint = "Add it to fields, give it a default, or write get_initial(self, request)."
                yield self._error(f"{self.name} gives {field.name!r} no value.", 141, hint)


def is_needed(field: Any) -> bool:
    """Whether a new row needs a value for the field that no default gives."""
    unset = FieldArgument(field.name, field).required and not field.null
    return bool(unset and field.editable and not field.auto_created)


class RowOperation(Operation):
    """Base of operations on an existing row, which the first argument names."""

    @property
    def _row_argument(self) -> str:
        """The name of the argument that takes the row.

        It is the resource's name, or "_uri" if a field of the row has that name.
        """
        return "_uri" if self._resource.name in self._field_arguments else self._resource.name

    def _schema(self) -> JSON:
        names = {self._row_argument: self._resource._key_schema()}
        fields = {name: each.schema() for name, each in self._field_arguments.items()}
        return object_schema(names | fields, [self._row_argument])


class UpdateTool(RowOperation):
    """Change fields of a row of a model resource."""

    _row_operation = "update"
    _description_template = "Change one {}: the fields that are given, and no others."
    destructive = True
    idempotent = True

    def handle(self, /, *args: Any, **given: Any) -> Any:
        (request,) = args
        name = given.pop(self._row_argument)
        read = self._read(given)
        row = locked_row(self._resource, request, name, self._verb)
        changes = {each: each.changed_value(request, row, value) for each, value in read.items()}
        values = {each: value for each, value in changes.items() if value is not UNCHANGED}
        if not values:
            return visible_row(self._resource, request, row, self._verb)
        made = self._save(request, row, values, new=False)
        names = [each.field.name for each in values]
        log_action(request, row, CHANGE, change_message(self._resource.model, names))
        return made


class DeleteTool(RowOperation):
    """Delete a row of a model resource."""

    _row_operation = "delete"
    _description_template = "Delete one {}."
    destructive = True
    idempotent = True

    def handle(self, /, *args: Any, **given: Any) -> Any:
        (request,) = args
        resource = self._resource
        row = locked_row(resource, request, given[self._row_argument], self._verb)
        result = {
            "_uri": resource._uri_of(row),
            "message": f"The {resource._verbose_name} is deleted.",
        }
        with translate_errors(resource):
            check_cascade(resource, request, row)
            log_action(request, row, DELETION)
            resource.delete_model(request, row)
        return result

    def _set_arguments(self, find: Find) -> None:
        super()._set_arguments(find)
        self._output = Output()

    def _field_problems(self) -> Iterator[CheckMessage]:
        yield from ()


OPERATIONS: Mapping[str, type[Operation]] = {
    kind._row_operation: kind for kind in (CreateTool, UpdateTool, DeleteTool)
}
