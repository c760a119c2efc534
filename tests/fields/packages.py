"""The packages whose fields are tested, by the module that each installs."""

from __future__ import annotations

from ctypes.util import find_library
from functools import cache
from importlib.util import find_spec

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
