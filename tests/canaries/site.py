"""
Views and forms of the project that has the canaries; they are correct.

The view ``broken`` raises an exception. ``audit`` shows everything to whom the web server admits,
and is not whitelisted.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.mixins import PermissionRequiredMixin
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import path
from django.views import View
from django.views.decorators.http import require_POST

from .models import Author, Paper

FORBIDDEN = "canaries.audit"  # which alice does not have


def visible(request: HttpRequest) -> Any:
    return Paper.objects.filter(tenant__members=request.user, sealed=False)  # type: ignore[misc]


class PaperFilter(forms.Form):
    author = forms.IntegerField(required=False)
    title = forms.CharField(required=False)


class PaperForm(forms.ModelForm):  # type: ignore[type-arg]
    """Its choices are all authors and labels; the package must restrict them."""

    class Meta:
        model = Paper
        fields = ["title", "author", "labels"]


class ChoiceForm(forms.Form):
    paper = forms.ModelChoiceField(Paper.objects.order_by("pk"))


class CitationForm(ChoiceForm):
    others = forms.ModelMultipleChoiceField(Paper.objects.order_by("pk"), required=False)
    author = forms.ModelChoiceField(Author.objects.order_by("pk"), required=False)


def papers(request: HttpRequest) -> HttpResponseBase:
    """The papers of your tenants."""
    form, found = PaperFilter(request.GET), visible(request).order_by("pk")
    if form.is_valid() and form.cleaned_data["author"]:
        found = found.filter(author=form.cleaned_data["author"])
    if form.is_valid():
        found = found.filter(title__contains=form.cleaned_data["title"])
    return JsonResponse({"papers": [one.number for one in found]})


def paper(request: HttpRequest, pk: int) -> HttpResponseBase:
    """One paper."""
    one = get_object_or_404(visible(request), pk=pk)
    return HttpResponse(f"<nav>{one.secret}</nav><main>{one.number}: {one.title}</main>")


@require_POST
def archive(request: HttpRequest, pk: int) -> HttpResponseBase:
    """Archive a paper; the remark about it is on a page with a permission."""
    get_object_or_404(visible(request), pk=pk)
    return redirect("audit", pk=pk)


def audit(request: HttpRequest, pk: int) -> HttpResponseBase:
    return HttpResponse(f"<main>{get_object_or_404(Paper, pk=pk).secret}</main>")


def broken(request: HttpRequest, pk: int) -> HttpResponseBase:
    """It has a bug."""
    return HttpResponse(int(get_object_or_404(visible(request), pk=pk).secret))


class Staff(PermissionRequiredMixin, View):
    permission_required = FORBIDDEN

    def get(self, request: HttpRequest) -> HttpResponseBase:
        return HttpResponse("kanary-staff")


urlpatterns = [
    path("papers/", papers, name="papers"),
    path("papers/<int:pk>/", paper, name="paper"),
    path("papers/<int:pk>/archive/", archive, name="archive"),
    path("papers/<int:pk>/audit/", audit, name="audit"),
    path("papers/<int:pk>/broken/", broken, name="broken"),
    path("staff/", Staff.as_view(), name="kanary-staff"),
]
