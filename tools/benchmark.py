"""`python -m tools benchmark [NAME ...] [--short] [OPTIONS]`: run all benchmarks, or those named.

    python -m tools benchmark --prepare     install the peers that are measured, and run nothing

The exit code is 1 if a benchmark fails to run. A missed target is only reported, because results
depend on the load of the machine. OPTIONS are passed to each benchmark.
"""

from typing import NamedTuple

from tools.processes import module

UNMET = 3  # the exit code of a benchmark that was done, and did not reach its figures


class Benchmark(NamedTuple):
    """A program of `benchmarks/`, and the arguments with which it is short."""

    module: str
    short: tuple[str, ...] = ()
    is_unasked: bool = True  # whether `--short` runs it where none is named: it is soon done


BENCHMARKS = {
    "trace": Benchmark("tools.trace"),
    "keyset": Benchmark("benchmarks.keyset", ("--rows", "200000")),
    "http": Benchmark("benchmarks.calls", ("--short",)),
    "authenticated": Benchmark("benchmarks.authenticated", ("--short",)),
    "rest": Benchmark("benchmarks.rest", ("--short",)),
    "registration": Benchmark("benchmarks.registration", ("--short",)),
    "streams": Benchmark("benchmarks.streams", ("--short",), is_unasked=False),
    "wakeups": Benchmark("benchmarks.wakeups", ("--short",), is_unasked=False),
    "burst": Benchmark("benchmarks.burst", ("--short", "--only", "sqlite")),
    "revocation": Benchmark("benchmarks.revocation", ("--short",), is_unasked=False),
    "saves": Benchmark("benchmarks.saves", ("--short",)),
    "startup": Benchmark("benchmarks.startup", ("--short",)),
    "workers": Benchmark("benchmarks.workers", ("--short",), is_unasked=False),
    "scale": Benchmark("benchmarks.scale", ("--short",), is_unasked=False),
    "audit": Benchmark("benchmarks.audit_pages", ("--short",)),
    "overhead": Benchmark("benchmarks.overhead", ("--short",)),
    "profile": Benchmark("benchmarks.profile", ("--short",)),
    "samples": Benchmark("benchmarks.samples", ("--short",), is_unasked=False),
    "soak": Benchmark("benchmarks.soak", ("--short",), is_unasked=False),
}
WORDS = {0: "met", UNMET: "UNMET"}


def main(arguments: list[str]) -> int:
    if arguments == ["--prepare"]:
        return module("benchmarks.contenders")
    short = "--short" in arguments
    named = [name for name in arguments if name in BENCHMARKS]
    wanted = named or [name for name, one in BENCHMARKS.items() if one.is_unasked or not short]
    options = [one for one in arguments if one not in BENCHMARKS and one != "--short"]
    codes = {name: run(BENCHMARKS[name], short, options) for name in wanted}
    verdicts = (f"{name}: {WORDS.get(code, 'FAILED')}" for name, code in codes.items())
    print(", ".join(verdicts))
    return max((code for code in codes.values() if code not in WORDS), default=0)


def run(benchmark: Benchmark, short: bool, options: list[str]) -> int:
    print(f"\n=== {benchmark.module} ===", flush=True)
    return module(benchmark.module, *(benchmark.short if short else ()), *options)
