"""URLs beside MCP: the control views, and the clock of the process."""

import time
from importlib.util import find_spec
from typing import Any

from django.http import HttpRequest, JsonResponse
from django.urls import include, path


def clock(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"now": time.time()})


urlpatterns: list[Any] = [path("clock", clock)]
if find_spec("tests.faults.project.control"):
    urlpatterns.append(path("control/", include("tests.faults.project.control")))
