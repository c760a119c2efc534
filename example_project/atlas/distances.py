"""The API of distances at `/distances/`, which is written with django-ninja.

`mcp.py` lists the operations that MCP clients may use too.
"""

from typing import Annotated

from django.contrib.auth.decorators import login_required
from ninja import NinjaAPI, Query, Router, Schema
from ninja.errors import HttpError
from ninja.security import django_auth

from example_project.atlas import geography
from example_project.atlas.models import City


class CityAround(Schema):
    geonameid: int
    name: str
    country: str
    km: float


class Route(Schema):
    legs: list[geography.Distance]
    km: int


router = Router()


@router.get("/around", response=list[CityAround])
def cities_around(
    request,
    latitude: Annotated[float, Query(ge=-90, le=90)],
    longitude: Annotated[float, Query(ge=-180, le=180)],
    km: Annotated[float, Query(gt=0, le=500)] = 50,
    count: Annotated[int, Query(ge=1, le=50)] = 10,
):
    """Find the cities around a point on the map, the nearest first."""
    found = geography.within((latitude, longitude), km)[:count]
    return [
        CityAround(
            geonameid=one.city.geonameid,
            name=one.city.name,
            country=one.city.country_id,
            km=round(one.km, 1),
        )
        for one in found
    ]


@router.get("/route", response=Route)
def measure_route(
    request,
    cities: Annotated[
        list[int], Query(min_length=2, max_length=50, description="GeoNames ids, in order.")
    ],
):
    """Measure a route through cities, as the crow flies."""
    known = City.objects.in_bulk(cities)
    if missing := [key for key in cities if key not in known]:
        raise HttpError(404, f"The atlas knows no city {missing[0]}.")
    stops = [known[key] for key in cities]
    legs = [
        geography.distance_between(start, end) for start, end in zip(stops, stops[1:], strict=False)
    ]
    return Route(legs=legs, km=sum(leg.km for leg in legs))


api = NinjaAPI(title="Distances", auth=django_auth, docs_decorator=login_required)
api.add_router("", router)
