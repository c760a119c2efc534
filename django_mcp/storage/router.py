"""
Database router: which database holds which tables of this app.

Sessions and their log are in ``DJANGO_MCP["DATABASE"]``. If that is not the default database, it
holds no tables of the project. Tokens and kill switches are in the database of the users. The
table of changes is also in each database with registered models. An earlier router in
``DATABASE_ROUTERS`` takes precedence.
"""

from __future__ import annotations

from typing import Any

from django.db import DEFAULT_DB_ALIAS, models

from ..conf import settings

APP, ELSEWHERE, EVERYWHERE = "django_mcp", frozenset(("token", "switch")), "change"


class DeliveryRouter:
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
        if app_label == APP and model_name == EVERYWHERE:
            return here or db in _homes()
        if app_label == APP and model_name not in ELSEWHERE:
            return bool(here)
        return False if here and db != DEFAULT_DB_ALIAS else None


def _homes() -> set[str]:
    from .change_log import homes  # models are not loaded yet when routers are

    return homes()


def _is_ours(model: models.Model | type[models.Model]) -> bool:
    # Of a row too: its type may be hidden, as that of request.user is.
    return model._meta.app_label == APP and model._meta.model_name not in ELSEWHERE
