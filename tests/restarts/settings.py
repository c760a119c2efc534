"""A project whose processes are killed: two SQLite files in a folder that a test names.

Or one database that it names, of the server that the tests use.
"""

import json
import os
from pathlib import Path

from django_mcp.delivery import sqlite

FOLDER = Path(os.environ.get("RESTARTS", "build/restarts"))
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "db.sqlite3"},
    "mcp": sqlite(FOLDER / "mcp.sqlite3"),
}
if shared := os.environ.get("RESTARTS_DATABASE"):
    from tests import settings as tests

    server = tests.DATABASES["default"] | {"NAME": shared}
    DATABASES = {"default": server, "mcp": server}
DATABASE_ROUTERS = ["django_mcp.delivery.router.DeliveryRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth", "django.contrib.contenttypes", "django_mcp", "tests.restarts",
]  # fmt: skip
SECRET_KEY = "only for the tests"
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
DJANGO_MCP = {
    "DATABASE": "default" if shared else "mcp", "JSON_GRACE": 0.2,
    "THREADS": int(os.environ.get("THREADS", 10)),
}  # fmt: skip
if layers := os.environ.get("LAYERS"):
    CHANNEL_LAYERS = json.loads(layers)
