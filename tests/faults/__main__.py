"""`python -m tests.faults`: run a campaign, or one for each mutant, and print its report."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from . import report, services
from .campaign import POINTS, Campaign, Options
from .databases import database
from .project.mutants import IN_THE_LOG, MUTANTS
from .schedule import NO_WAKEUP_SERVICE, why_not

DATABASES, LAYERS = ("sqlite", "postgres", "mariadb"), ("none", "memory", "redis", "postgres")
CLIENTS = min(30, 8 * (os.cpu_count() or 1))  # more would have to wait for each other
MEMORY, ROOM = Path("/dev/shm"), 2**31  # bytes that must be free there
MUTANT_SECONDS, MUTANT_EVERY, MUTANT_CLIENTS = 5.0, 1.0, 16


def main(arguments: list[str]) -> int:
    # SIGTERM ends all servers, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    parsed = vars(parser().parse_args(arguments))
    mutants = parsed.pop("mutants")
    if parsed["layer"] == "postgres":
        parsed["database"] = "postgres"
    options = Options(**parsed)
    if not mutants:
        return campaign(options)
    return max([campaign(mutated(options, name)) for name in MUTANTS])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tools faults")
    made.add_argument("--seconds", type=float, default=60.0)
    made.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    made.add_argument("--database", choices=DATABASES, default="sqlite")
    made.add_argument("--layer", choices=LAYERS, default="redis")
    made.add_argument("--faults", type=int, default=0, help="go on until so many have struck")
    made.add_argument("--workers", type=int, choices=(2, 3, 4), default=3)
    made.add_argument("--clients", type=int, default=CLIENTS, help="by default eight for each core")
    made.add_argument("--every", type=float, default=0.6, help="seconds between two faults")
    made.add_argument("--mutant", choices=[*MUTANTS], default="", help="serve by one that is wrong")
    made.add_argument("--mutants", action="store_true", help="all of these, which must be caught")
    return made


def mutated(options: Options, name: str) -> Options:
    """Return the options of a mutant's campaign. Faults are injected if its event ids are valid."""
    return Options(
        options.seed, min(options.seconds, MUTANT_SECONDS), options.database, options.layer,
        mutant=name, workers=2, clients=min(options.clients, MUTANT_CLIENTS),
        every=MUTANT_EVERY if name in IN_THE_LOG else 0.0,
    )  # fmt: skip


def campaign(options: Options) -> int:
    print(f"seed {options.seed}: {options}", flush=True)
    began = time.monotonic()
    with ExitStack() as stack:
        place = tempfile.TemporaryDirectory(prefix="faults-", dir=memory(options.database))
        name = stack.enter_context(place)
        folder = Path(name)
        folder.chmod(0o755)
        kept = stack.enter_context(database(options.database, folder))
        doorbell = services.WAKEUP_SERVICES.get(options.layer)
        rings = stack.enter_context(doorbell(folder, kept.port)) if doorbell else None
        made = Campaign(options, folder, kept, rings)
        checked = asyncio.run(made.run())
        made.tally.take(checked)
        code = judge(options, made, checked, folder)
    print(f"seed {options.seed}, {time.monotonic() - began:.0f} s in all", flush=True)
    return code


def memory(database: str) -> Path | None:
    """Return a directory in memory, if there is one with enough space: a slow disk disturbs it.

    MariaDB does without: it cannot be installed there.
    """
    is_there = database != "mariadb" and os.access(MEMORY, os.W_OK)
    return MEMORY if is_there and shutil.disk_usage(MEMORY).free > ROOM else None


def judge(options: Options, made: Campaign, checked: dict[str, Any], folder: Path) -> int:
    if options.mutant:
        return verdict(options.mutant, checked)
    lacking = {} if options.layer in services.WAKEUP_SERVICES else {"p": NO_WAKEUP_SERVICE}
    errors = report.worker_errors([worker.log for worker in made.workers])
    for text, count in errors.most_common():
        made.tally.wrong.append(f"{count} times in the logs of workers: {text}")
    print(report.told(made.tally, checked, lacking))
    if reason := why_not("commit", options.database, options.layer):
        print(f"not here: {reason}")
    found = report.failures(made.tally, checked, lacking)
    if options.faults and not made.tally.has_points(POINTS):
        found.append(f"workers were killed at fewer than {POINTS} points")
    for one in found:
        print(f"FAILED  {one}")
    keep(folder, options, bool(found))
    print("FAILED" if found else "ok")
    return int(bool(found))


def verdict(mutant: str, checked: dict[str, Any]) -> int:
    """Return 0 if the checker has noticed the mutant and classified it correctly."""
    found, kind = {name: checked.get(f"{name}_count", 0) for name in report.SUMS}, MUTANTS[mutant]
    print(f"mutant {mutant}: {'caught' if found[kind] else 'NOT CAUGHT'} as {kind}: {found}")
    print(f"  of {checked.get('events', 0)} events")
    return int(not found[kind])


def keep(folder: Path, options: Options, failed: bool) -> None:
    """Keep the logs of a campaign that failed."""
    if not failed:
        return
    place = Path("build") / "faults" / f"{options.database}-{options.layer}-{options.seed}"
    place.mkdir(parents=True, exist_ok=True)
    for kept in (*folder.glob("*.log"), *folder.glob("*.sqlite3*")):
        (place / kept.name).write_bytes(kept.read_bytes())
    print(f"The logs are in {place}.")


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
