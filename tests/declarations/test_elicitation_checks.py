"""Checks of questions: secrets in forms, links in texts, and URLs."""

import enum
import logging
from dataclasses import dataclass
from typing import Literal

import pytest
from django import forms
from pydantic import BaseModel, create_model

from django_mcp.declarations.elicitation_forms import (
    find_secret_fields,
    form_problem,
    url_problem,
    warn_of_links,
)
from django_mcp.declarations.redaction import words
from tests.shop.models import Customer

SECRET_NAMES = [
    "password", "new_password", "newPassword", "passwd", "passphrase", "pwd", "api_key", "apiKey",
    "API_KEY", "apikey", "access_token", "accessToken", "token", "client_secret", "secret",
    "private_key", "card_number", "credit_card", "creditCardNumber", "cvv", "cvc", "otp", "pin",
    "pin_code", "security_code", "iban", "credentials", "userpassword", "authtoken", "accesstoken",
    "secretkey", "ssh_key", "encryption_key", "totp",
]  # fmt: skip
OTHER_NAMES = [
    "name", "secretary", "passenger", "compass", "pinned", "tokenizer", "keyboard", "key",
    "monkey", "page_token", "next_token", "passport_country", "card", "author",
]  # fmt: skip


class Colour(enum.Enum):
    PIN = "pin"


def model_with_field(name, type=str):
    return create_model("Asked", **{name: (type, ...)})


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_field_with_a_secret_name_is_found(name):
    assert find_secret_fields(model_with_field(name)) == [name]
    assert find_secret_fields({"type": "object", "properties": {name: {"type": "string"}}}) == [
        name
    ]
    assert find_secret_fields(type("Asked", (forms.Form,), {name: forms.CharField()})) == [name]
    assert find_secret_fields(model_with_field(name, int)) == [name]


@pytest.mark.parametrize("name", OTHER_NAMES)
def test_name_that_only_resembles_a_secret_is_ignored(name):
    assert find_secret_fields(model_with_field(name)) == []


@pytest.mark.parametrize("kind", [bool, Colour, Literal["a"], list[Colour]])
def test_choices_with_a_secret_name_are_ignored(kind):
    assert find_secret_fields(model_with_field("password", kind)) == []


def test_field_with_a_secret_title_is_found():
    schema = {"type": "object", "properties": {"a": {"type": "string", "title": "Your PIN"}}}
    assert find_secret_fields(schema) == ["a"]
    assert find_secret_fields(
        type("Asked", (forms.Form,), {"a": forms.CharField(label="API key")})
    ) == ["a"]


def test_secret_field_of_a_dataclass_is_found():
    @dataclass
    class Login:
        user: str
        password: str

    assert find_secret_fields(Login) == ["password"]


@pytest.mark.parametrize(
    "field",
    [
        forms.CharField(widget=forms.PasswordInput),
        forms.CharField(widget=forms.HiddenInput),
        forms.IntegerField(widget=forms.HiddenInput),
        forms.ChoiceField(choices=[("a", "A")], widget=forms.HiddenInput),
    ],
)
def test_password_or_hidden_field_of_a_django_form_is_a_secret(field):
    assert find_secret_fields(type("Asked", (forms.Form,), {"a": field})) == ["a"]


@pytest.mark.parametrize(
    "field",
    [forms.BooleanField(), forms.ChoiceField(choices=[("a", "A")]), forms.MultipleChoiceField()],
)
def test_choices_of_a_django_form_are_ignored(field):
    assert find_secret_fields(type("Asked", (forms.Form,), {"password": field})) == []


def test_check_of_a_form_makes_no_query(django_assert_num_queries, db):
    class Pick(forms.Form):
        customer = forms.ModelChoiceField(Customer.objects.all())
        password = forms.CharField()

    with django_assert_num_queries(0):
        assert find_secret_fields(Pick) == ["password"] and form_problem(Pick)


@pytest.mark.parametrize(
    "message",
    ["Password?", "Your password, please.", "What is your API key?", "Type my PIN", "PIN:"],
)
def test_message_that_asks_for_a_secret_text_is_found(message):
    assert find_secret_fields(str, message) == ["answer"]
    assert find_secret_fields(bool, message) == []


@pytest.mark.parametrize(
    "message",
    ["Which password policy applies?", "Name?", "Reset the passwords?"],
)
def test_message_that_only_mentions_a_secret_is_ignored(message):
    assert find_secret_fields(str, message) == []


def test_name_is_split_into_words():
    assert words("apiKey") == words("API_KEY") == words("Api key") == "api key"
    assert words("PDFReport") == "pdf report" and words("_a-b_") == "a b"


# Problems of forms.


class Login(BaseModel):
    user: str
    password: str


class Nested(BaseModel):
    login: Login


class Upload(forms.Form):
    file = forms.FileField()


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (Login, "A form must not ask for secrets (password)."),
        (Nested, "login: a question cannot ask for objects or lists."),
        (Upload, "file: a question cannot contain a FileField."),
        (dict, "<class 'dict'> cannot be asked for. Use a flat model, a form or choices."),
        (bool, None),
        (Colour, None),
        (type("Plain", (forms.Form,), {"a": forms.CharField()}), None),
    ],
)
def test_problem_of_a_form(schema, problem):
    assert form_problem(schema) == problem


# Links and URLs.


@pytest.mark.parametrize(
    "text", ["See https://a.example", "http://a.example", "go to www.a.example"]
)
def test_links_in_a_question_are_logged_as_a_warning(text, caplog):
    with caplog.at_level(logging.WARNING, "django_mcp"):
        warn_of_links({"message": text})
        warn_of_links({"requestedSchema": {"properties": {"a": {"title": text}}}})
    assert len(caplog.records) == 2 and "url=" in caplog.text


def test_question_without_links_logs_nothing(caplog):
    warn_of_links({"message": "Sure? (a:b)", "requestedSchema": {"properties": {}}})
    assert caplog.text == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/pay?a=b#c", "https://shop.example:8443/", "http://localhost:8000/x",
        "http://127.0.0.1/", "http://[::1]/",
    ],
)  # fmt: skip
def test_https_or_local_url_is_valid(url):
    assert url_problem(url) is None


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("", "is not a URL"),
        ("/pay", "is not a URL"),
        ("javascript:alert(1)", "is not a URL"),
        ("file:///etc/passwd", "is not a URL"),
        ("ftp://a.example", "is not a URL"),
        ("https://", "is not a URL"),
        ("https://a b.example", "is not a URL"),
        ("https://a.example/\n", "is not a URL"),
        ("https://[a", "is not a URL"),
        ("https://user:secret@a.example", "contains credentials"),
        ("https://user@a.example", "contains credentials"),
        ("http://shop.example", "is not https"),
        ("http://10.0.0.1", "is not https"),
        ("http://localhost.evil.example", "is not https"),
    ],
)
def test_invalid_or_insecure_url_is_a_problem(url, problem):
    assert url_problem(url) == problem


def test_http_url_is_valid_while_debugging(settings):
    settings.DEBUG = True
    assert url_problem("http://shop.example") is None
