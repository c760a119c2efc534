"""Geometries as GeoJSON: coordinate systems, and what a client may not write."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from django_mcp.declarations.fields.values import field_schema, field_value, read_value
from django_mcp.declarations.schemas import problem, violations

from .packages import has_gdal

if not has_gdal() and not os.environ.get("TESTS_REQUIRED"):
    pytest.skip("GDAL is not installed: apt-get install gdal-bin", allow_module_level=True)

POINT = {"type": "Point", "coordinates": [24.9, 60.2]}


def field(kind: str = "PointField", **options: Any) -> Any:
    from django.contrib.gis.db import models

    return getattr(models, kind)(**options)


def test_coordinates_are_transformed_to_longitude_and_latitude() -> None:
    projected = field(srid=3857)
    point = read_value(projected, POINT)
    assert (point.srid, round(point.x), round(point.y)) == (3857, 2771855, 8444401)
    shown = field_value(projected, point)
    assert shown["coordinates"] == pytest.approx(POINT["coordinates"])


@pytest.mark.parametrize("srid", [0, -1])
def test_field_without_a_coordinate_system_keeps_its_coordinates(srid: int) -> None:
    plan = field(srid=srid)
    pixel = {"type": "Point", "coordinates": [640, 480]}
    assert field_value(plan, read_value(plan, pixel)) == pixel


def test_schema_names_the_geometry_types_of_the_field() -> None:
    schema = field_schema(field("PolygonField"), nullable=False)
    assert problem(schema) is None and violations(schema, POINT)
    assert not violations(field_schema(field("GeometryField"), nullable=False), POINT)
    assert not violations(field_schema(field(), nullable=True), None)


def test_empty_point_fits_the_schema() -> None:
    from django.contrib.gis.geos import Point

    shown = field_value(field(), Point(srid=4326))
    assert shown == {"type": "Point", "coordinates": []}
    assert not violations(field_schema(field(), nullable=False), shown)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"type": "Point", "coordinates": [1]}, "not a GeoJSON geometry"),
        ({"type": "Point", "coordinates": ["a", 1]}, "not a GeoJSON geometry"),
        ({"type": "Point", "coordinates": {"a": 1}}, "not a GeoJSON geometry"),
        ({"type": "LineString", "coordinates": [[0, 0]]}, "not a GeoJSON geometry"),
        # The ring is not closed.
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1]]]}, "not a GeoJSON geometry"),
        ({"type": "MultiPoint", "coordinates": []}, "empty"),
        ({"type": "Point", "coordinates": [1, 2, 3]}, "2 numbers"),
        ({"type": "Point", "coordinates": [1, 91]}, "latitudes from -90 to 90"),
        ({"type": "Point", "coordinates": [181, 1]}, "Longitudes are from -180"),
        (json.loads('{"type": "Point", "coordinates": [1e999, 1]}'), "finite"),
    ],
)
@pytest.mark.parametrize("srid", [4326, 3857])
def test_geometry_that_a_database_would_reject_is_refused(
    data: Any, message: str, srid: int
) -> None:
    with pytest.raises(ValueError, match=message):
        read_value(field("GeometryField", srid=srid), data)
