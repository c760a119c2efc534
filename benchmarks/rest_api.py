"""
The REST API that is measured: cities, filtered, sorted and in pages, for callers with a token.

`REST_FRAMEWORK` in the settings has the defaults of a project, and the middleware is that of
`startproject`.
"""

from django.urls import include, path
from django_filters import rest_framework as filters
from rest_framework import pagination, routers, serializers, viewsets
from rest_framework.filters import OrderingFilter

from benchmarks.models import City

PAGE_SIZE = 20


class CityPages(pagination.PageNumberPagination):
    page_size = PAGE_SIZE


class CitySerializer(serializers.ModelSerializer):
    class Meta:
        model = City
        fields = ["id", "name", "population"]


class CityFilters(filters.FilterSet):
    population = filters.RangeFilter()


class CityViewSet(viewsets.ReadOnlyModelViewSet):
    """The cities."""

    queryset = City.objects.all()
    serializer_class = CitySerializer
    pagination_class = CityPages
    filter_backends = [filters.DjangoFilterBackend, OrderingFilter]
    filterset_class = CityFilters
    ordering_fields = ["population"]
    ordering = ["id"]


router = routers.SimpleRouter()
router.register("cities", CityViewSet)
urlpatterns = [path("", include("django_mcp.oauth.urls")), path("api/", include(router.urls))]
