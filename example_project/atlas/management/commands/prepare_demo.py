"""Create everything that the demonstration needs. Existing data is kept."""

import json

from django.contrib.auth import get_user_model
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandParser, OutputWrapper

from example_project.atlas import access, passwords
from example_project.atlas.people import PEOPLE

ALICE = PEOPLE[0].username
STEPS = (
    ("Preparing the database", "migrate", {"verbosity": 0}),
    ("Preparing the session database", "migrate", {"database": "mcp", "verbosity": 0}),
    ("Preparing the cache", "createcachetable", {"verbosity": 0}),
    ("Loading the world", "load_atlas", {}),
    ("Creating two users", "demo_users", {}),
)


class Command(BaseCommand):
    help = (
        "Prepare the demonstration, and print as JSON the users with their passwords, and an "
        "access token of alice."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--largest", type=int, metavar="N", help="only the N largest cities, for a quick look"
        )

    def handle(self, *, largest: int | None, **options) -> None:
        progress = OutputWrapper(self.stderr._out)  # to stderr, without the style of errors
        for title, command, given in STEPS:
            progress.write(f"{title}: manage.py {command}")
            if command == "load_atlas":
                given = given | {"largest": largest}
            call_command(command, stdout=progress, **given)
        self.stdout.write(json.dumps(credentials()))


def credentials() -> dict[str, object]:
    """Return the token, and the passwords that are known."""
    names = [person.username for person in PEOPLE]
    users = get_user_model().objects.in_bulk(names, field_name="username")
    found = {name: passwords.kept(user, passwords.place()) for name, user in users.items()}
    token = access.kept(users[ALICE], access.place())
    return {"token": token, "passwords": {name: each for name, each in found.items() if each}}
