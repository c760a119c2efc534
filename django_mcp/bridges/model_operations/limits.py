"""
The limits of a column, as a JSON Schema says them.

Rule: what is shown is what the model's own validators will refuse, which have the last word. What
a database happens to hold is no limit of the model, and is not shown.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.core.validators import (
    BaseValidator,
    MaxLengthValidator,
    MaxValueValidator,
    MinLengthValidator,
    MinValueValidator,
)
from django.db import models

from ...declare.rows.columns import JSON, as_number

NUMBERS = ("integer", "number")
# Which keyword says what a validator refuses; of several, the tightest counts.
KEYWORDS: tuple[tuple[type[BaseValidator], str, Any], ...] = (
    (MinLengthValidator, "minLength", max),
    (MaxLengthValidator, "maxLength", min),
    (MinValueValidator, "minimum", max),
    (MaxValueValidator, "maximum", min),
)


def limits(field: Any, kinds: str | list[str]) -> JSON:
    """The keywords that bound a value of ``field``, which has one of the types ``kinds``."""
    numeric = not {*NUMBERS}.isdisjoint([kinds] if isinstance(kinds, str) else kinds)
    texts = field.empty_strings_allowed and not numeric
    found: JSON = {"minLength": 1} if texts and not field.blank else {}
    if field.get_internal_type().startswith("Positive"):
        found["minimum"] = 0
    for validator in _validators(field):
        for kind, keyword, tightest in KEYWORDS:
            limit = getattr(validator, "limit_value", None)
            if isinstance(validator, kind) and _fits(keyword, limit, numeric):
                found[keyword] = tightest(found.get(keyword, _json(limit)), _json(limit))
    return found


def _validators(field: Any) -> list[Any]:
    """Its own: an integer's would end with those of its column in this database."""
    if isinstance(field, models.IntegerField):
        return [*field.default_validators, *field._validators]  # type: ignore[attr-defined]
    return list(field.validators)


def _fits(keyword: str, limit: Any, numeric: bool) -> bool:
    """Whether it is a limit of numbers for a number, or of lengths for a text; not of dates."""
    number = isinstance(limit, int | float | Decimal)
    return number and numeric == (not keyword.endswith("Length"))


def _json(limit: Any) -> Any:
    return as_number(limit) if isinstance(limit, Decimal) else limit
