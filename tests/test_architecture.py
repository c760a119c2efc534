"""The plan of the house, enforced: who may import whom, and how big a thing may grow.

The rule: a room imports only rooms of lower levels (and itself), whether the import stands at the
top, in a function or under TYPE_CHECKING: to know a type is to know the room. A file that is in no
room of the table is an offence, so that the table stays whole.
"""

import ast
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_mcp"

# Rooms, by level. What stands on one line is one party: its rooms may import each other.
LEVELS: list[list[set[str]]] = [
    [{"protocol"}],
    [
        {
            "exceptions",
            "conf",
            "adoption",
            "pools",
            "threads",
            "principal",
            "scopes",
            "switches",
            "uses",
        }
    ],
    [{"declare"}, {"models", "delivery", "migrations"}],
    [{"dispatch"}, {"protected"}],
    [
        {"bridges"},
        {"subscriptions"},
        {"tasks"},
        {"operations"},
        {"oauth", "tokens"},
        {"issuers"},
        {"transports"},
    ],  # fmt: skip
    [
        {
            "apps",
            "receivers",
            "routing",
            "checks",
            "admin",
            "urls",
            "web",
            "testing",
            "management",
        }
    ],
]
TOP = len(LEVELS) - 1
PARTIES = {
    room: (level, party)
    for level, parties in enumerate(LEVELS)
    for party, rooms in enumerate(parties)
    for room in rooms
}

# The public names, which users import: lazy, so it knows every room and no room may know it.
FRONT_DOOR = "__init__"

# These run where nothing is installed, or must not care what is.
STANDARD_LIBRARY_ALONE = {
    "django_mcp/protocol": {"django_mcp.protocol"},
    **{
        f"tools/{name}.py": {"tools"}
        for name in (
            "__main__",
            "authorization",
            "become",
            "environment",
            "ci",
            "clean",
            "clients",
            "conformance",
            "flows",
            "install",
            "matrix",
            "newcomer",
            "pages",
            "person",
            "run",
            "scenarios",
            "servers",
            "serving",
            "suite",
            "terminal",
            "test",
            "wheels",
        )
    },
}
FORBIDDEN_IN_PROTOCOL = {"asyncio", "threading", "socket", "selectors", "time"}

MEASURED = ("django_mcp", "example_project", "tools")
LONGEST_MODULE = 400
LONG_FUNCTION, LONG_SHARE, MEDIAN = 50, 0.04, 8
TABLES: set[str] = set()  # modules that are tables, and so as long as what they list


def sources(folder: Path) -> Iterator[Path]:
    found = [folder] if folder.suffix == ".py" else sorted(folder.rglob("*.py"))
    yield from (path for path in found if path.exists() and "migrations" not in path.parts)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Every module that a file imports, wherever in it, relative ones made absolute."""
    own = dotted(path, root).split(".")
    folder = own if path.name == "__init__.py" else own[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = folder[: len(folder) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def room_of(module: str, package: str) -> str:
    """The room that a module of the package belongs to; the package itself is the front door."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in known_rooms(package) else FRONT_DOOR


def home(path: Path) -> str:
    """The room that a file stands in. Pages of the admin are that, whichever app has them."""
    return "admin" if path.name == "admin.py" else path.parts[0].removesuffix(".py")


def known_rooms(package: str) -> set[str]:
    return set(PARTIES) if package == PACKAGE.name else set()


def may_import(room: str, other: str) -> bool:
    if other == FRONT_DOOR:
        return PARTIES[room][0] == TOP
    (level, party), (lower, other_party) = PARTIES[room], PARTIES[other]
    return lower < level or (level, party) == (lower, other_party)


def layer_offences(root: Path) -> Iterator[str]:
    """Imports that go up or aside, and files that are in no room."""
    package = root / PACKAGE.name
    for path in sources(package):
        if path == package / "__init__.py":
            continue
        room = home(path.relative_to(package))
        where = path.relative_to(root).as_posix()
        if room not in PARTIES:
            yield f"{where}: in no room; put {room!r} into the table of levels"
            continue
        for line, module in imports(path, root):
            if module.split(".")[0] != PACKAGE.name:
                continue
            other = room_of(module, PACKAGE.name)
            if not may_import(room, other):
                yield f"{where}:{line}: {room} may not import {other} ({module})"


def outside_imports(root: Path) -> Iterator[str]:
    """Imports of anything but the standard library, where nothing else may be used."""
    for place, allowed in STANDARD_LIBRARY_ALONE.items():
        for path in sources(root / place):
            for line, module in imports(path, root):
                top = module.split(".")[0]
                inside = any(f"{module}.".startswith(f"{name}.") for name in allowed)
                if not inside and top not in sys.stdlib_module_names:
                    yield f"{path.relative_to(root).as_posix()}:{line}: {module}"


def waiting_imports(root: Path) -> Iterator[str]:
    """The protocol owns no socket, clock, lock, task or future, so it has no use for these."""
    for path in sources(root / "django_mcp/protocol"):
        for line, module in imports(path, root):
            if module.split(".")[0] in FORBIDDEN_IN_PROTOCOL:
                yield f"{path.relative_to(root).as_posix()}:{line}: {module}"


def eager_imports(root: Path) -> Iterator[str]:
    """What the front door imports when it is imported: nothing of the package."""
    for node in parsed(root / "django_mcp/__init__.py").body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["django_mcp" if node.level else node.module or ""]
        for name in names:
            if name.split(".")[0] not in sys.stdlib_module_names:
                yield f"django_mcp/__init__.py:{node.lineno}: {name}"


def functions(root: Path) -> Iterator[tuple[str, int]]:
    """Every function and how many lines it has, without its docstring."""
    for folder in MEASURED:
        for path in sources(root / folder):
            for node in ast.walk(parsed(path)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    name = f"{path.relative_to(root).as_posix()}:{node.lineno} {node.name}"
                    yield name, length(node)


def length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    told = ast.get_docstring(function, clean=False) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if told else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def size_offences(root: Path) -> list[str]:
    """Modules too long, and what is wrong with the lengths of functions as a whole."""
    found = []
    for folder in MEASURED:
        for path in sources(root / folder):
            lines = path.read_text(encoding="utf-8").count("\n")
            name = path.relative_to(root).as_posix()
            if lines > LONGEST_MODULE and name not in TABLES:
                found.append(f"{name}: {lines} lines, at most {LONGEST_MODULE}")
    return found + function_offences(dict(functions(root)))


def function_offences(lengths: dict[str, int]) -> list[str]:
    found = []
    if (median := statistics.median(lengths.values())) > MEDIAN:
        found.append(f"the median function has {median} lines, at most {MEDIAN}")
    long = [f"{name}: {lines} lines" for name, lines in lengths.items() if lines > LONG_FUNCTION]
    if len(long) > LONG_SHARE * len(lengths):
        found.append(f"{len(long)} of {len(lengths)} functions are over {LONG_FUNCTION} lines:")
        found.extend(long)
    return found


def told(offences: Iterator[str] | list[str]) -> str:
    return "\n".join(offences)


def test_rooms_import_only_lower_levels():
    assert not told(layer_offences(ROOT))


def test_some_rooms_need_the_standard_library_alone():
    assert not told(outside_imports(ROOT))


def test_the_protocol_neither_waits_nor_writes():
    assert not told(waiting_imports(ROOT))


def test_the_front_door_imports_nothing_when_imported():
    assert not told(eager_imports(ROOT))


def test_things_are_small():
    assert not told(size_offences(ROOT))


def test_only_an_app_has_a_models_module():
    named = [path for path in sources(PACKAGE) if path.name == "models.py"]
    assert all((path.parent / "apps.py").exists() for path in named)


# The tests of the tests: each rule, broken in a house of one file.


@pytest.fixture
def house(tmp_path):
    def build(path: str, source: str) -> Path:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        return tmp_path

    return build


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("django_mcp/protocol/a.py", "from django_mcp.conf import settings"),
        ("django_mcp/protocol/a.py", "from ..conf import settings"),
        ("django_mcp/protocol/a.py", "from .. import conf"),
        ("django_mcp/declare/a.py", "from django_mcp import dispatch"),
        ("django_mcp/declare/a.py", "import django_mcp.delivery.store"),
        ("django_mcp/delivery/a.py", "def f():\n    from django_mcp.declare import servers"),
        ("django_mcp/dispatch/a.py", "import django_mcp as mcp"),
        ("django_mcp/dispatch/a.py", "from django_mcp import ToolError"),
        ("django_mcp/bridges/a.py", "from django_mcp.transports import stdio"),
        ("django_mcp/conf.py", "if TYPE_CHECKING:\n    from django_mcp.declare import servers"),
        ("django_mcp/utils.py", ""),
    ],
)
def test_an_import_upwards_or_aside_is_found(house, path, source):
    assert told(layer_offences(house(path, source)))


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("django_mcp/protocol/a.py", "from django_mcp.protocol import jsonrpc\nimport json"),
        ("django_mcp/protocol/deep/a.py", "from ..jsonrpc import decode"),
        ("django_mcp/conf.py", "from django_mcp.exceptions import ToolError"),
        ("django_mcp/declare/a.py", "from . import servers\nfrom .requests import Request"),
        ("django_mcp/transports/a.py", "from ..dispatch.running import run\nimport django"),
        ("django_mcp/apps.py", "from django_mcp import checks\nimport django_mcp"),
        ("django_mcp/__init__.py", "from django_mcp.declare import servers"),
    ],
)
def test_an_import_downwards_is_none(house, path, source):
    assert not told(layer_offences(house(path, source)))


@pytest.mark.parametrize("source", ["import django", "def f():\n    import pydantic.types"])
def test_a_dependency_is_found(house, source):
    assert told(outside_imports(house("django_mcp/protocol/a.py", source)))
    assert told(outside_imports(house("tools/environment.py", source)))


def test_the_standard_library_is_no_dependency(house):
    root = house("django_mcp/protocol/a.py", "import json\nfrom django_mcp.protocol import b")
    assert not told(outside_imports(root))


def test_a_clock_in_the_protocol_is_found(house):
    assert told(waiting_imports(house("django_mcp/protocol/a.py", "from asyncio import Lock")))


@pytest.mark.parametrize("source", ["from .declare import x", "import pydantic"])
def test_an_eager_front_door_is_found(house, source):
    assert told(eager_imports(house("django_mcp/__init__.py", source)))
    lazy = f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {source}"
    assert not told(eager_imports(house("django_mcp/__init__.py", lazy)))


@pytest.mark.parametrize(
    "source",
    [
        "def f(): ...\n" + "\n" * 400,
        "def f():\n" + "    x = 1\n" * 8,
        "def f(): ...\ndef g(): ...\ndef h():\n" + "    x = 1\n" * 50,
    ],
    ids=["a long module", "a long median", "a long function"],
)
def test_what_grew_too_big_is_found(house, source):
    assert size_offences(house("django_mcp/declare/a.py", source))


def test_a_docstring_does_not_count(house):
    source = 'def f():\n    """Told\n\n    at some\n    length."""\n' + "    x = 1\n" * 7
    assert not size_offences(house("django_mcp/declare/a.py", source))
