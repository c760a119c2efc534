"""Which package may import which, and other rules on the structure of the code.

A package imports only packages of lower levels, and itself. Function-level imports and imports for
type checking count too. A file that belongs to no package of the table is an error.
"""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "django_mcp"

# Packages and modules of ``django_mcp``, by level. Those of one set may import each other.
LEVELS: list[list[set[str]]] = [
    [{"protocol"}],
    [{"exceptions", "signals", "conf", "runtime", "auth"}],
    [{"declarations"}, {"models", "storage", "migrations"}],
    [{"calls"}],
    [{"changes"}],
    [{"verifiers"}],
    [{"bridges"}, {"oauth"}, {"transports"}],
    [
        {
            "apps",
            "routing",
            "templatetags",
            "checks",
            "admin",
            "urls",
            "web",
            "sentry",
            "telemetry",
            "testing",
            "management",
        }
    ],
]
TOP = len(LEVELS) - 1
GROUPS = {
    name: (level, group)
    for level, groups in enumerate(LEVELS)
    for group, names in enumerate(groups)
    for name in names
}

# ``django_mcp/__init__.py`` imports every package lazily, so only the top level may import it.
PUBLIC = "__init__"

# A ``Request`` has a ``Server``, a server has declarations, and everything that a project declares
# takes a ``Request``. So the modules that these two classes need may import them for type checking.
NAMED_IN_ANNOTATIONS = {"django_mcp.declarations.request", "django_mcp.declarations.server"}

# Modules that run before anything is installed, or that must not depend on what is.
STANDARD_LIBRARY_ONLY = {
    "django_mcp/protocol": {"django_mcp.protocol"},
    **{
        f"tools/{name}.py": {"tools"}
        for name in (
            "__main__",
            "ci",
            "clean",
            "clients",
            "conformance",
            "conformance_authorization",
            "conformance_results",
            "conformance_suite",
            "database_servers",
            "environment",
            "flows",
            "matrix",
            "newcomer",
            "pages",
            "processes",
            "serving",
            "terminal",
            "test",
            "wheels",
        )
    },
}
FORBIDDEN_IN_PROTOCOL = {"asyncio", "threading", "socket", "selectors", "time"}


def sources(folder: Path) -> Iterator[Path]:
    found = [folder] if folder.suffix == ".py" else sorted(folder.rglob("*.py"))
    yield from (path for path in found if path.exists() and "migrations" not in path.parts)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    """Return every import of a file with its line, as absolute module names."""
    own = dotted(path, root).split(".")
    folder = own if path.name == "__init__.py" else own[:-1]
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            up = folder[: len(folder) - node.level + 1] if node.level else []
            base = ".".join([*up, *([node.module] if node.module else [])])
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def module_graph(root: Path) -> dict[str, set[str]]:
    """Return the modules of ``django_mcp`` that each module imports, also inside functions.

    Imports for type checking count, except those of ``NAMED_IN_ANNOTATIONS``.
    """
    files = {dotted(path, root): path for path in sources(root / PACKAGE.name)}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, path in files.items():
        annotations = lines_for_type_checking(path)
        for line, target in imports(path, root):
            module = target if target in files else target.rpartition(".")[0]
            if module not in files or module in (name, PACKAGE.name):
                continue
            if line not in annotations or module not in NAMED_IN_ANNOTATIONS:
                graph[name].add(module)
    return graph


def lines_for_type_checking(path: Path) -> set[int]:
    """Return the lines of a file that are in a block ``if TYPE_CHECKING:``."""
    blocks = [
        one
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for one in node.body
    ]
    return {line for one in blocks for line in range(one.lineno, (one.end_lineno or 0) + 1)}


def import_circles(root: Path) -> Iterator[str]:
    """Return one path for each group of modules that import each other, directly or not."""
    graph = module_graph(root)
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> Iterator[str]:
        if module in path:
            yield " -> ".join([*path[path.index(module) :], module])
        elif module not in done:
            for other in sorted(graph[module]):
                yield from visit(other, [*path, module])
            done.add(module)

    for module in sorted(graph):
        yield from visit(module, [])


def package_of(module: str) -> str:
    """Return the package of the table that a module of ``django_mcp`` belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in GROUPS else PUBLIC


def package_of_file(path: Path) -> str:
    """The same for a file. An ``admin.py`` counts as part of the admin, in every app."""
    return "admin" if path.name == "admin.py" else path.parts[0].removesuffix(".py")


def may_import(name: str, other: str) -> bool:
    if other == PUBLIC:
        return GROUPS[name][0] == TOP
    (level, group), (lower, other_group) = GROUPS[name], GROUPS[other]
    return lower < level or (level, group) == (lower, other_group)


def layer_errors(root: Path) -> Iterator[str]:
    """Return imports of the same or a higher level, and files that the table does not name."""
    package = root / PACKAGE.name
    for path in sources(package):
        if path == package / "__init__.py":
            continue
        name = package_of_file(path.relative_to(package))
        where = path.relative_to(root).as_posix()
        if name not in GROUPS:
            yield f"{where}: put {name!r} into the table of levels"
            continue
        for line, module in imports(path, root):
            if module.split(".")[0] != PACKAGE.name:
                continue
            other = package_of(module)
            if not may_import(name, other):
                yield f"{where}:{line}: {name} may not import {other} ({module})"


def outside_imports(root: Path) -> Iterator[str]:
    """Return imports of other libraries in modules that may use only the standard library."""
    for place, allowed in STANDARD_LIBRARY_ONLY.items():
        for path in sources(root / place):
            for line, module in imports(path, root):
                top = module.split(".")[0]
                inside = any(f"{module}.".startswith(f"{name}.") for name in allowed)
                if not inside and top not in sys.stdlib_module_names:
                    yield f"{path.relative_to(root).as_posix()}:{line}: {module}"


def waiting_imports(root: Path) -> Iterator[str]:
    """Return imports of sockets, clocks, locks and tasks in the sans-IO protocol package."""
    for path in sources(root / "django_mcp/protocol"):
        for line, module in imports(path, root):
            if module.split(".")[0] in FORBIDDEN_IN_PROTOCOL:
                yield f"{path.relative_to(root).as_posix()}:{line}: {module}"


def eager_imports(root: Path) -> Iterator[str]:
    """Return what ``import django_mcp`` imports at once, beside the standard library."""
    for node in parsed(root / "django_mcp/__init__.py").body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = ["django_mcp" if node.level else node.module or ""]
        for name in names:
            if name.split(".")[0] not in sys.stdlib_module_names:
                yield f"django_mcp/__init__.py:{node.lineno}: {name}"


def duplicate_classes(root: Path) -> Iterator[str]:
    """Return names that several classes have. Django itself prescribes ``Meta`` and ``Command``."""
    found: dict[str, list[str]] = {}
    for path in sources(root / PACKAGE.name):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef) and node.name not in ("Meta", "Command"):
                where = f"{path.relative_to(root).as_posix()}:{node.lineno}"
                found.setdefault(node.name, []).append(where)
    yield from (f"{name}: {', '.join(at)}" for name, at in found.items() if len(at) > 1)


def undocumented_modules(root: Path) -> Iterator[str]:
    """Return modules that the docstring of their package does not name.

    The root package is left out, as the table of levels has its modules.
    """
    package = root / PACKAGE.name
    for path in sources(package):
        one = path.parent if path.name == "__init__.py" else path
        folder, name = one.parent, one.stem
        if package in (one, folder):
            continue
        if folder.name == "commands" or name in ("management", "commands"):
            continue  # Django prescribes these
        if f"``{name}``" not in (ast.get_docstring(parsed(folder / "__init__.py")) or ""):
            yield path.relative_to(root).as_posix()


def test_packages_import_only_lower_levels():
    assert not list(layer_errors(ROOT))


def test_modules_do_not_import_each_other():
    assert not [*import_circles(ROOT)]


def test_circles_inside_functions_and_for_type_checking_are_found(tmp_path):
    package = tmp_path / "django_mcp"
    package.mkdir()
    (package / "a.py").write_text("def later():\n    from .b import B\n")
    (package / "b.py").write_text("if TYPE_CHECKING:\n    from .c import C\n")
    (package / "c.py").write_text("from . import a\n")
    names = "django_mcp.a -> django_mcp.b -> django_mcp.c -> django_mcp.a"
    assert list(import_circles(tmp_path)) == [names]


def test_some_packages_import_only_the_standard_library():
    assert not list(outside_imports(ROOT))


def test_protocol_package_does_no_io():
    assert not list(waiting_imports(ROOT))


def test_importing_django_mcp_imports_no_submodule():
    assert not list(eager_imports(ROOT))


def test_class_names_are_unique():
    assert not list(duplicate_classes(ROOT))


def test_docstrings_of_packages_name_their_modules():
    assert not list(undocumented_modules(ROOT))


def test_only_an_app_has_a_models_module():
    named = [path for path in sources(PACKAGE) if path.name == "models.py"]
    assert all((path.parent / "apps.py").exists() for path in named)
