"""The admin of the atlas: pages, search, number of queries and validation."""

import pytest
from django.contrib import admin
from django.urls import reverse

from example_project.atlas.models import City, Trip
from example_project.atlas.trips import add_stop

PAGES = [
    f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}"
    for model in admin.site._registry
    if model._meta.app_label == "atlas"
    for page in ("changelist", "add")
]


@pytest.mark.parametrize("page", PAGES)
def test_every_model_has_list_and_add_pages(page, atlas, admin_client):
    assert admin_client.get(reverse(page)).status_code == 200


def test_staff_read_and_correct_trips_of_others_by_tools(trip, city, mcp_client, admin_user):
    stop = add_stop(trip, city("Tokyo"))
    client = mcp_client.acting_as(admin_user)
    found = client.call("admin_search_trip", query="Japan").assert_ok()
    assert [row["_key"] for row in found.data["results"]] == [trip.pk]
    shown = client.call("admin_read_trip", _key=trip.pk).assert_ok()
    assert [row["_key"] for row in shown.data["stops"]] == [stop.pk]
    client.call("admin_update_trip", _key=trip.pk, title="Corrected").assert_ok()
    trip.refresh_from_db()
    assert trip.title == "Corrected"
    owner = mcp_client.acting_as(trip.owner)
    assert not [name for name in owner.tools().names if name.startswith("admin_")]


def test_home_page_redirects_to_the_admin(client):
    assert client.get("/").url == reverse("admin:index")


def test_number_of_queries_of_the_city_list_is_limited(
    atlas, admin_client, django_assert_max_num_queries
):
    with django_assert_max_num_queries(10):
        admin_client.get(reverse("admin:atlas_city_changelist"))


def test_city_can_be_searched_without_accents(atlas, admin_client):
    found = admin_client.get(reverse("admin:atlas_city_changelist"), {"q": "sao paulo"})
    assert "São Paulo" in found.rendered_content


def test_trip_with_invalid_dates_shows_errors(trip, city, admin_client):
    add_stop(trip, city("Tokyo"))
    stop = trip.stops.get()
    form = {
        "owner": trip.owner_id,
        "title": "Japan",
        "starts": "",
        "ends": "2027-04-12",
        "status": "planned",
        "stops-TOTAL_FORMS": "1",
        "stops-INITIAL_FORMS": "1",
        "stops-0-id": stop.pk,
        "stops-0-trip": trip.pk,
        "stops-0-city": stop.city_id,
        "stops-0-position": "1",
        "stops-0-arrival": "2027-04-03",
    }
    page = admin_client.post(reverse("admin:atlas_trip_change", args=[trip.pk]), form)
    assert "This field is required" in page.rendered_content
    form |= {"starts": "2027-04-01"}
    assert admin_client.post(page.wsgi_request.path, form).status_code == 302
    assert Trip.objects.get().stops.get().arrival.isoformat() == "2027-04-03"
    assert City.objects.count() == 3_000
