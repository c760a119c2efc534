"""django-mcp-server: its query tool for the model, and two actions of the viewset."""

from django.urls import include, path
from mcp_server import ModelQueryToolset, drf_publish_create_mcp_tool, drf_publish_list_mcp_tool

from benchmarks.bridges.models import Invoice
from benchmarks.bridges.rest import InvoiceViewSet
from benchmarks.bridges.urls import urlpatterns as project


class InvoiceQueryTool(ModelQueryToolset):
    model = Invoice
    fields = ["id", "number", "status", "amount"]

    def get_queryset(self):
        return Invoice.objects.of(self.request.user)


drf_publish_list_mcp_tool(InvoiceViewSet, actions={"get": "list"})
drf_publish_create_mcp_tool(InvoiceViewSet, actions={"post": "create"})
urlpatterns = [*project, path("", include("mcp_server.urls"))]
