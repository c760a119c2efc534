"""What a form must not ask for, and where a question may send the user."""

import enum
import logging
from dataclasses import dataclass
from typing import Literal

import pytest
from django import forms
from pydantic import BaseModel, create_model

from django_mcp.declarations.elicitation_checks import (
    form_problem,
    secrets,
    url_problem,
    warn_of_links,
)
from django_mcp.declarations.secret_names import words
from tests.shop.models import Customer

SECRET = [
    "password", "new_password", "newPassword", "passwd", "passphrase", "pwd", "api_key", "apiKey",
    "API_KEY", "apikey", "access_token", "accessToken", "token", "client_secret", "secret",
    "private_key", "card_number", "credit_card", "creditCardNumber", "cvv", "cvc", "otp", "pin",
    "pin_code", "security_code", "iban", "credentials", "userpassword", "authtoken", "accesstoken",
    "secretkey", "ssh_key", "encryption_key", "totp",
]  # fmt: skip
PLAIN = [
    "name", "secretary", "passenger", "compass", "pinned", "tokenizer", "keyboard", "key",
    "monkey", "page_token", "next_token", "passport_country", "card", "author",
]  # fmt: skip


class Colour(enum.Enum):
    PIN = "pin"


def named(name, type=str):
    return create_model("Asked", **{name: (type, ...)})


@pytest.mark.parametrize("name", SECRET)
def test_secrets_by_name(name):
    assert secrets(named(name)) == [name]
    assert secrets({"type": "object", "properties": {name: {"type": "string"}}}) == [name]
    assert secrets(type("Asked", (forms.Form,), {name: forms.CharField()})) == [name]
    assert secrets(named(name, int)) == [name]


@pytest.mark.parametrize("name", PLAIN)
def test_names_that_only_look_so(name):
    assert secrets(named(name)) == []


@pytest.mark.parametrize("kind", [bool, Colour, Literal["a"], list[Colour]])
def test_what_nobody_types_is_no_secret(kind):
    assert secrets(named("password", kind)) == []


def test_a_title_tells_too():
    schema = {"type": "object", "properties": {"a": {"type": "string", "title": "Your PIN"}}}
    assert secrets(schema) == ["a"]
    assert secrets(type("Asked", (forms.Form,), {"a": forms.CharField(label="API key")})) == ["a"]


def test_a_dataclass_too():
    @dataclass
    class Login:
        user: str
        password: str

    assert secrets(Login) == ["password"]


@pytest.mark.parametrize(
    "field",
    [
        forms.CharField(widget=forms.PasswordInput),
        forms.CharField(widget=forms.HiddenInput),
        forms.IntegerField(widget=forms.HiddenInput),
        forms.ChoiceField(choices=[("a", "A")], widget=forms.HiddenInput),
    ],
)
def test_what_is_hidden_from_the_user_is_not_asked(field):
    assert secrets(type("Asked", (forms.Form,), {"a": field})) == ["a"]


@pytest.mark.parametrize(
    "field",
    [forms.BooleanField(), forms.ChoiceField(choices=[("a", "A")]), forms.MultipleChoiceField()],
)
def test_choices_of_a_django_form_are_no_secret(field):
    assert secrets(type("Asked", (forms.Form,), {"password": field})) == []


def test_no_row_is_looked_up(django_assert_num_queries, db):
    class Pick(forms.Form):
        customer = forms.ModelChoiceField(Customer.objects.all())
        password = forms.CharField()

    with django_assert_num_queries(0):
        assert secrets(Pick) == ["password"] and form_problem(Pick)


@pytest.mark.parametrize(
    "message",
    ["Password?", "Your password, please.", "What is your API key?", "Type my PIN", "PIN:"],
)
def test_a_single_text_is_named_by_the_message(message):
    assert secrets(str, message) == ["answer"]
    assert secrets(bool, message) == []


@pytest.mark.parametrize(
    "message",
    ["Which password policy applies?", "Name?", "Reset the passwords?"],
)
def test_messages_that_ask_for_none(message):
    assert secrets(str, message) == []


def test_words_of_a_name():
    assert words("apiKey") == words("API_KEY") == words("Api key") == "api key"
    assert words("PDFReport") == "pdf report" and words("_a-b_") == "a b"


# As the checks say it.


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
def test_what_is_wrong_with_a_form(schema, problem):
    assert form_problem(schema) == problem


# Links.


@pytest.mark.parametrize(
    "text", ["See https://a.example", "http://a.example", "go to www.a.example"]
)
def test_links_in_a_form_are_a_warning(text, caplog):
    with caplog.at_level(logging.WARNING, "django_mcp"):
        warn_of_links({"message": text})
        warn_of_links({"requestedSchema": {"properties": {"a": {"title": text}}}})
    assert len(caplog.records) == 2 and "url=" in caplog.text


def test_without_links_nothing_is_said(caplog):
    warn_of_links({"message": "Sure? (a:b)", "requestedSchema": {"properties": {}}})
    assert caplog.text == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://shop.example/pay?a=b#c", "https://shop.example:8443/", "http://localhost:8000/x",
        "http://127.0.0.1/", "http://[::1]/",
    ],
)  # fmt: skip
def test_urls_a_user_may_be_sent_to(url):
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
def test_urls_nobody_is_sent_to(url, problem):
    assert url_problem(url) == problem


def test_while_debugging_plain_http_will_do(settings):
    settings.DEBUG = True
    assert url_problem("http://shop.example") is None
