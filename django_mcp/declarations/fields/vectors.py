"""Vector search: the rows whose vectors are nearest to a vector, by pgvector on PostgreSQL.

The search is exact and compares the vectors of all rows of the queryset. It does not use the
approximate indexes of pgvector (HNSW, IVFFlat). PostgreSQL reads the nearest rows from such an
index first and applies the conditions of the queryset to these rows only. If most of them are
hidden from the user, the result has too few rows, and their number tells the user how similar the
hidden rows are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db import models
from django.db.models import Value
from django.utils.module_loading import import_string

M = TypeVar("M", bound=models.Model)

SIMILAR_TO = "similar_to"  # the argument that names a row
DISTANCES = {
    "cosine": "pgvector.django.CosineDistance",
    "l2": "pgvector.django.L2Distance",
    "inner_product": "pgvector.django.MaxInnerProduct",
}


@dataclass(frozen=True)
class VectorSearch:
    """How clients find the rows of a model resource that are similar to a text or to another row.

    ``field`` is a pgvector ``VectorField`` of the model. ``embed`` takes a text of the client and
    returns its vector, made by the same embedding model as the vectors of the rows. Without it,
    clients can only find rows that are similar to another row. ``distance`` is "cosine", "l2" or
    "inner_product".
    """

    field: str
    embed: Callable[[str], Sequence[float]] | None = None
    distance: str = "cosine"

    def nearest(self, queryset: models.QuerySet[M], vector: Sequence[float]) -> models.QuerySet[M]:
        """Return the rows of ``queryset`` that have a vector, the nearest first."""
        distance = import_string(DISTANCES[self.distance])(
            self.field, [float(number) for number in vector]
        )
        # PostgreSQL uses an index only for the distance itself, and not for a sum.
        exact = distance + Value(0.0)
        return queryset.filter(**{f"{self.field}__isnull": False}).order_by(exact, "pk")


def takes_one_text(function: Any) -> bool:
    """Whether ``function`` can be called with one argument, and returns no coroutine."""
    try:
        inspect.signature(function).bind("")
    except (TypeError, ValueError):
        return False
    return not inspect.iscoroutinefunction(function)
