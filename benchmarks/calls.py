"""
How fast a call is answered over HTTP, beside peers and floors on the same machine.

    python -m tools benchmark http [--short] [--only mcp,lean] [--server fast] [--rounds 7]

Every contender is one process on one core, the load on another; they take turns, and the
figures are medians of the rounds. A ratio is the median of the ratios within a round, so that other
work of the machine affects both. Exits with 1 if the project could not be measured or answered
wrongly, and with 3 if a figure is not met.
"""

from __future__ import annotations

import argparse
import http.client
import sys

from benchmarks.contenders import BY_NAME, CONTENDERS, LISTED, SERVERS
from benchmarks.goals import US, judge
from benchmarks.load import Connection
from benchmarks.messages import JSON, LIST, NUMBER, SESSION, STATELESS, TEMPLATES
from benchmarks.rounds import HEAD, NUMBERS, Result, cpu_ratio, measure_in_turns, rate_ratio
from tools.benchmark import UNMET

WITHOUT = (STATELESS, SESSION)  # a token
ADD = {"a": NUMBER, "b": 1}
CITY = {"pk": 7}
TOOLS: dict[str, JSON] = {"add": ADD, "add_sync": ADD, "city": CITY}


def report(results: list[Result]) -> None:
    for variant, tool in dict.fromkeys((result.variant, result.tool) for result in results):
        lines = [
            str(result) for result in results if (result.variant, result.tool) == (variant, tool)
        ]
        print("\n".join((f"\n{variant}, {tool}", HEAD, *lines)))
    report_ratios(results)


def report_ratios(results: list[Result]) -> None:
    print(f"\n{US}'s calls/s, and in brackets its calls per second of the server's processor:")
    for ours in results:
        if ours.contender.name.startswith(US):
            others = (result for result in results if result is not ours and same(result, ours))
            print(
                "".join(
                    f"  {ours.contender.name}, {ours.variant}, {ours.tool}  {ratio(ours, other)}\n"
                    for other in others
                ),
                end="",
            )


def same(one: Result, other: Result) -> bool:
    return (one.variant, one.tool) == (other.variant, other.tool)


def ratio(ours: Result, other: Result) -> str:
    if ours.wrong or other.wrong:
        return f"not compared with {other.contender.title}: wrong answers"
    return (
        f"{rate_ratio(ours, other):6.2f} x ({cpu_ratio(ours, other):.2f} x) {other.contender.title}"
    )


def report_statements() -> None:
    """Print how many SQL statements one call executes, counted in a server of its own."""
    with BY_NAME[US].running(BENCHMARK_COUNT="1") as started:
        for tool, arguments in TOOLS.items():
            counted = {
                variant: statements(started.address, variant, tool, arguments)
                for variant in WITHOUT
            }
            text = ", ".join(f"{number:g} ({variant})" for variant, number in counted.items())
            print(f"Statements for a call of {tool}: {text}")


def statements(
    address: tuple[str, int], variant: str, tool: str, arguments: JSON, calls: int = 100
) -> float:
    connection = Connection(address, TEMPLATES[variant](address, tool, arguments))
    connection.complete(next(NUMBERS))  # the first call fills caches
    before = executed(address)
    for number in range(1, calls + 1):
        connection.complete(next(NUMBERS) + number)
    connection.socket.close()
    return (executed(address) - before) / calls


def executed(address: tuple[str, int]) -> int:
    connection = http.client.HTTPConnection(*address, timeout=20)
    connection.request("GET", "/queries")
    count = int(connection.getresponse().read())
    connection.close()
    return count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--short", action="store_true", help="three short rounds")
    parser.add_argument("--only", help="names, separated by commas")
    parser.add_argument("--server", choices=SERVERS, default="plain", help="how uvicorn runs")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=3.0)
    options = parser.parse_args()
    rounds, seconds = (3, 0.6) if options.short else (options.rounds, options.seconds)
    wanted = [BY_NAME[name] for name in options.only.split(",")] if options.only else CONTENDERS
    requests = TOOLS | {LIST: {"count": LISTED}}
    results = measure_in_turns(wanted, requests, options.server, rounds, seconds)
    report(results)
    met = judge(results)
    if BY_NAME[US] in wanted:
        report_statements()
        done = [not result.wrong for result in results if result.contender.name == US]
        if not done or not all(done):
            return 1
    return 0 if met else UNMET


if __name__ == "__main__":
    sys.exit(main())
