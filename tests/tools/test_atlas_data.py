import csv
import gzip

from tools.atlas_data import CITY, COUNTRY, city_rows, country_rows, other_names, write

KOELN = {
    "geonameid": 2886242,
    "name": "Köln",
    "countrycode": "DE",
    "admin1code": "07",
    "latitude": 50.93,
    "longitude": 6.95,
    "population": 1_024_621,
    "timezone": "Europe/Berlin",
    "alternatenames": ["CGN", "Cologne", "Colonia", "Colònia", "Koln", "ke long", "a|b", "Кёльн"],
}
BONN = KOELN | {"geonameid": 2946447, "name": "Bonn", "population": 313_125}


def test_names_are_neither_codes_nor_transliterations_nor_the_same_twice():
    assert other_names(KOELN) == ["Cologne", "Colònia", "Кёльн"]


def test_smaller_cities_have_fewer_names():
    assert other_names(KOELN | {"population": 20_000}) == ["Cologne", "Colònia"]
    assert other_names(KOELN | {"population": 10_000}) == []


def test_cities_are_sorted_whatever_order_they_come_in():
    assert list(city_rows([KOELN, BONN])) == list(city_rows([BONN, KOELN]))
    assert next(city_rows([KOELN, BONN]))[1] == "Bonn"


def test_a_country_keeps_the_columns_of_the_table():
    row = next(country_rows([{name: f"<{name}>" for name in SOURCE}]))
    assert row[:3] == ["<iso>", "<iso3>", "<name>"]


SOURCE = ["iso", "iso3", "name", *list(COUNTRY.values())[3:]]


def test_a_file_is_the_same_each_time_it_is_written(tmp_path):
    header = [*CITY, "other_names"]
    files = [tmp_path / "one.csv.gz", tmp_path / "two.csv.gz"]
    for file in files:
        write(file, header, city_rows([KOELN, BONN]))
    assert files[0].read_bytes() == files[1].read_bytes()
    with gzip.open(files[0], "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == ["Bonn", "Köln"]
    assert rows[1]["other_names"] == "Cologne|Colònia|Кёльн"
