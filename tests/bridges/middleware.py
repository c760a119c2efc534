"""Middleware of other people, which the tests of views put around them."""

from __future__ import annotations

from contextlib import contextmanager

from django.contrib.auth import logout
from django.contrib.auth.models import AnonymousUser, User
from django.core.exceptions import SuspiciousOperation
from django.http import HttpResponse
from django.utils import timezone, translation
from django.utils.decorators import async_only_middleware
from django.utils.functional import SimpleLazyObject


class Swallowing:
    """Takes every error for its own."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        try:
            return self.get_response(request)
        except Exception:
            return HttpResponse("swallowed")

    def process_exception(self, request, exception):
        return HttpResponse("swallowed")


@async_only_middleware
def only_async(get_response):
    async def middleware(request):
        return await get_response(request)

    return middleware


def impersonating(get_response):
    """Makes bob of everybody."""

    def middleware(request):
        request.user = SimpleLazyObject(lambda: User.objects.get(username="bob"))
        return get_response(request)

    return middleware


def cookie_user(get_response):
    """Knows people by a cookie of its own, which nobody has here."""

    def middleware(request):
        request.user = AnonymousUser()
        return get_response(request)

    return middleware


def verifying(get_response):
    """Dresses the user, as django-otp does."""

    def middleware(request):
        user = request.user

        def dressed():
            user.is_verified = lambda: True
            return user

        request.user = SimpleLazyObject(dressed)
        return get_response(request)

    return middleware


def signing_out(get_response):
    """Signs everybody out."""

    def middleware(request):
        logout(request)
        return get_response(request)

    return middleware


def suspicious(get_response):
    """Finds fault with every answer."""

    def middleware(request):
        get_response(request)
        raise SuspiciousOperation("hunter2")

    return middleware


@contextmanager
def in_german(request):
    """Of AROUND: every call is in German."""
    with translation.override("de"):
        yield


def closed(get_response):
    """Answers in place of every page."""
    return lambda request: HttpResponse("We are closed.")


def french(get_response):
    """Sets language and time zone, and leaves them so."""

    def middleware(request):
        translation.activate("fr")
        timezone.activate("Asia/Tokyo")
        return get_response(request)

    return middleware


def elsewhere(get_response):
    """Sends everybody to another page than they asked for."""

    def middleware(request):
        request.path_info = "/secret/"
        return get_response(request)

    return middleware
