"""Column types: how the values of each type of column are written as JSON and read back.

``COLUMN_TYPES`` is the table of types, by the name that ``Field.get_internal_type()`` returns. For
every value that Django can store, ``decode(encode(value)) == value``. ``decode`` raises
``ValueError`` for everything else. A field whose column type is not in the table cannot be a key, a
filter or part of an ordering.
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
# The range of a bigint column. PostgreSQL raises an error for a parameter outside of it.
MIN_INTEGER, MAX_INTEGER = -(2**63), 2**63 - 1
MAX_DECIMAL_LENGTH = 100  # characters
# Patterns of JSON strings. A decimal argument must be finite, a stored one may be NaN.
DECIMAL_ARGUMENT_PATTERN = r"^-?[0-9]+(\.[0-9]+)?$"
DECIMAL_PATTERN = r"^-?([0-9]+(\.[0-9]+)?|NaN|Infinity)$"
TIME_PATTERN = r"^[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?$"
DURATION_PATTERN = r"^-?P[0-9]+DT[0-9]{2}H[0-9]{2}M[0-9]{2}(\.[0-9]{6})?S$"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One type of column.

    ``label`` describes it in error messages, ``python`` is the class of its values, and ``make``
    returns a plain Django field that stores it. ``schema`` is the JSON Schema of what ``encode``
    returns. ``ranges`` are the lookups that a client may filter by, apart from equality.
    """

    label: str
    python: type[Any]
    make: Callable[[], AnyField]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    schema: JSON
    ranges: tuple[str, ...] = ()

    def read(self, value: Any) -> Any:
        """Return the value that the JSON ``value`` stands for.

        Raise ``ValueError``, with a message that a language model can act on.
        """
        try:
            return self.decode(value)
        except (ValueError, TypeError, OverflowError, InvalidOperation) as error:
            raise ValueError(f"{str(value)[:80]!r} is not {self.label}.") from error


def require_type(value: Any, *kinds: type) -> Any:
    """Return ``value`` if its type is exactly one of ``kinds``, so that True is not an integer.

    Raise ``ValueError`` otherwise.
    """
    if type(value) not in kinds:
        raise ValueError(f"expected {kinds}")
    return value


def _integer(value: Any) -> int:
    number: int = require_type(value, int)
    if not MIN_INTEGER <= number <= MAX_INTEGER:
        raise ValueError("out of range")
    return number


def _text(value: Any) -> str:
    text: str = require_type(value, str)
    text.encode()  # raises for a lone surrogate, which databases reject
    return text


def _address(value: Any) -> str:
    ipaddress.ip_address(require_type(value, str))
    return _text(value)


def _from_float(value: float) -> float | str:
    # JSON has no NaN and no infinities, but PostgreSQL can store them.
    return value if math.isfinite(value) else repr(float(value))


def _float(value: Any) -> float:
    if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
        raise ValueError("not a number")
    return float(require_type(value, int, float, str))


def _decimal(value: Any) -> Decimal:
    number = Decimal(str(require_type(value, str, int, float)))
    # Check the exponent first: "1e999999999" would make a very long string in format().
    if not number.is_finite() or abs(number.adjusted()) > MAX_DECIMAL_LENGTH:
        raise ValueError("out of range")
    if len(format(number, "f")) > MAX_DECIMAL_LENGTH:
        raise ValueError("too long")
    return number


def as_number(value: Decimal) -> int | float:
    """Return a decimal as a JSON number, for example for a limit in a schema."""
    return int(value) if value == value.to_integral_value() else float(value)


def from_datetime(value: datetime) -> str:
    """Return ISO 8601 in UTC with an offset. A naive value is in the current time zone."""
    try:
        aware = value if timezone.is_aware(value) else timezone.make_aware(value)
        return aware.astimezone(UTC).isoformat()
    except OverflowError:  # within hours of `datetime.min` or `datetime.max`
        return value.replace(tzinfo=UTC).isoformat()


def _datetime(value: Any) -> datetime:
    moment = datetime.fromisoformat(require_type(value, str))
    aware = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
    return aware.astimezone(UTC) if settings.USE_TZ else timezone.make_naive(aware)


def _time(value: Any) -> time:
    clock = time.fromisoformat(require_type(value, str))
    if clock.tzinfo is not None:
        raise ValueError("a time of day has no UTC offset")
    return clock


def _duration(value: Any) -> timedelta:
    duration = parse_duration(require_type(value, str))
    if duration is None:
        raise ValueError("not a duration")
    return duration


def _boolean(value: Any) -> bool:
    return bool(require_type(value, bool))


def _date(value: Any) -> date:
    return date.fromisoformat(require_type(value, str))


def _uuid(value: Any) -> uuid.UUID:
    return uuid.UUID(require_type(value, str))


_RANGE_LOOKUPS = ("gte", "lte")
_INTEGER = ColumnType(
    "an integer", int, models.BigIntegerField, int, _integer, {"type": "integer"}, _RANGE_LOOKUPS
)
_STRING = ColumnType("a string", str, models.TextField, str, _text, {"type": "string"})
COLUMN_TYPES: dict[str, ColumnType] = {
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
        "a number",
        float,
        models.FloatField,
        _from_float,
        _float,
        {"type": "number"},
        _RANGE_LOOKUPS,
    ),
    "DecimalField": ColumnType(
        "a decimal number",
        Decimal,
        models.DecimalField,
        lambda value: format(value, "f"),
        _decimal,
        {"type": "string", "pattern": DECIMAL_PATTERN},
        _RANGE_LOOKUPS,
    ),
    "DateField": ColumnType(
        "a date (YYYY-MM-DD)",
        date,
        models.DateField,
        date.isoformat,
        _date,
        {"type": "string", "format": "date"},
        _RANGE_LOOKUPS,
    ),
    "DateTimeField": ColumnType(
        "a date and time (ISO 8601)",
        datetime,
        models.DateTimeField,
        from_datetime,
        _datetime,
        {"type": "string", "format": "date-time"},
        ("gte", "lt"),  # "before midnight" is easier to say than "at most 23:59:59.999999"
    ),
    "TimeField": ColumnType(
        "a time of day (HH:MM:SS)",
        time,
        models.TimeField,
        lambda value: value.replace(tzinfo=None).isoformat(),
        _time,
        {"type": "string", "pattern": TIME_PATTERN},
        _RANGE_LOOKUPS,
    ),
    "DurationField": ColumnType(
        "a duration (ISO 8601)",
        timedelta,
        models.DurationField,
        duration_iso_string,
        _duration,
        {"type": "string", "pattern": DURATION_PATTERN},
        _RANGE_LOOKUPS,
    ),
    "UUIDField": ColumnType(
        "a UUID", uuid.UUID, models.UUIDField, str, _uuid, {"type": "string", "format": "uuid"}
    ),
}


def stored_field(field: AnyField) -> AnyField:
    """Return the field whose values the column of ``field`` holds.

    For a foreign key this is the field it points to, followed until it is not a foreign key. For a
    generated field it is its ``output_field``.
    """
    while isinstance(field, models.ForeignKey):
        field = field.target_field
    if isinstance(field, models.GeneratedField):
        output: AnyField = field.output_field  # type: ignore[assignment]
        return output
    return field


# Most fields accept at least one of these values.
_SAMPLE_VALUES = ("1", 1, date(2000, 1, 1), datetime(2000, 1, 1, tzinfo=UTC))


def is_stable(field: AnyField) -> bool:
    """Whether equal values of ``field`` are stored as equal values in the database.

    Fields of packages that encrypt are not stable: they store the same value differently each time,
    so a filter never finds it.
    """
    if type(field).__module__.startswith("django."):  # Django's own fields are known to be stable
        return True
    return not any(_is_changing(field, sample) for sample in _SAMPLE_VALUES)


def _is_changing(field: AnyField, sample: Any) -> bool:
    try:
        return bool(field.get_prep_value(sample) != field.get_prep_value(sample))
    except Exception:  # the field rejects this sample
        return False


def unstable_message(name: str) -> str:
    """Return the message for developers that a field which is not stable cannot be queried."""
    return (
        f"{name!r} cannot be queried: its field stores equal values differently each time, "
        "as encrypted fields do."
    )


def column_type(field: AnyField) -> ColumnType | None:
    """Return the column type of ``field``, or None if it is not in the table."""
    return COLUMN_TYPES.get(stored_field(field).get_internal_type())
