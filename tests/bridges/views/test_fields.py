"""What is sent to a view: a query, a form, a body of JSON, files."""

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


def read(body) -> Any:
    """The body as Django reads it."""
    return RequestFactory().post("/", data=body.data, content_type=body.type)


def test_nothing_is_nothing():
    none = Fields()
    assert fields_of(None).schema == none.schema
    assert (none.query({}), none.body({}, None).data, none.form(none.body({}, None))) == (
        "",
        b"",
        None,
    )


def test_a_form_is_posted_as_its_page_shows_it():
    found = read(fields_of(Upload).body({"title": "ä & b"}, None))
    assert found.POST.dict() == {"title": "ä & b", "kind": "b", "token": "kept"}
    shown = Upload(initial={"kind": "a", "token": "other"}, prefix="up")
    found = read(fields_of(Upload).body({"title": "x"}, shown))
    assert found.POST.dict() == {"up-title": "x", "up-kind": "a", "up-token": "other"}


def test_what_the_page_does_not_ask_for_is_refused():
    shown = Upload()
    shown.fields["title"].disabled = True
    del shown.fields["kind"]
    with pytest.raises(InvalidArguments, match="does not ask for title, kind"):
        fields_of(Upload).body({"title": "x", "kind": "a"}, shown)


def test_files_are_posted_as_files():
    data = {"name": 'a".txt', "data": "aGVsbG8="}
    found = read(fields_of(Upload).body({"title": "x", "file": data}, None))
    assert found.POST["title"] == "x"
    assert found.FILES["file"].read() == b"hello"


@pytest.mark.parametrize("name", ['a"; filename="b', "a\r\nX-Evil: yes", "plain"])
def test_a_name_does_not_leave_its_header(name):
    file = SimpleUploadedFile("f.txt", b"--\r\nbody", "text/plain")
    body, kind = multipart({name: ["v\r\n--"]}, MultiValueDict({name: [file]}))
    found = RequestFactory().post("/", data=body, content_type=kind)
    assert list(found.POST.values()) == ["v\r\n--"]
    (sent,) = found.FILES.values()
    assert (sent.name, sent.read()) == ("f.txt", b"--\r\nbody")


def test_a_form_in_a_query_leaves_out_what_is_empty():
    assert parse_qs(fields_of(Upload).query({"title": "a=b"})) == {
        "title": ["a=b"], "kind": ["b"], "token": ["kept"],
    }  # fmt: skip


def test_a_dataclass_in_a_query():
    found = fields_of(Search, flat=True)
    assert QueryDict(found.query({"text": "a&b", "tags": ["x", "y"]})).getlist("tags") == ["x", "y"]
    assert found.query({"text": "a"}) == "text=a"
    with pytest.raises(InvalidArguments, match="text"):
        found.query({"text": 5})


def test_a_model_is_a_body_of_json():
    body = fields_of(Tree).body({"name": "a", "parts": [{"name": "b"}]}, None)
    assert body.type == "application/json"
    assert read(body).body == b'{"name": "a", "parts": [{"name": "b", "parts": []}]}'


@pytest.mark.parametrize("kind", [5, "text", dict, int, list[str]])
def test_what_has_no_fields(kind):
    with pytest.raises(Exception, match="."):
        fields_of(kind)


def test_a_query_holds_no_objects():
    with pytest.raises(TypeError, match="parts"):
        fields_of(Tree, flat=True)


def test_a_page_of_a_list():
    page = PageNumber("p")
    assert (page.query({"p": 3}), page.query({})) == ("p=3", "")
