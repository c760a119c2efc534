"""django_mcp: the operations of the API, as the caller instead of by the API's own tokens."""

import django_mcp as mcp
from benchmarks.bridges.operations import api
from benchmarks.bridges.urls import urlpatterns as urlpatterns
from django_mcp.bridges.ninja import NinjaTools


@mcp.register(api)
class Operations(NinjaTools):
    operations = ["list_invoices", "get_invoice", "create_invoice", "pay_invoice"]
    replace_auth = True
