"""Settings of the project that is measured: two SQLite files in a folder of its own.

`BENCHMARK_FOLDER` names another folder than `build/benchmark`.
"""

import os
from pathlib import Path

from django_mcp.delivery import sqlite

FOLDER = Path(
    os.environ.get("BENCHMARK_FOLDER")
    or Path(__file__).resolve().parent.parent / "build" / "benchmark"
)
SECRET_KEY = "measured, not served"
ALLOWED_HOSTS = ["*"]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "benchmarks",
]
DATABASES = {
    "default": sqlite(FOLDER / "db.sqlite3"),
    "mcp": sqlite(FOLDER / "mcp.sqlite3"),
}
DATABASE_ROUTERS = ["django_mcp.delivery.router.DeliveryRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = "benchmarks.settings"
urlpatterns: list[object] = []
USE_TZ = True

# A stream that is idle belongs to a session of its own, and there are thousands of them.
DJANGO_MCP = {
    "URL": "http://localhost",
    "DATABASE": "mcp",
    "SESSIONS": 10_000,
    # Everybody is the same nobody here, and calls as fast as they can.
    "RATES": {"calls": None},
}
