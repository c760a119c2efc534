"""The database router: the session database holds session tables, and tokens stay with users."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, router
from django.utils.functional import SimpleLazyObject

from django_mcp.models import Approval, AuditEntry, Change, Session, Stream, Switch, Token
from django_mcp.storage import change_log
from django_mcp.storage.router import StorageRouter
from tests.shop.models import Company

from .rows import given

LOG = sorted(
    model._meta.model_name for model in apps.get_app_config("django_mcp").get_models()
    if model not in (Approval, AuditEntry, Token, Switch, Change) and not model._meta.proxy
)  # fmt: skip


ALIASES, CHANGES = ("default", "elsewhere", "shop"), "django_mcp_change"


def test_session_models_use_the_configured_database():
    ours = StorageRouter()
    with given(DATABASE="elsewhere"):
        assert ours.db_for_read(Session) == ours.db_for_write(Stream) == "elsewhere"
        assert ours.db_for_read(Token) is ours.db_for_write(User) is None
    with given(DATABASE="default"):
        assert ours.db_for_write(Session) == "default"


def test_tables_are_migrated_to_the_configured_database_only():
    ours = StorageRouter()
    with given(DATABASE="elsewhere"):
        for name in LOG:
            assert ours.allow_migrate("elsewhere", "django_mcp", name) is True
            assert ours.allow_migrate("default", "django_mcp", name) is False
        assert ours.allow_migrate("elsewhere", "django_mcp", "token") is False
        assert ours.allow_migrate("elsewhere", "django_mcp", "switch") is False
        assert ours.allow_migrate("elsewhere", "django_mcp", "approval") is False
        assert ours.allow_migrate("default", "django_mcp", "token") is None
        assert ours.allow_migrate("default", "django_mcp", "switch") is None
        assert ours.allow_migrate("elsewhere", "shop", "company") is False
        assert ours.allow_migrate("elsewhere", "shop") is False
        assert ours.allow_migrate("default", "shop", "company") is None
        assert ours.allow_migrate("elsewhere", "django_mcp") is None
    with given(DATABASE="default"):
        assert ours.allow_migrate("default", "django_mcp", "session") is True
        assert ours.allow_migrate("other", "django_mcp", "session") is False
        assert ours.allow_migrate("default", "shop", "company") is None
        assert ours.allow_migrate("default", "django_mcp", "token") is None


def test_change_table_is_migrated_to_databases_of_registered_models(monkeypatch):
    ours = StorageRouter()
    monkeypatch.setattr(change_log, "sources", [lambda: [Company]])
    monkeypatch.setattr(router, "db_for_write", lambda model: "shop")
    with given(DATABASE="elsewhere"):
        migrated = {a: ours.allow_migrate(a, "django_mcp", "change") for a in ALIASES}
    assert migrated == {"default": False, "elsewhere": True, "shop": True}


def test_relations_are_allowed_between_session_models_only():
    ours = StorageRouter()
    assert ours.allow_relation(Stream(), Session()) is True
    assert ours.allow_relation(Token(), User()) is None
    assert ours.allow_relation(Session(), Company()) is None


def test_lazy_user_may_be_related_to():
    """``request.user`` is lazy, so its type does not name a model."""
    lazy = SimpleLazyObject(User)
    assert StorageRouter().allow_relation(lazy, Token()) is None
    assert Token(user=lazy).user is lazy


@pytest.mark.django_db
def test_tables_exist_in_their_databases():
    log, users = (set(_tables(router.db_for_write(model))) for model in (Session, User))
    ours = {f"django_mcp_{name}" for name in LOG}
    assert ours <= log and {"django_mcp_token", "django_mcp_switch"} <= users
    if log != users:
        assert log == ours | {CHANGES, "django_migrations", *_own_tables(log)}
        assert not ours & users and CHANGES in users


def _tables(alias: str) -> list[str]:
    return connections[alias].introspection.table_names()


def _own_tables(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith("sqlite_")}


@pytest.mark.django_db
def test_migrations_match_the_models():
    call_command("makemigrations", "django_mcp", check=True, dry_run=True, verbosity=0)
