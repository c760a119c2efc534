"""A REST API of the shop: viewsets and views of each kind, with its URLs."""

from __future__ import annotations

import django_filters
from django.http import HttpResponse
from django.urls import include, path
from django_filters.rest_framework import DjangoFilterBackend
from rest_framework import (
    filters,
    generics,
    mixins,
    pagination,
    permissions,
    routers,
    serializers,
    status,
    throttling,
    viewsets,
)
from rest_framework.authentication import TokenAuthentication
from rest_framework.decorators import action, api_view, permission_classes
from rest_framework.exceptions import APIException, PermissionDenied, ValidationError
from rest_framework.response import Response
from rest_framework.views import APIView

from tests.shop.models import Company, Customer, Invoice, Note, Tag


class OwnToken(TokenAuthentication):
    """Fails every test that asks it: callers are authenticated by ``django_mcp``."""

    def authenticate(self, request):
        raise AssertionError("The view's authentication classes must not be asked.")


class Page(pagination.PageNumberPagination):
    page_size = 2
    page_size_query_param = "page_size"
    max_page_size = 3


class CustomerSerializer(serializers.ModelSerializer):
    class Meta:
        model = Customer
        fields = ["id", "name", "email"]


class InvoiceSerializer(serializers.ModelSerializer):
    customer_name = serializers.CharField(source="customer.name", read_only=True)
    overdue = serializers.SerializerMethodField()
    memo = serializers.CharField(write_only=True, required=False, help_text="For ourselves.")
    owner = serializers.HiddenField(default=serializers.CurrentUserDefault())

    class Meta:
        model = Invoice
        fields = [
            "id", "number", "customer", "customer_name", "status", "total", "issued", "paid_at",
            "tags", "metadata", "overdue", "memo", "owner",
        ]  # fmt: skip
        read_only_fields = ["paid_at"]

    def get_overdue(self, row) -> bool:
        return row.overdue

    def validate_number(self, value):
        if value == "none":
            raise serializers.ValidationError("Choose another number.")
        return value

    def validate(self, given):
        if given.get("total") == 13:
            raise serializers.ValidationError("No bad luck.")
        return given

    def create(self, given):
        for name in ("memo", "owner"):
            given.pop(name, None)
        return super().create(given)

    def update(self, row, given):
        for name in ("memo", "owner"):
            given.pop(name, None)
        return super().update(row, given)


class InvoiceFilters(django_filters.FilterSet):
    total = django_filters.RangeFilter()
    paid = django_filters.BooleanFilter(field_name="paid_at", lookup_expr="isnull", exclude=True)

    class Meta:
        model = Invoice
        fields = {"status": ["exact", "in"], "customer": ["exact"], "issued": ["gte"]}


class MayDelete(permissions.BasePermission):
    message = "Only drafts can be deleted."

    def has_object_permission(self, request, view, row):
        return request.method != "DELETE" or row.status == "draft"


class ReminderSerializer(serializers.Serializer):
    text = serializers.CharField(max_length=100)
    copies = serializers.IntegerField(min_value=1, max_value=5, default=1)


class InvoiceViewSet(viewsets.ModelViewSet):
    """The invoices of your company."""

    authentication_classes = [OwnToken]
    permission_classes = [permissions.IsAuthenticated, MayDelete]
    serializer_class = InvoiceSerializer
    queryset = Invoice.objects.all()
    pagination_class = Page
    filter_backends = [DjangoFilterBackend, filters.SearchFilter, filters.OrderingFilter]
    filterset_class = InvoiceFilters
    search_fields = ["number", "^customer__name"]
    ordering_fields = ["issued", "total"]
    ordering = ["number"]

    def get_queryset(self):
        return super().get_queryset().filter(company__members=self.request.user)

    def perform_create(self, serializer):
        serializer.save(company=self.request.user.companies.get())

    @action(detail=True, methods=["post"], serializer_class=ReminderSerializer)
    def remind(self, request, pk=None):
        """Remind the customer.

        Args:
            pk: The invoice.
        """
        invoice = self.get_object()
        given = self.get_serializer(data=request.data)
        given.is_valid(raise_exception=True)
        Tag.objects.create(label=f"{invoice.number}: {given.validated_data['text']}")
        return Response({"sent": given.validated_data["copies"]}, status.HTTP_202_ACCEPTED)

    @action(detail=True, methods=["post"], permission_classes=[permissions.IsAdminUser])
    def approve(self, request, pk=None):
        Invoice.objects.filter(pk=pk).update(status="paid")
        return Response({"status": "paid"})

    @action(detail=True, methods=["get", "post"])
    def labels(self, request, pk=None):
        """See or clear the labels."""
        if request.method == "POST":
            self.get_object().tags.clear()
        return Response([tag.label for tag in self.get_object().tags.all()])

    @action(detail=False)
    def seen(self, request):
        """What the view was given."""
        http = request._request
        return Response(
            {
                "user": request.user.get_username(),
                "auth": type(request.auth).__name__,
                "scopes": sorted(getattr(request.auth, "scopes", ())),
                "method": request.method,
                "query": request.query_params.dict(),
                "cookies": {k: v for k, v in http.COOKIES.items() if k != "sessionid"},
                "authorization": http.headers.get("Authorization"),
                "renderer": request.accepted_renderer.format,
                "path": http.path,
                "mcp": type(request.mcp).__name__,
            }
        )

    @action(detail=True, methods=["post"])
    def fail(self, request, pk=None):
        """Write a row, and fail as the invoice's number says."""
        Tag.objects.create(label="written")
        return FAILURES[self.get_object().number]()


def raising(error):
    def fail():
        raise error

    return fail


class Down(APIException):
    status_code = 503
    default_detail = "The printer is out of paper."


FAILURES = {
    "nested": raising(ValidationError({"lines": [{}, {"price": ["Too much."]}], "a": {"b": "c"}})),
    "list": raising(ValidationError(["One.", "Two."])),
    "denied": raising(PermissionDenied("Only on Mondays.")),
    "conflict": lambda: Response({"error": "It is closed."}, status=409),
    "plain": lambda: HttpResponse("hunter2", status=418),
    "down": raising(Down()),
    "bug": raising(RuntimeError("hunter2")),
    "moved": lambda: HttpResponse(status=302, headers={"Location": "/admin/"}),
}


class CustomerViewSet(mixins.ListModelMixin, mixins.CreateModelMixin, viewsets.GenericViewSet):
    permission_classes = [permissions.IsAuthenticated]
    serializer_class = CustomerSerializer
    pagination_class = None

    def get_queryset(self):
        return Customer.objects.filter(company__members=self.request.user)

    def perform_create(self, serializer):
        serializer.save(company_id=self.kwargs["company_pk"])


class NoteViewSet(viewsets.ModelViewSet):
    queryset = Note.objects.all()

    class Written(serializers.ModelSerializer):
        class Meta:
            model = Note
            fields = ["id", "text", "written"]

    serializer_class = Written


class OncePerMinute(throttling.UserRateThrottle):
    rate = "1/min"


class ReportSerializer(serializers.Serializer):
    month = serializers.RegexField(r"^\d{4}-\d{2}$", help_text="Such as 2026-01.")
    kinds = serializers.MultipleChoiceField(choices=[("a", "All"), ("b", "Big")])


class ReportQuery(serializers.Serializer):
    year = serializers.IntegerField(min_value=2000)
    draft = serializers.BooleanField(default=False)


class ReportView(APIView):
    """The monthly report."""

    permission_classes = [permissions.IsAuthenticated]
    throttle_classes = [OncePerMinute]

    def get(self, request):
        return Response({"query": request.query_params.dict()})

    def post(self, request):
        """Write a report."""
        given = ReportSerializer(data=request.data)
        given.is_valid(raise_exception=True)
        return Response(
            {"month": given.data["month"], "kinds": sorted(given.data["kinds"])}, status=201
        )

    def delete(self, request):
        return Response(status=204)


class CompanyList(generics.ListCreateAPIView):
    permission_classes = [permissions.AllowAny]
    queryset = Company.objects.order_by("pk")
    pagination_class = pagination.LimitOffsetPagination

    class Written(serializers.ModelSerializer):
        class Meta:
            model = Company
            fields = ["id", "name"]

    serializer_class = Written


@api_view(["GET", "POST"])
@permission_classes([permissions.IsAuthenticated])
def status_view(request):
    """How the shop is doing."""
    return Response({"user": request.user.get_username(), "method": request.method})


router = routers.DefaultRouter()
router.register("invoices", InvoiceViewSet)
router.register("notes", NoteViewSet)
nested = routers.SimpleRouter()
nested.register("customers", CustomerViewSet, basename="customer")
urlpatterns = [
    path("api/", include(router.urls)),
    path("api/companies/<int:company_pk>/", include(nested.urls)),
    path("api/companies/", CompanyList.as_view()),
    path("api/report/", ReportView.as_view(), name="report"),
    path("api/status/", status_view, name="status"),
]
