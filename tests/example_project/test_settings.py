import os
import stat
import sys

import pytest
from django.core.cache import cache
from django.core.management import call_command
from django.db import connection, connections

import django_mcp as mcp
from example_project.asgi import application
from example_project.secret import secret_key
from tools import demo


def test_the_project_passes_djangos_checks(settings):
    call_command("check", fail_level="WARNING")
    settings.SILENCED_SYSTEM_CHECKS = ["django_mcp.W169"]  # the demo is for this machine alone
    call_command("check", tags=["django_mcp"], deploy=True, fail_level="WARNING")


def test_demo_and_commands_and_pages_name_the_server_alike():
    assert mcp.server.public_name == demo.NAME


def test_the_key_of_a_checkout_is_made_once(tmp_path):
    file = tmp_path / "secret_key"
    key = secret_key(file)
    assert len(key) >= 50
    assert secret_key(file) == key
    assert secret_key(tmp_path / "other") != key


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_the_key_is_for_its_owners_eyes(tmp_path):
    secret_key(tmp_path / "secret_key")
    assert stat.S_IMODE(os.stat(tmp_path / "secret_key").st_mode) == 0o600


def test_a_writer_takes_its_lock_when_it_begins(db):
    assert connection.settings_dict["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in connection.settings_dict["OPTIONS"]["init_command"]


@pytest.mark.django_db(databases="__all__")
def test_sessions_have_a_file_of_their_own():
    log = connections["mcp"].settings_dict
    assert log["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    tables = connections["mcp"].introspection.table_names()
    assert "django_mcp_session" in tables and "atlas_city" not in tables
    assert "django_mcp_session" not in connection.introspection.table_names()
    assert "django_mcp_token" in connection.introspection.table_names()


def test_what_is_good_once_is_good_once_in_all_processes(db):
    assert cache.add("seen", True) and not cache.add("seen", True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM cache")
        assert cursor.fetchone() == (1,)


def test_there_is_an_asgi_application():
    assert callable(application)
