"""URLs and views for the tests of views: those of the shop, and all kinds of responses."""

from __future__ import annotations

import io
import json
from datetime import date

from django import forms
from django.contrib import messages
from django.contrib.auth import logout
from django.contrib.auth.decorators import login_required, permission_required
from django.contrib.auth.mixins import LoginRequiredMixin, PermissionRequiredMixin
from django.core.exceptions import PermissionDenied, SuspiciousOperation
from django.db import transaction
from django.http import (
    FileResponse,
    Http404,
    HttpResponse,
    HttpResponseNotAllowed,
    HttpResponsePermanentRedirect,
    JsonResponse,
    StreamingHttpResponse,
)
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import include, path, re_path, register_converter
from django.utils import translation
from django.views import View
from django.views.decorators.http import require_POST
from django.views.generic import CreateView, DeleteView, DetailView, FormView, ListView, UpdateView

from django_mcp import ToolError
from tests.shop.models import Customer, Invoice, Tag

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.locmem.Loader",
                    {
                        "form.html": "<main><h1>A form</h1><form method='post'>{% csrf_token %}"
                        "{{ form.as_p }}<button>Save</button></form></main>",
                        "list.html": "<title>Invoices</title><nav>Home</nav><ul>"
                        "{% for one in object_list %}<li>{{ one.number }}</li>{% endfor %}</ul>",
                        "detail.html": "<main>{{ object.number }}: {{ object.total }}</main>",
                        "messages.html": "{% for one in messages %}<p>{{ one }}</p>{% endfor %}",
                        "login.html": "Sign in",
                    },
                )
            ],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    }
]


def own_invoices(request):
    return Invoice.objects.filter(company__members=request.user)


# The shop.


class CloseForm(forms.Form):
    reason = forms.CharField(label="Why", max_length=40)
    silent = forms.BooleanField(required=False)

    def clean_reason(self):
        if self.cleaned_data["reason"] == "none":
            raise forms.ValidationError("Say why.")
        return self.cleaned_data["reason"]


class InvoiceFilter(forms.Form):
    status = forms.ChoiceField(choices=Invoice.Status.choices, required=False)


class InvoiceList(LoginRequiredMixin, ListView):
    """The invoices of your company."""

    template_name = "list.html"
    paginate_by = 2

    def get_queryset(self):
        found = own_invoices(self.request).order_by("number")
        status = self.request.GET.get("status")
        return found.filter(status=status) if status else found


class InvoiceDetail(DetailView):
    model = Invoice
    template_name = "detail.html"

    def get_queryset(self):
        return own_invoices(self.request)


class InvoiceUpdate(UpdateView):
    model = Invoice
    template_name = "form.html"
    fields = ["number", "status", "total"]
    success_url = "/billing/{id}/"

    def get_queryset(self):
        return own_invoices(self.request)

    def form_valid(self, form):
        messages.success(self.request, "The invoice was saved.")
        return super().form_valid(form)


class InvoiceDelete(PermissionRequiredMixin, DeleteView):
    model = Invoice
    permission_required = "shop.delete_invoice"
    success_url = "/billing/"


class CustomerCreate(CreateView):
    model = Customer
    fields = ["company", "name", "email"]
    template_name = "form.html"
    success_url = "https://elsewhere.example/thanks?x=1"


class Ask(FormView):
    form_class = CloseForm
    template_name = "form.html"
    prefix = "ask"
    success_url = "/loop/1/"


@require_POST
def close(request, pk):
    """Close an invoice.

    Args:
        pk: The invoice.
    """
    invoice = get_object_or_404(own_invoices(request), pk=pk)
    form = CloseForm(request.POST)
    if not form.is_valid():
        return render(request, "form.html", {"form": form})
    Invoice.objects.filter(pk=invoice.pk).update(status="paid")
    messages.info(request, f"Closed because {form.cleaned_data['reason']}.")
    return redirect("billing:detail", pk=pk)


# Views that report their request, and views with special effects.


def seen(request, **kwargs):
    """What the view was given."""
    return JsonResponse(
        {
            "user": request.user.get_username(),
            "signed_in": request.user.is_authenticated,
            "method": request.method,
            "path": request.path,
            "full": request.get_full_path(),
            "get": dict(request.GET.lists()),
            "post": dict(request.POST.lists()),
            "files": {name: file.read().decode() for name, file in request.FILES.items()},
            "type": request.content_type,
            "secure": request.is_secure(),
            "host": request.get_host(),
            "session": request.session.get("_auth_user_id")
            if hasattr(request, "session")
            else None,
            "authorization": request.headers.get("Authorization"),
            "language": translation.get_language(),
            "mcp": type(request.mcp).__name__,
            "kwargs": {name: str(value) for name, value in kwargs.items()},
        }
    )


async def aseen(request):
    """Return the user and the number of customers."""
    user = await request.auser()
    count = await Customer.objects.acount()
    return JsonResponse({"user": user.get_username(), "customers": count})


def body(request):
    return JsonResponse({"type": request.content_type, "body": json.loads(request.body)})


def visits(request):
    """Count visits in the session."""
    request.session["visits"] = request.session.get("visits", 0) + 1
    return HttpResponse(str(request.session["visits"]))


def leave(request):
    logout(request)
    return HttpResponse(str(request.user.is_authenticated))


def german(request):
    translation.activate("de")
    return HttpResponse("Guten Tag", content_type="text/plain; charset=utf-8")


ASKED: list[str] = []


def ask(request):
    """Ask whether to continue."""
    Tag.objects.create(label=f"asked {len(ASKED)}")
    ASKED.append("again")
    sure = request.mcp.elicit("Sure?", bool)
    request.mcp.progress(1, 1)
    return HttpResponse(f"sure: {sure}")


async def aask(request):
    """Ask asynchronously whether to continue."""
    return HttpResponse(f"sure: {await request.mcp.aelicit('Sure?', bool)}")


def answer(request, kind):
    """Return one of many kinds of responses."""
    return ANSWERS[kind](request)


def stream():
    yield b"one "
    yield b"two"


async def astream():
    yield b"one "
    yield b"two"


def endless():
    while True:
        yield b"x" * 100_000


def with_file(request):
    return FileResponse(io.BytesIO(b"PK\x03\x04"), as_attachment=True, filename="a b/ü.zip")


def failing(request):
    Tag.objects.create(label="kept?")
    raise RuntimeError("the password is hunter2")


def broken(request):
    Tag.objects.create(label="kept?")
    return HttpResponse("no, because of the total", status=409)


def raising(error):
    def view(request):
        raise error

    return view


PAGE = """<html><head><title>T</title><style>p {}</style></head><body><nav>menu</nav><main>
<h1>Hello</h1><script>steal()</script><p>A <b>bold</b> <a href="/x/">link</a>.</p>
<form><input type="hidden" name="csrfmiddlewaretoken" value="TOKEN"><input name="a" value="shown">
<input type="password" value="hunter2"></form></main><footer>foot</footer></body></html>"""

ANSWERS = {
    "html": lambda request: HttpResponse(PAGE),
    "deep": lambda request: HttpResponse("<div>" * 3000 + "deep" + "</div>" * 3000),
    "json": lambda request: JsonResponse({"a": [1, None]}),
    "list": lambda request: JsonResponse(["a", "b"], safe=False),
    "nojson": lambda request: HttpResponse("{", content_type="application/json"),
    "csv": lambda request: HttpResponse("a;b\n1;ä", content_type="text/csv; charset=latin-1"),
    "nocharset": lambda request: HttpResponse(b"\xff", content_type="text/plain; charset=klingon"),
    "png": lambda request: HttpResponse(b"\x89PNG", content_type="image/png"),
    "wav": lambda request: HttpResponse(b"RIFF", content_type="audio/wav"),
    "bytes": lambda request: HttpResponse(b"\x00\x01", content_type="application/octet-stream"),
    "notype": lambda request: HttpResponse(b"\x00", content_type="nonsense"),
    "file": with_file,
    "stream": lambda request: StreamingHttpResponse(stream(), content_type="text/plain"),
    "astream": lambda request: StreamingHttpResponse(astream(), content_type="text/plain"),
    "endless": lambda request: StreamingHttpResponse(endless(), content_type="text/plain"),
    "events": lambda request: StreamingHttpResponse(endless(), content_type="text/event-stream"),
    "big": lambda request: HttpResponse("x" * 2_000_000, content_type="text/plain"),
    "empty": lambda request: HttpResponse(status=204),
    "denied": raising(PermissionDenied("Only on Mondays.")),
    "forbidden": lambda request: HttpResponse("no", status=403),
    "gone": raising(Http404("There is no such thing.")),
    "suspicious": raising(SuspiciousOperation("hunter2")),
    "tool": raising(ToolError("Not on a Sunday.")),
    "fails": failing,
    "conflict": broken,
    "teapot": lambda request: JsonResponse({"error": "teapot"}, status=418),
    "method": lambda request: HttpResponseNotAllowed(["PUT"]),
    "down": lambda request: HttpResponse("hunter2", status=503),
    "cookie": lambda request: cookie(request),
    "outside": lambda request: redirect("https://elsewhere.example/a b"),
    "evil": lambda request: redirect("//evil.example/billing/"),
    "inside": lambda request: redirect("/secret/"),
    "listed": lambda request: redirect("/billing/"),
    "again": lambda request: redirect("/loop/5/"),
    "moved": lambda request: HttpResponsePermanentRedirect("/billing/"),
    "none": lambda request: None,
    "nowhere": lambda request: HttpResponse("lost", status=302),
}


def sent_to(request):
    """Redirect to the given address."""
    if request.method == "POST":
        Tag.objects.create(label="sent")
    there = request.POST.get("next") or request.GET["next"]
    return HttpResponse(status=302, headers={"Location": there})


def cookie(request):
    response = HttpResponse("cookie set")
    response.set_cookie("secret", "hunter2")
    return response


def loop(request, number):
    return redirect(f"/loop/{number}/")


def secret(request):
    return HttpResponse("the page that is not listed")


def secret_of_user(request):
    return HttpResponse(f"for {request.user.get_username()}")


@permission_required("shop.delete_invoice")
def guarded(request):
    return HttpResponse("inside")


@transaction.non_atomic_requests
def piecemeal(request):
    """Return whether a transaction is active."""
    atomic = transaction.get_connection().in_atomic_block
    return JsonResponse({"atomic": atomic})


class OnlyGet(View):
    def get(self, request):
        return HttpResponse("got")


class Needy(FormView):
    template_name = "form.html"

    def get_form_class(self):
        return {True: CloseForm}[self.request.user.is_staff]


class YearConverter:
    regex = "[0-9]{4}"

    def to_python(self, value):
        return date(int(value), 1, 1)

    def to_url(self, value):
        return f"{value.year:04}"


register_converter(YearConverter, "yyyy")

billing = [
    path("", InvoiceList.as_view(), name="list"),
    path("<int:pk>/", InvoiceDetail.as_view(), name="detail"),
    path("<int:pk>/edit/", InvoiceUpdate.as_view(), name="edit"),
    path("<int:pk>/close/", close, name="close"),
    path("<int:pk>/delete/", login_required(InvoiceDelete.as_view()), name="delete"),
    path("customers/new/", CustomerCreate.as_view(), name="new-customer"),
]
inner = [
    path("s/<str:text>/", seen, name="text"),
    path("s/fixed/", secret, name="fixed"),
    path("slug/<slug:slug>/", seen, name="slug"),
    path("u/<uuid:key>/", seen, name="uuid"),
    path("p/<path:rest>", seen, name="path"),
    path("y/<yyyy:year>/", seen, name="year"),
    path("o/", seen, {"page": 1}, name="optional"),
    path("o/<int:page>/", seen, name="optional"),
    path("o/<int:page>/<slug:order>/", seen, name="optional"),
    re_path(r"^r/(?P<number>[0-9]+)/(?:x(?P<letter>[a-z])/)?$", seen, name="regex"),
    re_path(r"^un/([0-9]+)/$", seen, name="unnamed"),
    re_path(r"^or/(?P<a>x|y)/$", seen, name="either"),
    path("default/<int:a>/", seen, {"b": "given"}, name="default"),
]
urlpatterns = [
    path("billing/", include((billing, "billing"))),
    path("in/<int:tenant>/", include((inner, "inner"), namespace="deep")),
    path("plain/", include(inner)),
    path("seen/", seen, name="seen"),
    path("aseen/", aseen, name="aseen"),
    path("body/", body, name="body"),
    path("visits/", visits, name="visits"),
    path("leave/", leave, name="leave"),
    path("german/", german, name="german"),
    path("ask/", ask, name="ask"),
    path("aask/", aask, name="aask"),
    path("answer/<kind>/", answer, name="answer"),
    path("loop/<int:number>/", loop, name="loop"),
    path("sent/", sent_to, name="sent"),
    path("secret/", secret, name="secret"),
    path("secret-of-user/", secret_of_user, name="secret-of-user"),
    path("guarded/", guarded, name="guarded"),
    path("piecemeal/", piecemeal, name="piecemeal"),
    path("only-get/", OnlyGet.as_view(), name="only-get"),
    path("needy/", Needy.as_view(), name="needy"),
    path("form/", Ask.as_view(), name="form"),
    path("accounts/login/", secret, name="login"),
]
