"""Wrong clocks, by libfaketime: each worker reads the offset of its clock from a file.

The time of day is wrong, and steps when the file changes; the monotonic clock stays correct.
"""

from __future__ import annotations

from pathlib import Path

from tools.database_servers import program

LIBRARY = "lib*/*/faketime/libfaketimeMT.so.1"


def false_clock(folder: Path) -> dict[str, str]:
    """Return the environment of a process with a wrong clock, whose offset is 0 at first."""
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
