"""The field classes that are tested: how each is declared, and two of its values."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.core.files.base import ContentFile
from django.db import connections, models

from .packages import PACKAGES, has_gdal, has_vector_extension, is_installed

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
Values = tuple[Any, Any]
NOTHING: Any = object()


@dataclass(frozen=True)
class Case:
    """One field class.

    ``stored`` are two values as Python code assigns them, ``shown`` the JSON of both, ``written``
    what a client gives for them. ``before`` are the attributes of the model besides the field,
    ``bases`` its base classes, by dotted path.
    """

    name: str
    make: Callable[[], Any] | None
    stored: Values
    shown: Values
    package: str = "Django"
    module: str = ""
    written: Values = NOTHING
    example: Any = NOTHING  # the value in the table, if the real one varies
    attribute: str = "value"
    also: tuple[str, ...] = ()  # other fields of the model that a new row needs
    before: Callable[[], dict[str, Any]] = dict
    bases: tuple[str, ...] = ("django.db.models.Model",)
    vendor: str = ""

    @property
    def id(self) -> str:
        return f"{self.package}: {self.name}"

    @property
    def why_absent(self) -> str:
        """Return why the case cannot be tested here, or ""."""
        if self.module and not is_installed(self.module):
            return f"{self.package} is not installed: pip install -e '.[field-packages]'"
        if self.name == "ImageField" and not is_installed("PIL"):
            return "Pillow is not installed: pip install pillow"
        if self.package == "django.contrib.gis" and not has_gdal():
            return "GDAL is not installed: apt-get install gdal-bin"
        return ""

    @property
    def is_of_this_database(self) -> bool:
        """Return whether the database of this run has such a field."""
        if self.module == "pgvector" and not has_vector_extension():
            return False
        return self.vendor in ("", connections["default"].vendor)

    @property
    def given(self) -> Values:
        return self.shown if self.written is NOTHING else self.written  # type: ignore[no-any-return]

    @property
    def model_name(self) -> str:
        package = "".join(part.capitalize() for part in self.package.replace(".", "-").split("-"))
        words = self.name.replace("(", " ").replace(")", " ").replace("=", " ").split()
        return package.replace(" ", "") + "".join(word[0].upper() + word[1:] for word in words)


def lazily(path: str, *arguments: Any, **options: Any) -> Callable[[], Any]:
    """Return a function that imports the class at ``path`` and creates a field of it."""

    def make() -> Any:
        module, _, name = path.rpartition(".")
        return getattr(import_module(module), name)(*arguments, **options)

    return make


def plain(kind: type[Any], stored: Values, shown: Values | None = None, **options: Any) -> Case:
    return Case(kind.__name__, lambda: kind(**options), stored, stored if shown is None else shown)


def of(module: str, path: str, stored: Values, shown: Values | None = None, **more: Any) -> Case:
    """Return a case of a package.

    ``options`` are those of the field, other arguments are the case's.
    """
    options = more.pop("options", {})
    arguments = more.pop("arguments", ())
    name = more.pop("name", path.rpartition(".")[2])
    return Case(
        name, lazily(path, *arguments, **options), stored, stored if shown is None else shown,
        PACKAGES[module], module, **more,
    )  # fmt: skip


def postgres(name: str, stored: Values, shown: Values | None = None, *arguments: Any) -> Case:
    part = "search" if name == "SearchVectorField" else "fields"
    make = lazily(f"django.contrib.postgres.{part}.{name}", *arguments)
    return Case(
        name, make, stored, stored if shown is None else shown, "django.contrib.postgres",
        "psycopg", vendor="postgresql",
    )  # fmt: skip


def gis(
    name: str, kind: str = "", first: Any = None, second: Any = None, part: str = "coordinates"
) -> Case:
    """Return a case of GeoDjango, which is tested on MariaDB. Other databases need extensions."""
    make = lazily(f"django.contrib.gis.db.models.{name}")
    shown = ({"type": kind, part: first}, {"type": kind, part: second})
    stored = (geometry(shown[0]), geometry(shown[1]))
    return Case(name, make, stored, shown, "django.contrib.gis", vendor="mysql")


def geometry(data: dict[str, Any]) -> Callable[[], Any]:
    return lambda: import_module("django.contrib.gis.geos").GEOSGeometry(json.dumps(data))


def numbers(*kinds: type[Any]) -> Iterator[Case]:
    yield from (plain(kind, (7, 8)) for kind in kinds)


def file(name: str, data: bytes) -> dict[str, str]:
    return {"name": name, "data": base64.b64encode(data).decode()}


def shown_file(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "size": size}


def target(**more: Any) -> dict[str, Any]:
    return {"to": "fields.Target", "on_delete": models.CASCADE, "related_name": "+", **more}


def content_types() -> dict[str, Any]:
    return {
        "content_type": models.ForeignKey(
            "contenttypes.ContentType", models.CASCADE, null=True, related_name="+"
        ),
        "object_id": models.PositiveIntegerField(null=True),
    }


def named(key: int) -> Callable[[], Any]:
    """Return a function that fetches the target with this key."""

    def fetch() -> Any:
        from .models import Target

        return Target.objects.get(pk=key)

    return fetch


def cluster(key: int) -> Callable[[], Any]:
    def fetch() -> Any:
        from .models import Cluster

        return Cluster.objects.get(pk=key)

    return fetch


def targets(key: int) -> Callable[[], Any]:
    return lambda: [named(key)()]


WORDS = ("alpha", "beta")
ONE, TWO = date(2026, 1, 2), date(2026, 3, 4)
NOON, NIGHT = datetime(2026, 1, 2, 12, tzinfo=UTC), datetime(2026, 3, 4, 23, tzinfo=UTC)
IDS = (UUID(int=1), UUID(int=2))
WIRE_IDS = (str(IDS[0]), str(IDS[1]))
WIRE_MOMENTS = ("2026-01-02T12:00:00+00:00", "2026-03-04T23:00:00+00:00")
WHOLE = "[)"
PIXEL_SHOWN = (shown_file("a.png", len(PIXEL)), shown_file("b.png", len(PIXEL)))
PIXEL_GIVEN = (file("a.png", PIXEL), file("b.png", PIXEL))


def _pixels() -> Values:
    return (lambda: ContentFile(PIXEL, "a.png"), lambda: ContentFile(PIXEL, "b.png"))


def _files() -> Values:
    return (lambda: ContentFile(b"one", "a.txt"), lambda: ContentFile(b"two!", "b.txt"))


FILES_SHOWN = (shown_file("a.txt", 3), shown_file("b.txt", 4))
FILES_GIVEN = (file("a.txt", b"one"), file("b.txt", b"two!"))
CHOICES = [("a", "Apple"), ("b", "Banana"), ("c", "Cherry")]


def _range(kind: str, lower: Any, upper: Any) -> Callable[[], Any]:
    def make() -> Any:
        from django.db.backends.postgresql import psycopg_any

        return getattr(psycopg_any, kind)(lower, upper, WHOLE)

    return make


def _ranges(name: str, kind: str, first: Values, second: Values, write: Any = lambda v: v) -> Case:
    stored = (_range(kind, *first), _range(kind, *second))
    shown = tuple(
        {"lower": write(one), "upper": write(two), "bounds": WHOLE} for one, two in (first, second)
    )
    return postgres(name, stored, (shown[0], shown[1]))


STREAM: Values = tuple(
    [{"type": "heading", "value": word, "id": word}] for word in ("alpha", "beta")
)  # type: ignore[assignment]


def _stream() -> Any:
    from wagtail.blocks import CharBlock
    from wagtail.fields import StreamField

    return StreamField([("heading", CharBlock())])


DJANGO: list[Case] = [
    Case("AutoField", lambda: models.AutoField(primary_key=True), (7, 8), (7, 8)),
    Case("BigAutoField", lambda: models.BigAutoField(primary_key=True), (7, 8), (7, 8)),
    Case("SmallAutoField", lambda: models.SmallAutoField(primary_key=True), (7, 8), (7, 8)),
    plain(models.BinaryField, (b"one", b"two"), ("b25l", "dHdv"), editable=True),
    plain(models.BooleanField, (True, False)),
    plain(models.CharField, ("alpha", "beta"), max_length=50),
    Case(
        "CharField(choices)", lambda: models.CharField(max_length=5, choices=CHOICES),
        ("a", "b"), ("a", "b"),
    ),
    Case(
        "CompositePrimaryKey", lambda: models.CompositePrimaryKey("one", "two"),
        ((1, 2), (3, 4)), ([1, 2], [3, 4]),
        before=lambda: {"one": models.IntegerField(), "two": models.IntegerField()},
        attribute="pk", also=("one", "two"),
    ),
    plain(models.DateField, (ONE, TWO), ("2026-01-02", "2026-03-04")),
    plain(models.DateTimeField, (NOON, NIGHT), WIRE_MOMENTS),
    plain(
        models.DecimalField, (Decimal("1.50"), Decimal("2.50")), ("1.50", "2.50"),
        max_digits=9, decimal_places=2,
    ),
    plain(
        models.DurationField, (timedelta(hours=1), timedelta(days=2)),
        ("P0DT01H00M00S", "P2DT00H00M00S"),
    ),
    plain(models.EmailField, ("a@shop.example", "b@shop.example")),
    Case("FileField", models.FileField, _files(), FILES_SHOWN, written=FILES_GIVEN),
    Case(
        "FilePathField", lambda: models.FilePathField(path="/srv"),
        ("/srv/a.txt", "/srv/b.txt"), ("a.txt", "b.txt"),
    ),
    plain(models.FloatField, (1.5, 2.5)),
    Case(
        "ForeignKey", lambda: models.ForeignKey(**target()), (named(1), named(2)), (1, 2),
    ),
    Case(
        "GeneratedField",
        lambda: models.GeneratedField(
            expression=models.F("number") + 1, output_field=models.IntegerField(), db_persist=True
        ),
        (NOTHING, NOTHING), (1, 1), before=lambda: {"number": models.IntegerField(default=0)},
    ),
    plain(models.GenericIPAddressField, ("192.0.2.1", "2001:db8::1")),
    Case("ImageField", models.ImageField, _pixels(), PIXEL_SHOWN, written=PIXEL_GIVEN),
    *numbers(models.IntegerField, models.BigIntegerField, models.SmallIntegerField),
    plain(models.JSONField, ({"a": [1]}, ["b", None])),
    Case(
        "ManyToManyField",
        lambda: models.ManyToManyField("fields.Target", related_name="+"),
        (targets(1), targets(2)), ([1], [2]),
    ),
    Case(
        "OneToOneField", lambda: models.OneToOneField(**target()), (named(1), named(2)), (1, 2),
    ),
    Case("OrderWrt", None, (0, 1), (0, 1), attribute="_order"),
    *numbers(
        models.PositiveIntegerField, models.PositiveBigIntegerField,
        models.PositiveSmallIntegerField,
    ),
    plain(models.SlugField, WORDS),
    plain(models.TextField, WORDS),
    plain(models.TimeField, (time(1, 2), time(3, 4)), ("01:02:00", "03:04:00")),
    plain(models.URLField, ("https://a.example/", "https://b.example/")),
    plain(models.UUIDField, IDS, WIRE_IDS),
    Case("reverse ForeignKey", None, (NOTHING, NOTHING), ([1], [2]), attribute="children"),
    Case("reverse ManyToManyField", None, (NOTHING, NOTHING), ([1], [2]), attribute="many"),
    Case("reverse OneToOneField", None, (NOTHING, NOTHING), (1, 2), attribute="twin"),
]  # fmt: skip

CONTRIB: list[Case] = [
    Case(
        "GenericForeignKey", GenericForeignKey, (named(1), named(2)), (1, 2),
        "django.contrib.contenttypes", before=content_types,
    ),
    Case(
        "GenericRelation", lambda: GenericRelation("fields.Remark"), (NOTHING, NOTHING), ([], []),
        "django.contrib.contenttypes",
    ),
    gis("GeometryField", "Point", [24.9, 60.2], [4.9, 52.4]),
    gis("PointField", "Point", [24.9, 60.2], [4.9, 52.4]),
    gis("LineStringField", "LineString", [[0, 0], [1.5, 1]], [[0, 0], [2, 2]]),
    gis("PolygonField", "Polygon", [[[0, 0], [1.5, 0], [1, 1], [0, 0]]],
        [[[0, 0], [2, 0], [2, 2], [0, 0]]]),
    gis("MultiPointField", "MultiPoint", [[0, 0], [1.5, 1]], [[0, 0], [2, 2]]),
    gis("MultiLineStringField", "MultiLineString", [[[0, 0], [1.5, 1]]], [[[0, 0], [2, 2]]]),
    gis("MultiPolygonField", "MultiPolygon", [[[[0, 0], [1.5, 0], [1, 1], [0, 0]]]],
        [[[[0, 0], [2, 0], [2, 2], [0, 0]]]]),
    gis("GeometryCollectionField", "GeometryCollection",
        [{"type": "Point", "coordinates": [24.9, 60.2]}],
        [{"type": "Point", "coordinates": [4.9, 52.4]}], part="geometries"),
]  # fmt: skip

POSTGRES: list[Case] = [
    postgres("ArrayField", ([1, 2], [3]), None, models.IntegerField()),
    postgres("HStoreField", ({"a": "1"}, {"b": None})),
    _ranges("IntegerRangeField", "NumericRange", (1, 5), (6, 9)),
    _ranges("BigIntegerRangeField", "NumericRange", (1, 5), (6, 9)),
    _ranges(
        "DecimalRangeField", "NumericRange", (Decimal("1.5"), Decimal("2.5")),
        (Decimal("3.5"), Decimal("4.5")), str,
    ),
    _ranges("DateRangeField", "DateRange", (ONE, TWO), (TWO, date(2026, 5, 6)), str),
    _ranges(
        "DateTimeRangeField", "DateTimeTZRange", (NOON, NIGHT),
        (NIGHT, datetime(2026, 5, 6, tzinfo=UTC)), lambda moment: moment.isoformat(),
    ),
    postgres("SearchVectorField", (None, None)),
]  # fmt: skip

PACKAGED: list[Case] = [
    of("colorfield", "colorfield.fields.ColorField", ("#FF0000", "#00FF00")),
    of("django_countries", "django_countries.fields.CountryField", ("NZ", "DE")),
    of(
        "django_countries", "django_countries.fields.CountryField", (["NZ", "AU"], ["DE"]),
        ("AU,NZ", "DE"), name="CountryField(multiple)", options={"multiple": True},
    ),
    of("django_jsonform", "django_jsonform.models.fields.JSONField", ({"a": [1]}, {"b": 2}),
       options={"schema": {"type": "object"}}),
    of("djmoney", "djmoney.models.fields.MoneyField", (Decimal("1.50"), Decimal("2.50")),
       ("1.50", "2.50"),
       options={"max_digits": 9, "decimal_places": 2, "default_currency": "EUR"}),
    of("djmoney", "djmoney.models.fields.CurrencyField", ("EUR", "USD")),
    of("easy_thumbnails", "easy_thumbnails.fields.ThumbnailerField", _files(), FILES_SHOWN,
       written=FILES_GIVEN),
    of("easy_thumbnails", "easy_thumbnails.fields.ThumbnailerImageField", _pixels(), PIXEL_SHOWN,
       written=PIXEL_GIVEN),
    of("modelcluster", "modelcluster.fields.ParentalKey", (cluster(3), cluster(4)), (3, 4),
       arguments=("fields.Cluster",), options={"on_delete": models.CASCADE, "related_name": "+"}),
    of("modelcluster", "modelcluster.fields.ParentalManyToManyField", (targets(1), targets(2)),
       ([1], [2]), arguments=("fields.Target",), options={"related_name": "+"},
       bases=("modelcluster.models.ClusterableModel",)),
    Case("reverse ParentalKey", None, (NOTHING, NOTHING), ([1], [2]), "django-modelcluster",
         "modelcluster", attribute="parts"),
    of("modelcluster", "modelcluster.contrib.taggit.ClusterTaggableManager",
       (["red", "old"], ["new"]), (["old", "red"], ["new"]),
       options={"through": "fields.ClusterTagged", "blank": True, "related_name": "+"},
       bases=("modelcluster.models.ClusterableModel",)),
    of("model_utils", "model_utils.fields.AutoCreatedField", (NOON, NIGHT), WIRE_MOMENTS),
    of("model_utils", "model_utils.fields.AutoLastModifiedField", (NOTHING, NOTHING),
       (NOTHING, NOTHING), example=WIRE_MOMENTS[0]),
    of("model_utils", "model_utils.fields.MonitorField", (NOON, NIGHT), (NOTHING, NOTHING),
       written=WIRE_MOMENTS, example=WIRE_MOMENTS[0], options={"monitor": "label"}),
    of("model_utils", "model_utils.fields.SplitField", ("alpha", "beta")),
    of("model_utils", "model_utils.fields.StatusField", ("a", "b"),
       before=lambda: {"STATUS": CHOICES}),
    of("model_utils", "model_utils.fields.UUIDField", IDS, WIRE_IDS,
       options={"primary_key": False, "editable": True}),
    of("model_utils", "model_utils.fields.UrlsafeTokenField", ("alpha", "beta")),
    of("mptt", "mptt.fields.TreeForeignKey", (None, None),
       arguments=("self",), options={"on_delete": models.CASCADE, "null": True, "blank": True},
       bases=("mptt.models.MPTTModel",), attribute="parent"),
    of("mptt", "mptt.fields.TreeOneToOneField", (named(1), named(2)), (1, 2), options=target()),
    of("mptt", "mptt.fields.TreeManyToManyField", (targets(1), targets(2)), ([1], [2]),
       arguments=("fields.Target",), options={"related_name": "+"}),
    of("multiselectfield", "multiselectfield.MultiSelectField", (["a", "b"], ["c"]),
       options={"choices": CHOICES, "max_length": 20}),
    of("pgvector", "pgvector.django.VectorField", ([1.0, 2.5], [3.0, 4.5]),
       options={"dimensions": 2}, vendor="postgresql"),
    of("phonenumber_field", "phonenumber_field.modelfields.PhoneNumberField",
       ("+6433668000", "+6498015000")),
    of("taggit", "taggit.managers.TaggableManager", (["red", "old"], ["new"]),
       (["old", "red"], ["new"]), options={"blank": True}),
    of("timezone_field", "timezone_field.TimeZoneField", ("Pacific/Auckland", "Europe/Berlin")),
    of("tinymce", "tinymce.models.HTMLField", ("<p>alpha</p>", "<p>beta</p>")),
    of("wagtail", "wagtail.fields.RichTextField", ("<p>alpha</p>", "<p>beta</p>")),
    Case("StreamField", _stream, (STREAM[0], STREAM[1]), STREAM, "wagtail", "wagtail"),
]  # fmt: skip

CASES = [*DJANGO, *CONTRIB, *POSTGRES, *PACKAGED]
