"""The requirements of the specification: what is kept of them, and whether it still holds.

    python -m tools.requirements list SPEC [--all] [--text] [--page PAGE]
    python -m tools.requirements compare SPEC
    python -m tools.requirements keep SPEC
    python -m tools.requirements todo

SPEC is a checkout of the specification's repository. `list` prints the sentences that bind a
server, `compare` fails if the kept list and the checkout differ, `keep` writes the list anew,
`todo` prints the requirements that no test shows yet.

Every normative sentence of the five revisions is listed, and binds a server unless `decisions.txt`
names another party. Sentences for authorization servers count, because the project contains one.
The repository contains no text of the specification: a sentence is stored as page, number, digest
and key word.
"""

import argparse
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.specification import Sentence, specification

FOLDER = Path(__file__).parent.parent / "tests" / "requirements"
PARTIES = ("server", "client", "host", "other")
HEADER = """\
# The normative sentences of the specification: page, number in the page, digest, key words.
# Written by `python -m tools.requirements keep SPEC`.
"""


@dataclass(frozen=True)
class Requirement:
    """One entry of the table: what is asked, where, and what shows it or why nothing does.

    `covers` names sentences: a digest covers it on every page, `digest@server/tools` only on
    that page of any revision.
    """

    id: str
    says: str
    covers: tuple[str, ...]
    tests: tuple[str, ...] = ()
    not_applicable: str = ""
    later: str = ""
    todo: bool = False

    @property
    def area(self) -> str:
        return self.id.partition(".")[0]


def lines(name: str) -> Iterator[list[str]]:
    """The fields of each line of a kept file, without comments."""
    for line in (FOLDER / name).read_text(encoding="utf-8").splitlines():
        if fields := line.partition("#")[0].split():
            yield fields


def kept() -> list[Sentence]:
    return [
        Sentence(page, int(number), digest, keyword)
        for page, number, digest, keyword in lines("sentences.txt")
    ]


def decisions() -> dict[str, tuple[str, str]]:
    """Whom a sentence binds that binds no server, by digest: (party, why)."""
    return {digest: (party, why) for digest, party, why in lines("decisions.txt")}


def binding(sentences: Iterable[Sentence]) -> list[Sentence]:
    """Those that bind a server: all that are not decided otherwise."""
    others = decisions()
    return [sentence for sentence in sentences if sentence.digest not in others]


def table() -> list[Requirement]:
    """Every entry of `table/*.toml`; the file's name is the area and begins the id."""
    files = sorted((FOLDER / "table").glob("*.toml"))
    entries = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in files}
    return [
        requirement(f"{area}.{name}", entry)
        for area, named in entries.items()
        for name, entry in named.items()
    ]


def requirement(id: str, entry: dict[str, Any]) -> Requirement:
    values = {key.replace("-", "_"): value for key, value in entry.items()}
    values |= {key: tuple(values.get(key, ())) for key in ("covers", "tests")}
    return Requirement(id, **values)


def coverage(requirements: Iterable[Requirement]) -> dict[str, list[str]]:
    """The ids of the requirements that name a sentence, by digest or `digest@page`."""
    named: dict[str, list[str]] = {}
    for entry in requirements:
        for name in entry.covers:
            named.setdefault(name, []).append(entry.id)
    return named


def names(sentence: Sentence) -> tuple[str, str]:
    """The two names by which a requirement may cover a sentence."""
    page = sentence.page.partition("/")[2]
    return sentence.digest, f"{sentence.digest}@{page}"


def show(options: argparse.Namespace) -> int:
    parties = decisions()
    for sentence in specification(options.spec):
        party, why = parties.get(sentence.digest, ("server", ""))
        if (party == "server" or options.all) and sentence.page.endswith(options.page):
            label = f" {party} {why}".rstrip() if options.all else ""
            print(f"{sentence}{label}" + (f"\n    {sentence.text}" if options.text else ""))
    return 0


def compare(options: argparse.Namespace) -> int:
    """Print what the checkout has gained and lost against the kept list; 1 if anything."""
    found = {str(one): one.text for one in specification(options.spec)}
    listed = [str(one) for one in kept()]
    gone = [name for name in listed if name not in found]
    new = [name for name in found if name not in listed]
    for name in gone:
        print(f"- {name}")
    for name in new:
        print(f"+ {name}\n    {found[name]}")
    print(f"{len(found)} normative sentences; {len(new)} are not kept, {len(gone)} kept are gone.")
    return 1 if gone or new else 0


def keep(options: argparse.Namespace) -> int:
    text = HEADER + "".join(f"{sentence}\n" for sentence in specification(options.spec))
    (FOLDER / "sentences.txt").write_text(text, encoding="utf-8", newline="\n")
    return 0


def todo(options: argparse.Namespace) -> int:
    waiting = [entry for entry in table() if entry.todo]
    print(*(f"{entry.id}: {entry.says}" for entry in waiting), sep="\n")
    print(f"{len(waiting)} requirements still need a test.")
    return 0


COMMANDS = {"list": show, "compare": compare, "keep": keep, "todo": todo}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.requirements")
    commands = parser.add_subparsers(dest="command", required=True)
    kinds = {name: commands.add_parser(name) for name in COMMANDS}
    for name in ("list", "compare", "keep"):
        kinds[name].add_argument("spec", type=Path, help="a checkout of the specification")
    kinds["list"].add_argument("--all", action="store_true", help="with those of other parties")
    kinds["list"].add_argument("--text", action="store_true", help="with the words themselves")
    kinds["list"].add_argument("--page", default="", help="only pages whose name ends so")
    return parser


def main(arguments: list[str]) -> int:
    """Do what the arguments ask; a checkout alone asks for the list."""
    if arguments and Path(arguments[0]).is_dir():
        arguments = ["list", *arguments]
    options = parser().parse_args(arguments)
    return COMMANDS[options.command](options)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
