"""A page of Django's own, and the address at which Django thinks it is."""

from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse


def page(request: HttpRequest) -> HttpResponse:
    return HttpResponse(f"Django at {reverse('page')}")


urlpatterns = [path("page/", page, name="page")]
