"""
What a column holds as JSON, and how it is read back: one row of a table per type.

Rule: `decode(encode(value)) == value` for every value that Django can store, and
`decode` raises ValueError, in words, for everything else. A type that is not in
the table cannot be put in order, filtered by or be a key.
"""

from __future__ import annotations

import ipaddress
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, TypeAlias

from django.conf import settings
from django.db import models
from django.utils import timezone
from django.utils.dateparse import parse_duration
from django.utils.duration import duration_iso_string

JSON = dict[str, Any]
AnyField: TypeAlias = "models.Field[Any, Any]"
SMALLEST, LARGEST = -(2**63), 2**63 - 1
MAX_NUMBER_LENGTH = 100
FINITE = r"^-?[0-9]+(\.[0-9]+)?$"  # a decimal, as it is taken
DECIMAL = r"^-?([0-9]+(\.[0-9]+)?|NaN|Infinity)$"
TIME = r"^[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
DURATION = r"^-?P[0-9]+DT[0-9]{2}H[0-9]{2}M[0-9]{2}(\.[0-9]{6})?S$"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type of column.

    `word` names it to a person, `python` is the class of its values, `make` a plain field that
    stores it.
    """

    word: str
    python: type[Any]
    make: Callable[[], AnyField]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    schema: JSON
    ranges: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """What the JSON `value` means; raises ValueError with words that a model can act on."""
        try:
            return self.decode(value)
        except (ValueError, TypeError, OverflowError, InvalidOperation) as error:
            raise ValueError(f"{str(value)[:80]!r} is not {self.word}.") from error


def typed(value: Any, *kinds: type) -> Any:
    """`value` if it is exactly of one of `kinds` (so that True is no integer)."""
    if type(value) not in kinds:
        raise ValueError(f"expected {kinds}")
    return value


def _integer(value: Any) -> int:
    number: int = typed(value, int)
    if not SMALLEST <= number <= LARGEST:
        raise ValueError("out of range")
    return number


def _text(value: Any) -> str:
    text: str = typed(value, str)
    text.encode()  # a lone surrogate is no text
    return text


def _address(value: Any) -> str:
    ipaddress.ip_address(typed(value, str))
    return _text(value)


def _from_float(value: float) -> float | str:
    # JSON has no NaN and no infinities, some databases do.
    return value if math.isfinite(value) else repr(float(value))


def _float(value: Any) -> float:
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        raise ValueError("not a number")
    return float(typed(value, int, float, str))


def _decimal(value: Any) -> Decimal:
    number = Decimal(str(typed(value, str, int, float)))
    if not number.is_finite() or abs(number.adjusted()) > MAX_NUMBER_LENGTH:
        raise ValueError("out of range")
    if len(format(number, "f")) > MAX_NUMBER_LENGTH:
        raise ValueError("too long")
    return number


def as_number(value: Decimal) -> int | float:
    """A decimal as a number of JSON, such as a limit in a schema."""
    return int(value) if value == value.to_integral_value() else float(value)


def from_datetime(value: datetime) -> str:
    """ISO 8601 with an offset, in UTC; a naive value is taken to be in the current zone."""
    try:
        aware = value if timezone.is_aware(value) else timezone.make_aware(value)
        return aware.astimezone(UTC).isoformat()
    except OverflowError:  # the first and last hours that a datetime can tell
        return value.replace(tzinfo=UTC).isoformat()


def _datetime(value: Any) -> datetime:
    moment = datetime.fromisoformat(typed(value, str))
    aware = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    return aware.astimezone(UTC) if settings.USE_TZ else timezone.make_naive(aware)


def _time(value: Any) -> time:
    clock = time.fromisoformat(typed(value, str))
    if clock.tzinfo is not None:
        raise ValueError("a time of day has no offset")
    return clock


def _duration(value: Any) -> timedelta:
    duration = parse_duration(typed(value, str))
    if duration is None:
        raise ValueError("not a duration")
    return duration


def _boolean(value: Any) -> bool:
    return bool(typed(value, bool))


def _date(value: Any) -> date:
    return date.fromisoformat(typed(value, str))


def _uuid(value: Any) -> uuid.UUID:
    return uuid.UUID(typed(value, str))


_ENDS = ("gte", "lte")
_INTEGER = ColumnType(
    "an integer", int, models.BigIntegerField, int, _integer, {"type": "integer"}, _ENDS
)
_STRING = ColumnType("a string", str, models.TextField, str, _text, {"type": "string"})
KINDS: dict[str, ColumnType] = {
    **dict.fromkeys(["AutoField", "BigAutoField", "SmallAutoField"], _INTEGER),
    **dict.fromkeys(["IntegerField", "BigIntegerField", "SmallIntegerField"], _INTEGER),
    **dict.fromkeys(
        ["PositiveIntegerField", "PositiveBigIntegerField", "PositiveSmallIntegerField"], _INTEGER
    ),
    **dict.fromkeys(["CharField", "SlugField", "TextField"], _STRING),
    "GenericIPAddressField": ColumnType(
        "an IP address", str, models.GenericIPAddressField, str, _address, {"type": "string"}
    ),
    "BooleanField": ColumnType(
        "true or false", bool, models.BooleanField, bool, _boolean, {"type": "boolean"}
    ),
    "FloatField": ColumnType(
        "a number", float, models.FloatField, _from_float, _float, {"type": "number"}, _ENDS
    ),
    "DecimalField": ColumnType(
        "a decimal number",
        Decimal,
        models.DecimalField,
        lambda value: format(value, "f"),
        _decimal,
        {"type": "string", "pattern": DECIMAL},
        _ENDS,
    ),
    "DateField": ColumnType(
        "a date (YYYY-MM-DD)",
        date,
        models.DateField,
        date.isoformat,
        _date,
        {"type": "string", "format": "date"},
        _ENDS,
    ),
    "DateTimeField": ColumnType(
        "a date and time (ISO 8601)",
        datetime,
        models.DateTimeField,
        from_datetime,
        _datetime,
        {"type": "string", "format": "date-time"},
        ("gte", "lt"),
    ),
    "TimeField": ColumnType(
        "a time of day (HH:MM:SS)",
        time,
        models.TimeField,
        lambda value: value.replace(tzinfo=None).isoformat(),
        _time,
        {"type": "string", "pattern": TIME},
        _ENDS,
    ),
    "DurationField": ColumnType(
        "a duration (ISO 8601)",
        timedelta,
        models.DurationField,
        duration_iso_string,
        _duration,
        {"type": "string", "pattern": DURATION},
        _ENDS,
    ),
    "UUIDField": ColumnType(
        "a UUID", uuid.UUID, models.UUIDField, str, _uuid, {"type": "string", "format": "uuid"}
    ),
}


def stored_field(field: AnyField) -> AnyField:
    """The field whose values the column of `field` holds: what a foreign key points to, at last."""
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    return field


# Of most columns one of these is a value.
SAMPLES = ("1", 1, date(2000, 1, 1), datetime(2000, 1, 1, tzinfo=UTC))


def is_stable(field: AnyField) -> bool:
    """Whether equal values of `field` are equal in the database.

    An encrypted field stores the same value in another way each time, so that no query finds it.
    """
    if type(field).__module__.startswith("django."):
        return True
    return not any(_changes(field, sample) for sample in SAMPLES)


def _changes(field: AnyField, sample: Any) -> bool:
    try:
        return bool(field.get_prep_value(sample) != field.get_prep_value(sample))
    except Exception:  # the field takes other values
        return False


def unstable(name: str) -> str:
    """Why no query can use a field that is not stable, for the developer."""
    return f"{name!r} is stored in another way each time, as encrypted text is: no query finds it."


def kind_of(field: AnyField) -> ColumnType | None:
    """The row of the table for the column of `field`; None for a type that is not in it."""
    return KINDS.get(stored_field(field).get_internal_type())
