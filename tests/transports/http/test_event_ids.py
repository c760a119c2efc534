"""Event ids of streams: any worker can read them, clients cannot guess or interpret them."""

from __future__ import annotations

import pytest
from django.test import override_settings
from hypothesis import given
from hypothesis import strategies as st

from django_mcp.transports.http.streams import MAX_NUMBER, event_id, parse_event_id

NUMBERS = st.integers(0, MAX_NUMBER)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_event_id_is_parsed_to_its_stream_and_number(stream, seq, empty):
    assert parse_event_id(event_id(stream, seq)) == (stream, seq)
    assert parse_event_id(event_id(stream, seq, empty)) == (stream, seq)


def test_ids_of_consecutive_streams_are_unrelated():
    parts = [event_id(stream, 7).partition("-")[0] for stream in range(1, 301)]
    assert {len(part) for part in parts} == {32}
    for place in range(0, 32, 8):
        assert len({part[place : place + 8] for part in parts}) > 295


def test_ids_of_one_stream_differ_in_their_number_only():
    assert event_id(5, 1).partition("-")[0] == event_id(5, 2).partition("-")[0]


def test_id_with_a_changed_digit_is_rejected():
    made = event_id(5, 1)
    for place in range(32):
        digit = "0" if made[place] != "0" else "1"
        assert parse_event_id(made[:place] + digit + made[place + 1 :]) is None


def test_ids_remain_valid_with_a_fallback_secret_key():
    with override_settings(SECRET_KEY="old"):
        made = event_id(5, 1)
    assert parse_event_id(made) is None
    with override_settings(SECRET_KEY_FALLBACKS=["older", "old"]):
        assert parse_event_id(made) == (5, 1)


STREAM = event_id(1, 0).partition("-")[0]


@pytest.mark.parametrize(
    "text",
    [
        "", "-", "1", "1-2", STREAM, f"{STREAM}-", f"-{STREAM}-1", f"{STREAM}--1", f"{STREAM}-1\n",
        f" {STREAM}-1", f"{STREAM}-01", f"{STREAM}-1.0", f"{STREAM}-1-0", f"{STREAM}-1-",
        f"{STREAM}-1-2-3", f"{STREAM}-1_0", f"{STREAM}-²", f"{STREAM.upper()}-1",
        f"{STREAM}-{MAX_NUMBER + 1}", f"{STREAM}-" + "9" * 5000, "0" * 32 + "-1",
    ],
)  # fmt: skip
def test_malformed_event_id_is_rejected(text):
    assert parse_event_id(text) is None
