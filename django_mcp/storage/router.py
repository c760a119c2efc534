"""
Database router: which database holds which tables of this app.

Sessions and their log are in ``DJANGO_MCP["DATABASE"]``. If that is not the default database, it
holds no tables of the project. Tokens, kill switches, approvals and the audit log are in the
database of the users. The table of changes is also in each database with registered models. An
earlier router in ``DATABASE_ROUTERS`` takes precedence.
"""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS, models

from ..conf import settings

APP = "django_mcp"
# Models with tables in the database of the users, and with a table in each followed database.
WITH_USERS, WITH_ROWS = frozenset(("token", "switch", "auditentry", "approval")), "change"


class StorageRouter:
    """For ``DATABASE_ROUTERS``, where ``DJANGO_MCP["DATABASE"]`` is not the default."""

    def db_for_read(self, model: type[models.Model], **hints: Any) -> str | None:
        return settings.DATABASE if _is_ours(model) else None

    db_for_write = db_for_read

    def allow_relation(self, one: models.Model, other: models.Model, **hints: Any) -> bool | None:
        return True if _is_ours(one) and _is_ours(other) else None

    def allow_migrate(
        self, db: str, app_label: str, model_name: str | None = None, **hints: Any
    ) -> bool | None:
        here = db == settings.DATABASE
        if app_label == APP and model_name is None:
            return None
        if app_label == APP and model_name == WITH_ROWS:
            # Not at the top: routers are loaded before the models are.
            from .change_log import model_databases

            return here or db in model_databases()
        if app_label == APP and model_name not in WITH_USERS:
            return bool(here)
        return False if here and db != DEFAULT_DB_ALIAS else None


def _is_ours(model: models.Model | type[models.Model]) -> bool:
    # ``model`` may be a row whose type is hidden, such as the lazy ``request.user``, so only
    # ``_meta`` is read.
    return model._meta.app_label == APP and model._meta.model_name not in WITH_USERS
