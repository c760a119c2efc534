"""
How JSON is kept: as ASCII text, on every database alike.

Rule: what a client sent comes back as it came. A column of a database's own
JSON type refuses some of it (a NUL in a text, half of a surrogate pair) and
changes some of it (numbers, the order of keys).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    Text = models.TextField[Any, Any]
else:
    Text = models.TextField


class JSONText(Text):
    """JSON in a text column; None is NULL."""

    if TYPE_CHECKING:
        _pyi_private_set_type: Any
        _pyi_private_get_type: Any
        _pyi_lookup_exact_type: Any

    def from_db_value(self, value: str | None, *of: Any) -> Any:
        return None if value is None else json.loads(value)

    def to_python(self, value: Any) -> Any:
        return value

    def get_prep_value(self, value: Any) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def value_to_string(self, obj: models.Model) -> Any:
        return self.value_from_object(obj)
