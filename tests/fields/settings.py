"""Settings of the tests of fields: the test suite's, with every field package that is installed."""

import tempfile

from tests.settings import *  # noqa: F403
from tests.settings import DATABASE, DATABASES

from .packages import has_gdal, is_installed

SECRET_KEY = "only for the tests of fields"
ROOT_URLCONF = "tests.fields.urls"
MEDIA_ROOT = tempfile.mkdtemp(prefix="django_mcp_fields_")
if DATABASE != "sqlite":  # other tests may run on the same server at the same time
    DATABASES["default"].setdefault("TEST", {})["NAME"] = "test_fields"
if DATABASE == "mariadb" and has_gdal():
    DATABASES["default"]["ENGINE"] = "django.contrib.gis.db.backends.mysql"
STATIC_URL = "/static/"
SITE_ID = 1
WAGTAIL_SITE_NAME = "Bakery"
WAGTAILADMIN_BASE_URL = "https://shop.example"
PHONENUMBER_DEFAULT_REGION = "NZ"

APPS = {
    "colorfield": ["colorfield"],
    "django_countries": ["django_countries"],
    "djmoney": ["djmoney"],
    "easy_thumbnails": ["easy_thumbnails"],
    "modelcluster": ["modelcluster"],
    "mptt": ["mptt"],
    "phonenumber_field": ["phonenumber_field"],
    "taggit": ["taggit"],
    "timezone_field": ["timezone_field"],
    "tinymce": ["tinymce"],
    "wagtail": [
        "wagtail.users", "wagtail.admin", "wagtail.search", "wagtail.documents",
        "wagtail.images", "wagtail", "tests.fields.bakery",
    ],
}  # fmt: skip
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *(["django.contrib.postgres"] if DATABASE == "postgres" else []),
    *(app for package, apps in APPS.items() if is_installed(package) for app in apps),
    "django_mcp",
    "tests.fields",
]
