"""django-rest-framework-mcp: its decorators, on the viewset and on the action."""

from django.urls import include, path
from djangorestframework_mcp.decorators import mcp_tool, mcp_viewset

from benchmarks.bridges.rest import InvoiceViewSet
from benchmarks.bridges.urls import urlpatterns as project

InvoiceViewSet.pay = mcp_tool(input_serializer=None)(InvoiceViewSet.pay)
mcp_viewset(actions=["list", "retrieve", "create", "pay"])(InvoiceViewSet)
urlpatterns = [*project, path("mcp/", include("djangorestframework_mcp.urls"))]
