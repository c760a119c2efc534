"""The API of distances, over HTTP and as tools of MCP clients."""

import pytest

pytestmark = pytest.mark.django_db
PARIS = {"latitude": 48.85, "longitude": 2.35}


def data(client, tool, **arguments):
    return client.call(tool, **arguments).assert_ok().data


def test_tools_and_api_return_the_same(alice, client, mcp_client, city):
    client.force_login(alice)
    ids = [city(name).geonameid for name in ("Paris", "London", "Tokyo")]
    for path, tool, asked in (
        ("/distances/around", "cities_around", PARIS | {"km": 400, "count": 2}),
        ("/distances/route", "measure_route", {"cities": ids}),
    ):
        told = data(mcp_client.acting_as(alice), tool, **asked)
        assert told == client.get(path, asked).json()


def test_cities_around_a_point_are_the_nearest(alice, mcp_client):
    found = data(mcp_client.acting_as(alice), "cities_around", **PARIS, km=400)
    assert found[0]["name"] == "Paris" and len(found) == 10
    distances = [one["km"] for one in found]
    assert distances == sorted(distances) and distances[-1] < 400


def test_route_is_measured_leg_by_leg(alice, mcp_client, city):
    ids = [city(name).geonameid for name in ("Paris", "London", "Paris")]
    route = data(mcp_client.acting_as(alice), "measure_route", cities=ids)
    assert [(leg["start"], leg["km"], leg["direction"]) for leg in route["legs"]] == [
        ("Paris", 344, "NW"),
        ("London", 344, "SE"),
    ]
    assert route["km"] == 688


def test_bad_arguments_are_errors(alice, mcp_client, city):
    client, paris = mcp_client.acting_as(alice), city("Paris").geonameid
    unknown = client.call("measure_route", cities=[paris, 1]).assert_error()
    assert unknown.text == "The atlas knows no city 1."
    for tool, asked in (
        ("measure_route", {"cities": [paris]}),
        ("cities_around", PARIS | {"latitude": 91}),
        ("cities_around", PARIS | {"km": 501}),
        ("cities_around", PARIS | {"count": 51}),
    ):
        client.call(tool, **asked).assert_error()


def test_api_and_its_documentation_need_a_signed_in_user(client, mcp_client):
    assert client.get("/distances/around", PARIS).status_code == 401
    for path in ("/distances/docs", "/distances/openapi.json"):
        answer = client.get(path)
        assert answer.status_code == 302 and "/accounts/login/" in answer["Location"]
    assert not {"cities_around", "measure_route"} & set(mcp_client.tools().names)
