"""An empty URL configuration, because the tests of fields need no views."""

from typing import Any

urlpatterns: list[Any] = []
