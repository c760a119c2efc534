"""`python -m tools docs [--external]`: the documentation as pages to read, in build/docs.

The rule: what Sphinx warns of is a mistake - a link within the pages that leads nowhere, a page
that no other lists, a name of which there are two. Links to other sites are followed only where it
is asked for: that needs the internet, and sites that are up.
"""

import argparse

from tools import ROOT
from tools.processes import module

SOURCE, PAGES = ROOT / "docs", ROOT / "build" / "docs"
STRICT = ("-W", "-n", "-q", "-E", "--keep-going", "-d", str(ROOT / "build" / "doctrees"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools docs")
    parser.add_argument("--external", action="store_true", help="follow links to other sites too")
    options = parser.parse_args(arguments)
    code = sphinx("html", str(PAGES))
    if options.external:
        code |= sphinx("linkcheck", str(ROOT / "build" / "links"))
    print(f"{PAGES / 'index.html'}" if not code else "The documentation has mistakes.", flush=True)
    return code


def sphinx(builder: str, target: str) -> int:
    return module("sphinx", "-b", builder, *STRICT, str(SOURCE), target)
