"""
Settings of the project that is measured: two SQLite files in a folder of its own.

`BENCHMARK_FOLDER` names a folder other than `build/benchmark`. `BENCHMARK_DATABASE=postgres` puts
everything into a PostgreSQL database of the server that `PGHOST` and `PGPORT` name.
`BENCHMARK_REDIS` is the address of a Redis for the channel layer. `BENCHMARK_OAUTH` makes the
project an authorization server too, without a limit on registrations. `BENCHMARK_URLS` names
another root URLconf. `BENCHMARK_TOOLS` is a number of tools, and `BENCHMARK_PAGE_SIZE` how many of
them a page lists, by default all. `BENCHMARK_ADMIN` adds Django's admin. `BENCHMARK_REST` adds a
REST API. `BENCHMARK_PAYLOAD` allows large arguments and results. `BENCHMARK_WITHOUT_APP` leaves the
app out, for comparison.
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
DATABASE_ROUTERS = ["django_mcp.storage.router.StorageRouter"]
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
    "THROTTLES": {"calls": None, "progress": "60000000/min"},
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
if os.environ.get("BENCHMARK_REST"):
    INSTALLED_APPS += ["django_filters", "rest_framework", "rest_framework.authtoken"]
    INSTALLED_APPS += ["django.contrib.messages", "django.contrib.sessions"]
    MIDDLEWARE = [
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ]
    ROOT_URLCONF = "benchmarks.rest_api"
    REST_FRAMEWORK = {
        "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.TokenAuthentication"],
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    }
if os.environ.get("BENCHMARK_ADMIN"):
    INSTALLED_APPS += ["django.contrib.admin", "django.contrib.messages"]
    INSTALLED_APPS += ["django.contrib.sessions"]
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
    ROOT_URLCONF = "benchmarks.admin_urls"
    STATIC_URL = "static/"
if os.environ.get("BENCHMARK_TOOLS"):
    # By default, a list has one page, as it has with the peers.
    DJANGO_MCP["PAGE_SIZE"] = int(os.environ.get("BENCHMARK_PAGE_SIZE", 10_000))
if os.environ.get("BENCHMARK_PAYLOAD"):
    DATA_UPLOAD_MAX_MEMORY_SIZE = 100_000_000
    DJANGO_MCP["RESULT_SIZE"] = 100_000_000
if throttle := os.environ.get("BENCHMARK_THROTTLE"):
    DJANGO_MCP["THROTTLES"] = {"calls": "60000000/min"}
    if throttle != "memory":
        backend = "django.core.cache.backends.redis.RedisCache"
        CACHES = {"default": {"BACKEND": backend, "LOCATION": throttle}}
if redis := os.environ.get("BENCHMARK_REDIS"):
    CHANNEL_LAYERS = {
        "default": {
            "BACKEND": "channels_redis.core.RedisChannelLayer",
            "CONFIG": {"hosts": [redis]},
        }
    }
