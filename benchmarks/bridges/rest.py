"""The REST API: a viewset with a filter of django-filter, and an action."""

from rest_framework import pagination, routers, serializers, viewsets
from rest_framework.authentication import TokenAuthentication
from rest_framework.decorators import action
from rest_framework.permissions import IsAuthenticated
from rest_framework.response import Response

from .models import Invoice


class InvoiceSerializer(serializers.ModelSerializer):
    class Meta:
        model = Invoice
        fields = ["id", "number", "status", "amount"]


class InvoicePages(pagination.PageNumberPagination):
    page_size = 20


class InvoiceViewSet(viewsets.ModelViewSet):
    """The invoices of your company."""

    queryset = Invoice.objects.all()
    serializer_class = InvoiceSerializer
    pagination_class = InvoicePages
    filterset_fields = ["status"]
    authentication_classes = [TokenAuthentication]
    permission_classes = [IsAuthenticated]

    def get_queryset(self):
        return Invoice.objects.of(self.request.user).order_by("number")

    def perform_create(self, serializer):
        serializer.save(tenant=self.request.user.groups.get())

    @action(detail=True, methods=["post"], serializer_class=serializers.Serializer)
    def pay(self, request, pk=None):
        """Mark an invoice as paid."""
        invoice = self.get_object()
        invoice.status = "paid"
        invoice.save()
        return Response(InvoiceSerializer(invoice).data)


router = routers.SimpleRouter()
router.register("invoices", InvoiceViewSet)
