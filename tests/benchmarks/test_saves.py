"""What a save costs is judged by what it costs with fewer subscribers."""

from __future__ import annotations

import pytest

from benchmarks import saves
from tools.benchmark import UNMET

FOUND = {
    "not registered": 100.0,
    "nobody subscribes": 105.0,
    "one subscriber": 140.0,
    "5,000 subscribers": 150.0,
}


@pytest.mark.parametrize(
    ("changed", "code"),
    [({}, 0), ({"5,000 subscribers": 160.0}, UNMET), ({"nobody subscribes": 120.0}, UNMET)],
)
def test_what_is_met(monkeypatch, capsys, changed, code):
    monkeypatch.setattr(saves, "prepare", lambda *of: None)
    monkeypatch.setattr(saves, "measured", lambda *of: FOUND | changed)
    assert saves.main(["--short"]) == code
    assert "5,000 to one" in capsys.readouterr().out
