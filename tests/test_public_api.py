"""Public names resolve lazily, so that a project imports only what it uses."""

import ast
import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

import django_mcp as mcp
from django_mcp.declarations.server import default_server

INIT = Path(mcp.__file__)


@pytest.mark.parametrize("name", mcp.__all__)
def test_every_public_name_resolves(name):
    assert getattr(mcp, name) is not None
    assert name in dir(mcp) and getattr(mcp, name) is getattr(mcp, name)


def test_each_name_resolves_to_the_object_with_that_name():
    for name, (module, attribute) in mcp._PLACES.items():
        found = getattr(import_module(f"django_mcp.{module}"), attribute)
        assert found is getattr(mcp, name)
        assert getattr(found, "__name__", name) == name
    assert mcp.server is default_server


def test_documented_names_are_public():
    """These names appear in the guides."""
    for name in (
        "AUTHENTICATED", "Annotations", "Audio", "Complete", "Declined", "Elicit",
        "EmbeddedResource", "Header", "Icon", "Image", "Message", "ModelResource", "PUBLIC",
        "Principal", "Prompt", "ProtocolError", "Request", "Resource", "ResourceLink", "Roots",
        "Sample", "Server", "Tool", "ToolError", "Unsupported", "notify_changed", "prompt",
        "register", "resource", "server", "tool",
    ):  # fmt: skip
        assert name in mcp.__all__


def test_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'django_mcp' has no attribute 'nonsense'"):
        _ = mcp.nonsense
    with pytest.raises(ImportError):
        from django_mcp import nonsense  # noqa: F401


def test_names_for_type_checkers_match_the_lazy_names():
    """The names under TYPE_CHECKING are those of the table, from the same modules."""
    tree = ast.parse(INIT.read_text(encoding="utf-8"))
    branches = [node for node in tree.body if isinstance(node, ast.If)]
    (guarded,) = [node for node in branches if isinstance(node.test, ast.Name)]
    told = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    declared = {node.target.id for node in guarded.body if isinstance(node, ast.AnnAssign)}
    assert declared == {"server"}  # an import under another name would not be exported
    assert told | {"server": ("declarations.server", "default_server")} == mcp._PLACES


def test_star_import_imports_the_public_names():
    namespace: dict[str, object] = {}
    exec("from django_mcp import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(mcp.__all__)


# What is imported.


def run(code: str, *, cwd: Path | None = None, **environ: str) -> str:
    root = str(INIT.parent.parent)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", dedent(code)],
        capture_output=True, text=True, cwd=cwd, env={"PYTHONPATH": root, "PATH": "", **environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_imports_no_other_module():
    found = json.loads(
        run(
            """
            import __future__, importlib, json, sys, typing
            before = set(sys.modules)
            import django_mcp
            print(json.dumps(sorted(set(sys.modules) - before)))
            """
        )
    )
    assert found == ["django_mcp"]


def project(folder: Path, apps: str, **files: str) -> Path:
    """A tiny project, and its settings."""
    settings = f"""
        SECRET_KEY = "x"
        USE_TZ = True
        INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", {apps}]
        DATABASES = {{"default": {{"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}}}
    """
    for name, text in ({"settings": settings} | files).items():
        path = folder / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return folder


MODULES = """
    import json, sys
    from django.core.management import execute_from_command_line
    execute_from_command_line(["manage.py", "check"])
    print(json.dumps(sorted(sys.modules)))
"""
HEAVY = {
    "pydantic", "pydantic_core", "jsonschema", "referencing", "daphne", "channels", "twisted",
    "oauthlib", "oauth2_provider", "rest_framework", "mcp", "uvicorn", "jwcrypto",
}  # fmt: skip


def modules(folder: Path) -> set[str]:
    printed = run(MODULES, cwd=folder, DJANGO_SETTINGS_MODULE="settings")
    return set(json.loads(printed.splitlines()[-1]))


def packages_of(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def test_project_without_an_mcp_module_imports_no_heavy_modules(tmp_path):
    plain = project(tmp_path / "plain", "")
    ours = project(tmp_path / "ours", '"django_mcp"')
    brought = modules(ours) - modules(plain)
    assert "django_mcp.checks" in brought and not packages_of(brought) & HEAVY
    assert "django_mcp.declarations.tools" not in brought and len(brought) < 36, sorted(brought)


USER_SAVED = """
    import json, sys
    import django
    django.setup()
    from django.contrib.auth.models import User
    from django.db.models.signals import post_save
    saved = {"created": True, "raw": False, "using": "default", "update_fields": None}
    post_save.send(User, instance=User(), **saved)
    print(json.dumps(sorted(sys.modules)))
"""


@pytest.mark.parametrize("more", ["", '"django_mcp.oauth"'], ids=["", "oauth"])
def test_admin_and_a_saved_user_import_no_heavy_modules(tmp_path, more):
    """Every process of the project imports the admin, also one that serves no MCP client."""
    apps = '"django.contrib.admin", "django.contrib.messages"' + ', "oauth2_provider"' * bool(more)
    before, after = (
        set(json.loads(run(USER_SAVED, cwd=folder, DJANGO_SETTINGS_MODULE="settings")))
        for folder in (
            project(tmp_path / "plain", apps),
            project(tmp_path / "ours", f'{apps}, "django_mcp", {more}'),
        )
    )
    brought = after - before
    assert {"django_mcp.admin.switches", "django_mcp.changes.permission_changes"} <= brought
    assert not (packages_of(after) - packages_of(before)) & HEAVY
    assert not {name for name in brought if name.startswith("django_mcp.transports")}


def test_project_with_an_mcp_module_imports_only_what_it_uses(tmp_path):
    folder = project(
        tmp_path, '"django_mcp", "shop"', shop____init__="", shop__mcp="""
            import django_mcp as mcp

            @mcp.tool(permission=mcp.PUBLIC)
            def add(request, a: int) -> int:
                return a
        """,
    )  # fmt: skip
    brought = modules(folder)
    assert {"shop.mcp", "pydantic", "django_mcp.declarations.tools"} <= brought
    assert not packages_of(brought) & {"daphne", "channels", "oauthlib", "mcp"}


# The app.

SHOP = {
    "shop____init__": "",
    "shop__mcp": """
        import django_mcp as mcp

        @mcp.tool(name="not allowed")
        def add(request, a: int) -> int:
            return a
    """,
}
IMPORTED = """
    import sys
    import django
    django.setup()
    from django.core.checks import run_checks
    print("shop.mcp" in sys.modules, [message.id for message in run_checks()])
"""


def test_mcp_module_of_every_app_is_imported(tmp_path):
    folder = project(tmp_path, '"django_mcp", "shop"', **SHOP)
    printed = run(IMPORTED, cwd=folder, DJANGO_SETTINGS_MODULE="settings")
    assert printed.strip() == "True ['django_mcp.E010']"


def test_simple_config_imports_no_mcp_modules(tmp_path):
    folder = project(tmp_path, '"django_mcp.apps.SimpleMCPConfig", "shop"', **SHOP)
    printed = run(IMPORTED, cwd=folder, DJANGO_SETTINGS_MODULE="settings")
    assert printed.strip() == "False []"


def test_import_error_in_an_mcp_module_is_raised(tmp_path):
    """As with admin.py, only a missing module is ignored."""
    folder = project(
        tmp_path, '"django_mcp", "shop"', shop____init__="", shop__mcp="import nowhere"
    )
    with pytest.raises(AssertionError, match="No module named 'nowhere'"):
        run(IMPORTED, cwd=folder, DJANGO_SETTINGS_MODULE="settings")
