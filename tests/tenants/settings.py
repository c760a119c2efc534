"""Settings of these tests: the test suite's, with django-tenants on PostgreSQL."""

from importlib.util import find_spec

from tests.settings import *  # noqa: F403
from tests.settings import DATABASE, DATABASES

SECRET_KEY = "only for the tests of tenants"
ROOT_URLCONF = "tests.fields.urls"
ALLOWED_HOSTS = [".shop.example"]
# Why the tests cannot run, or None.
ABSENT = (
    "django-tenants is not installed"
    if find_spec("django_tenants") is None
    else None
    if DATABASE == "postgres"
    else "django-tenants needs PostgreSQL"
)
SHARED_APPS = [
    "django_tenants",
    "tests.tenants",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_mcp",
]
TENANT_APPS = ["tests.tenants.billing"]
INSTALLED_APPS = [*SHARED_APPS[2:], *TENANT_APPS]
if ABSENT is None:
    INSTALLED_APPS = [*SHARED_APPS, *TENANT_APPS]
TENANT_MODEL = "tenants.Tenant"
TENANT_DOMAIN_MODEL = "tenants.Domain"
DATABASE_ROUTERS = ["django_tenants.routers.TenantSyncRouter"]
# The keys of one cache contain the schema.
LOCAL = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}
CACHES = {"default": LOCAL | {"LOCATION": "tenants"}, "limits": LOCAL | {"LOCATION": "limits"}}
CHANNEL_LAYERS: dict[str, object] = {}
if ABSENT is None:
    DATABASES["default"]["ENGINE"] = "django_tenants.postgresql_backend"
    CACHES["default"]["KEY_FUNCTION"] = "django_tenants.cache.make_key"
    DATABASES["default"].setdefault("TEST", {})["NAME"] = "test_tenants"
