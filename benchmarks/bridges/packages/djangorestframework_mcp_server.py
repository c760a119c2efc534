"""
djangorestframework-mcp-server: selectors and services, which the project has to write.

It takes no viewset. The serializer is the project's, and the filter set that of the viewset's
field. Its authentication is that of an OAuth server, so here a backend looks up the token.
"""

from django.shortcuts import get_object_or_404
from django.urls import path
from django_filters import FilterSet
from django_service_specs import SelectorKind
from rest_framework.authentication import TokenAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework_mcp import MCPServer
from rest_framework_mcp.auth.backends.allow_any_backend import AllowAnyBackend
from rest_framework_mcp.auth.permissions.django_perm_required import DjangoPermRequired
from rest_framework_mcp.auth.types.token_info import TokenInfo
from rest_framework_services.types.selector_spec import SelectorSpec
from rest_framework_services.types.service_spec import ServiceSpec

from benchmarks.bridges.models import Invoice
from benchmarks.bridges.rest import InvoiceSerializer
from benchmarks.bridges.urls import urlpatterns as project


class Tokens(AllowAnyBackend):
    def authenticate(self, request):
        try:
            found = TokenAuthentication().authenticate(request)
        except AuthenticationFailed:
            return None
        return TokenInfo(user=found[0]) if found else None


class InvoiceFilters(FilterSet):
    class Meta:
        model = Invoice
        fields = ["status"]


def list_invoices(*, user):
    return Invoice.objects.of(user).order_by("number")


def get_invoice(*, user, pk: int):
    return get_object_or_404(Invoice.objects.of(user), pk=pk)


def create_invoice(*, user, data):
    return Invoice.objects.create(tenant=user.groups.get(), **data)


def pay_invoice(*, instance):
    instance.status = "paid"
    instance.save()
    return instance


server = MCPServer(name="compared", auth_backend=Tokens())
one = SelectorSpec(kind=SelectorKind.RETRIEVE, output_serializer=InvoiceSerializer)
server.register_selector_tool(
    name="list_invoices",
    description="List the invoices of your company.",
    spec=SelectorSpec(
        kind=SelectorKind.LIST,
        selector=list_invoices,
        output_serializer=InvoiceSerializer,
        filter_set=InvoiceFilters,
    ),
    permissions=[DjangoPermRequired("bridges.view_invoice")],
    paginate=True,
)
server.register_selector_tool(
    name="get_invoice",
    description="Get an invoice.",
    spec=SelectorSpec(
        kind=SelectorKind.RETRIEVE, selector=get_invoice, output_serializer=InvoiceSerializer
    ),
    permissions=[DjangoPermRequired("bridges.view_invoice")],
)
server.register_service_tool(
    name="create_invoice",
    description="Create an invoice.",
    spec=ServiceSpec(
        service=create_invoice, input_serializer=InvoiceSerializer, output_selector_spec=one
    ),
    permissions=[DjangoPermRequired("bridges.add_invoice")],
)
server.register_service_tool(
    name="pay_invoice",
    description="Mark an invoice as paid.",
    spec=ServiceSpec(
        service=pay_invoice,
        instance_selector_spec=SelectorSpec(kind=SelectorKind.RETRIEVE, selector=get_invoice),
        output_selector_spec=one,
    ),
    permissions=[DjangoPermRequired("bridges.change_invoice")],
)
urlpatterns = [*project, path("mcp/", server.async_urls)]
