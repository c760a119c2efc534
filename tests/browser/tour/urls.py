"""The admin and the authorization server."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [path("admin/", admin.site.urls), path("", include("django_mcp.oauth.urls"))]
