"""`python -m tools messages [LANGUAGE ...]`: update and compile the catalogs of translations.

It extracts the marked strings of `django_mcp` into `django_mcp/locale`. Translations are kept, new
strings are empty, and strings that the code no longer has are removed. A language that has no
catalog gets one if it is named. The files have no dates and line numbers, so that only a change of
strings or translations changes them.

Babel does this without GNU gettext, so it works on every platform. The names of Python functions
that mark a string are Django's.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import django
from babel.messages.catalog import Catalog
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.template import engines
from django.template.base import Template
from django.templatetags.i18n import BlockTranslateNode, TranslateNode

from tools import ROOT

PACKAGE = ROOT / "django_mcp"
LOCALE = PACKAGE / "locale"
KEYWORDS = {
    name: DEFAULT_KEYWORDS[name] for name in ("gettext", "ngettext", "pgettext", "npgettext")
}
KEYWORDS |= {f"{name}_lazy": positions for name, positions in KEYWORDS.items()}
KEYWORDS |= {"_": None, "gettext_noop": None}
HEADERS = ("Language", "Plural-Forms", "MIME-Version", "Content-Type", "Content-Transfer-Encoding")


class StableCatalog(Catalog):
    """A catalog whose header has no dates and no versions."""

    def _headers(self) -> list[tuple[str, str]]:
        kept = [(name, value) for name, value in self._get_mime_headers() if name in HEADERS]
        (name, last) = kept.pop()
        return [*kept, (name, f"{last}\n")]  # each line of the header must end

    mime_headers = property(_headers, Catalog._set_mime_headers)


def main(arguments: list[str]) -> int:
    strings = extract()
    for language in sorted({*languages(), *arguments}):
        catalog = translate(strings, language)
        missing = [message for message in catalog if message.id and not is_translated(message)]
        write(catalog, language)
        print(f"{language}: {len(catalog)} strings, {len(missing)} without a translation")
    return 0


def languages() -> list[str]:
    """Return the languages that have a catalog."""
    return sorted(path.name for path in LOCALE.iterdir()) if LOCALE.exists() else []


def catalog_path(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES" / "django.po"


def read(language: str) -> Catalog:
    """Return the catalog of a language, empty if there is no file."""
    path = catalog_path(language)
    if not path.exists():
        return Catalog(language)
    with path.open("rb") as file:
        return read_po(file, language)


def write(catalog: Catalog, language: str) -> None:
    """Write the catalog and its compiled form, which Django reads."""
    path = catalog_path(language)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        write_po(file, catalog, sort_output=True, include_lineno=False)
    with path.with_suffix(".mo").open("wb") as file:
        write_mo(file, catalog)


def is_translated(message: Any) -> bool:
    return bool(message.string and all(message.string))


def translate(strings: Catalog, language: str) -> Catalog:
    """Return a catalog of ``strings`` with the translations of the language's present catalog."""
    known = read(language)
    comment = f"# {known.locale.english_name} translation of django_mcp."  # type: ignore[union-attr]
    catalog = StableCatalog(language, header_comment=comment, fuzzy=False)
    for message in strings:
        if message.id:  # the header has none
            old = known.get(message.id, message.context)
            catalog.add(
                message.id,
                old.string if old else None,
                message.locations,
                auto_comments=message.auto_comments,
                context=message.context,
            )
    return catalog


# Extraction.


def extract() -> Catalog:
    """Return the marked strings of the package's Python modules and templates."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
    django.setup()  # the template tags of the installed apps
    methods: Any = [
        ("**.py", "python"),
        ("**.html", extract_template),
        ("**.txt", extract_template),
    ]
    found = Catalog()
    for name, line, message, comments, context in extract_from_dir(
        PACKAGE, methods, keywords=KEYWORDS, comment_tags=["Translators:"]
    ):
        place = (PACKAGE / name).relative_to(ROOT).as_posix()
        found.add(message, locations=[(place, line)], auto_comments=comments, context=context)
    return found


def extract_template(
    file: IO[bytes], keywords: Any, comment_tags: Any, options: Any
) -> Iterator[tuple[int, str, Any, list[str]]]:
    """Yield the strings of ``{% translate %}`` and ``{% blocktranslate %}``, for Babel."""
    template = parse(file.read().decode())
    for node in template.nodelist.get_nodes_by_type(TranslateNode):
        assert isinstance(node, TranslateNode)
        text = node.filter_expression.var.literal
        if isinstance(text, str):  # not a variable
            yield _call(node, [text.replace("%", "%%")])
    for node in template.nodelist.get_nodes_by_type(BlockTranslateNode):
        assert isinstance(node, BlockTranslateNode)
        forms = [node.singular, node.plural] if node.plural else [node.singular]
        yield _call(node, [node.render_token_list(form)[0] for form in forms])


def _call(node: Any, texts: list[str]) -> tuple[int, str, Any, list[str]]:
    """Return the call of a function of gettext that is equivalent to a node of a template."""
    context = node.message_context.var if node.message_context else None
    name = ("n" if len(texts) > 1 else "") + ("p" if context else "") + "gettext"
    return node.token.lineno, name, ([context, *texts] if context else texts), []


def parse(source: str) -> Template:
    """Return a template, parsed by Django with the template tags of the installed apps."""
    return engines["django"].from_string(source).template  # type: ignore[no-any-return,attr-defined]
