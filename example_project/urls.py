"""The admin, the way to it, trips, and where people sign in who do not work there."""

from django.contrib import admin
from django.contrib.auth.views import LoginView
from django.urls import include, path
from django.views.generic import RedirectView

sign_in = LoginView.as_view(
    template_name="admin/login.html",
    extra_context={"site_header": "The atlas", "title": "Sign in"},
)

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("accounts/login/", sign_in, name="login"),
    path("trips/", include("example_project.atlas.urls")),
    path("admin/", admin.site.urls),
]
