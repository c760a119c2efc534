"""Settings of the test suite: one small shop, on the database that the environment names.

On SQLite the log of sessions has a file of its own, as it should; elsewhere it is beside the rest.
"""

import os
import tempfile
from pathlib import Path

from django_mcp.oauth import dot_settings
from django_mcp.storage import sqlite

DATABASE = os.environ.get("TEST_DATABASE", "sqlite")

DATABASES = {
    "sqlite": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(__file__).parent / "db.sqlite3",
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
        "TEST": {"NAME": None},
    },
    "postgres": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "test"),
        "USER": os.environ.get("PGUSER", "postgres"),
        "PASSWORD": os.environ.get("PGPASSWORD", ""),
        "HOST": os.environ.get("PGHOST", "127.0.0.1"),
        "PORT": os.environ.get("PGPORT", "5432"),
    },
    "mariadb": {
        "ENGINE": "django.db.backends.mysql",
        "NAME": os.environ.get("MARIADB_DATABASE", "test"),
        "USER": os.environ.get("MARIADB_USER", "root"),
        "PASSWORD": os.environ.get("MARIADB_PASSWORD", ""),
        "HOST": os.environ.get("MARIADB_HOST", "127.0.0.1"),
        "PORT": os.environ.get("MARIADB_PORT", "3306"),
        "OPTIONS": {"charset": "utf8mb4", "isolation_level": "read committed"},
        "TEST": {"CHARSET": "utf8mb4"},
    },
}
if DATABASE == "mariadb":
    import pymysql

    pymysql.install_as_MySQLdb()

DATABASES = {"default": DATABASES[DATABASE]}
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
LOG = "mcp" if DATABASE == "sqlite" else "default"
if LOG == "mcp":
    # A real file: threads of their own write to it at once.
    file = Path(tempfile.gettempdir(), f"django_mcp_{os.getpid()}.sqlite3")
    DATABASES["mcp"] = sqlite(file) | {"TEST": {"NAME": file}}

if DATABASE == "postgres":
    # Which would ring by itself: a test says so where it is to.
    CHANNEL_LAYERS = {"default": {"BACKEND": "channels.layers.InMemoryChannelLayer"}}

SECRET_KEY = "only for the tests"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
ALLOWED_HOSTS = ["localhost", "127.0.0.1", "testserver"]
ROOT_URLCONF = "tests.urls"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "oauth2_provider",
    "django_mcp",
    "django_mcp.oauth",
    "tests.canaries",
    "tests.leaks",
    "tests.shop",
    "tests.polls",
    "tests.snippets",
    "tests.employees",
]
OAUTH2_PROVIDER = dot_settings("https://shop.example")
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
DJANGO_MCP = {"URL": "https://shop.example", "DATABASE": LOG}
# Django before 6.1 ignores it, and Django 6.1 warns of a project that sends mail without it.
MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
