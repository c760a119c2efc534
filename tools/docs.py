"""`python -m tools docs [--external]`: build the documentation as HTML in build/docs.

Warnings of Sphinx are errors: broken internal links, pages in no table of contents, duplicate
labels. External links are checked only with --external, which needs internet access.
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
