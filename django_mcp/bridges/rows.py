"""
Lock, validate and save the rows that write tools change, and log it in the admin.

A tool writes a row only if the caller may see the row before and after the change. ``locked_row``
finds and locks the row, ``validate_row`` validates it, and ``visible_row`` checks the saved row.
``translate_errors`` makes error messages that name only fields which the caller can see. It logs
messages of the database and does not return them.

``log_action`` writes an entry of ``django.contrib.admin`` in the same transaction. The entry names
the changed fields and contains no values. Without the admin or without a user it writes nothing.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied, ValidationError
from django.db import DataError, IntegrityError, connections, models, router
from django.db.models import Model
from django.db.models.deletion import Collector, ProtectedError, RestrictedError
from django.utils.text import capfirst
from django.utils.translation import override

from ..declarations.arguments import row_not_found
from ..exceptions import ToolError

if TYPE_CHECKING:
    from ..declarations.model_resources import ModelResource
    from ..declarations.request import Request

# The values of django.contrib.admin.models, which cannot be imported if the admin is not installed.
ADDITION, CHANGE, DELETION = 1, 2, 3
ADDED: list[Any] = [{"added": {}}]


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
        every: models.QuerySet[Any] = models.QuerySet(resource.model, using=using)
        rows = every.filter(pk__in=found.values("pk"))
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
    """Log why the database did not save a row, and return an error that does not tell."""
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
    """Raise ``ToolError`` if the row is protected or its cascade deletes rows it may not."""
    collector = Collector(using=row._state.db, origin=row)
    collector.collect([row])
    own = {type(row), *type(row)._meta.all_parents}

    def is_forbidden(model: type[models.Model]) -> bool:
        return not (model._meta.auto_created or resource.has_cascade_permission(request, model))

    # Of the row's own model, only the row itself is expected. More than one means that the cascade
    # deletes other rows of this model, which needs permission too.
    loaded = (model for model, rows in collector.data.items() if model not in own or len(rows) > 1)
    # Django deletes these with one query and without loading them, so their number is not known.
    unloaded = (
        rows for rows in collector.fast_deletes if is_forbidden(rows.model) and rows.exists()
    )
    if any(map(is_forbidden, loaded)) or any(unloaded):
        raise deletion_blocked_error(resource)


def deletion_blocked_error(resource: ModelResource) -> ToolError:
    # Do not name the dependent rows or their model: the caller may not see them.
    return ToolError(f"This {resource._verbose_name} cannot be deleted: other rows depend on it.")
