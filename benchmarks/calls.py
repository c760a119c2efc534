"""
How fast a call is answered over HTTP, beside peers and floors on the same machine.

    python -m tools benchmark http [--short] [--only mcp,lean] [--server fast] [--rounds 7]

Every contender is one process on one core, the load on another; they take turns, and what is told
is the median of the rounds. A ratio is the median of the ratios within a round, so that what else
the machine does falls on both. Exits with 1 if the project could not be measured or answered
wrongly, and with 3 if a figure is not met.
"""

from __future__ import annotations

import argparse
import http.client
import sys

from benchmarks.contenders import BY_NAME, CONTENDERS, SERVERS
from benchmarks.lanes import HEAD, NUMBERS, Lane, race, thrift, times
from benchmarks.load import Connection
from benchmarks.wires import JSON, NUMBER, SESSION, STATELESS, WIRES
from tools.benchmark import UNMET

US = "django_mcp"
WITHOUT = (STATELESS, SESSION)  # a token
WHOLE = 0.8  # of a core: who was given less was held up by others, and not by its own work
Figures = tuple[tuple[str, str, float], ...]
# Wire, whom we are measured against, and how many times its throughput ours must be.
FIGURES: Figures = (
    (STATELESS, "mcp", 2.0),
    (STATELESS, "lean", 0.4),
    (SESSION, "mcp", 1.5),
)
ADD = {"a": NUMBER, "b": 1}
TOOLS: dict[str, JSON] = {"add": ADD, "add_sync": ADD, "city": {"pk": 7}}


def tell(lanes: list[Lane]) -> None:
    for wire, tool in dict.fromkeys((lane.wire, lane.tool) for lane in lanes):
        told = [str(lane) for lane in lanes if (lane.wire, lane.tool) == (wire, tool)]
        print("\n".join((f"\n{wire}, {tool}", HEAD, *told)))
    if any(lane.contender.name == US for lane in lanes):
        tell_ratios(lanes)


def tell_ratios(lanes: list[Lane]) -> None:
    print(f"\n{US}'s calls/s, and in brackets its calls per second of the server's processor:")
    for ours in lanes:
        if ours.contender.name == US:
            others = (lane for lane in lanes if lane is not ours and same(lane, ours))
            print("".join(f"  {ours.wire}  {ratio(ours, other)}\n" for other in others), end="")


def same(one: Lane, other: Lane) -> bool:
    return (one.wire, one.tool) == (other.wire, other.tool)


def ratio(ours: Lane, other: Lane) -> str:
    if ours.wrong or other.wrong:
        return f"not compared with {other.contender.title}: wrong answers"
    return f"{times(ours, other):6.2f} x ({thrift(ours, other):.2f} x) {other.contender.title}"


def judge(lanes: list[Lane], figures: Figures) -> bool:
    """Whether every figure is met, of those that were measured."""
    missed = False
    done = {(lane.wire, lane.tool, lane.contender.name): lane for lane in lanes if not lane.wrong}
    for wire, name, least in figures:
        ours, other = done.get((wire, "add", US)), done.get((wire, "add", name))
        if ours and other:
            disturbed = min(ours.share, other.share) < WHOLE
            found = thrift(ours, other) if disturbed else times(ours, other)
            verdict = "met" if found >= least else "UNMET"
            missed = missed or found < least
            how = ", by the processor's time, for the core was not theirs" if disturbed else ""
            print(f"{verdict}: {wire} add, {found:.2f} x {name}, of {least} x wanted{how}")
    return not missed


def tell_statements() -> None:
    """How many statements one call of ours executes, counted in a server of its own."""
    with BY_NAME[US].running(BENCHMARK_COUNT="1") as started:
        for tool, arguments in TOOLS.items():
            counted = {wire: statements(started.address, wire, tool, arguments) for wire in WITHOUT}
            told = ", ".join(f"{number:g} ({wire})" for wire, number in counted.items())
            print(f"Statements for a call of {tool}: {told}")


def statements(
    address: tuple[str, int], wire: str, tool: str, arguments: JSON, calls: int = 100
) -> float:
    connection = Connection(address, WIRES[wire](address, tool, arguments))
    connection.complete(next(NUMBERS))  # the first one fills what is remembered
    before = executed(address)
    for number in range(1, calls + 1):
        connection.complete(next(NUMBERS) + number)
    connection.socket.close()
    return (executed(address) - before) / calls


def executed(address: tuple[str, int]) -> int:
    connection = http.client.HTTPConnection(*address, timeout=20)
    connection.request("GET", "/queries")
    told = int(connection.getresponse().read())
    connection.close()
    return told


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
    lanes = race(wanted, TOOLS, options.server, rounds, seconds)
    tell(lanes)
    met = judge(lanes, FIGURES)
    if BY_NAME[US] in wanted:
        tell_statements()
        done = [not lane.wrong for lane in lanes if lane.contender.name == US]
        if not done or not all(done):
            return 1
    return 0 if met else UNMET


if __name__ == "__main__":
    sys.exit(main())
