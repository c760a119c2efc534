"""``startmcp``: the generated file works, shows no secret fields, and overwrites nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.apps import apps
from django.core.management import CommandError, call_command

from django_mcp.declarations.server import default_server
from django_mcp.management import starter_file
from django_mcp.management.starter_file import generate_starter_file
from django_mcp.testing import Client
from tests.spec.process import ROOT

PROGRAM = "from django.core.management import execute_from_command_line as run; run()"
FILES = {
    "shop/__init__.py": "",
    "shop/settings.py": """
from pathlib import Path
BASE = Path(__file__).parent
SECRET_KEY = "x"
ALLOWED_HOSTS = ["localhost"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": BASE / "db.sqlite3"}}
AUTH_USER_MODEL = "accounts.User"
ROOT_URLCONF = "shop.urls"
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "django_mcp",
                  "shop.accounts", "kinds", "empty", "viewing", "twins"]
""",
    "shop/urls.py": """
from django.urls import include, path
from viewing import views
urlpatterns = [path("v/", include(("viewing.urls", "viewing"))), path("far/", views.far,
               name="far")]
""",
    "shop/accounts/__init__.py": "",
    "shop/accounts/models.py": """
from django.contrib.auth.models import AbstractUser
from django.db import models

class User(AbstractUser):
    api_key = models.CharField(max_length=40)
    otp_secret = models.CharField(max_length=40)
    password_hint = models.CharField(max_length=40)
    recovery_code = models.CharField(max_length=40)
    session_cookie = models.CharField(max_length=40)
    nickname = models.CharField(max_length=40)
""",
    "kinds/__init__.py": "",
    "kinds/models.py": """
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import models
from .more import Elsewhere

class Stamped(models.Model):
    made = models.DateTimeField(auto_now_add=True)
    class Meta:
        abstract = True

class Thing(Stamped):
    name = models.CharField(max_length=50)
    colour = models.CharField(max_length=5, choices=[("r", "Red"), ("g", "Green")])
    is_good = models.BooleanField(default=True)
    picture = models.FileField()
    raw = models.BinaryField()
    anything = models.JSONField(default=dict)
    likes = models.ManyToManyField("self")
    access_token = models.TextField()
    class Meta:
        ordering = ["-made", "name"]

class ByExpression(models.Model):
    name = models.CharField(max_length=50)
    class Meta:
        ordering = [models.F("name").desc()]

class BySecret(models.Model):
    name = models.CharField(max_length=50)
    secret = models.CharField(max_length=50)
    class Meta:
        ordering = ["secret"]

class Proxy(Thing):
    class Meta:
        proxy = True

class Unmanaged(models.Model):
    name = models.CharField(max_length=50)
    class Meta:
        managed = False
        db_table = "not_there"

class Composite(models.Model):
    pk = models.CompositePrimaryKey("thing_id", "number")
    thing = models.ForeignKey(Thing, models.CASCADE)
    number = models.IntegerField()
    text = models.TextField()

class Child(Thing):
    age = models.IntegerField()

class Tagged(models.Model):
    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.PositiveIntegerField()
    target = GenericForeignKey()

class OnlySecrets(models.Model):
    password = models.CharField(max_length=50)

class AVeryLongNameOfAModelThatMakesImportsLong(models.Model):
    a_rather_long_name_of_a_field_1 = models.CharField(max_length=5)
    a_rather_long_name_of_a_field_2 = models.CharField(max_length=5)
    a_rather_long_name_of_a_field_3 = models.CharField(max_length=5)

class URL(models.Model):
    address = models.URLField()
""",
    "kinds/more.py": """
from django.db import models

class Elsewhere(models.Model):
    name = models.CharField(max_length=50)
    class Meta:
        app_label = "kinds"
""",
    "twins/__init__.py": "",
    "twins/models.py": """
from django.db import models

class Thing(models.Model):
    name = models.CharField(max_length=50)
""",
    "empty/__init__.py": "",
    "viewing/__init__.py": "",
    "viewing/urls.py": """
from django.urls import path, re_path
from django.views.generic import TemplateView
from . import views
urlpatterns = [
    path("show/<int:pk>", views.show, name="show"),
    path("shows/<int:pk>", views.Shows.as_view(), name="shows"),
    path("form", views.Both.as_view(), name="both"),
    path("write", views.Writes.as_view(), name="write"),
    path("page", TemplateView.as_view(template_name="x.html"), name="page"),
    path("nameless", views.show),
]
""",
    "viewing/views.py": """
from django.http import HttpResponse
from django.views import View

def show(request, pk):
    return HttpResponse(f"number {pk}")

def far(request):
    return HttpResponse("far")

class Shows(View):
    def get(self, request, pk): return HttpResponse(f"number {pk}")

class Both(View):
    def get(self, request): return HttpResponse("get")
    def post(self, request): return HttpResponse("post")

class Writes(View):
    def post(self, request): return HttpResponse("post")
""",
}
ALL = "import django; django.setup(); from django.core.management import call_command as c; list"
APPS = ("accounts", "kinds", "empty", "viewing", "twins")


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of many kinds of models and views, with an mcp.py for each of its apps."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    *most, last = APPS  # the last one is generated after the others
    for some in (most, [last]):
        program = f"{ALL}(c('startmcp', one) for one in {some})"
        done = python(folder, program)
        assert done.returncode == 0 and not done.stdout, done.stderr
        assert f"Written: {folder}" in done.stderr and "manage.py check" in done.stderr
    return folder


def manage(folder, *arguments):
    return python(folder, PROGRAM, *arguments)


def python(folder, program, *arguments):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYT")}
    own = {"DJANGO_SETTINGS_MODULE": "shop.settings"}
    own["PYTHONPATH"] = os.pathsep.join([str(folder), str(ROOT)])
    return subprocess.run(
        [sys.executable, "-c", program, *arguments], cwd=folder, capture_output=True, text=True,
        env=kept | own,
    )  # fmt: skip


def written(project, label):
    folder = project / "shop" if label == "accounts" else project
    return (folder / label / "mcp.py").read_text()


def resource(text, model):
    """The lines of one class."""
    found = re.search(rf"class {model}Resource\(.*?(?=\n\n\n|\Z)", text, re.DOTALL)
    return found and found[0]


# The generated file works.


@pytest.mark.slow
def test_system_checks_pass(project):
    done = manage(project, "check", "--fail-level", "WARNING", "--tag", "django_mcp")
    assert done.returncode == 0, done.stderr
    assert "no issues" in done.stdout


@pytest.mark.slow
def test_generated_declarations_can_be_used(project):
    done = manage(project, "migrate", "--run-syncdb", "-v0")
    assert done.returncode == 0, done.stderr
    manage(project, "shell", "-c", "from shop.accounts.models import User as U; "
           "U.objects.create_superuser('alice', password='x', api_key='CANARY')")  # fmt: skip
    done = manage(project, "mcp_call", "search_user", "--user", "alice")
    assert '"username": "alice"' in done.stdout, done.stdout + done.stderr
    assert "CANARY" not in done.stdout + done.stderr
    done = manage(project, "mcp_call", "viewing_shows", "pk=7", "--user", "alice")
    assert "number 7" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("label", APPS)
def test_generated_file_is_formatted(project, label):
    text = written(project, label)
    for command in (
        ["format", "--isolated", "--diff", "-"],
        ["check", "--isolated", "--select", "E,F,I,W,UP,B", "--line-length", "88", "-"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command],
            input=text, capture_output=True, text=True, cwd=project,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
    assert max(map(len, text.splitlines())) <= 96


def test_file_for_the_shop_works(server, alice):
    text = generate_starter_file(apps.get_app_config("shop")).text
    alone = text.replace("from .", "from tests.shop.").replace("mcp.register(", "server.register(")
    exec(compile(alone, "mcp.py", "exec"), {"server": server})
    assert server.check() == []
    with Client(alice, server=server) as client:
        assert [tool["name"] for tool in client.tools()] == [
            "search_invoice"
        ]  # she may change them


ATLAS = """
from django.apps import apps
from django_mcp.declarations.server import Server
from django_mcp.management.starter_file import generate_starter_file
server = Server("another")
text = generate_starter_file(apps.get_app_config("atlas")).text
text = text.replace("from .", "from example_project.atlas.")
exec(text.replace("mcp.register", "server.register"), {"server": server})
print(server.check(), sorted(server._catalog.templates)[0])
"""


@pytest.mark.slow
def test_file_for_the_example_project_works():
    done = subprocess.run(
        [sys.executable, "manage.py", "shell", "-c", ATLAS], cwd=ROOT, capture_output=True,
        text=True, env=os.environ | {"DJANGO_SETTINGS_MODULE": "example_project.settings"},
    )  # fmt: skip
    assert "[] model://atlas/city/{pk}" in done.stdout, done.stdout + done.stderr


# Secret fields are omitted.


def test_secret_fields_are_not_shown(project):
    text = resource(written(project, "accounts"), "User")
    assert '"username"' in text and '"nickname"' in text
    shown, hidden = text.split("# Not shown:")
    for name in (
        "password", "api_key", "otp_secret", "password_hint", "recovery_code", "session_cookie",
        "groups", "user_permissions",
    ):  # fmt: skip
        assert f'"{name}"' not in shown and name in hidden


def test_file_binary_and_json_fields_are_omitted(project):
    text = resource(written(project, "kinds"), "Thing")
    assert 'fields = ["made", "name", "colour", "is_good"]' in text
    assert 'search_fields = ["name"]' in text and 'filter_fields = ["colour", "is_good"]' in text
    assert 'ordering = ["-made", "name"]' in text
    assert "# Not shown: picture, raw, anything, access_token, likes." in text


@pytest.mark.parametrize("name", ["ByExpression", "BySecret"])
def test_ordering_by_hidden_fields_is_omitted(project, name):
    text = resource(written(project, "kinds"), name)
    assert 'fields = ["name"]' in text and "ordering" not in text


def test_writing_operations_are_commented_out(project):
    for label in APPS:
        for line in written(project, label).splitlines():
            assert "operations" not in line or line.lstrip().startswith("#")
            assert "post =" not in line or line.lstrip().startswith("#")
            assert "permission =" not in line or line.lstrip().startswith("#")


def test_omitted_models_are_named(project):
    text = written(project, "kinds")
    assert "# Left out: Proxy, a proxy of Thing.\n" in text
    assert "# Left out: OnlySecrets, no field of which can be shown.\n" in text
    for name in ("Stamped", "Proxy", "OnlySecrets"):
        assert resource(text, name) is None
    for name in ("Composite", "Unmanaged", "Child", "Tagged", "URL", "Elsewhere"):
        assert resource(text, name)


def test_name_used_by_another_app_gets_a_prefix(project):
    assert 'name = "twins_thing"' in resource(written(project, "twins"), "Thing")
    assert "name = " not in resource(written(project, "kinds"), "Thing").split("fields")[0]
    done = manage(project, "startmcp", "twins", "--print")
    assert done.stdout == written(project, "twins"), done.stderr


def test_app_without_models_gets_an_example(project):
    text = written(project, "empty")
    assert "# @mcp.tool(read_only=True)" in text and "Resource" not in text


# Views.


def test_read_only_views_are_declared(project):
    text = written(project, "viewing")
    assert "class ViewingViews(ViewTools):" in text
    (got,) = re.findall(r"^    get = (\[.*?\])$", text, re.MULTILINE)
    assert got == '["viewing:shows", "viewing:page"]'
    assert '    # get += ["viewing:show", "far"]' in text
    assert '    # post = ["viewing:both", "viewing:write"]' in text


@pytest.mark.parametrize("post", [[], ["a:c"]])
def test_function_views_are_commented_out(post):
    """A function view may write at any method and check no permission: a person must read it."""
    views = object.__new__(starter_file.Views)
    views.app, views.read_views, views.function_views = apps.get_app_config("shop"), [], ["a:b"]
    views.write_views, views.names = post, ["a:b", *post]
    (text,) = views.text()
    assert all(line.startswith("#") for line in text.splitlines()) and not views.are_written
    bare = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines()[1:])
    compile(bare, "mcp.py", "exec")
    assert '    get = ["a:b"]' in bare and ('    # post = ["a:c"]' in bare) is bool(post)


def test_views_are_commented_out_without_the_views_extra(monkeypatch, settings):
    monkeypatch.setattr(starter_file, "find_spec", lambda name: None)
    views = object.__new__(starter_file.Views)
    views.app, views.read_views, views.function_views = apps.get_app_config("shop"), ["a:b"], []
    views.write_views, views.names = ["a:c"], ["a:b", "a:c"]
    (text,) = views.text()
    assert all(line.startswith("#") for line in text.splitlines()) and not views.are_written
    assert "django-modelcontext[views]" in text
    bare = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines()[1:])
    compile(bare, "mcp.py", "exec")
    assert '    get = ["a:b"]\n' in bare and '    # post = ["a:c"]' in bare


# Existing files are kept.


@pytest.mark.slow
def test_existing_file_is_overwritten_only_with_force(project):
    path = project / "empty/mcp.py"
    before = path.read_text()
    path.write_text("mine = 1\n")
    try:
        done = manage(project, "startmcp", "empty")
        assert done.returncode == 1 and "Use --force to overwrite it" in done.stderr
        assert path.read_text() == "mine = 1\n"
        done = manage(project, "startmcp", "empty", "--force")
        assert done.returncode == 0 and path.read_text() == before
    finally:
        path.write_text(before)


@pytest.mark.slow
def test_print_option_writes_only_to_stdout(project):
    before = written(project, "kinds")
    done = manage(project, "startmcp", "kinds", "--print")
    assert done.stdout == before and not done.stderr


def test_file_is_not_written_into_an_installed_package(capsys):
    package = Path(apps.get_app_config("auth").path)
    with pytest.raises(CommandError, match="installed package. Use --print"):
        call_command("startmcp", "auth", "--force")
    assert not (package / "mcp.py").exists()
    call_command("startmcp", "django.contrib.auth", "--print")
    said = capsys.readouterr().out
    assert "from django.contrib.auth.models import Group, Permission, User" in said
    assert '"password"' not in said


def test_unknown_app_is_an_error_that_lists_the_apps():
    with pytest.raises(CommandError, match="no app 'nonsense'.*Apps of this project: .*shop"):
        call_command("startmcp", "nonsense")
    assert default_server.name == "default"
