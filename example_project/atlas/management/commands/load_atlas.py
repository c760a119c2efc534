"""Load the world: continents, countries and cities."""

import time

from django.core.management.base import BaseCommand, CommandParser

from example_project.atlas.loading import expected, is_loaded, load
from example_project.atlas.models import City
from example_project.atlas.progress import Bar


class Command(BaseCommand):
    help = "Load the continents, countries and 234,908 cities of the atlas."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--force", action="store_true", help="load again, even if everything is loaded"
        )
        parser.add_argument(
            "--largest", type=int, metavar="N", help="only the N largest cities, for a quick look"
        )

    def handle(self, *, largest: int | None, force: bool, verbosity: int, **options) -> None:
        if not force and is_loaded(largest):
            self.say(verbosity, f"The atlas is already loaded: {City.objects.count():,} cities.")
            return
        began = time.monotonic()
        # OutputWrapper would end every write with a newline, and the bar redraws its line.
        bar = Bar(expected(largest), "Cities", self.stderr._out)
        count = load(largest, bar if verbosity else lambda done: None)
        self.say(verbosity, f"Loaded {count:,} cities in {time.monotonic() - began:.1f} s.")

    def say(self, verbosity: int, text: str) -> None:
        if verbosity:
            self.stdout.write(text)
