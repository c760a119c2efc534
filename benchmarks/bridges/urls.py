"""The URLs of the project, to which a package may add its endpoint."""

from django.contrib import admin
from django.urls import include, path

from .operations import api
from .rest import router

urlpatterns = [
    path("api/", include(router.urls)),
    path("ninja/", api.urls),
    path("admin/", admin.site.urls),
]
