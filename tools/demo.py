"""`python -m tools demo`: the example project, from nothing to a conversation with it.

The rule: it asks nothing, so that it runs where nobody sits at a keyboard; and it may be run
again, when what is there is kept.
"""

import sys

from tools.connect import instructions
from tools.environment import ROOT
from tools.run import manage, run

STEPS = (
    ("Preparing the database", ("migrate", "-v0")),
    ("Preparing that of sessions", ("migrate", "-v0", "--database", "mcp")),
    ("Loading the world", ("load_atlas",)),
    ("Making two people", ("demo_users",)),
)
CONVERSATION = ROOT / "tools" / "conversation.py"


def main(arguments: list[str]) -> int:
    for title, command in STEPS:
        print(f"\n{title}: manage.py {' '.join(command)}", flush=True)
        if code := manage(*command):
            return code
    code = converse(arguments)
    print(f"\n{instructions(sys.executable, ROOT / 'manage.py', 'alice')}", flush=True)
    return code


def converse(arguments: list[str]) -> int:
    """The guided conversation of a real client with the atlas."""
    if not CONVERSATION.exists():
        return 0
    return run(sys.executable, "-m", "tools.conversation", *arguments, PYTHONUTF8="1")
