"""Everything that the demonstration needs, from nothing; what is there is kept."""

import json

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser, OutputWrapper

from example_project.atlas import access, passwords
from example_project.atlas.people import PEOPLE

ALICE = PEOPLE[0].username
STEPS = (
    ("Preparing the database", "migrate", {"verbosity": 0}),
    ("Preparing the sessions' own", "migrate", {"database": "mcp", "verbosity": 0}),
    ("Preparing the cache", "createcachetable", {"verbosity": 0}),
    ("Loading the world", "load_atlas", {}),
    ("Making two people", "demo_users", {}),
)


class Command(BaseCommand):
    help = (
        "Prepare the demonstration, and print to stdout, as JSON, who may sign in with which "
        "password, and an access token of alice's."
    )

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
        self.stdout.write(json.dumps(ways_in()))


def ways_in() -> dict[str, object]:
    """The token, and the password of everybody whose password is known."""
    names = [person.username for person in PEOPLE]
    users = get_user_model().objects.in_bulk(names, field_name="username")
    told = {name: passwords.kept(user, passwords.place()) for name, user in users.items()}
    token = access.kept(users[ALICE], access.place())
    return {"token": token, "passwords": {name: each for name, each in told.items() if each}}
