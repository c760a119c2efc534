"""Settings of the project on several hosts: those of the guide."""

from pathlib import Path

SHOWN = Path(__file__).parents[2] / "docs/deploy/settings.py"
exec(compile(SHOWN.read_text("utf-8"), str(SHOWN), "exec"))

DATABASES["mcp"] = DATABASES["default"]  # noqa: F821 - the tools look by a connection of its own
DATABASE_ROUTERS = ["django_mcp.storage.router.DeliveryRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django_mcp", "tests.restarts",
]  # fmt: skip
USE_TZ = True
DJANGO_MCP["JSON_GRACE"] = 0.2  # noqa: F821
