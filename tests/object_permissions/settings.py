"""Settings of these tests: the test suite's, with packages for object permissions and histories."""

from importlib.util import find_spec

from tests.settings import *  # noqa: F403
from tests.settings import DATABASE, DATABASES

SECRET_KEY = "only for the tests of object permissions"
ROOT_URLCONF = "tests.fields.urls"
if DATABASE != "sqlite":  # other tests may run on the same server at the same time
    DATABASES["default"].setdefault("TEST", {})["NAME"] = "test_object_permissions"
PACKAGES = {
    "guardian": "guardian", "reversion": "reversion", "rules": "rules",
    "simple_history": "simple_history",
}  # fmt: skip
ABSENT = [package for package in PACKAGES if find_spec(package) is None]
BACKENDS = {
    "guardian": "guardian.backends.ObjectPermissionBackend",
    "rules": "rules.permissions.ObjectPermissionBackend",
}
AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    *(path for package, path in BACKENDS.items() if package not in ABSENT),
]
ANONYMOUS_USER_NAME = None  # guardian's row for anonymous users
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *(app for package, app in PACKAGES.items() if package not in ABSENT),
    "django_mcp",
    *(["tests.object_permissions"] if not ABSENT else []),
]
