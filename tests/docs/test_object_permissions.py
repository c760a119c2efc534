"""The page on other packages: tests with those packages run each of its recipes."""

from __future__ import annotations

import re

from .pages import ROOT, blocks, text

PAGE = ROOT / "docs/how-to/object-permissions.md"


def test_every_recipe_is_run_by_the_tests_of_its_package():
    sections = [part for part in text(PAGE).split("\n## ")[1:] if "```python" in part]
    titles = {part.partition("\n")[0] for part in sections}
    run = set()
    for package in ("object_permissions", "tenants"):
        for path in (ROOT / "tests" / package).glob("test_*.py"):
            source = path.read_text("utf-8")
            run.update(re.findall(r'code_of\("([\w-]+)"\)', source))
            run.update(re.findall(r'around\("([\w-]+)"', source))
    assert titles == run and len(blocks(PAGE, "python")) >= len(titles) == 5
