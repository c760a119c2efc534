"""``manage.py mcp_server_json``: write the file with which a server is listed in the MCP registry.

The entry contains nothing secret: the URL of the server, what it says about itself, and whether
clients need a token.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from .. import arguments
from ..output import HelpfulCommand
from ..registry_entry import entry


class Command(HelpfulCommand):
    help = "Write server.json, the entry of a server in the MCP registry."
    examples = [
        ("", "show the entry"),
        ("--output server.json", "write the file, for mcp-publisher publish"),
        ("--name io.github.you/shop", "for an account of GitHub instead of a domain"),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        arguments.add_server(parser)
        parser.add_argument(
            "--name",
            metavar="NAMESPACE/NAME",
            help="name in the registry (default: the host of the server in reverse order and the "
            "name of the server)",
        )
        parser.add_argument(
            "--description",
            metavar="TEXT",
            help="description of the server in the registry, at most 100 characters (default: the "
            "server's description)",
        )
        parser.add_argument(
            "--repository", metavar="URL", help="URL of the source code on GitHub or GitLab"
        )
        parser.add_argument("--output", metavar="FILE", type=Path, help="write to this file")

    def handle(self, *args: Any, output: Path | None, **options: Any) -> None:
        server = arguments.server_with_declarations(options["server"])
        made = entry(
            server,
            name=options["name"],
            description=options["description"],
            repository=options["repository"],
        )
        if made.problems:
            lines = "\n".join(f"- {problem}" for problem in made.problems)
            raise CommandError(f"The registry would reject this entry:\n{lines}")
        text = json.dumps(made.content, indent=2, ensure_ascii=False) + "\n"
        for note in made.notes:
            self.note(note)
        if output is None:
            self.show(text.rstrip("\n"))
            return
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{output}: {error.strerror}") from None
        self.note(f"Written to {output}.")
