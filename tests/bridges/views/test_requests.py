"""Data that is sent to views: queries, forms, JSON bodies and files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import pytest
from django import forms
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import QueryDict
from django.test import RequestFactory
from django.utils.datastructures import MultiValueDict
from pydantic import BaseModel

from django_mcp.bridges.views.requests import Fields, PageNumber, fields_of, multipart
from django_mcp.exceptions import InvalidArguments


class Upload(forms.Form):
    title = forms.CharField()
    file = forms.FileField(required=False)
    kind = forms.ChoiceField(choices=[("a", "A"), ("b", "B")], required=False, initial="b")
    token = forms.CharField(widget=forms.HiddenInput, initial="kept")


@dataclass
class Search:
    text: str
    tags: list[str] | None = None


class Tree(BaseModel):
    name: str
    parts: list[Tree] = []


def parse(body) -> Any:
    """Parse the body as Django does."""
    return RequestFactory().post("/", data=body.data, content_type=body.type)


def test_view_without_fields_gets_an_empty_request():
    none = Fields()
    assert fields_of(None).schema == none.schema
    assert (none.query({}), none.body({}, None).data, none.form(none.body({}, None))) == (
        "",
        b"",
        None,
    )


def test_form_is_posted_with_initial_values_of_its_page():
    found = parse(fields_of(Upload).body({"title": "ä & b"}, None))
    assert found.POST.dict() == {"title": "ä & b", "kind": "b", "token": "kept"}
    shown = Upload(initial={"kind": "a", "token": "other"}, prefix="up")
    found = parse(fields_of(Upload).body({"title": "x"}, shown))
    assert found.POST.dict() == {"up-title": "x", "up-kind": "a", "up-token": "other"}


def test_field_that_the_page_does_not_show_is_refused():
    shown = Upload()
    shown.fields["title"].disabled = True
    del shown.fields["kind"]
    with pytest.raises(InvalidArguments, match="does not ask for title, kind"):
        fields_of(Upload).body({"title": "x", "kind": "a"}, shown)


def test_files_are_posted_as_multipart():
    data = {"name": 'a".txt', "data": "aGVsbG8="}
    found = parse(fields_of(Upload).body({"title": "x", "file": data}, None))
    assert found.POST["title"] == "x"
    assert found.FILES["file"].read() == b"hello"


@pytest.mark.parametrize("name", ['a"; filename="b', "a\r\nX-Evil: yes", "plain"])
def test_field_name_cannot_inject_multipart_headers(name):
    file = SimpleUploadedFile("f.txt", b"--\r\nbody", "text/plain")
    body, kind = multipart({name: ["v\r\n--"]}, MultiValueDict({name: [file]}))
    found = RequestFactory().post("/", data=body, content_type=kind)
    assert list(found.POST.values()) == ["v\r\n--"]
    (sent,) = found.FILES.values()
    assert (sent.name, sent.read()) == ("f.txt", b"--\r\nbody")


def test_form_in_a_query_omits_empty_fields():
    assert parse_qs(fields_of(Upload).query({"title": "a=b"})) == {
        "title": ["a=b"], "kind": ["b"], "token": ["kept"],
    }  # fmt: skip


def test_dataclass_is_written_as_a_query():
    found = fields_of(Search, flat=True)
    assert QueryDict(found.query({"text": "a&b", "tags": ["x", "y"]})).getlist("tags") == ["x", "y"]
    assert found.query({"text": "a"}) == "text=a"
    with pytest.raises(InvalidArguments, match="text"):
        found.query({"text": 5})


def test_pydantic_model_is_written_as_a_json_body():
    body = fields_of(Tree).body({"name": "a", "parts": [{"name": "b"}]}, None)
    assert body.type == "application/json"
    assert parse(body).body == b'{"name": "a", "parts": [{"name": "b", "parts": []}]}'


@pytest.mark.parametrize("kind", [5, "text", dict, int, list[str]])
def test_unsupported_type_of_fields_raises(kind):
    with pytest.raises(Exception, match="."):
        fields_of(kind)


def test_query_with_objects_raises():
    with pytest.raises(TypeError, match="parts"):
        fields_of(Tree, flat=True)


def test_page_number_is_written_as_a_query():
    page = PageNumber("p")
    assert (page.query({"p": 3}), page.query({})) == ("p=3", "")
