"""URLs that depend on the language of the request."""

from __future__ import annotations

from django.conf.urls.i18n import i18n_patterns
from django.urls import path
from django.utils.functional import lazy
from django.utils.translation import get_language

from .site import seen

route = lazy(lambda: "gesehen/" if get_language() == "de" else "seen/", str)()

urlpatterns = [
    *i18n_patterns(path(route, seen, name="seen")),
    path("bare/", seen, name="bare"),
]
