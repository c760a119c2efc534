"""Settings of the served project, whose files are in the folder ``SERVED_FOLDER``."""

import os
from pathlib import Path

from django_mcp.storage import sqlite

FOLDER = Path(os.environ["SERVED_FOLDER"])

SECRET_KEY = "only for the tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "tests.spec.served.urls"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "tests.spec.served",
]
DATABASES = {
    "default": sqlite(FOLDER / "db.sqlite3"),
    "mcp": sqlite(FOLDER / "mcp.sqlite3"),
}
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
DATA_UPLOAD_MAX_MEMORY_SIZE = 200_000
DJANGO_MCP = {"DATABASE": "mcp", "KEEPALIVE": 1, "THROTTLES": {"calls": None}}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"django_mcp": {"handlers": ["stderr"], "level": "WARNING"}},
}
