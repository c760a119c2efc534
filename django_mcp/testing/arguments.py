"""
What a test passes, as JSON: rows by their keys, dates and decimals as a client writes them.

Rule: a row is named as the server's own schema names it, so that a test may pass an object where
a client passes a key.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from django.db.models import Model, QuerySet
from pydantic_core import to_jsonable_python

from ..declare.model_resources import ModelResource
from ..declare.rows.keys import key_text, key_value

if TYPE_CHECKING:
    from ..declare.servers import Server


def as_json(server: Server, value: Any) -> Any:
    """``value`` as JSON. Raises ``TypeError`` for what has no such form."""

    def other(one: Any) -> Any:
        if isinstance(one, Model):
            return key_value(one, _lookup(server, one))
        if isinstance(one, QuerySet):
            return list(one)
        if hasattr(one, "__str__") and type(one).__name__ == "__proxy__":  # a lazy translation
            return str(one)
        raise TypeError(f"{one!r} is nothing that a client can send.")

    return to_jsonable_python(value, fallback=other)


def as_text(server: Server, value: Any) -> str:
    """``value`` as an argument of a prompt, which is text."""
    if isinstance(value, Model):
        return key_text(value, _lookup(server, value))
    found = as_json(server, value)
    return found if isinstance(found, str) else json.dumps(found)


def as_uri(server: Server, thing: Any) -> str:
    """The URI of a row that is registered on the server, or the URI that was given."""
    if isinstance(thing, Model):
        return server.ready().resource_of(type(thing)).uri_of(thing)
    return str(thing)


def _lookup(server: Server, row: Model) -> str:
    resource = _resource(server, row)
    return "pk" if resource is None else resource.lookup


def _resource(server: Server, row: Model) -> ModelResource | None:
    try:
        return server.ready().resource_of(type(row))
    except (ImproperlyConfigured, ValueError):  # a tool may take the key of what is not registered
        return None
