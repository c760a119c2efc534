"""``docs/how-to/commands.md`` shows the real output of the commands."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.docs.pages import ROOT, blocks
from tools.pages import commands

pytestmark = pytest.mark.slow

PAGE = ROOT / "docs/how-to/commands.md"
LINE = re.compile(r"\.py:\d+$", re.MULTILINE)  # another one whenever the file changes
SHOWN_COMMANDS = [command for block in blocks(PAGE, "console") for command in commands(block)]


def test_page_shows_the_output_of_the_commands(atlas, tmp_path):
    assert len(SHOWN_COMMANDS) >= 7
    for command in SHOWN_COMMANDS:
        python, manage, *arguments = shlex.split(command.text)
        assert (python, manage) == ("python", "manage.py")
        here = [str(tmp_path / one) if one == "mcp.json" else one for one in arguments]
        done = atlas(*here)
        wrote = LINE.sub(".py:7", (done.stdout + done.stderr).replace(f"{tmp_path}/", ""))
        lines = sorted(filter(None, wrote.splitlines()))  # the order of two streams is not known
        text = LINE.sub(".py:7", command.shown)
        shown = sorted(line for line in text.splitlines() if line not in ("", "..."))
        assert done.returncode == 0 and set(shown) <= set(lines), wrote


SENTENCES = [line for block in blocks(PAGE, "text") for line in block.splitlines()]


@pytest.mark.parametrize("sentence", SENTENCES)
def test_sentences_of_the_page_are_those_of_a_snapshot_check(sentence):
    from django_mcp.testing.snapshots import differences

    text, amount = {"type": "string"}, {"type": "number", "exclusiveMinimum": 0}

    def catalog(permission, taken, shown):
        schema = {"properties": taken, "required": list(taken)}
        tools = [{"name": "add_stop", "permission": permission},
                 {"name": "plan_trip", "inputSchema": schema}]  # fmt: skip
        rows = {"properties": shown, "required": list(shown)}
        return {"tools": tools, "templates": [{"name": "trip", "rowSchema": rows}]}

    before = catalog("atlas.change_trip", {}, {})
    assert sentence in differences(
        before, catalog("mcp.PUBLIC", {"budget": amount}, {"notes": text})
    )
