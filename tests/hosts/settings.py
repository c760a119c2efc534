"""Settings of the project on several hosts: those of the guide."""

from pathlib import Path

SHOWN = Path(__file__).parents[2] / "docs/deploy/deployed.py"
PROJECT = "from .settings import *\n"  # the settings of the project, which the guide's extend
DJANGO_MCP = {"KEEPALIVE": 15}
_code = SHOWN.read_text("utf-8")
assert PROJECT in _code
exec(compile(_code.replace(PROJECT, ""), str(SHOWN), "exec"))
assert "KEEPALIVE" in DJANGO_MCP and "URL" in DJANGO_MCP

DATABASES["mcp"] = DATABASES["default"]  # noqa: F821 - the tools look by a connection of its own
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django_mcp", "tests.restarts",
]  # fmt: skip
USE_TZ = True
DJANGO_MCP["JSON_GRACE"] = 0.2
