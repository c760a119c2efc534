"""The page on translations: its settings select a language, and its sample is a catalog."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from babel.messages.pofile import read_po
from django.conf import settings
from django.test import override_settings
from django.utils.translation import get_language, override

from tools import messages

from .pages import ROOT, blocks

PAGE = ROOT / "docs/how-to/translations.md"
(SETTINGS,) = blocks(PAGE, "python")
(CATALOG,) = blocks(PAGE, "text")


@pytest.mark.urls("tests.admin.urls")
def test_middleware_selects_the_language_of_the_admin(client, db):
    namespace: dict[str, Any] = {}
    exec(compile(SETTINGS, str(PAGE), "exec", dont_inherit=True), namespace)
    own = [name for name in settings.MIDDLEWARE if name not in namespace["MIDDLEWARE"]]
    project = override_settings(
        MIDDLEWARE=namespace["MIDDLEWARE"] + own, LANGUAGE_CODE=namespace["LANGUAGE_CODE"]
    )
    with project, override(get_language()):
        for given, shown in (("fr", "fr"), ("de-at", "de"), ("xx", "en"), ("", "en")):
            response = client.get("/admin/login/", headers={"accept-language": given})
            assert f'<html lang="{shown}' in response.text


def test_sample_translates_a_string_of_the_pages():
    (message,) = [one for one in read_po(StringIO(CATALOG), "de") if one.id]
    assert message.id in messages.read("de")
    assert message.string
