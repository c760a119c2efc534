"""A ninja API of the shop: operations of each kind, with their URLs."""

from datetime import date
from decimal import Decimal
from typing import Annotated

from asgiref.sync import sync_to_async
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from ninja import (
    Body,
    Field,
    File,
    FilterLookup,
    FilterSchema,
    Form,
    Header,
    NinjaAPI,
    Path,
    Query,
    Router,
    Schema,
    Status,
    UploadedFile,
)
from ninja.decorators import decorate_view
from ninja.errors import HttpError
from ninja.pagination import CursorPagination, PageNumberPagination, paginate
from ninja.security import APIKeyHeader, HttpBearer, django_auth, django_auth_superuser
from ninja.throttling import UserRateThrottle
from pydantic import AfterValidator

from tests.shop.models import Customer, Invoice, Tag

api = NinjaAPI(urls_namespace="shop", title="The shop")
invoices, customers, notes = Router(), Router(), Router()
api.add_router("/invoices", invoices)
api.add_router("/customers", customers)
customers.add_router("/{customer_id}/notes", notes)


class OwnToken(HttpBearer):
    """Fails every test that asks it: callers are authenticated by ``django_mcp``."""

    def authenticate(self, request, token):
        raise AssertionError("A call of a tool has no token.")


class ApiKey(APIKeyHeader):
    param_name = "X-API-Key"

    def authenticate(self, request, key):
        return {"key": key} if key == "hunter2" else None


def not_none(text: str) -> str:
    if text == "none":
        raise ValueError("Choose another text.")
    return text


Text = Annotated[str, AfterValidator(not_none)]


class LineIn(Schema):
    price: Decimal = Field(gt=0)
    words: Text = ""


class InvoiceIn(Schema):
    number: Text = Field(max_length=20, description="Printed on the paper.")
    customer_id: int
    total: Decimal
    issued: date | None = None
    lines: list[LineIn] = []


class InvoiceOut(Schema):
    id: int
    number: str
    total: Decimal
    customer_name: str = Field(alias="customer.name")


class Message(Schema):
    message: str


class InvoiceFilters(FilterSchema):
    status: Text | None = None
    number: Annotated[list[str] | None, FilterLookup("number__in")] = None


def own_invoices(request):
    return Invoice.objects.filter(company__members=request.user).order_by("number")


@invoices.get("", response=list[InvoiceOut])
@paginate(PageNumberPagination, page_size=2)
def list_invoices(request, filters: Query[InvoiceFilters]):
    """List the invoices of your company."""
    return filters.filter(own_invoices(request))


@invoices.post("", response={201: InvoiceOut, 409: Message})
def create_invoice(request, payload: InvoiceIn):
    given = payload.dict(exclude={"lines"}) | {"issued": payload.issued or date(2026, 1, 1)}
    if Invoice.objects.filter(number=payload.number).exists():
        Tag.objects.create(label="written")
        return Status(409, {"message": "The number is taken."})
    customer = get_object_or_404(
        Customer, pk=given.pop("customer_id"), company__members=request.user
    )
    return Status(201, Invoice.objects.create(customer=customer, company=customer.company, **given))


@invoices.get("/latest", response={200: InvoiceOut, 204: None})
def latest(request):
    return own_invoices(request).last() or Status(204, None)


@invoices.get("/cursor", response=list[InvoiceOut])
@paginate(CursorPagination, ordering=("number",), page_size=2)
def walk_invoices(request, status: str | None = None):
    found = own_invoices(request)
    return found.filter(status=status) if status else found


@invoices.get("/{int:pk}", response=InvoiceOut, summary="Show one invoice")
def get_invoice(request, pk: int):
    return get_object_or_404(own_invoices(request), pk=pk)


@invoices.put("/{int:pk}", response=InvoiceOut)
def replace_invoice(request, pk: int, payload: InvoiceIn):
    invoice = get_object_or_404(own_invoices(request), pk=pk)
    invoice.number, invoice.total = payload.number, payload.total
    invoice.save()
    return invoice


@invoices.delete("/{int:pk}", response={204: None})
def delete_invoice(request, pk: int):
    if not request.user.is_staff:
        raise HttpError(403, "Only on Mondays.")
    get_object_or_404(own_invoices(request), pk=pk).delete()
    return Status(204, None)


# The same function names in another router.


@customers.get("", response=list[Message], operation_id="list_of_customers")
def list_all(request):
    names = Customer.objects.filter(company__members=request.user).values_list("name", flat=True)
    return [{"message": name} for name in names]


@notes.get("", response=list[str], operation_id="list_of_notes")
def list_all(request, customer_id: Path[int]):  # noqa: F811
    return [f"note of {customer_id}"]


# What an operation is given.


class Seen(Schema):
    user: str
    auth: str | None
    method: str
    query: dict[str, str]
    cookies: dict[str, str]
    authorization: str | None
    key: str | None
    path: str


def what_is_seen(request, key=None):
    found = getattr(request, "auth", None)
    return {
        "user": request.user.get_username(),
        "auth": None if found is None else str(found),
        "method": request.method,
        "query": request.GET.dict(),
        "cookies": {k: v for k, v in request.COOKIES.items() if k != "sessionid"},
        "authorization": request.headers.get("Authorization"),
        "key": key,
        "path": request.path,
    }


@api.get("/seen", response=Seen)
def seen(request, key: str | None = Header(None, alias="X-API-Key")):
    return what_is_seen(request, key)


@api.get("/bearer", auth=OwnToken(), response=Seen)
def bearer(request):
    return what_is_seen(request)


@api.post("/abearer", auth=[ApiKey(), OwnToken()], response=Seen)
async def abearer(request):
    return await sync_to_async(what_is_seen)(request)


@api.get("/session", auth=django_auth, response=Seen)
def with_session(request):
    return what_is_seen(request)


@api.get("/superuser", auth=[django_auth_superuser, ApiKey()], response=Seen)
def for_superusers(request):
    return what_is_seen(request)


@api.get("/function", auth=lambda request: request.user.is_staff and "staff", response=Seen)
def for_staff(request):
    return what_is_seen(request)


# Parameters.


class Point(Schema):
    x: int
    y: int = 0


class Anything(Schema, extra="allow"):
    x: int


@api.post("/forms", response=dict)
def send_form(request, given: Form[Point], tags: Form[list[str]], when: date = Form(None)):
    return {"x": given.x, "y": given.y, "tags": tags, "when": str(when)}


@api.post("/mixed", response=dict)
def mix(request, point: Point, name: str = Form(...), upload: UploadedFile = None):
    read = upload.read().decode() if upload else None
    return {"point": point.dict(), "name": name, "upload": read}


@api.post("/files", response=list[str])
def send_files(request, uploads: File[list[UploadedFile]]):
    return [f"{one.name} {one.content_type} {one.size}" for one in uploads]


@api.post("/several", response=dict)
def several(request, a: Point, b: list[int] = Body([]), c: LineIn | None = None):
    return {"a": a.dict(), "b": b, "c": c and c.words}


@api.post("/list", response=list[int])
def add_all(request, points: list[Point]):
    return [sum(point.x for point in points)]


@api.post("/optional", response=dict)
def optional(request, point: Point | None = None):
    return {"point": point and point.dict()}


@api.post("/anything", response=dict)
def anything(request, given: Anything):
    return given.dict()


@api.get("/typed/{day}/{name}", response=dict)
def typed(request, day: date, name: str, flag: bool = False, n: list[int] = Query([])):
    return {"day": str(day), "name": name, "flag": flag, "n": n}


@api.api_operation(["PATCH", "POST"], "/either", response=str)
def either(request):
    return request.method


# Results.


class Row:
    id, number, total, customer, secret = 1, "N", Decimal("1.50"), {"name": "C"}, "hunter2"


@api.get("/row", response=InvoiceOut)
def row(request):
    """An object with more attributes than the schema."""
    return Row()


@api.get("/undeclared")
def undeclared(request):
    return {"all": 1}


@api.get("/raw", response=InvoiceOut)
def raw(request, response: HttpResponse):
    response["X-Secret"] = "hunter2"
    response.set_cookie("secret", "hunter2")
    return Row()


@api.get("/direct", response=Message)
def direct(request):
    return JsonResponse({"message": "x"}, headers={"X-Secret": "hunter2"})


@api.get("/unfit", response=Message)
def unfit(request):
    return JsonResponse({"other": 1})


@api.get("/page", response=Message)
def page(request):
    return HttpResponse("<form>hunter2</form>")


@api.get("/unset", response=list[LineIn], exclude_unset=True)
def unset(request):
    return [LineIn(price=1)]


def raising(error):
    def fail():
        raise error

    return fail


FAILURES = {
    "bug": raising(RuntimeError("hunter2")),
    "denied": raising(PermissionDenied("Only on Mondays.")),
    "http": raising(HttpError(400, "No bad luck.")),
    "gone": raising(HttpError(404, "It is sold.")),
    "teapot": raising(HttpError(418, "Short and stout.")),
    "signed_out": raising(HttpError(401, "hunter2")),
    "down": raising(HttpError(503, "hunter2")),
    "moved": lambda: HttpResponse(status=302, headers={"Location": "/admin/"}),
    "plain": lambda: HttpResponse("hunter2", status=400),
}


@api.post("/fail/{kind}", response={200: None})
def fail(request, kind: str):
    """Write a row, and fail."""
    Tag.objects.create(label="written")
    return FAILURES[kind]()


@api.post("/afail/{kind}", response={200: None})
async def afail(request, kind: str):
    """Write a row, and fail."""
    await Tag.objects.acreate(label="written")
    return FAILURES[kind]()


@api.get("/throttled", response=str, throttle=UserRateThrottle("1/min"))
def throttled(request):
    return "done"


def deny_bob(run):
    def wrapped(request, *args, **kwargs):
        if request.user.username == "bob":
            return HttpResponse("hunter2", status=403)
        return run(request, *args, **kwargs)

    return wrapped


@api.get("/decorated", response=str)
@decorate_view(deny_bob)
def decorated(request):
    return "done"


class Busy(Exception):
    pass


@api.exception_handler(Busy)
def on_busy(request, error):
    return api.create_response(request, {"error": {"code": "busy"}}, status=409)


@api.post("/busy", response=str)
def busy(request):
    raise Busy


urlpatterns = [path("api/", api.urls)]
