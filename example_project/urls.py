"""URLs of the authorization server, signing in and out, trips, the two APIs, and the admin."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path
from django.views.generic import RedirectView

from example_project.atlas import api, distances

sign_in = LoginView.as_view(template_name="atlas/sign_in.html", extra_context={"site": "The atlas"})

urlpatterns = [
    path("", include("django_mcp.oauth.urls")),
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("accounts/login/", sign_in, name="login"),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("trips/", include("example_project.atlas.urls")),
    path("api/", include(api.router.urls)),
    path("distances/", distances.api.urls),
    path("admin/", admin.site.urls),
]
