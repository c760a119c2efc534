"""A quiz about capitals.

The same seed gives the same questions, because a call that runs again must ask the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from django.db.models import F, QuerySet, TextChoices

from example_project.atlas.models import Country

CHOICES = 4


@dataclass(frozen=True)
class Riddle:
    """A question for the capital of a country, with the capitals of others to choose from."""

    country: Country
    options: tuple[Country, ...]

    def __str__(self) -> str:
        return f"What is the capital of {self.country.name}?"

    @property
    def choices(self) -> type[TextChoices]:
        """The capitals to choose from, each by the code of its country."""
        named = [(one.code, (one.code, one.capital)) for one in self.options]
        return TextChoices("Capital", named)


@dataclass(frozen=True)
class Solved:
    """A riddle and the answer to it: the code of a country."""

    riddle: Riddle
    guess: str

    @property
    def is_right(self) -> bool:
        return self.guess == self.riddle.country.code

    def __str__(self) -> str:
        verdict = "right" if self.is_right else f"no, it is {self.riddle.country.capital}"
        return f"{self.riddle} {self.riddle.choices(self.guess).label}: {verdict}."


@dataclass(frozen=True)
class Score:
    """The result of a quiz."""

    right: int
    of: int
    answers: list[str]


def scored(solved: Sequence[Solved]) -> Score:
    right = sum(one.is_right for one in solved)
    return Score(right, len(solved), [str(one) for one in solved])


def riddles(countries: QuerySet[Country], seed: int, count: int) -> Iterator[Riddle]:
    """Yield at most `count` riddles about different countries, with four choices each."""
    chance = Random(seed)
    known = list(countries.exclude(capital__in=["", F("name")]).order_by("pk"))
    for country in chance.sample(known, min(count, len(known))):
        # Each capital once: Belgrade is also the capital of a country that no longer exists.
        others = {one.capital: one for one in known if one.capital != country.capital}
        wrong = chance.sample(list(others.values()), min(CHOICES - 1, len(others)))
        options = [country, *wrong]
        chance.shuffle(options)
        yield Riddle(country, tuple(options))
