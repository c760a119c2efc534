"""
A plain Django view that reads the row that the tool `city` reads, under Django's ASGI handler.

It takes the same body and returns the same text, so that it can be checked like the tool.
"""

import json

import benchmarks.server
from benchmarks.models import City

# isort: split
from django.http import HttpRequest, JsonResponse
from django.urls import path


def city(request: HttpRequest) -> JsonResponse:
    message = json.loads(request.body)
    found = City.objects.get(pk=message["params"]["arguments"]["pk"])
    text = json.dumps({"name": found.name, "population": found.population})
    content = [{"type": "text", "text": text}]
    return JsonResponse({"jsonrpc": "2.0", "id": message["id"], "result": {"content": content}})


urlpatterns = [path("mcp", city)]
application = benchmarks.server.django
