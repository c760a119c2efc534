"""
What a page takes beside its address: a query, and a body.

Rule: a Django form is sent as a browser sends it, and the view judges it; a pydantic model or
dataclass is validated first, and goes into the query, or into a body of JSON. Nothing is looked
up here: rows are the view's business.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import QueryDict
from django.utils.datastructures import MultiValueDict
from pydantic import TypeAdapter, ValidationError

from ...declare.arguments import TerseSchema
from ...declare.schemas import all_of
from ...exceptions import InvalidArguments
from ..forms.input import FormInput, Problem
from ..forms.posts import posted
from .requests import FORM, Body

JSON = dict[str, Any]


class Fields:
    """Nothing, unless a subclass knows better."""

    schema: JSON = {"type": "object", "properties": {}}
    problems: list[Problem] = []

    def body(self, given: Mapping[str, Any], shown: forms.BaseForm | None) -> Body:
        """What is posted for ``given``; ``shown`` is the form that the page has."""
        return Body()

    def form(self, body: Body) -> forms.BaseForm | None:
        """The form that a function view probably makes of what is posted."""
        return None

    def query(self, given: Mapping[str, Any]) -> str:
        """The query string for ``given``. Raises ``InvalidArguments``."""
        return ""


class FormFields(Fields):
    """The fields of a Django form."""

    def __init__(self, form: type[forms.BaseForm], *, partial: bool = False) -> None:
        self._form, found = form, FormInput(form, partial=partial)
        self.schema, self.problems = found.schema, found.problems

    def body(self, given: Mapping[str, Any], shown: forms.BaseForm | None) -> Body:
        form = self._form() if shown is None else shown
        lacking = [n for n in given if n not in form.fields or form.fields[n].disabled]
        if lacking:  # the page asks this user, at this time, for something else
            raise InvalidArguments(f"This page does not ask for {', '.join(lacking)}.")
        data, files = posted(form, given)
        if files:
            return Body(*multipart(data, files))
        return Body(urlencode(data, doseq=True).encode())

    def form(self, body: Body) -> forms.BaseForm | None:
        return self._form(QueryDict(body.data)) if body.type == FORM else None

    def query(self, given: Mapping[str, Any]) -> str:
        data, _ = posted(self._form(), given)
        filled = {name: values for name, values in data.items() if any(values)}
        return urlencode(filled, doseq=True)


class TypedFields(Fields):
    """The fields of a pydantic model or a dataclass."""

    def __init__(self, kind: Any) -> None:
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)
        found = self._adapter.json_schema(schema_generator=TerseSchema)
        if "$ref" in found:  # of a model that is a part of itself
            found |= found["$defs"][found.pop("$ref").rpartition("/")[2]]
        self.schema = found

    def body(self, given: Mapping[str, Any], shown: forms.BaseForm | None) -> Body:
        return Body(json.dumps(self._written(given)).encode(), "application/json")

    def query(self, given: Mapping[str, Any]) -> str:
        written = self._written(given)
        return urlencode({k: v for k, v in written.items() if v is not None}, doseq=True)

    def _written(self, given: Mapping[str, Any]) -> JSON:
        try:
            value = self._adapter.validate_json(json.dumps(dict(given)))
        except ValidationError as error:
            found = error.errors(include_url=False)
            lines = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}." for one in found[:8]]
            raise InvalidArguments("Invalid arguments. " + " ".join(lines)) from None
        written: JSON = self._adapter.dump_python(value, mode="json", by_alias=True)
        return written


class PageNumber(Fields):
    """Which page of a ``ListView``."""

    def __init__(self, name: str) -> None:
        page = {"type": "integer", "minimum": 1, "description": "Which page of the list."}
        self.schema = {"type": "object", "properties": {name: page}}

    def query(self, given: Mapping[str, Any]) -> str:
        return urlencode(dict(given))


def fields_of(kind: Any, *, partial: bool = False, flat: bool = False) -> Fields:
    """The fields that a form, a pydantic model or a dataclass has; raises what they raise.

    ``partial`` is a form of which nothing is required; ``flat`` takes no objects within objects.
    """
    if kind is None:
        return Fields()
    if isinstance(kind, type) and issubclass(kind, forms.BaseForm):
        return FormFields(kind, partial=partial)
    found = TypedFields(kind)
    if "properties" not in found.schema:
        raise TypeError(f"{kind!r} is neither a form nor a model or dataclass.")
    if flat and (nested := [*_nested(found.schema)]):
        raise TypeError(f"{nested[0]} is an object, which no query string holds.")
    return found


def _nested(schema: JSON) -> Iterator[str]:
    """The properties that may be objects, or lists of them."""
    definitions = schema.get("$defs", {})
    for name, prop in schema["properties"].items():
        kinds = {str(one) for one in all_of("type", prop)}
        for ref in all_of("$ref", prop):
            kinds.add(definitions[ref.rpartition("/")[2]].get("type", ""))
        if "object" in kinds:
            yield name


def multipart(data: Mapping[str, list[str]], files: MultiValueDict[str, Any]) -> tuple[bytes, str]:
    """Texts and files as a browser posts them (RFC 7578), and the media type of that."""
    boundary = secrets.token_hex(16)
    parts = [(f'name="{_quoted(name)}"', v.encode()) for name, vs in data.items() for v in vs]
    for name, uploads in files.lists():
        for file in uploads:
            told = f'name="{_quoted(name)}"; filename="{_quoted(file.name)}"'
            parts.append((f"{told}\r\nContent-Type: {file.content_type}", file.read()))
    opened = [
        f"--{boundary}\r\nContent-Disposition: form-data; {about}\r\n\r\n".encode() + value
        for about, value in parts
    ]
    whole = b"\r\n".join([*opened, f"--{boundary}--\r\n".encode()])
    return whole, f"multipart/form-data; boundary={boundary}"


def _quoted(text: str) -> str:
    """As the HTML standard escapes names, so that none ends its header."""
    return text.replace("\r", "%0D").replace("\n", "%0A").replace('"', "%22")
