"""The settings of the example project: system checks, secret key, database and cache."""

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


def test_system_checks_pass(settings):
    call_command("check", fail_level="WARNING")
    settings.SILENCED_SYSTEM_CHECKS = ["django_mcp.W169"]  # the demo is only for this machine
    call_command("check", tags=["django_mcp"], deploy=True, fail_level="WARNING")


def test_server_has_the_same_name_everywhere():
    assert mcp.server.public_name == demo.NAME


def test_secret_key_is_created_once(tmp_path):
    file = tmp_path / "secret_key"
    key = secret_key(file)
    assert len(key) >= 50
    assert secret_key(file) == key
    assert secret_key(tmp_path / "other") != key


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such modes")
def test_secret_key_is_readable_only_by_the_owner(tmp_path):
    secret_key(tmp_path / "secret_key")
    assert stat.S_IMODE(os.stat(tmp_path / "secret_key").st_mode) == 0o600


def test_transactions_lock_immediately(db):
    assert connection.settings_dict["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    assert "journal_mode=WAL" in connection.settings_dict["OPTIONS"]["init_command"]


@pytest.mark.django_db(databases="__all__")
def test_sessions_have_their_own_database():
    log = connections["mcp"].settings_dict
    assert log["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    tables = connections["mcp"].introspection.table_names()
    assert "django_mcp_session" in tables and "atlas_city" not in tables
    assert "django_mcp_session" not in connection.introspection.table_names()
    assert "django_mcp_token" in connection.introspection.table_names()


def test_cache_is_shared_by_all_processes(db):
    assert cache.add("seen", True) and not cache.add("seen", True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM cache")
        assert cursor.fetchone() == (1,)


def test_asgi_application_is_callable():
    assert callable(application)
