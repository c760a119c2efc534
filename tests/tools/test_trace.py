"""The tracer counts each path, in a process of its own, where no test has started threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tools import ROOT

pytestmark = pytest.mark.slow


def trace(*arguments: str) -> str:
    environ = {key: value for key, value in os.environ.items() if key != "DJANGO_SETTINGS_MODULE"}
    done = subprocess.run(
        [sys.executable, "-m", "tools", "trace", *arguments],
        cwd=ROOT, env=environ, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout


def test_tracer_counts_calls_hops_and_queries_of_every_path():
    traces = json.loads(trace("--json"))
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


def test_calls_of_a_path_are_listed_in_order_and_below_their_caller():
    lines = trace("--calls", "stateless").splitlines()
    first, following, hop, query, check, answer = (
        next(n for n, line in enumerate(lines) if wanted in line)
        for wanted in (
            "django_mcp.transports.http.consumer.MCPConsumer.__call__",
            "django_mcp.transports.http.request.Exchange.__init__",
            "thread hop: mcp-lookup_",
            "query: SELECT",
            "django_mcp.declarations.declaration.decide",
            "django_mcp.transports.http.request.Exchange.text",
        )
    )
    assert first < following < hop < query < check < answer
    depth = len(lines[first]) - len(lines[first].lstrip())
    assert lines[following] == " " * (depth + 2) + lines[following].lstrip()
