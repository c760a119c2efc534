"""The REST API at `/api/`: countries, and the trips of the signed-in user.

`mcp.py` lists the actions that MCP clients may use too.
"""

from django_filters import rest_framework as filters
from rest_framework import pagination, permissions, routers, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import PermissionDenied
from rest_framework.filters import OrderingFilter
from rest_framework.response import Response

from example_project.atlas.models import City, Country, Stop, Trip
from example_project.atlas.trips import turn_round


class Pages(pagination.PageNumberPagination):
    """Pages of 20 rows, or of up to 100 by `page_size`."""

    page_size = 20
    page_size_query_param = "page_size"
    max_page_size = 100


class CountrySerializer(serializers.ModelSerializer):
    density = serializers.FloatField(read_only=True, help_text="People per square kilometre.")

    class Meta:
        model = Country
        fields = ["code", "name", "continent", "population", "area", "density", "languages"]


class CountryFilters(filters.FilterSet):
    population = filters.RangeFilter()
    speaks = filters.CharFilter(
        method="speaking", label="A language that is spoken there, by its code, such as fr"
    )

    class Meta:
        model = Country
        fields = ["continent", "currency"]

    def speaking(self, countries, name, code):
        # The codes are separated by commas, and some name a country too: "fr-CH,de-CH".
        if not code.isalpha():
            return countries.none()
        return countries.filter(languages__iregex=f"(^|,){code}(-|,|$)")


class CitySerializer(serializers.ModelSerializer):
    class Meta:
        model = City
        fields = ["geonameid", "name", "population", "timezone"]


class CountryViewSet(viewsets.ReadOnlyModelViewSet):
    """The countries of the world."""

    queryset = Country.objects.all()
    serializer_class = CountrySerializer
    pagination_class = Pages
    filter_backends = [filters.DjangoFilterBackend, OrderingFilter]
    filterset_class = CountryFilters
    ordering_fields = ["population", "area", "name"]
    ordering = ["-population"]


class StopSerializer(serializers.ModelSerializer):
    city = CitySerializer()

    class Meta:
        model = Stop
        fields = ["position", "city", "arrival"]


class TripSerializer(serializers.ModelSerializer):
    stops = StopSerializer(many=True)

    class Meta:
        model = Trip
        fields = ["id", "title", "starts", "ends", "days", "status", "stops"]


class MayChangeTrips(permissions.IsAuthenticated):
    """Users with Django's permission to change trips."""

    def has_permission(self, request, view):
        return super().has_permission(request, view) and request.user.has_perm("atlas.change_trip")


class TripViewSet(viewsets.ReadOnlyModelViewSet):
    """The trips of the user, with their stops."""

    serializer_class = TripSerializer
    pagination_class = Pages
    queryset = Trip.objects.prefetch_related("stops__city")
    filter_backends = [filters.DjangoFilterBackend]
    filterset_fields = {"status": ["exact"], "starts": ["gte", "lte"]}

    def get_queryset(self):
        return super().get_queryset().of(self.request.user)

    @action(detail=True, methods=["post"], permission_classes=[MayChangeTrips])
    def reverse(self, request, pk=None):
        """Travel a trip of the user in the other direction: its last city is then the first."""
        trip = self.get_object()
        if trip.status == Trip.Status.DONE:
            raise PermissionDenied("This trip is over.")
        turn_round(trip)
        return Response(self.get_serializer(self.get_object()).data)


router = routers.DefaultRouter()
router.register("countries", CountryViewSet)
router.register("trips", TripViewSet)
