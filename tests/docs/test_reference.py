"""Every public name has its one place, every page is found, and every link leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.core.management import BaseCommand, CommandParser, get_commands, load_command_class

import django_mcp as mcp
from django_mcp.declare.schemas import problem
from tools import docs as building

from .pages import DOCS, PAGES, ROOT, anchors, blocks, fences, links, named, text

INDEX = DOCS / "index.md"
COMMANDS = DOCS / "reference/commands.md"
DECLARING = DOCS / "reference/declaring.md"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
SETTINGS = DOCS / "reference/settings.md"
NAMED = r"`\"?\[?\"?(django_mcp\.[\w.]+\.\w+)"
IMPORT = re.compile(r"^ *from (django_mcp[\w.]*) import ([\w, ]+)$", re.M)
OBJECT = re.compile(r"^\.\. (?:auto\w+:: (?:django_mcp\.)?|py:data:: )([\w.]+)", re.M)


def shown() -> list[tuple[str, str]]:
    """Each name that is explained, and the page that it is on."""
    found = []
    for page in REFERENCE:
        for code in blocks(page, "{eval-rst}"):
            found += [(name, page.stem) for name in OBJECT.findall(code)]
    return found


def test_every_public_name_is_on_the_page_of_its_module_and_on_no_other():
    public = {name: module.rpartition(".")[2] for name, (module, _) in mcp._PLACES.items()}
    expected = {(name, module.replace("_", "-")) for name, module in public.items()}
    found = [(name, page) for name, page in shown() if "." not in name]
    assert set(found) == expected and len(found) == len(expected)


def test_what_is_not_at_the_front_door_is_on_one_page():
    others = [name for name, _ in shown() if "." in name]
    assert len(others) == len(set(others))
    settings = {name.removeprefix("django_mcp.") for name in re.findall(NAMED, text(SETTINGS))}
    assert settings and settings <= set(others)


def test_whatever_a_page_imports_is_explained():
    explained = {f"django_mcp.{name}" for name, _ in shown()}
    imported = {
        f"{module}.{name}"
        for page in PAGES
        for code in blocks(page, "python")
        for module, names in IMPORT.findall(code)
        for name in names.split(", ")
    }
    assert imported <= explained and len(imported) > 5


def test_every_page_is_in_the_index_for_readers_and_for_sphinx():
    listed = "".join(code for kind, code in fences(INDEX) if kind == "{toctree}").splitlines()
    told = {link for link in links(INDEX) if link.endswith(".md")}
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    assert told == pages
    assert {f"{line}.md" for line in listed if line and not line.startswith(":")} == pages


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page):
    lost = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            lost.append(link)
    assert lost == []


def test_a_page_that_is_linked_from_the_readme_is_there():
    assert len([link for link in links(ROOT / "README.md") if link.startswith("docs/")]) > 10


def options(parser: CommandParser, *, known: set[str]) -> set[str]:
    """What a command takes beside what every command takes; short forms aside."""
    return {
        action.option_strings[-1]
        for action in parser._actions
        if action.option_strings and action.option_strings[-1] not in known
    }


def declared() -> Iterator[tuple[str, set[str]]]:
    """Every command of ours, or each of its actions, and its options."""
    known = options(BaseCommand().create_parser("manage.py", ""), known=set())
    for name, app in get_commands().items():
        if app not in ("django_mcp", "django_mcp.oauth"):
            continue
        parser = load_command_class(app, name).create_parser("manage.py", name)
        several = [action for action in parser._actions if isinstance(action.choices, dict)]
        if several:
            for verb, action in several[0].choices.items():
                yield f"{name} {verb}", options(action, known=known)
        else:
            yield name, options(parser, known=known)


def test_every_command_is_told_of_with_its_options():
    rows = [line.split(" | ") for line in text(COMMANDS).splitlines() if line.startswith("| `")]
    told = {
        " ".join(re.findall(r"\b[a-z_]+\b", row[0])): set(re.findall(r"--[\w-]+", row[-1]))
        for row in rows
    }
    assert told == dict(declared())


def test_pages_of_modules_say_where_there_is_more():
    for page in REFERENCE:
        if blocks(page, "{eval-rst}"):
            assert re.search(r"\]\([\w./-]+\.md", text(page)), named(page)


def test_mistakes_are_the_exit_code(monkeypatch, tmp_path, capfd):
    (tmp_path / "conf.py").write_text("extensions = ['myst_parser']")
    (tmp_path / "index.md").write_text("# A page\n\n[nowhere](nowhere.md)\n")
    for name, folder in {"SOURCE": tmp_path, "PAGES": tmp_path / "made"}.items():
        monkeypatch.setattr(building, name, folder)
    monkeypatch.setattr(building, "STRICT", ("-W", "-n", "-q", "--keep-going"))
    assert building.main([]) != 0
    (tmp_path / "index.md").write_text("# A page\n")
    assert building.main([]) == 0 and (tmp_path / "made/index.html").exists()


DIALECTS = {
    **{n: f"http://json-schema.org/draft-0{n}/schema#" for n in "3467"},
    **{n: f"https://json-schema.org/draft/{n}/schema" for n in ("2019-09", "2020-12")},
}


def test_every_dialect_of_schemas_is_listed():
    """Those that are taken, and no other."""
    (told,) = re.findall(r"JSON schema \(draft (.*?), as `\$schema` says", text(DECLARING))
    assert re.split(r", | or ", told) == list(DIALECTS)
    for url in DIALECTS.values():
        assert problem({"$schema": url, "type": "object"}) is None
    unknown = {"$schema": "http://json-schema.org/draft-05/schema#", "type": "object"}
    assert "is not supported; draft 3 to 2020-12 are" in str(problem(unknown))
