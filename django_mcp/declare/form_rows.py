"""
The rows that a form offers: those of its own queryset that its user may see.

Rule: where a model is registered, no row is offered that no resource of it
would show to this user. A model that is not registered is shown by nobody else:
there the form's own queryset says who may choose what.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from django import forms
from django.db.models import Q, QuerySet

if TYPE_CHECKING:
    from .model_resources import ModelResource
    from .requests import Request

MOST_ROWS = 200  # that one question offers


def narrow(form: forms.BaseForm, request: Request) -> None:
    """Let ``form`` offer only rows that ``request``'s user may see."""
    for field in form.fields.values():
        if isinstance(field, forms.ModelChoiceField) and field.queryset is not None:
            field.queryset = _seen(field.queryset, request)


def _seen(offered: QuerySet[Any], request: Request) -> QuerySet[Any]:
    exposing = request.server.catalog.models.get(offered.model)
    if exposing is None:
        return offered
    admitted = [resource for resource in exposing if resource.admits(request)]
    visible = Q(pk__in=[])
    for resource in admitted:
        visible |= Q(pk__in=resource.get_queryset(request).values("pk"))
    rows = offered.filter(visible)
    if all(resource.gate(request) is None for resource in admitted):
        return rows
    return offered.filter(pk__in=_permitted(rows, admitted, request))


def _permitted(rows: QuerySet[Any], admitted: list[ModelResource], request: Request) -> list[Any]:
    """The keys of rows on which the user has object permission; no more than can be offered."""
    allowed = (row.pk for row in rows if any(one.permits(request, row, "view") for one in admitted))
    return list(islice(allowed, MOST_ROWS + 1))
