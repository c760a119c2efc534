"""`python -m tools benchmark [NAME]`: run the benchmarks, each a program that fails when unmet."""

import sys

from tools.environment import ROOT
from tools.run import run


def main(arguments: list[str]) -> int:
    wanted = arguments or sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py"))
    failed = []
    for name in wanted:
        print(f"=== {name} ===", flush=True)
        if run(sys.executable, f"benchmarks/{name}.py"):
            failed.append(name)
    print(f"{len(wanted)} benchmarks, unmet: {', '.join(failed) or 'none'}")
    return int(bool(failed))
