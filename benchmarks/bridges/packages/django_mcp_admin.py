"""django_mcp: the `ModelAdmin`, with one write and one action."""

from django.contrib import admin

import django_mcp as mcp
from benchmarks.bridges.models import Invoice
from benchmarks.bridges.urls import urlpatterns as urlpatterns

mcp.register_admin(admin.site, models=[Invoice], operations=["create"], actions=["mark_paid"])
