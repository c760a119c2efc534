"""Clocks that are wrong, by libfaketime: each worker reads its own from a file.

The rule: the time of day is wrong, and steps when the file changes; time itself goes on as it does.
"""

from __future__ import annotations

from pathlib import Path

from tools.database_servers import program

LIBRARY = "lib*/*/faketime/libfaketimeMT.so.1"


def false_clock(folder: Path) -> dict[str, str]:
    """The environment of a process that has one; right until told otherwise."""
    clock = folder / "clock"
    clock.write_text("+0\n")
    return {
        "LD_PRELOAD": library(),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def library() -> str:
    program("faketime", "faketime")
    found = sorted(Path("/usr").glob(LIBRARY))
    if not found:
        raise SystemExit("libfaketime is needed: install the package libfaketime.")
    return str(found[0])
