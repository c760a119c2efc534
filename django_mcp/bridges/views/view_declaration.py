"""
``ViewDeclaration``: the base class of tools and resources that run views.

A caller who lacks a permission that the class of views or the view's class states does not see the
tool. ``check`` reports permissions of decorators that do not exist. This module needs no library
that the extra ``views`` installs, so bridges to other kinds of views can use it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from django.contrib.auth.mixins import PermissionRequiredMixin
from django.core.checks import CheckMessage
from django.db import DEFAULT_DB_ALIAS

from ...declarations import permissions
from ...declarations.declaration import Declaration
from ...declarations.permissions import Decision
from .urls import Route

if TYPE_CHECKING:
    from ...declarations.request import Request


class ViewDeclaration(Declaration):
    """Names, permissions and description of a view.

    ``views`` is the declaration that lists the view, such as a ``ViewTools``.
    """

    def __init__(
        self, views: Declaration, route: Route, *, name: str, description: str | None
    ) -> None:
        self._views, self._route, self.name = views, route, name
        self.permission, self.scope, self.needs = views.permission, views.scope, views.needs
        self.icons, self.meta = views.icons, views.meta
        self.title = " ".join(re.split("[^A-Za-z0-9]+", route.name)).strip().capitalize()
        self.description = description or route.docstring

    def _origin(self) -> str:
        return self._views._origin()

    @property
    def _source(self) -> Any:
        return self._views._source

    @cached_property
    def _owner(self) -> Declaration:
        return self._views

    @property
    def _runs(self) -> str:
        return f"{self._view_path}, {self._http_method} {self._route.path}"

    @property
    def _view_path(self) -> str:
        view: Any = self._route.view_class or self._route.callback
        # REST framework's api_view makes a class with the name of the function.
        is_renamed = view.__qualname__.rpartition(".")[2] != view.__name__
        return f"{view.__module__}.{view.__name__}" if is_renamed else permissions.path(view)

    @property
    def _http_method(self) -> str:
        return "GET"

    @property
    def _view_transaction(self) -> bool | str:
        """``atomic`` of the class that lists the view, or False.

        As for an HTTP request, a view with ``non_atomic_requests`` for the database has no
        transaction.
        """
        views: Any = self._views
        alias = views.atomic if isinstance(views.atomic, str) else DEFAULT_DB_ALIAS
        excluded = getattr(self._route.callback, "_non_atomic_requests", ())
        return False if alias in excluded else views.atomic

    @property
    def _class_permissions(self) -> list[str]:
        """The permissions that a ``PermissionRequiredMixin`` on the view's class requires."""
        view = self._route.view_class
        if view is None or not issubclass(view, PermissionRequiredMixin):
            return []
        wanted = self._route.option("permission_required")
        return [wanted] if isinstance(wanted, str) else list(wanted or ())

    def _common_problems(self) -> Iterator[CheckMessage]:
        yield from super()._common_problems()
        # Check each codename separately, because all of them are required. In a list, any one of
        # them would be enough.
        for codename in dict.fromkeys([*self._class_permissions, *self._route.decorated_with]):
            yield from self._codename_problems([codename])

    @property
    def _is_public(self) -> bool:
        return self._views._is_public and not self._class_permissions

    @property
    def _decides_without_database(self) -> bool:
        return self._views._decides_without_database and not self._class_permissions

    def _codenames(self) -> tuple[str, ...]:
        return (*super()._codenames(), *self._class_permissions)

    def _decide_permission(self, request: Request) -> Decision:
        decision = self._views._decide_permission(request)
        for name in self._class_permissions:
            if not decision.allowed:
                break
            decision = permissions.decide_codenames([name], request)
        return decision

    @property
    def _rule(self) -> str:
        return permissions.both(self._views._rule, *self._class_permissions)
