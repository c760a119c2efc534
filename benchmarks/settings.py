"""
Settings of the project that is measured: two SQLite files in a folder of its own.

`BENCHMARK_FOLDER` names a folder other than `build/benchmark`. `BENCHMARK_DATABASE=postgres` puts
everything into a PostgreSQL database of the server that `PGHOST` and `PGPORT` name.
`BENCHMARK_REDIS` is the address of a Redis for the channel layer. `BENCHMARK_OAUTH` makes the
project an authorization server too, without a limit on registrations. `BENCHMARK_URLS` names
another root URLconf. `BENCHMARK_TOOLS` is a number of tools, and `BENCHMARK_PAGE_SIZE` how many of
them a page lists, by default all. `BENCHMARK_PAYLOAD` allows large arguments and results.
`BENCHMARK_WITHOUT_APP` leaves the app out, for comparison.
"""

import os
from pathlib import Path

from django_mcp.oauth import dot_settings
from django_mcp.storage import sqlite

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
FILES = {
    "default": sqlite(FOLDER / "db.sqlite3"),
    "mcp": sqlite(FOLDER / "mcp.sqlite3"),
}
POSTGRES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": os.environ.get("PGDATABASE", "postgres"),
        "CONN_MAX_AGE": None,
    }
}
DATABASES = POSTGRES if os.environ.get("BENCHMARK_DATABASE") == "postgres" else FILES
DATABASE_ROUTERS = ["django_mcp.storage.router.DeliveryRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
ROOT_URLCONF = os.environ.get("BENCHMARK_URLS", "benchmarks.settings")
urlpatterns: list[object] = []
USE_TZ = True
if os.environ.get("BENCHMARK_WITHOUT_APP"):
    INSTALLED_APPS.remove("django_mcp")
    DATABASES = {"default": DATABASES["default"]}
    DATABASE_ROUTERS = []

# Thousands of idle streams are measured, each in a session of its own.
DJANGO_MCP = {
    "URL": "http://localhost",
    "DATABASE": list(DATABASES)[-1],
    "SESSIONS": 10_000,
    # All clients are one anonymous principal here, which calls as fast as it can.
    "RATES": {"calls": None, "progress": "10000000/10"},
}
if os.environ.get("BENCHMARK_OAUTH"):
    INSTALLED_APPS += ["oauth2_provider", "django_mcp.oauth"]
    ROOT_URLCONF = "benchmarks.urls"
    OAUTH2_PROVIDER = dot_settings(str(DJANGO_MCP["URL"]))
    DJANGO_MCP |= {
        "VERIFIERS": [
            "django_mcp.verifiers.PersonalAccessTokens",
            "django_mcp.oauth.verifier.OAuthTokens",
        ],
        "OAUTH": {"REGISTRATION_RATE": None},
    }
if os.environ.get("BENCHMARK_TOOLS"):
    # By default, a list has one page, as it has with the peers.
    DJANGO_MCP["PAGE_SIZE"] = int(os.environ.get("BENCHMARK_PAGE_SIZE", 10_000))
if os.environ.get("BENCHMARK_PAYLOAD"):
    DATA_UPLOAD_MAX_MEMORY_SIZE = 100_000_000
    DJANGO_MCP["RESULT_SIZE"] = 100_000_000
if redis := os.environ.get("BENCHMARK_REDIS"):
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [redis]},
        }
    }
