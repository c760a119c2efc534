"""Every catalog has a translation of every marked string, and its compiled file agrees with it."""

from __future__ import annotations

import re
from gettext import GNUTranslations

import pytest
from babel.messages.catalog import Catalog, Message
from django.conf.global_settings import LANGUAGES
from django.utils.translation import override

from django_mcp.models import Session
from tools import messages

PLACEHOLDERS = re.compile(r"%(?:\(\w+\))?[a-z]|%%|{\w*}|<[^>]*>")
RUN = "Run `make messages` and translate what is new in django_mcp/locale."


@pytest.fixture(scope="module")
def strings() -> Catalog:
    return messages.extract()


def forms(text: object) -> list[str]:
    return [str(one) for one in text] if isinstance(text, tuple | list) else [str(text)]


def keys(catalog: Catalog) -> set[tuple[str | None, ...]]:
    return {(message.context, *forms(message.id)) for message in catalog if message.id}


def problems(message: Message, number_of_plurals: int) -> list[str]:
    """Return what is wrong with the translation of a string."""
    sources, translations = forms(message.id), forms(message.string)
    found = []
    if not all(translations):
        found.append("is not translated")
    if len(sources) > 1 and len(translations) != number_of_plurals:
        found.append("lacks a plural form")
    if message.fuzzy:
        found.append("is marked as fuzzy")
    wanted = sorted(PLACEHOLDERS.findall(sources[-1]))
    if any(sorted(PLACEHOLDERS.findall(text)) != wanted for text in translations):
        found.append("has other placeholders or tags than the original")
    return [f"{message.id!r} {problem}" for problem in found]


def test_languages_are_known_to_django():
    assert messages.languages() == ["de", "fr"]
    assert set(messages.languages()) < dict(LANGUAGES).keys()


@pytest.mark.parametrize("language", messages.languages())
def test_catalog_has_exactly_the_marked_strings(strings, language):
    assert len(strings) > 250
    found, wanted = keys(messages.read(language)), keys(strings)
    assert (wanted - found, found - wanted) == (set(), set()), RUN


@pytest.mark.parametrize("language", messages.languages())
def test_every_string_is_translated(language):
    catalog = messages.read(language)
    found = [problems(message, catalog.num_plurals) for message in catalog if message.id]
    assert sum(found, []) == [], RUN


@pytest.mark.parametrize("language", messages.languages())
def test_compiled_catalog_agrees_with_its_source(language):
    path = messages.catalog_path(language).with_suffix(".mo")
    with path.open("rb") as file:
        compiled = GNUTranslations(file)
    catalog = messages.read(language)
    for message in catalog:
        if message.id and len(forms(message.id)) == 1:
            context = f"{message.context}\x04" if message.context else ""
            assert compiled.gettext(f"{context}{message.id}") == message.string, RUN
        elif message.id:
            singular, plural = forms(message.id)
            translated = {compiled.ngettext(singular, plural, count) for count in range(10)}
            assert translated == set(forms(message.string)[:2]), RUN


def test_django_uses_the_catalogs():
    with override("de-at"):
        assert str(Session._meta.verbose_name) == "Sitzung"
    with override("fr"):
        assert str(Session._meta.verbose_name_plural) == "sessions"


@pytest.mark.parametrize(
    ("string", "problem"),
    [
        ("", "is not translated"),
        ("Hallo, %(nam)s!", "has other placeholders"),
        ("<b>Hallo</b>, %(name)s!", "has other placeholders"),
    ],
)
def test_wrong_translation_is_found(string, problem):
    assert any(problem in one for one in problems(Message("Hello, %(name)s!", string), 2))


def test_missing_plural_is_found():
    wrong = Message(("%d call", "%d calls"), ("%d Aufruf",))
    assert problems(wrong, 2) == ["('%d call', '%d calls') lacks a plural form"]
    assert problems(Message(("%d call", "%d calls"), ("%d Aufruf", "%d Aufrufe")), 2) == []
