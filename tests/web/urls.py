from django.http import HttpResponse
from django.urls import path


def sign_in(request):
    return HttpResponse("Sign in")


urlpatterns = [
    path("accounts/login/", sign_in),
    path("sign-in/", sign_in, name="sign_in"),
]
