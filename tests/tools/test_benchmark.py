import importlib.util

import pytest

from tools import benchmark


@pytest.fixture
def codes(monkeypatch):
    """What the benchmarks end with; what they were given is noted."""
    ended, ran = {}, []

    def module(name, *arguments):
        ran.append((name, arguments))
        return ended.get(name, 0)

    monkeypatch.setattr(benchmark, "module", module)
    ended["ran"] = ran
    return ended


def test_every_benchmark_is_there():
    for one in benchmark.BENCHMARKS.values():
        assert importlib.util.find_spec(one.module)


def test_all_are_run_or_those_that_are_named(codes):
    assert benchmark.main([]) == 0
    assert [name for name, _ in codes["ran"]] == [b.module for b in benchmark.BENCHMARKS.values()]
    codes["ran"].clear()
    assert benchmark.main(["--short"]) == 0
    assert [name for name, _ in codes["ran"]] == [
        one.module for one in benchmark.BENCHMARKS.values() if one.is_unasked
    ]
    codes["ran"].clear()
    assert benchmark.main(["workers", "--short"]) == 0
    assert codes["ran"] == [("benchmarks.workers", ("--short",))]
    codes["ran"].clear()
    assert benchmark.main(["http", "--short", "--only", "mcp"]) == 0
    assert codes["ran"] == [("benchmarks.calls", ("--short", "--only", "mcp"))]


@pytest.mark.parametrize(
    ("code", "word", "outcome"), [(0, "met", 0), (benchmark.UNMET, "UNMET", 0), (1, "FAILED", 1)]
)
def test_a_figure_that_is_not_met_is_told_and_fails_nothing(codes, capsys, code, word, outcome):
    codes["benchmarks.keyset"] = code
    assert benchmark.main(["keyset"]) == outcome
    assert capsys.readouterr().out.splitlines()[-1] == f"keyset: {word}"
