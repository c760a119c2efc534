"""Field types that the test project registers, as docs/reference/fields.md shows them."""

import django_mcp as mcp


@mcp.register_field_type("multiselectfield.db.fields.MultiSelectField")
class MultiSelectType(mcp.FieldType):
    """The chosen values."""

    def __init__(self, field):
        super().__init__(field)
        choices = [value for value, label in field.choices]
        self.schema = {"type": "array", "items": {"enum": choices}, "uniqueItems": True}

    def to_json(self, value):
        return list(value)

    def from_json(self, data):
        return data
