"""`python -m tests.mutations`: apply each mutation to a copy of the project; tests must fail.

    python -m tests.mutations [SUBJECT ...] [--database sqlite|postgres|mariadb]
                              [--sample N [--seed SEED]] [--jobs N]

SUBJECT is a threat (T14), a requirement (cancellation.stops), an area of requirements
(cancellation), `threats` or `requirements`; all if none is named. `--sample N` tries one mutation
each of N threats and requirements, chosen at random. First the tests must pass without a mutation.
The exit code is 1 if a mutation was not noticed. The environment names the database servers, as for
the other tests: see tests/settings.py.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from tools import requirements as table

from . import requirements, threats
from .mutation import DATABASES, Mutation, threat_tests
from .project_copy import ProjectCopy, why_unnoticed

DATABASE = "TEST_DATABASE"
CITED = {row.id: row.tests for row in table.table()}


def main(arguments: list[str]) -> int:
    options = parser().parse_args(arguments)
    os.environ[DATABASE] = options.database
    chosen = [one for one in selected(options.subjects) if options.database in one.on]
    if options.sample:
        chosen = sampled(chosen, options.sample, options.seed)
    if not chosen:
        print("No mutation has such a subject.")
        return 2
    with tempfile.TemporaryDirectory(prefix="mutations_") as folder:
        copies: SimpleQueue[ProjectCopy] = SimpleQueue()
        for number in range(options.jobs):
            (own := Path(folder, str(number))).mkdir()
            copies.put(ProjectCopy(own))
        return try_all(copies, chosen, options.jobs)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.add_argument("subjects", nargs="*", metavar="SUBJECT")
    made.add_argument("--database", choices=DATABASES, default=os.environ.get(DATABASE, "sqlite"))
    made.add_argument("--sample", type=int, metavar="N", help="try N subjects, chosen at random")
    made.add_argument("--seed", type=int, default=random.randrange(10**6))
    made.add_argument("--jobs", type=int, default=1, help="copies that run tests at once")
    return made


def selected(subjects: list[str]) -> list[Mutation]:
    kinds = {"threats": threats.MUTATIONS, "requirements": requirements.MUTATIONS}
    wanted = set(subjects)
    return [
        one
        for kind, mutations in kinds.items()
        for one in mutations
        if not wanted or wanted & {kind, one.subject, one.subject.partition(".")[0]}
    ]


def sampled(mutations: list[Mutation], count: int, seed: int) -> list[Mutation]:
    """Return one mutation each of ``count`` subjects, chosen at random."""
    by_subject: dict[str, list[Mutation]] = {}
    for one in mutations:
        by_subject.setdefault(one.subject, []).append(one)
    chooser = random.Random(seed)
    subjects = chooser.sample(sorted(by_subject), min(count, len(by_subject)))
    print(f"{len(subjects)} of {len(by_subject)} subjects, --seed {seed}", flush=True)
    return [chooser.choice(by_subject[subject]) for subject in subjects]


def cited_tests(mutation: Mutation) -> list[str]:
    """Return the node ids of the tests that must notice a mutation."""
    if not mutation.is_threat:
        return list(mutation.tests or CITED[mutation.subject])
    return [threat_tests()[name][0] for name in mutation.tests]


def try_all(copies: SimpleQueue[ProjectCopy], chosen: list[Mutation], jobs: int) -> int:
    copy = copies.get()
    tests = sorted({test for one in chosen for test in cited_tests(one)})
    failures = copy.failures(tests)
    for test, hows in failures.items():
        print(f"FAILS {test}, without a mutation: {(min(hows).splitlines() or [''])[0]}")
    print(f"{len(tests)} tests without a mutation: {len(failures)} fail", flush=True)
    if failures:
        return 1
    copies.put(copy)

    def is_noticed(mutation: Mutation) -> bool:
        copy = copies.get()
        try:
            tests = cited_tests(mutation)
            with copy.mutated(mutation):
                failures = copy.failures(tests, first=not mutation.is_threat)
            wrong = why_unnoticed(mutation, tests, failures)
        finally:
            copies.put(copy)
        verdict = "noticed" if wrong is None else f"UNNOTICED: {wrong}"
        print(f"{mutation.subject}: {mutation.change} - {verdict}", flush=True)
        return wrong is None

    with ThreadPoolExecutor(jobs) as pool:
        noticed = sum(pool.map(is_noticed, chosen))
    subjects = len({one.subject for one in chosen})
    print(
        f"{len(chosen)} mutations of {subjects} threats and requirements:"
        f" {noticed} noticed, {len(chosen) - noticed} not"
    )
    return int(noticed < len(chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
