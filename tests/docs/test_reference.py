"""The reference documents every public name once, as it is in the code, and every link works."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from django.contrib.auth.models import AnonymousUser
from django.core.management import BaseCommand, CommandParser, get_commands, load_command_class
from django.utils.module_loading import import_string

import django_mcp as mcp
from django_mcp import conf
from django_mcp.declarations.attribute_checks import is_ours
from django_mcp.declarations.declaration import Declaration
from django_mcp.declarations.schemas import problem
from django_mcp.oauth import conf as oauth_conf
from tools import docs as building

from .pages import DOCS, PAGES, ROOT, anchors, blocks, fences, links, named, prose, text

INDEX = DOCS / "index.md"
COMMANDS = DOCS / "reference/commands.md"
TOOLS = DOCS / "reference/tools.md"
REFERENCE = sorted((DOCS / "reference").glob("*.md"))
REQUESTS = DOCS / "reference/requests.md"
SETTINGS = DOCS / "reference/settings.md"
NAMED = r"`\"?\[?\"?(django_mcp\.[\w.]+\.\w+)"
IMPORT = re.compile(r"^ *from (django_mcp[\w.]*) import ([\w, ]+)$", re.M)
# A heading such as "## `mcp.trusted(rows)`".
HEADING = re.compile(r"^(#{2,3}) `(?:django_)?mcp\.([\w.]+)(\(.*\))?`$", re.M)
ROW = re.compile(r"^\|(.+)\|$", re.M)


class Entry(NamedTuple):
    """A documented name: its dotted path, its signature, and the text below its heading."""

    path: str
    signature: str
    text: str

    @property
    def object(self) -> Any:
        return import_string(self.path)

    @property
    def _lines(self) -> Iterator[list[str]]:
        """The cells of every row of its tables."""
        for line in ROW.findall(self.text):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)]

    @property
    def rows(self) -> dict[str, list[str]]:
        """The cells of the rows, by each name in the first cell."""
        lines = [(re.findall(r"`(\w+)(?:\(.*?\))?`", line[0]), line) for line in self._lines]
        return {name: line for names, line in lines for name in names}

    @property
    def tables(self) -> list[Entry]:
        """Its tables, one by one."""
        return tables(self.text)

    @property
    def methods(self) -> Iterator[tuple[str, str]]:
        """The methods in the first cells, with their parameters."""
        for line in self._lines:
            yield from re.findall(r"`(\w+)\((.*?)\)`", line[0])


def tables(page: str) -> list[Entry]:
    """The tables of a text, one by one."""
    return [Entry("", "", block) for block in re.findall(r"(?:^\|.+\|\n)+", page, re.M)]


def documented() -> Iterator[Entry]:
    for page in REFERENCE:
        told = prose(page)
        for match in HEADING.finditer(told):
            level, name, signature = match.groups()
            rest = told[match.end() :]
            end = re.search(rf"^#{{1,{len(level)}}} ", rest, re.M)
            yield Entry(f"django_mcp.{name}", signature or "", rest[: end.start() if end else None])


ENTRIES = {entry.path: entry for entry in documented()}
FUNCTIONS = [entry for entry in ENTRIES.values() if entry.signature]
CLASSES = [entry for entry in ENTRIES.values() if inspect.isclass(entry.object)]


def path_of(entry: Entry) -> str:
    return entry.path


def parameters(signature: str) -> list[str]:
    """The names of the parameters in a signature as a page shows it."""
    parts = re.sub(r"=(\(\)|[^,)]+)", "", signature.strip("()")).split(",")
    return [part.strip().lstrip("*") for part in parts if part.strip(" *")]


def of_function(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_every_public_name_is_documented_once():
    found = [entry.path.removeprefix("django_mcp.") for entry in documented()]
    assert sorted(name for name in found if "." not in name) == mcp.__all__
    assert len(found) == len(set(found))


@pytest.mark.parametrize("entry", FUNCTIONS, ids=path_of)
def test_signature_of_a_function_matches_the_code(entry):
    assert parameters(entry.signature) == of_function(entry.object)


@pytest.mark.parametrize("entry", CLASSES, ids=path_of)
def test_signatures_of_methods_match_the_code(entry):
    for name, shown in entry.methods:
        if name not in ("handle", "read") or not issubclass(entry.object, Declaration):
            assert parameters(shown) == of_function(getattr(entry.object, name)), name


TESTING = "django_mcp.testing."
# Classes whose arguments are documented with their defaults.
WITH_ARGUMENTS = {
    "django_mcp.Server",
    "django_mcp.transports.pipe.Conversation",
    "django_mcp.verifiers.IntrospectedTokens",
    "django_mcp.verifiers.JWTTokens",
}
# Where attributes are documented that a class has from another one.
SHARED = {
    "django_mcp.ModelResource": ["django_mcp.Tool", "django_mcp.Resource"],
    "django_mcp.testing.AsyncClient": ["django_mcp.testing.Client"],
    "django_mcp.testing.Prompted": ["django_mcp.testing.Result"],
    "django_mcp.testing.ReadResult": ["django_mcp.testing.Result"],
}
# ``message`` is documented with ``ToolError``, and ``RpcError`` is made by the test client.
INHERITED = {"message", "error"}
WITHOUT_DEFAULT = (inspect.Parameter.empty, dataclasses.MISSING)


def attributes(entry: Entry) -> dict[str, Any]:
    """The attributes that a project may set, or the arguments of the class, with defaults."""
    cls = entry.object
    if issubclass(cls, Declaration):
        return {name: getattr(cls, name) for name in cls._options()}
    if dataclasses.is_dataclass(cls) and not entry.path.startswith(TESTING):
        return {field.name: field.default for field in dataclasses.fields(cls) if field.init}
    own_arguments = issubclass(cls, Exception) and "__init__" in vars(cls)
    if own_arguments or issubclass(cls, tuple) or entry.path in WITH_ARGUMENTS:
        found = inspect.signature(cls).parameters.values()
        return {one.name: one.default for one in found if one.name not in INHERITED}
    return {}


def rows_of(entry: Entry) -> dict[str, list[str]]:
    """The rows of a class, and those of the classes from which it has attributes."""
    cls = entry.object
    others = SHARED.get(entry.path, ["django_mcp.Tool"] if issubclass(cls, Declaration) else [])
    found: dict[str, list[str]] = {}
    for other in others:
        found |= ENTRIES[other].rows
    if issubclass(cls, mcp.Text | mcp.Image | mcp.ResourceLink | mcp.EmbeddedResource):
        found |= dict.fromkeys(("annotations", "meta"), [])  # above the first heading of the page
    return found | entry.rows


@pytest.mark.parametrize("entry", CLASSES, ids=path_of)
def test_every_attribute_is_documented_with_its_default(entry):
    rows = rows_of(entry)
    for name, default in attributes(entry).items():
        assert name in rows, name
        shown = entry.rows[name][-2] if name in entry.rows else ""
        if default in WITHOUT_DEFAULT:
            assert shown in ("required", ""), name
        elif re.fullmatch("`.+`", shown):
            assert eval(shown.strip("`"), {"mcp": mcp}) == default, name


SETTING_TABLES = {"settings.md": conf.DEFAULTS, "oauth.md": oauth_conf.DEFAULTS}


@pytest.mark.parametrize("page", SETTING_TABLES)
def test_every_setting_is_documented_with_its_default(page):
    (table,) = [
        one for one in tables(text(DOCS / "reference" / page)) if "| key | type |" in one.text
    ]
    shown = {name: eval(row[2].strip("`"), {"mcp": mcp}) for name, row in table.rows.items()}
    # A page shows a list where the code has a tuple of one.
    assert repr(shown) == re.sub(r"\(('[^']*'),\)", r"[\1]", repr(SETTING_TABLES[page]))


# The first column of a table that lists values which a project may set or read.
VALUES = re.compile(r"\| (read-only )?(class )?(argument|attribute|key|keyword|option)\b")


@pytest.mark.parametrize("page", REFERENCE, ids=named)
def test_every_value_has_a_type_and_a_default(page):
    for table in tables(prose(page)):
        head, _, *rows = table._lines
        found = VALUES.match(table.text)
        if found:
            wanted = ["type"] if found[1] else ["type", "default"]
            assert head[1 : 1 + len(wanted)] == wanted, table.text
            for row in rows:
                assert len(row) == len(head) and all(row), row


def test_tables_of_classes_say_what_they_list():
    """``name`` does not say whether a value may be set."""
    heads = [next(one._lines)[0] for entry in CLASSES for one in entry.tables]
    assert "name" not in heads


# Everything a project may set, override or call has an entry; its own helpers may have any name
# that is not documented. A class has what is documented of its base classes, too.


def documented_names(cls: type) -> set[str]:
    """The public names of a class that the reference documents."""
    entries = {entry.object: entry for entry in CLASSES}
    names = {name for base in cls.__mro__ if base in entries for name in entries[base].rows}
    if issubclass(cls, Declaration):  # the first table of Tool is of all declarations
        names |= ENTRIES["django_mcp.Tool"].tables[0].rows.keys()
    return names


def public_names(thing: Any) -> set[str]:
    classes = thing.__mro__ if isinstance(thing, type) else type(thing).__mro__
    annotated = {name for cls in classes for name in inspect.get_annotations(cls)}
    return {name for name in {*dir(thing), *annotated} if not name.startswith("_")}


@pytest.mark.parametrize("entry", CLASSES, ids=path_of)
def test_declarations_have_the_public_attributes_that_are_documented(entry):
    if issubclass(entry.object, Declaration):
        assert public_names(entry.object) == documented_names(entry.object)


def test_servers_have_the_public_attributes_that_are_documented():
    assert public_names(mcp.server) == documented_names(mcp.Server)


def test_resolved_declarations_have_no_other_public_attributes():
    for thing in mcp.server.ready()._declarations():
        ours = next(cls for cls in type(thing).__mro__ if is_ours(cls))
        theirs = {name for cls in type(thing).__mro__ if not is_ours(cls) for name in vars(cls)}
        assert public_names(thing) - theirs <= documented_names(ours), thing


def test_requests_have_the_public_attributes_that_are_documented():
    request = mcp.Request(mcp.Principal(AnonymousUser()), mcp.server)
    found = public_names(request)
    found -= {f"a{name}" for name in found}  # asynchronous twins, documented in the same entry
    assert found == documented_names(mcp.Request)
    (can,) = [one for one in tables(text(REQUESTS)) if "`request.can`" in one.text]
    assert public_names(request.can) == can.rows.keys()


CALLED = [one for one in CLASSES if one.object is mcp.Request or TESTING in one.path]


@pytest.mark.parametrize("entry", CALLED, ids=path_of)
def test_every_method_of_requests_and_test_clients_is_documented(entry):
    public = {
        name
        for name, value in vars(entry.object).items()
        if name[0] != "_" and (inspect.isfunction(value) or isinstance(value, property))
    }
    twins = {f"a{name}" for name in public}  # documented in the same entry
    assert public - twins - {"setUp"} <= rows_of(entry).keys()


def test_names_in_settings_are_documented():
    found = set(re.findall(NAMED, text(SETTINGS)))
    assert found and found <= ENTRIES.keys()


def test_imports_of_the_pages_are_documented():
    imported = {
        f"{module}.{name}"
        for page in PAGES
        for code in blocks(page, "python")
        for module, names in IMPORT.findall(code)
        for name in names.split(", ")
    }
    assert imported <= ENTRIES.keys() and len(imported) > 5


def test_every_page_is_in_the_index_and_the_toctree():
    listed = "".join(code for kind, code in fences(INDEX) if kind == "{toctree}").splitlines()
    told = {link for link in links(INDEX) if link.endswith(".md")}
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - {"index.md"}
    assert told == pages
    assert {f"{line}.md" for line in listed if line and not line.startswith(":")} == pages


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_have_targets(page):
    lost = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        to = (page.parent / path).resolve() if path else page
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            lost.append(link)
    assert lost == []


def test_readme_links_to_the_documentation():
    assert len([link for link in links(ROOT / "README.md") if link.startswith("docs/")]) > 10


def options(parser: CommandParser, *, known: set[str]) -> set[str]:
    """Return the options of a command except those of every command, without short forms."""
    return {
        action.option_strings[-1]
        for action in parser._actions
        if action.option_strings and action.option_strings[-1] not in known
    }


def declared() -> Iterator[tuple[str, set[str]]]:
    """Yield every command, or each of its actions, and its options."""
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


def test_every_command_is_listed_with_its_options():
    rows = [line.split(" | ") for line in text(COMMANDS).splitlines() if line.startswith("| `")]
    told = {
        " ".join(re.findall(r"\b[a-z_]+\b", row[0])): set(re.findall(r"--[\w-]+", row[-1]))
        for row in rows
    }
    assert told == dict(declared())


def test_broken_link_fails_the_build(monkeypatch, tmp_path, capfd):
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


def test_every_supported_schema_dialect_is_listed():
    """No other dialect is accepted."""
    (told,) = re.findall(r"JSON schema \(draft (.*?), as `\$schema` says", text(TOOLS))
    assert re.split(r", | or ", told) == list(DIALECTS)
    for url in DIALECTS.values():
        assert problem({"$schema": url, "type": "object"}) is None
    unknown = {"$schema": "http://json-schema.org/draft-05/schema#", "type": "object"}
    assert "is not supported. Use draft 3 to 2020-12" in str(problem(unknown))
