"""The django-ninja API, whose callers have the same tokens as those of the REST API."""

from typing import Literal

from django.shortcuts import get_object_or_404
from ninja import ModelSchema, NinjaAPI, Schema
from ninja.security import HttpBearer
from pydantic import Field
from rest_framework.authtoken.models import Token

from .models import Invoice

Status = Literal["open", "paid"]


class BearerToken(HttpBearer):
    def authenticate(self, request, token):
        found = Token.objects.select_related("user").filter(key=token).first()
        return found and found.user


class InvoiceSchema(ModelSchema):
    class Meta:
        model = Invoice
        fields = ["id", "number", "status", "amount"]


class NewInvoice(Schema):
    number: str = Field(min_length=1, max_length=20)
    status: Status
    amount: float = Field(ge=0)


api = NinjaAPI(auth=BearerToken())


@api.get("/invoices", response=list[InvoiceSchema], operation_id="list_invoices")
def list_invoices(request, status: Status | None = None):
    """List the invoices of your company."""
    found = Invoice.objects.of(request.auth).order_by("number")
    return found.filter(status=status) if status else found


@api.get("/invoices/{int:pk}", response=InvoiceSchema, operation_id="get_invoice")
def get_invoice(request, pk: int):
    """Get an invoice."""
    return get_object_or_404(Invoice.objects.of(request.auth), pk=pk)


@api.post("/invoices", response=InvoiceSchema, operation_id="create_invoice")
def create_invoice(request, data: NewInvoice):
    """Create an invoice."""
    return Invoice.objects.create(tenant=request.auth.groups.get(), **data.model_dump())


@api.post("/invoices/{int:pk}/pay", response=InvoiceSchema, operation_id="pay_invoice")
def pay_invoice(request, pk: int):
    """Mark an invoice as paid."""
    invoice = get_object_or_404(Invoice.objects.of(request.auth), pk=pk)
    invoice.status = "paid"
    invoice.save()
    return invoice
