"""Loading the atlas: contents, repetition, interruption, the command and memory."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command

from example_project.atlas import geonames, loading
from example_project.atlas.loading import is_loaded, load
from example_project.atlas.models import City, Continent, Country, Stop

ROOT = Path(__file__).parents[2]
MAX_MEMORY_KIB = 300 * 1024  # KiB


@pytest.fixture
def empty(db):
    for model in (City, Country, Continent):
        model.objects.all().delete()


def test_load_inserts_continents_countries_and_cities(empty):
    heard = []
    assert load(largest=7_000, on_batch=heard.append) == 7_000
    assert heard == [5_000, 7_000]
    assert Continent.objects.count() == 7
    assert Country.objects.count() == 252
    assert City.objects.count() == 7_000


def test_loaded_rows_equal_the_files(atlas):
    france = Country.objects.get(pk="FR")
    assert (france.name, france.capital, france.continent_id) == ("France", "Paris", "EU")
    assert (france.currency, france.languages.split(",")[0]) == ("EUR", "fr-FR")
    paris = City.objects.get(pk=2988507)
    assert (paris.name, paris.plain_name, paris.country_id) == ("Paris", "paris", "FR")
    assert (paris.latitude, paris.timezone) == (pytest.approx(48.85, abs=0.01), "Europe/Paris")


def test_borders_are_symmetric(atlas):
    germany = Country.objects.get(pk="DE")
    around = {country.pk for country in germany.neighbours.all()}
    assert around == {"AT", "BE", "CH", "CZ", "DK", "FR", "LU", "NL", "PL"}
    assert all(germany in country.neighbours.all() for country in germany.neighbours.all())


def test_loading_again_keeps_trips_and_repairs_rows(atlas, trip, city):
    tokyo = city("Tokyo")
    Stop.objects.create(trip=trip, city=tokyo, position=1)
    City.objects.filter(pk=tokyo.pk).update(population=1)
    load(largest=100)
    assert trip.stops.get().city.population == tokyo.population


def test_interrupted_load_is_rolled_back(empty):
    def interrupt(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load(largest=10, on_batch=interrupt)
    assert not City.objects.exists()
    assert not Continent.objects.exists()


def test_is_loaded_depends_on_the_number_of_cities(atlas):
    assert is_loaded(largest=3_000)
    assert not is_loaded(largest=3_001)
    assert not is_loaded()
    assert loading.expected(largest=10**9) == geonames.counts()["cities"]


def test_command_loads_once(atlas, capsys):
    call_command("load_atlas", largest=3_000)
    assert "already loaded: 3,000 cities" in capsys.readouterr().out


def test_command_loads_more_and_shows_progress(atlas, capsys):
    call_command("load_atlas", largest=3_001)
    said = capsys.readouterr()
    assert "Loaded 3,001 cities" in said.out
    assert "100 %" in said.err


def test_command_can_be_forced(atlas, capsys):
    call_command("load_atlas", largest=50, force=True)
    assert "Loaded 50 cities" in capsys.readouterr().out


def test_command_can_be_silent(atlas, capsys):
    call_command("load_atlas", largest=50, force=True, verbosity=0)
    call_command("load_atlas", largest=50, verbosity=0)
    assert capsys.readouterr() == ("", "")


FULL = """
from django.core.management import call_command, execute_from_command_line
execute_from_command_line(["manage.py", "load_atlas"])
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
from example_project.atlas.models import City
print(City.objects.count(), peak)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is told by /proc")
def test_full_load_uses_little_memory(tmp_path):
    """The peak is VmHWM, because getrusage also counts the process that started this one."""
    environ = os.environ | {
        "ATLAS_DATABASE": str(tmp_path / "atlas.sqlite3"),
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
    }
    manage = [sys.executable, str(ROOT / "manage.py")]
    subprocess.run([*manage, "migrate", "-v0"], env=environ, check=True)
    full = [sys.executable, "-c", FULL]
    done = subprocess.run(full, env=environ, cwd=ROOT, capture_output=True, text=True, check=True)
    count, peak = map(int, done.stdout.splitlines()[-1].split())
    assert count == 234_908
    assert peak < MAX_MEMORY_KIB
    again = subprocess.run([*manage, "load_atlas"], env=environ, capture_output=True, text=True)
    assert "already loaded: 234,908 cities" in again.stdout
