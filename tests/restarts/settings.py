"""Settings of a project whose processes are killed: two SQLite files in a folder that a test names.

Or one database that it names, of the server that the tests use.
"""

import json
import os
from pathlib import Path

from django_mcp.storage import sqlite

FOLDER = Path(os.environ.get("RESTARTS", "build/restarts"))
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": FOLDER / "db.sqlite3"},
    "mcp": sqlite(FOLDER / "mcp.sqlite3"),
}
if shared := os.environ.get("RESTARTS_DATABASE"):
    from tests import settings as tests

    server = tests.DATABASES["default"] | {"NAME": shared}
    DATABASES = {"default": server, "mcp": server}
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
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
if os.environ.get("OAUTH"):
    # In addition: an authorization server, the admin and browser sessions.
    from django_mcp.oauth import dot_settings

    URL = "https://restarts.example"
    INSTALLED_APPS[2:2] = [
        "django.contrib.admin", "django.contrib.messages", "django.contrib.sessions",
        "oauth2_provider",
    ]  # fmt: skip
    INSTALLED_APPS.append("django_mcp.oauth")
    OAUTH2_PROVIDER = dot_settings(URL)
    DJANGO_MCP |= {"URL": URL, "VERIFIERS": ["django_mcp.oauth.verifier.OAuthTokens"]}
    ROOT_URLCONF, LOGIN_URL = "tests.oauth.admin_urls", "/admin/login/"
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    PROCESSORS = [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]
    TEMPLATES = [
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
            "OPTIONS": {"context_processors": PROCESSORS},
        }
    ]  # fmt: skip
if layers := os.environ.get("LAYERS"):
    CHANNEL_LAYERS = json.loads(layers)
