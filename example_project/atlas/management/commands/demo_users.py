"""Create two users with trips, to show that neither sees the trips of the other."""

from django.core.management.base import BaseCommand, CommandParser

from example_project.atlas import passwords as secrets
from example_project.atlas.people import PEOPLE, make_person


class Command(BaseCommand):
    help = "Create the users alice and bob and their trips. It is safe to run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--passwords",
            action="store_true",
            help="set a new random password for each, and print it; without this option, passwords "
            "stay as they are, and new users have none",
        )

    def handle(self, *, passwords: bool, verbosity: int, **options) -> None:
        for person in PEOPLE:
            user = make_person(person)
            if verbosity:
                trips = ", ".join(user.trips.values_list("title", flat=True)) or "no trips"
                self.stdout.write(f"{user.username}: {trips}")
            if passwords:
                password = secrets.made(user, secrets.place())
                self.stdout.write(f"  password of {user.username}: {password}")
