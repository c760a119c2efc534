"""The tracer counts each path, in a process of its own, where no test has started threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tools import ROOT

pytestmark = pytest.mark.slow


def test_tracer_counts_calls_hops_and_queries_of_every_path():
    environ = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-m", "tools", "trace", "--json"],
        cwd=ROOT, env=environ, check=True, capture_output=True,
    )  # fmt: skip
    traces = json.loads(done.stdout)
    assert set(traces) == {"stateless", "session", "progress", "read", "token", "sdk"}
    for one in traces.values():
        assert (
            0 < one["modules"] <= one["functions"] <= one["calls"] == sum(one["by_module"].values())
        )
        assert 0 < one["switches"] < one["calls"]
    # As the page on performance has it: a token and a session are one query each.
    assert [traces[name]["queries"] for name in ("stateless", "session", "read")] == [1, 2, 2]
    assert [traces[name]["hops"] for name in ("stateless", "session")] == [2, 2]
    assert traces["progress"]["queries"] > 2 and traces["token"]["queries"]
