"""Plain names: without accents and case."""

import pytest

from example_project.atlas.names import plain


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("São Tomé", "sao tome"),
        ("Łódź", "lodz"),
        ("Straße", "strasse"),
        ("Đà Nẵng", "da nang"),
        ("İzmir", "izmir"),
        ("Diyarbakır", "diyarbakir"),
        ("Nuku‘alofa", "nuku'alofa"),
        ("東京", "東京"),
        ("", ""),
    ],
)
def test_plain_removes_accents_and_case(name, expected):
    assert plain(name) == expected


def test_plain_is_idempotent():
    assert plain(plain("Ærøskøbing")) == plain("Ærøskøbing") == "aeroskobing"
