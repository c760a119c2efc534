"""
``manage.py startmcp``: write a first ``mcp.py`` for an app, to be read and cut down.

An existing file is not overwritten without ``--force``. Nothing is written into an installed
package.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.core.management.base import CommandError, CommandParser

from ..output import HelpfulCommand
from ..starter_file import StarterFile, generate_starter_file

NEXT = """\
Review the file before you serve it. Users with Django's view permission for a model can read the
listed fields of all its rows: restrictions in a ModelAdmin do not apply. Next:
  manage.py check                          checks the file
  manage.py mcp_inspect --user NAME        shows what a user may use
  manage.py mcp_connect CLIENT             connects a client"""


class Command(HelpfulCommand):
    help = (
        "Generate an mcp.py for an app from its models, views and APIs. It exposes few fields, and "
        "nothing that writes."
    )
    examples = [
        ("billing", "write mcp.py beside the models of billing"),
        ("billing --print", "print the file to stdout instead"),
    ]

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("app", metavar="APP", help="label of the app, such as billing")
        parser.add_argument("--force", action="store_true", help="overwrite an existing mcp.py")
        parser.add_argument("--print", action="store_true", help="print the file to stdout instead")

    def handle(self, *args: Any, **options: Any) -> None:
        app = find_app(options["app"])
        if options["print"]:
            self.stdout.write(generate_starter_file(app, inside=is_own(app)).text, ending="")
            return
        path = Path(app.path) / "mcp.py"
        check(app, path, options["force"])
        made = generate_starter_file(app)
        try:
            path.write_text(made.text, encoding="utf-8")
        except OSError as error:
            raise CommandError(f"{path}: {error.strerror}") from None
        self._tell(path, made)

    def _tell(self, path: Path, made: StarterFile) -> None:
        self.note(f"Written: {path}", self.style.SUCCESS)
        if made.shown:
            self.note(f"Models: {', '.join(made.shown)}")
        for name, why in made.left_out.items():
            self.note(f"Left out: {name}, {why}")
        if made.views:
            self.note(f"Views: {', '.join(made.views)}")
        if made.offered:
            self.note(f"Written as comments: {', '.join(made.offered)}")
        self.note(f"\n{NEXT}")


def find_app(label: str) -> AppConfig:
    """Return the app with that label or dotted name. Raise ``CommandError``."""
    for app in apps.get_app_configs():
        if label in (app.label, app.name):
            return app
    own = sorted(app.label for app in apps.get_app_configs() if is_own(app))
    raise CommandError(
        f"There is no app {label!r} in INSTALLED_APPS. Apps of this project: {', '.join(own)}."
    )


def is_own(app: AppConfig) -> bool:
    """Whether the app's package is part of the project, not installed."""
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}
    path = Path(app.path).resolve()
    return app.label != "django_mcp" and not any(path.is_relative_to(one) for one in installed)


def check(app: AppConfig, path: Path, force: bool) -> None:
    """Raise ``CommandError`` if nothing should be written."""
    if not is_own(app):
        raise CommandError(
            f"{app.label} is an installed package. Use --print, and copy the output to your app."
        )
    if not force and (path.exists() or path.with_suffix("").is_dir()):
        raise CommandError(
            f"{path} exists already. Use --force to overwrite it, or --print to see the new file."
        )
