"""The packages whose fields are tested, by the module that each installs."""

from __future__ import annotations

from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec

from django.db import connection

PACKAGES = {
    "colorfield": "django-colorfield",
    "django_countries": "django-countries",
    "django_jsonform": "django-jsonform",
    "djmoney": "django-money",
    "easy_thumbnails": "easy-thumbnails",
    "modelcluster": "django-modelcluster",
    "model_utils": "django-model-utils",
    "mptt": "django-mptt",
    "multiselectfield": "django-multiselectfield",
    "pgvector": "pgvector",
    "phonenumber_field": "django-phonenumber-field",
    "taggit": "django-taggit",
    "timezone_field": "django-timezone-field",
    "tinymce": "django-tinymce",
    "wagtail": "wagtail",
}


def is_installed(module: str) -> bool:
    """Return whether the package that contains ``module`` is installed."""
    return find_spec(module) is not None


@cache
def has_gdal() -> bool:
    """Return whether the C library GDAL, which GeoDjango needs, is installed."""
    return find_library("gdal") is not None


@cache
def has_vector_extension() -> bool:
    """Return whether the PostgreSQL server of this run can install the extension pgvector."""
    if not is_installed("pgvector") or connection.vendor != "postgresql":
        return False
    import psycopg

    # Not Django's connection, which warns if it is used while models are imported.
    given = connection.settings_dict
    names = {"host": "HOST", "port": "PORT", "user": "USER", "password": "PASSWORD"}
    address = {name: given[key] for name, key in names.items()}
    with psycopg.connect(dbname="postgres", **address) as server:
        query = "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
        return server.execute(query).fetchone() is not None
