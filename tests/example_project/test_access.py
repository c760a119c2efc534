"""The access token of the demo: it is created once, stored privately, and replaced if invalid."""

import os
import stat
import sys
from datetime import timedelta

import pytest
from django.conf import settings
from django.utils import timezone

from django_mcp.models import Token
from example_project.atlas import access


@pytest.fixture
def path(tmp_path):
    return tmp_path / "db.sqlite3.token"


def test_token_is_created_once_and_returned_again(alice, path):
    secret = access.kept(alice, path)
    assert secret.startswith("mcp_")
    assert access.kept(alice, path) == secret
    assert Token.objects.get().user == alice


def test_expired_or_revoked_token_is_replaced(alice, path):
    secret = access.kept(alice, path)
    Token.objects.update(expires=timezone.now() - timedelta(days=1))
    other = access.kept(alice, path)
    assert other != secret
    Token.objects.update(revoked=timezone.now())
    assert access.kept(alice, path) not in (secret, other)


def test_token_of_another_user_is_not_returned(alice, path, django_user_model):
    bob = django_user_model.objects.create_user("bob")
    assert access.kept(alice, path) != access.kept(bob, path)


def test_file_without_a_token_is_replaced(alice, path):
    path.write_text("no token")
    assert access.kept(alice, path) == path.read_text() != "no token"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_file_is_readable_only_by_the_owner(alice, path):
    path.write_text("an old file that anybody may read")
    access.kept(alice, path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600


def test_file_is_next_to_the_database():
    assert access.place().parent == settings.DATABASE.parent
    assert access.place().name.startswith(settings.DATABASE.name)
