"""The admin, the way to it, and where people sign in who do not work there."""

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import path
from django.views.generic import RedirectView

sign_in = LoginView.as_view(
    template_name="admin/login.html",
    extra_context={"site_header": "The atlas", "title": "Sign in"},
)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("accounts/login/", sign_in, name="login"),
    path("admin/", admin.site.urls),
]
