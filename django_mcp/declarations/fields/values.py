"""Values of fields as JSON, their JSON Schema, and the field types that ``django_mcp`` registers.

The JSON that ``field_value`` returns fits ``field_schema``, whatever a row contains: Django does
not enforce choices, lengths and formats on save, so the schema does not either. File paths of the
server are never in it.
"""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import math
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models.fields.files import FieldFile
from django.utils.duration import duration_iso_string
from django.utils.functional import Promise
from django.utils.text import capfirst

from .columns import JSON, AnyField, column_type, from_datetime
from .field_types import FieldType, conversion, field_type, or_null, register_field_type

MakeURI = Callable[[str], str]  # takes the name of a file field
# With more choices, schema and description list none: models read them in every list of tools.
MAX_CHOICES = 200
# "Any JSON" with explicit types, because some clients reject a schema without a type.
ALL_JSON_TYPES = ["string", "number", "boolean", "object", "array", "null"]
FILE_VALUE_SCHEMA: JSON = {
    "type": ["object", "null"],
    "properties": {
        "name": {"type": "string", "description": "The file's name, without a folder."},
        "size": {"type": ["integer", "null"], "description": "Bytes. Null if it is missing."},
        "uri": {"type": "string", "description": "The resource to read the file from."},
    },
    "required": ["name", "size"],
    "additionalProperties": False,
}


def has_json_form(field: AnyField) -> bool:
    """Whether values of ``field`` can be written as JSON."""
    found = field_type(field)
    if isinstance(found, ArrayType):
        return has_json_form(found.base)
    return found is not None or column_type(field) is not None


def field_value(field: AnyField, value: Any) -> Any:
    """Return the JSON of ``value``, which is an instance's value of ``field``, saved or not.

    ``has_json_form(field)`` must be true.
    """
    if value is None:
        return None
    registered, stored, kind = conversion(field)
    if registered is not None:
        return plain_value(registered.to_json(value))
    assert kind is not None
    value = stored.to_python(value.value if isinstance(value, Enum) else value)
    if value is not None and not isinstance(value, kind.python):
        # Fields of packages convert the column to an object, such as a country or a time zone.
        # `get_prep_value` converts it back to what the column holds.
        value = kind.make().to_python(stored.get_prep_value(value))
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return kind.encode(_rounded(stored, value))


def field_schema(field: AnyField, nullable: bool) -> JSON:
    """Return the JSON Schema of ``field_value``, without title and description."""
    found, kind = field_type(field), column_type(field)
    if found is not None:
        return or_null(found.schema) if nullable else dict(found.schema)
    assert kind is not None
    schema = dict(kind.schema)
    if nullable or schema["type"] == "number":  # a float may be NaN
        schema["type"] = [schema["type"], "null"]
    return _with_choices(field, schema)


def read_value(field: AnyField, data: Any) -> Any:
    """Return the value that JSON stands for. Raise ``ValueError`` or ``ValidationError``."""
    if data is None:
        return None
    if (found := field_type(field)) is not None:
        return found.from_json(data)
    kind = column_type(field)
    assert kind is not None
    return kind.read(data)


def describe(field: Any, relations: Iterable[Any] = ()) -> JSON:
    """Return ``title`` and ``description`` for a schema, in the active language.

    They come from ``verbose_name``, ``help_text`` and the labels of choices. A title that says only
    what the field's name says is left out, because a language model reads it in every list of
    tools. ``relations`` are the foreign keys that lead to the field.
    """
    steps = (*relations, field)
    title = " ".join(str(getattr(each, "verbose_name", each.name)) for each in steps)
    lines = [str(getattr(field, "help_text", "")), _labels(field)]
    description = " ".join(line for line in lines if line)
    texts = (
        {}
        if _repeats_name(title, " ".join(each.name for each in steps))
        else {"title": capfirst(title)}
    )
    return texts | ({"description": description} if description else {})


def _repeats_name(words: str, name: Any) -> bool:
    """Whether a label only repeats the name, such as "First name" for "first_name"."""
    return words.casefold() == str(name).replace("_", " ").casefold()


def file_value(file: FieldFile, field_name: str, make_uri: MakeURI | None) -> JSON | None:
    """Return the name, size and URI of a file, or None if there is no file.

    There is no URI without ``make_uri``.
    """
    if not file:
        return None
    shown: JSON = {"name": basename(file.name or ""), "size": _size(file)}
    return shown | ({"uri": make_uri(field_name)} if make_uri else {})


def basename(path: str) -> str:
    """Return the last part of a path, with slashes or backslashes."""
    return path.replace("\\", "/").rpartition("/")[2]


def field_choices(field: AnyField) -> list[tuple[Any, str]]:
    """Return the choices that a schema lists: JSON value and label. [] if there are too many."""
    flat = [(value, str(label)) for value, label in getattr(field, "flatchoices", None) or []]
    pairs = [(field_value(field, value), label) for value, label in flat if value not in (None, "")]
    return pairs if len(pairs) <= MAX_CHOICES else []


def plain_value(value: Any) -> Any:
    """Return the JSON of what a property or field type returned.

    Raise ``TypeError`` if it has none.
    """
    if isinstance(value, Enum):
        return plain_value(value.value)
    for kinds, convert in _PLAIN:
        if isinstance(value, kinds):
            return convert(value)
    raise TypeError(f"A {type(value).__name__} has no JSON form. Return plain values.")


def _rounded(field: AnyField, value: Any) -> Any:
    """Return a decimal with as many places as the database stores."""
    places = getattr(field, "decimal_places", None)
    if not isinstance(value, Decimal) or places is None:
        return value
    try:
        return value.quantize(Decimal(1).scaleb(-places))
    except InvalidOperation:  # more digits than the decimal context allows
        return value


def _with_choices(field: AnyField, schema: JSON) -> JSON:
    """Return the schema with the choices as examples.

    An ``enum`` would be wrong: rows may still contain values that are no longer choices.
    """
    values = [value for value, _ in field_choices(field)]
    return schema | {"examples": values} if values else schema


def _labels(field: Any) -> str:
    """Return "value: label" of all choices whose label says more than the value."""
    pairs = (
        field_choices(field) if isinstance(field, models.Field) and not field.is_relation else []
    )
    return "; ".join(
        f"{value}: {label}" for value, label in pairs if not _repeats_name(label, value)
    )


def _size(file: FieldFile) -> int | None:
    """Return the size of a file, or None if it is not known."""
    try:
        return int(file.size)
    except (OSError, NotImplementedError, SuspiciousOperation):
        return None  # deleted, a storage without sizes, or a path outside of the storage


def _mapping(value: Mapping[Any, Any]) -> JSON:
    return {str(key): plain_value(item) for key, item in value.items()}


# Field types for Django's own fields, contrib.postgres and packages that many projects use.


@register_field_type("django.db.models.BinaryField")
class BinaryType(FieldType):
    """Bytes, as base64."""

    schema = {"type": "string", "contentEncoding": "base64"}

    def to_json(self, value: Any) -> str:
        return base64.b64encode(bytes(value)).decode()

    def from_json(self, data: Any) -> bytes:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            raise ValueError("This is not base64.") from None


@register_field_type("django.db.models.FileField")
class FileType(FieldType):
    """A file: its name and size. The tools that create and update rows decide how it is written."""

    schema = FILE_VALUE_SCHEMA

    def to_json(self, value: Any) -> JSON | None:
        return file_value(value, self.field.name, None)


@register_field_type("django.db.models.FilePathField")
class FilePathType(FieldType):
    """The name of a file on the server, without its folder. Clients cannot write it."""

    schema = {"type": "string"}

    def to_json(self, value: Any) -> str:
        return basename(str(value))


@register_field_type("django.db.models.JSONField")
class JsonType(FieldType):
    """Any JSON."""

    schema = {"type": ALL_JSON_TYPES}

    def to_json(self, value: Any) -> Any:
        # Use the field's own encoder. NaN and Infinity are not valid JSON and become null.
        encoder = getattr(self.field, "encoder", DjangoJSONEncoder)
        text = json.dumps(self.field.get_prep_value(value), cls=encoder)
        return json.loads(text, parse_constant=lambda constant: None)

    def from_json(self, data: Any) -> Any:
        return data


@register_field_type("wagtail.fields.StreamField")
class StreamType(JsonType):
    """The blocks of wagtail's StreamField, each ``{"type", "value", "id"}``."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        block = {"type": {"enum": [*field.stream_block.child_blocks]}, "value": {}}
        properties = block | {"id": {"type": "string"}}
        items = {"type": "object", "properties": properties, "required": ["type", "value"]}
        self.schema = {"type": "array", "items": items}

    def from_json(self, data: Any) -> Any:
        # Model validation does not check blocks. In a form the blocks check themselves.
        try:
            return self.field.stream_block.clean(self.field.to_python(data))
        except (AttributeError, KeyError, TypeError):  # such as a string instead of a struct
            raise ValueError("The value of a block does not have the shape of its type.") from None


@register_field_type("taggit.managers.TaggableManager")
class TagsType(FieldType):
    """The names of taggit's tags."""

    schema = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 100}}

    def to_json(self, value: Any) -> list[str]:
        return sorted(tag.name for tag in value.all())  # `names()` would ignore the prefetch

    def from_json(self, data: Any) -> list[str]:
        return sorted(set(data))


@register_field_type("django.contrib.postgres.fields.array.ArrayField")
class ArrayType(FieldType):
    """PostgreSQL's ``ArrayField``: a JSON array of values of its base field."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.base: AnyField = field.base_field
        if has_json_form(self.base):
            self.schema = {"type": "array", "items": field_schema(self.base, nullable=True)}

    def to_json(self, value: Any) -> list[Any]:
        return [field_value(self.base, item) for item in value]

    def from_json(self, data: Any) -> list[Any]:
        return [read_value(self.base, item) for item in data]


@register_field_type("django.contrib.postgres.fields.hstore.HStoreField")
class HStoreType(FieldType):
    """An object of strings."""

    schema = {"type": "object", "additionalProperties": {"type": ["string", "null"]}}

    def to_json(self, value: Any) -> JSON:
        return dict(value)

    def from_json(self, data: Any) -> JSON:
        return dict(data)


@register_field_type("django.contrib.postgres.fields.ranges.RangeField")
class RangeType(FieldType):
    """A range: its ends, null if unbounded, and which of them are part of it."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        self.base: AnyField = field.base_field
        end = field_schema(self.base, nullable=True)
        self.schema = {
            "type": "object",
            "properties": {
                "lower": end,
                "upper": end,
                "bounds": {"enum": ["[)", "[]", "(]", "()"]},
                "empty": {"const": True},
            },
            "additionalProperties": False,
        }

    def to_json(self, value: Any) -> JSON:
        if value.isempty:
            return {"empty": True}
        ends = {name: field_value(self.base, getattr(value, name)) for name in ENDS}
        return ends | {"bounds": value._bounds}

    def from_json(self, data: Any) -> Any:
        if data.get("empty"):
            return self.field.range_type(empty=True)
        lower, upper = (read_value(self.base, data.get(name)) for name in ENDS)
        bounds = data.get("bounds", "[)")
        # PostgreSQL would raise an error that aborts the transaction.
        if lower is not None and upper is not None and lower > upper:
            raise ValueError("lower must not be above upper.")
        if isinstance(self.base, models.IntegerField):
            # PostgreSQL stores the first integer of a range, and the one after the last.
            lower = lower if lower is None or bounds[0] == "[" else lower + 1
            upper = upper if upper is None or bounds[1] == ")" else upper + 1
            bounds = "[)"
            for end in filter(None, (lower, upper)):
                self.base.run_validators(end)
            if lower is not None and upper is not None and lower > upper:  # (5, 5)
                return self.field.range_type(empty=True)
        return self.field.range_type(lower, upper, bounds)


# GeoDjango's names of geometry types, and those of GeoJSON (RFC 7946, section 1.4).
GEOJSON_TYPES: Mapping[str, str] = {
    "POINT": "Point",
    "LINESTRING": "LineString",
    "POLYGON": "Polygon",
    "MULTIPOINT": "MultiPoint",
    "MULTILINESTRING": "MultiLineString",
    "MULTIPOLYGON": "MultiPolygon",
    "GEOMETRYCOLLECTION": "GeometryCollection",
}
WGS84 = 4326  # the SRID of all GeoJSON


@register_field_type("django.contrib.gis.db.models.fields.GeometryField")
class GeometryType(FieldType):
    """GeoDjango's geometries, as GeoJSON in longitude and latitude (RFC 7946).

    A field without a coordinate system (``srid=0`` or ``-1``) keeps its coordinates.
    """

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        one = GEOJSON_TYPES.get(field.geom_type)
        order = "Longitude, latitude." if self._has_srid else "x, y."
        parts: JSON = {
            "coordinates": {"type": "array", "description": order},
            "geometries": {"type": "array", "items": {"type": "object"}},
        }
        if one is not None:  # only a GeometryField may store any type
            del parts["coordinates" if one == "GeometryCollection" else "geometries"]
        self.schema = {
            "type": "object",
            "properties": {"type": {"enum": [one] if one else [*GEOJSON_TYPES.values()]}, **parts},
            "required": ["type", *(parts if one else ())],
            "additionalProperties": False,
        }

    @property
    def _has_srid(self) -> bool:
        return bool(self.field.srid > 0)

    def to_json(self, value: Any) -> Any:
        if self._has_srid and value.srid not in (None, WGS84):
            value = value.transform(WGS84, clone=True)
        # GDAL writes no JSON for an empty point, or for one at infinity.
        return json.loads(value.json or json.dumps({"type": value.geom_type, "coordinates": []}))

    def from_json(self, data: Any) -> Any:
        from django.contrib.gis.gdal import GDALException
        from django.contrib.gis.geos import GEOSException, GEOSGeometry

        try:
            geometry = GEOSGeometry(json.dumps(data))
            self._check(geometry)
            if self._has_srid and self.field.srid != WGS84:
                geometry.transform(self.field.srid)
            geometry.srid = self.field.srid
        except (GDALException, GEOSException, TypeError):
            raise ValueError("This is not a GeoJSON geometry.") from None
        return geometry

    def _check(self, geometry: Any) -> None:
        """Raise ``ValueError`` for a geometry that some database would reject with an error."""
        if geometry.empty:
            raise ValueError("The geometry is empty.")
        if geometry.hasz != (self.field.dim == 3):
            raise ValueError(f"Each position must have {self.field.dim} numbers.")
        west, south, east, north = geometry.extent
        if not all(map(math.isfinite, geometry.extent)):  # "1e999" is a JSON number
            raise ValueError("Coordinates must be finite.")
        if self._has_srid and not (-180 <= west <= east <= 180 and -90 <= south <= north <= 90):
            raise ValueError("Longitudes are from -180 to 180, latitudes from -90 to 90.")


MAX_VECTOR_NUMBER = 3.4e38  # pgvector stores numbers as float4


@register_field_type("pgvector.django.vector.VectorField")
class VectorType(FieldType):
    """pgvector's vectors, as arrays of numbers."""

    def __init__(self, field: Any) -> None:
        super().__init__(field)
        size: int | None = field.dimensions
        length = {"minItems": size, "maxItems": size} if size else {"minItems": 1}
        self.schema = {"type": "array", "items": {"type": "number"}, **length}

    def to_json(self, value: Any) -> list[float]:
        return [float(number) for number in value]

    def from_json(self, data: Any) -> list[float]:
        numbers = [float(number) for number in data]
        if len(numbers) != (self.field.dimensions or len(numbers)):
            raise ValueError(f"A vector must have {self.field.dimensions} numbers.")
        if not all(abs(number) <= MAX_VECTOR_NUMBER for number in numbers):
            raise ValueError("The numbers of a vector must be finite float4 numbers.")
        return numbers


ENDS: Sequence[str] = ("lower", "upper")
# The first match counts: ``bool`` is an ``int``, and ``datetime`` is a ``date``.
_PLAIN: tuple[tuple[type | tuple[type, ...], Callable[[Any], Any]], ...] = (
    ((bool, int, type(None)), lambda value: value),
    (float, lambda value: value if math.isfinite(value) else None),
    ((str, Promise, uuid.UUID), str),
    (Decimal, lambda value: format(value, "f")),
    (datetime.datetime, from_datetime),
    ((datetime.date, datetime.time), lambda value: value.isoformat()),
    (datetime.timedelta, duration_iso_string),
    ((bytes, bytearray, memoryview), lambda value: base64.b64encode(bytes(value)).decode()),
    (Mapping, _mapping),
    ((list, tuple, set, frozenset), lambda value: [plain_value(item) for item in value]),
)
