"""django-admin-mcp: its mixin, in the `ModelAdmin` of the project."""

from django.contrib import admin
from django.contrib.auth.models import Permission
from django.urls import include, path
from django_admin_mcp import MCPAdminMixin

from benchmarks.bridges.admin import InvoiceAdmin
from benchmarks.bridges.models import Invoice
from benchmarks.bridges.urls import urlpatterns as project


class ExposedAdmin(MCPAdminMixin, InvoiceAdmin):
    mcp_expose = True
    mcp_fields = ["id", "number", "status", "amount"]


admin.site.unregister(Invoice)
admin.site.register(Invoice, ExposedAdmin)
urlpatterns = [*project, path("mcp/", include("django_admin_mcp.urls"))]


def token(user):
    from django_admin_mcp.models import MCPToken

    made = MCPToken.objects.create(name="compared", user=user)
    made.permissions.add(*Permission.objects.filter(content_type__model="invoice"))
    return made.get_plaintext_token()
