"""Make two people with trips of their own, to see that neither sees the other's."""

from django.core.management.base import BaseCommand, CommandParser

from example_project.atlas import passwords as secrets
from example_project.atlas.people import PEOPLE, make_person


class Command(BaseCommand):
    help = "Make the users alice and bob and their trips; safe to run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--passwords",
            action="store_true",
            help="give each a new random password, and print it; without it they keep what they "
            "have, and at first they have none",
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
