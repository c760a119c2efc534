"""Third-party middleware for the tests of views."""

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
    """Catches all exceptions."""

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
    """Replaces every user by bob."""

    def middleware(request):
        request.user = SimpleLazyObject(lambda: User.objects.get(username="bob"))
        return get_response(request)

    return middleware


def cookie_user(get_response):
    """Identifies users by its own cookie, which no request has here."""

    def middleware(request):
        request.user = AnonymousUser()
        return get_response(request)

    return middleware


def verifying(get_response):
    """Adds an attribute to the user, as django-otp does."""

    def middleware(request):
        user = request.user

        def verified():
            user.is_verified = lambda: True
            return user

        request.user = SimpleLazyObject(verified)
        return get_response(request)

    return middleware


def signing_out(get_response):
    """Logs every user out."""

    def middleware(request):
        logout(request)
        return get_response(request)

    return middleware


def suspicious(get_response):
    """Raises an exception after every response."""

    def middleware(request):
        get_response(request)
        raise SuspiciousOperation("hunter2")

    return middleware


@contextmanager
def in_german(request):
    """For the setting ``AROUND``: runs every call in German."""
    with translation.override("de"):
        yield


def closed(get_response):
    """Responds instead of every view."""
    return lambda request: HttpResponse("We are closed.")


def french(get_response):
    """Activates a language and a time zone, and does not reset them."""

    def middleware(request):
        translation.activate("fr")
        timezone.activate("Asia/Tokyo")
        return get_response(request)

    return middleware


def elsewhere(get_response):
    """Redirects every request internally to another view."""

    def middleware(request):
        request.path_info = "/secret/"
        return get_response(request)

    return middleware
