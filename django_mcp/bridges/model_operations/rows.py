"""
A row on its way into the database: found and held, valid, saved, and still within sight.

Rule: a row is written only if its caller may see it before and after. What is refused is told in
the words of the fields the caller sees, and what the database refuses in no words of the database.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.exceptions import NON_FIELD_ERRORS, PermissionDenied, ValidationError
from django.db import DataError, IntegrityError, connections, models, router
from django.db.models.deletion import Collector, ProtectedError, RestrictedError

from ...declare.bindings import missing
from ...exceptions import ToolError

if TYPE_CHECKING:
    from ...declare.model_resources import ModelResource
    from ...declare.requests import Request

logger = logging.getLogger("django_mcp")
HIDDEN = "Something that is not shown here would not be valid."
DUPLICATE = re.compile(r"Duplicate entry '.*'(?= for key )")
REFUSED = "Nothing was saved: it would be in conflict with other data."


def held(resource: ModelResource, request: Request, name: Any, verb: str) -> Any:
    """The row that ``name``, a key or URI, names, if ``request``'s user may ``verb`` it.

    It is locked until the transaction ends, where the database can. What is missing, hidden and
    forbidden raises the same ``InvalidArguments``, after the same queries.
    """
    using = router.db_for_write(resource.model)
    absent = missing(resource, name, f" that you may {verb}")
    try:
        key = resource.key(name)
    except ValueError:
        raise absent from None
    found = resource.get_queryset(request).using(using).filter(**{resource.lookup: key})
    if connections[using].features.has_select_for_update:
        # Apart from the project's own query, of which no part may be locked: joins, groups...
        every: models.QuerySet[Any] = models.QuerySet(resource.model, using=using)
        rows = every.filter(pk__in=found.values("pk"))
        list(rows.select_for_update())
    for row in found[:1]:
        if resource.permits(request, row, "view", verb):
            return row
    raise absent


def shown(resource: ModelResource, request: Request, row: Any, verb: str) -> Any:
    """The saved ``row`` as its caller sees it. Raises ``PermissionDenied`` where they do not."""
    rows = resource.get_queryset(request).using(row._state.db).filter(pk=row.pk)
    for one in resource.selected(rows)[:1]:
        if resource.permits(request, one, "view", verb):
            return one
    raise PermissionDenied(f"You may not {verb} the {resource.verbose_name} like this.")


def check(row: models.Model, written: Collection[str]) -> None:
    """Validate what was ``written``, and the row as a whole. Raises ``ValidationError``.

    A form leaves out whatever rule names a field that it does not have. Here all fields have their
    values, so that what the database would refuse is refused in words.
    """
    others = {field.name for field in row._meta.fields if field.name not in written}
    row.full_clean(exclude=others, validate_unique=False, validate_constraints=False)
    row.validate_unique()
    row.validate_constraints()


@contextmanager
def refusals(resource: ModelResource) -> Iterator[None]:
    """What goes wrong with a row, in words that tell nothing of what its caller does not see."""
    try:
        yield
    except ValidationError as error:
        raise _seen(error, resource) from None
    except (ProtectedError, RestrictedError):
        raise in_the_way(resource) from None
    except (IntegrityError, DataError) as error:
        # The rest of it may be the whole row, and MySQL says what was there twice.
        reason = DUPLICATE.sub("a duplicate", str(error).partition("\n")[0])
        logger.warning("%s was not saved: %s", resource, reason)
        raise ToolError(REFUSED) from None


def _seen(error: ValidationError, resource: ModelResource) -> ValidationError:
    if not hasattr(error, "error_dict"):
        return error
    told = {*resource.fields, NON_FIELD_ERRORS}
    found: dict[str, Any] = {n: wrong for n, wrong in error.error_dict.items() if n in told}
    if len(found) < len(error.error_dict):
        found[NON_FIELD_ERRORS] = [*found.get(NON_FIELD_ERRORS, ()), HIDDEN]
    return ValidationError(found)


def check_cascade(resource: ModelResource, request: Request, row: Any) -> None:
    """Raise ``ToolError`` if ``row`` is held by others, or takes along what may not be deleted."""
    collector = Collector(using=row._state.db, origin=row)
    collector.collect([row])
    own = {type(row), *type(row)._meta.all_parents}

    def refused(model: type[models.Model]) -> bool:
        return not (model._meta.auto_created or resource.has_cascade_permission(request, model))

    # Of the row's own kind there is one: the row. Others are others' as much as any.
    along = (model for model, rows in collector.data.items() if model not in own or len(rows) > 1)
    unseen = (rows for rows in collector.fast_deletes if refused(rows.model) and rows.exists())
    if any(map(refused, along)) or any(unseen):
        raise in_the_way(resource)


def in_the_way(resource: ModelResource) -> ToolError:
    return ToolError(f"This {resource.verbose_name} cannot be deleted: other rows depend on it.")
