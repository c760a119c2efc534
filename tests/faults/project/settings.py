"""Settings of the fault campaign's project. Environment variables select what varies.

``FAULTS_FOLDER`` holds what is made; ``FAULTS_DATABASE`` is sqlite, postgres or mariadb, and
``FAULTS_PORT`` is where that one answers; ``FAULTS_LAYER`` is none, memory, redis, and
``FAULTS_REDIS`` is its URL, or postgres, where the database itself sends wake-ups.
"""

import os
from pathlib import Path
from typing import Any

from django_mcp.storage import sqlite

FOLDER = Path(os.environ.get("FAULTS_FOLDER", "build/faults"))
DATABASE = os.environ.get("FAULTS_DATABASE", "sqlite")
PORT = os.environ.get("FAULTS_PORT", "")

# A database that is gone is asked again soon, and a lock that is held longer than this is a fault.
LOCKED = 2.5  # seconds
SERVERS: dict[str, dict[str, Any]] = {
    "postgres": {
        "ENGINE": "django.db.backends.postgresql",
        "USER": "postgres",
        "OPTIONS": {"connect_timeout": 5},
    },
    "mariadb": {
        "ENGINE": "django.db.backends.mysql",
        "USER": "root",
        "OPTIONS": {
            "charset": "utf8mb4", "isolation_level": "read committed", "connect_timeout": 5,
        },
    },
}  # fmt: skip
if DATABASE == "mariadb":
    import pymysql

    pymysql.install_as_MySQLdb()


def files() -> dict[str, Any]:
    log = sqlite(FOLDER / "mcp.sqlite3")
    log["OPTIONS"] |= {"timeout": LOCKED}
    project = {
        "ENGINE": log["ENGINE"], "NAME": FOLDER / "db.sqlite3", "OPTIONS": {"timeout": LOCKED},
    }  # fmt: skip
    return {"default": project, "mcp": log}


def server() -> dict[str, Any]:
    kept = {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True}
    return SERVERS[DATABASE] | {"NAME": "faults", "HOST": "127.0.0.1", "PORT": PORT} | kept


LOG = "mcp" if DATABASE == "sqlite" else "default"
DATABASES = files() if DATABASE == "sqlite" else {"default": server()}
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LAYERS: dict[str, dict[str, Any]] = {
    "none": {},
    "memory": {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}},
    "redis": {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [os.environ.get("FAULTS_REDIS", "redis://127.0.0.1:6379")]},
        }
    },
}
LAYERS["postgres"] = {}
if DATABASE == "postgres":
    LAYERS["none"] = LAYERS["memory"]  # without a layer, PostgreSQL would send wake-ups
CHANNEL_LAYERS = LAYERS[os.environ.get("FAULTS_LAYER", "none")]

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
    "tests.faults.project",
]
MIDDLEWARE: list[str] = []
ROOT_URLCONF = "tests.faults.project.urls"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
SECRET_KEY = "only for the tests"
ALLOWED_HOSTS = ["127.0.0.1"]
USE_TZ = True
DJANGO_MCP = {
    "DATABASE": LOG,
    "JSON_GRACE": 0.2,
    "KEEPALIVE": 5,
    "THREADS": 6,
    "SESSIONS": 100_000,
    # Less than clocks are wrong by, where the database tells the time.
    "SESSION_LIFETIME": 86_400 if DATABASE == "sqlite" else 1_800,
    "THROTTLES": {"calls": None, "completions": None, "log": None, "progress": None},
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(levelname)s %(name)s: %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
}
