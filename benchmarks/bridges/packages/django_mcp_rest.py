"""django_mcp: four actions of the viewset."""

import django_mcp as mcp
from benchmarks.bridges.rest import InvoiceViewSet
from benchmarks.bridges.urls import urlpatterns as urlpatterns
from django_mcp.bridges.rest_framework import ViewSetTools


@mcp.register(InvoiceViewSet)
class InvoiceTools(ViewSetTools):
    actions = ["list", "retrieve", "create", "pay"]
