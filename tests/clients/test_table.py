"""The client table: every client uses every feature of the atlas, in every revision it supports.

A feature that a revision or a client lacks is asserted to be absent and noted in the cell. The
features of a revision are those of its changelog.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from django_mcp.protocol.revisions import REVISIONS
from django_mcp.transports.http.streams import parse_event_id
from example_project.settings import SECRET_KEY as ATLAS_SECRET_KEY

from .conftest import Told
from .rows import NEWEST, OVER_HTTP, OVER_SSE, STDIO, Row, rows_of

JSON = dict[str, Any]
Cell = dict[str, str]

TOOLS = {
    "search_country", "search_city", "search_trip", "search_stop", "nearest_cities",
    "distance_between", "draw_map", "ride_slow_train", "plan_trip", "add_stop", "itinerary",
    "move_trip", "delete_trip", "suggest_itinerary", "capital_quiz",
    "trip_calendar", "repeat_trip", "update_trip", "update_stop", "delete_stop", "rank_countries",
    "reverse_trip", "aggregate_country", "aggregate_trip", "cities_around", "measure_route",
    "greet",
}  # fmt: skip
PUBLIC = {"greet"}
# A 401 without a token, and one with a token that opens nothing, as each client tells them: the
# second comes before the body is read, so it names no request, and the client drops its words.
REFUSED = {
    "mcp 2": ("MCPError: A token is needed.", "MCPError: Server returned an error response"),
    "FastMCP 4": ("MCPError: A token is needed.", "MCPError: Server returned an error response"),
    "mcp 1": ("HTTPStatusError: Client error '401 Unauthorized'",) * 2,
}
ABOUT = {"atlas://about", "atlas://city-of-the-day", "greeting://door"}
CONTINENTS = {f"atlas://continent/{code}" for code in ("AF", "AN", "AS", "EU", "NA", "OC", "SA")}
PAGE = 4


def texts(result: JSON) -> list[str]:
    return [block["text"] for block in result["content"] if block["type"] == "text"]


def data(row: Row, result: JSON) -> Any:
    """Return the data of a result: structured since 2025-06-18, and as text in every revision."""
    assert not result.get("isError"), result
    written = json.loads(texts(result)[0])
    if not row.since("2025-06-18"):
        assert "structuredContent" not in result
        return written
    structured = result["structuredContent"]
    if not row.since(NEWEST) and not isinstance(written, dict):
        assert structured == {"result": written}
    else:
        assert structured == written
    return written


def refusal(result: JSON) -> str:
    assert result["isError"] is True, result
    assert "structuredContent" not in result
    return texts(result)[0]


def test_revision(row: Row, told: Told) -> None:
    assert told["revision"] == row.revision
    if row.mode == NEWEST:  # the client assumes the revision, and requests nothing else
        assert told["can"]["instructions"] is None
        return
    assert "atlas://" in told["can"]["instructions"]
    assert told["can"]["title"] == ("The atlas" if row.since("2025-06-18") else None)


def test_server_logs_no_errors(row: Row, told: Told) -> None:
    # Each client cancels a call, and tries a token that does not exist.
    expected = ("Call finished", "Call cancelled", "Unknown access token")
    lines = told.log.splitlines()
    assert [line for line in lines if not any(one in line for one in expected)] == []
    assert [line for line in lines if "outcome=failed" in line] == []


def test_list(row: Row, told: Told, cell: Cell) -> None:
    listed = told["list"]
    found = {kind: [name for page in listed[kind]["pages"] for name in page] for kind in listed}
    assert all(len(set(names)) == len(names) for names in found.values())
    assert set(found["tools"]) == TOOLS
    trips = {name for name in found["resources"] if name.startswith("atlas://trip/")}
    assert set(found["resources"]) == ABOUT | CONTINENTS | trips
    assert len(trips) == 2  # Alice's, and none of Bob's
    assert "atlas://city/{pk}" in found["resourceTemplates"]
    assert found["prompts"] == ["visit", "pack"]


def test_lists_are_paginated(row: Row, told: Told) -> None:
    for kind in ("tools", "resources", "resourceTemplates"):
        sizes = [len(page) for page in told["list"][kind]["pages"]]
        assert len(sizes) > 1
        assert sizes[:-1] == [PAGE] * (len(sizes) - 1)
        assert 0 < sizes[-1] <= PAGE


def test_only_fastmcp_reads_all_pages_by_itself(row: Row, told: Told) -> None:
    for listing in told["list"].values():
        whole = [name for page in listing["pages"] for name in page]
        assert listing["every"] == (whole if row.client == "FastMCP 4" else None)


def test_call(row: Row, told: Told, cell: Cell) -> None:
    called = told["call"]
    way = {"start": "Paris", "end": "London", "km": 344, "direction": "NW"}
    assert data(row, called["distance"]) == way
    nearest = data(row, called["nearest"])
    assert [near["name"] for near in nearest] == ["London", "Hamburg"]
    assert (nearest[0]["km"], nearest[0]["direction"]) == (343.8, "NW")
    linked = "resource_link" if row.since("2025-06-18") else "text"
    assert called["map"]["kinds"][:3] == ["image", "text", linked]


def test_failing_calls(row: Row, told: Told) -> None:
    called = told["call"]
    assert refusal(called["wrong"]) == "Invalid arguments. end: this argument is required."
    assert refusal(called["missing"]) == "There is no city 1."
    assert called["unknown"]["code"] == -32602
    assert called["unknown"]["message"] == "Unknown tool: no_such_tool"


def test_progress(row: Row, told: Told, cell: Cell) -> None:
    heard = told["progress"]["heard"]
    assert [[done, total] for done, total, _ in heard] == [[1, 3], [2, 3], [3, 3]]
    messages = [message for *_, message in heard]
    if row.since("2025-03-26"):
        assert messages[0] == "Tokyo, 9,733,276 people"
    else:
        assert messages == [None] * 3
        cell["is"] = "no message"
    assert data(row, told["progress"]["result"])[0] == "Tokyo"


def test_log(row: Row, told: Told, cell: Cell) -> None:
    assert told["log"]["error"] == []
    said = {"level": "info", "logger": "atlas.train"}
    assert told["log"]["info"] == [
        said | {"data": {"stop": 1, "city": "Tokyo"}},
        said | {"data": {"stop": 2, "city": "Yokohama"}},
    ]
    if row.since(NEWEST):
        cell["is"] = "per call"
    if row.client == "FastMCP 4":
        refused = told["can"].get("set_logging_level", "")
        assert ("not available on MCP 2026-07-28" in refused) == row.since(NEWEST)


def test_elicitation(row: Row, told: Told, cell: Cell) -> None:
    heard = told["elicitation"]
    if not row.since("2025-06-18"):
        cell["is"] = "not in it"
        assert heard["asked"] == []
        for tool in ("planned", "quiz", "deleted"):
            words = "This client does not support elicitation, which the call needs."
            assert refusal(heard[tool]) == words
        return
    trip = data(row, heard["planned"])
    assert (trip["title"], trip["starts"], trip["ends"]) == ("Capitals", "2027-05-01", "2027-05-09")
    assert trip["cities"] == [2643743, 2988507]
    assert heard["asked"][0]["message"] == "When does “Capitals” take place?"
    assert heard["asked"][0]["schema"]["properties"]["starts"]["format"] == "date"


def test_elicitation_declined(row: Row, told: Told) -> None:
    heard = told["elicitation"]
    if not row.since("2025-06-18"):
        assert refusal(heard["kept"]["refused"]).startswith("This client does not support")
        return
    assert refusal(heard["kept"]["refused"]) == "The user declined to answer."
    assert heard["kept"]["read"]["title"] == "Capitals"  # and the trip is still there
    assert texts(heard["deleted"]) == ["“Capitals” is deleted."]
    assert heard["gone"]["code"] == (-32602 if row.since(NEWEST) else -32002)


def test_elicitation_of_titled_choices(row: Row, told: Told) -> None:
    """The quiz's capitals: `oneOf` since 2025-11-25, `enum` and `enumNames` before."""
    if not row.since("2025-06-18"):
        return
    asked = told["elicitation"]["asked"][1:]
    assert len(asked) == 2  # the same riddles after every answer, each asked once
    assert len({question["message"] for question in asked}) == 2
    for question in asked:
        choice = question["schema"]["properties"]["answer"]
        assert ("oneOf" in choice) == row.since("2025-11-25")
        titles = choice.get("enumNames") or [one["title"] for one in choice["oneOf"]]
        assert len(set(titles)) == 4
    score = data(row, told["elicitation"]["quiz"])
    assert score["of"] == 2
    assert [told.split(" ")[0] for told in score["answers"]] == ["What", "What"]


def test_sampling(row: Row, told: Told, cell: Cell) -> None:
    heard = told["sampling"]
    assert texts(heard["result"]) == ["Go by rail, and stay longer."]
    (asked,) = heard["asked"]
    assert asked["systemPrompt"] == "You know every railway timetable."
    assert asked["maxTokens"] == 800
    (message,) = asked["messages"]
    assert "3 days in Japan" in message["content"]["text"]


def test_cancel(row: Row, told: Told, cell: Cell) -> None:
    heard = told["cancel"]
    assert heard["seconds"] < 9  # the train takes 45
    assert data(row, heard["after"])["end"] == "Tokyo"
    # Over HTTP the newest revision knows no other cancel than a connection that breaks.
    breaks = row.server != STDIO and row.since(NEWEST)
    cancelled = [line for line in told.log.splitlines() if "Call cancelled" in line]
    assert len(cancelled) == 1 + breaks
    assert all("method=tools/call" in line for line in cancelled)
    assert sum("the client disconnected" in line for line in cancelled) == 2 * breaks
    if row.client == "mcp 1":
        assert told["can"]["cancel"] is False
        assert "reason='by hand'" in cancelled[0]
        cell["is"] = "by hand"


def test_read(row: Row, told: Told, cell: Cell) -> None:
    (about,) = told["read"]["about"]["contents"]
    assert about["mimeType"] == "text/markdown"
    assert "7 continents, 252 countries, 300 cities" in about["text"]
    (city,) = told["read"]["city"]["contents"]
    assert json.loads(city["text"])["country__name"] == "France"
    (picture,) = told["read"]["map"]["contents"]
    assert base64.b64decode(picture["blob"]).startswith(b"\x89PNG\r\n")
    assert told["read"]["missing"]["code"] == (-32602 if row.since(NEWEST) else -32002)


def test_views_can_be_read_and_posted_to(row: Row, told: Told) -> None:
    (page,) = told["read"]["view"]["contents"]
    assert page["mimeType"] == "text/markdown" and page["text"].startswith("# ")
    assert "csrf" not in json.dumps(told["read"])
    said, shown = texts(told["read"]["posted"])
    assert "is planned from 2030-01-01" in said
    assert shown.startswith(page["text"].partition("\n")[0])


def test_rows_can_be_updated(row: Row, told: Told) -> None:
    trip = data(row, told["read"]["updated"])
    assert (trip["_uri"], trip["notes"]) == ("atlas://trip/1", "By night train.")
    assert refusal(told["read"]["refused"]).startswith("There is no trip 0 that you may change")


def test_prompt(row: Row, told: Told) -> None:
    asked, city = told["read"]["prompt"]["messages"]
    assert asked["content"]["text"] == "Plan a slow weekend in Tokyo, Japan 🇯🇵."
    linked = "resource_link" if row.since("2025-06-18") else "text"
    assert city["content"]["type"] == linked
    assert "atlas://city/1850147" in json.dumps(city)


def test_complete(row: Row, told: Told, cell: Cell) -> None:
    completed = told["complete"]
    assert completed["country"] == ["JP"]
    assert completed["pace"] == ["slow", "brisk"]
    assert completed["template"][0] == "FR"
    assert completed["city"] == ["Tokyo"]  # and not Toronto: the country was given as context


def test_page(row: Row, told: Told, cell: Cell) -> None:
    pages = told["page"]["pages"]
    assert [len(page) for page in pages] == [5, 5, 5]
    rows = [tuple(city) for page in pages for city in page]
    assert len(set(rows)) == 15
    assert [population for _, population in rows] == sorted(
        (population for _, population in rows), reverse=True
    )
    assert rows[0][0] == "Mumbai"


# Only over HTTP.

over_http = pytest.mark.parametrize("row", OVER_HTTP, ids=lambda row: row.id, indirect=True)


@over_http
def test_resume(row: Row, told: Told, cell: Cell) -> None:
    """The connection breaks after the first stop of four; nobody tells the client's user."""
    heard = told["resume"]
    cursors = [cursor for method, cursor in heard["requests"] if method == "GET"]
    assert data(row, heard["after"])["end"] == "Tokyo"
    if row.since(NEWEST):
        cell["is"] = "not in it"
        assert heard["heard"] == [1]
        assert heard["outcome"] == {"error": "MCPError: SSE stream ended without a response"}
        assert cursors == []
        return
    assert heard["heard"] == [1, 2, 3, 4]
    train = ["Tokyo", "Yokohama", "Osaka", "Nagoya"]
    assert data(row, heard["outcome"]["result"]) == train
    assert any(cursor and not cursor.endswith("-0") for cursor in cursors)


@over_http
def test_standalone_stream_is_reopened(row: Row, told: Told, settings: Any) -> None:
    """With the last event id if there was one, and otherwise anew."""
    settings.SECRET_KEY = ATLAS_SECRET_KEY  # event ids are encrypted
    if not row.since(NEWEST):
        gets = [cursor for method, cursor in told["resume"]["requests"] if method == "GET"]
        places = [parse_event_id(cursor) for cursor in gets if cursor]
        resumed = [place for place in places if place and place[0] == 1]
        assert resumed or (None in gets and not row.since("2025-11-25"))


@over_http
def test_public(row: Row, told: Told, cell: Cell) -> None:
    """Without a token there is what is for everybody."""
    seen = told["public"]
    assert seen["revision"] == row.revision
    assert {name for page in seen["tools"] for name in page} == PUBLIC
    assert data(row, seen["called"]) == {"greeting": "Good day, stranger."}
    assert seen["read"]["contents"][0]["text"] == "Come in."


@over_http
def test_private_declarations_and_invalid_tokens_are_rejected(row: Row, told: Told) -> None:
    """A client that can sign in would start now."""
    for case, words in zip(("refused", "wrong"), REFUSED[row.client], strict=True):
        assert told["public"][case]["error"].startswith(words)


# Over HTTP+SSE.

over_sse = pytest.mark.parametrize("row", OVER_SSE, ids=lambda row: row.id, indirect=True)


@over_sse
def test_public_declarations_and_invalid_tokens_over_sse(row: Row, told: Told) -> None:
    seen = told["public"]
    assert seen["revision"] == row.revision
    assert {name for page in seen["tools"] for name in page} == PUBLIC
    assert data(row, seen["called"]) == {"greeting": "Good day, stranger."}
    assert seen["read"]["contents"][0]["text"] == "Come in."
    assert seen["wrong"]["error"].startswith("HTTPStatusError: Client error '401 Unauthorized'")


def test_every_revision_is_tested() -> None:
    for client in ("mcp 2", "FastMCP 4"):
        assert {row.revision for row in rows_of(client)} == set(REVISIONS)
    assert {row.revision for row in rows_of("mcp 1")} == set(REVISIONS) - {NEWEST}


# Limitations of clients.


@pytest.mark.parametrize("row", rows_of("mcp 2")[:1], ids=lambda row: row.id, indirect=True)
def test_modes_of_mcp_2(row: Row, told: Told) -> None:
    assert told["can"]["modes"] == ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


@pytest.mark.parametrize("row", rows_of("mcp 1"), ids=lambda row: row.id, indirect=True)
def test_mcp_1_does_not_support_stateless_revisions(row: Row, told: Told) -> None:
    assert NEWEST not in told["can"]["supported"]
