"""Everything that the demonstration needs, from nothing; what is there is kept."""

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser, OutputWrapper

from example_project.atlas import access
from example_project.atlas.people import PEOPLE

ALICE = PEOPLE[0].username
STEPS = (
    ("Preparing the database", "migrate", {"verbosity": 0}),
    ("Preparing the sessions' own", "migrate", {"database": "mcp", "verbosity": 0}),
    ("Loading the world", "load_atlas", {}),
    ("Making two people", "demo_users", {}),
)


class Command(BaseCommand):
    help = "Prepare the demonstration, and print an access token of alice's to stdout."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--largest", type=int, metavar="N", help="only the N largest cities, for a quick look"
        )

    def handle(self, *, largest: int | None, **options) -> None:
        told = OutputWrapper(self.stderr._out)  # stderr, and not as errors look
        for title, command, given in STEPS:
            told.write(f"{title}: manage.py {command}")
            if command == "load_atlas":
                given = given | {"largest": largest}
            call_command(command, stdout=told, **given)
        alice = get_user_model().objects.get(username=ALICE)
        self.stdout.write(access.kept(alice, access.place()))
