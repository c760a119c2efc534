"""The field type of GeoDjango's points, as docs/reference/fields.md shows it."""

import django_mcp as mcp


@mcp.register_field_type("django.contrib.gis.db.models.PointField")
class PointType(mcp.FieldType):
    """A point: longitude and latitude."""

    schema = {
        "type": "object",
        "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
        "required": ["x", "y"],
        "additionalProperties": False,
    }

    def to_json(self, value):
        return {"x": value.x, "y": value.y}

    def from_json(self, data):
        from django.contrib.gis.geos import Point

        return Point(data["x"], data["y"], srid=self.field.srid)
