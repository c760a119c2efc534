"""The data files of GeoNames: counts, keys, order and attribution."""

from example_project.atlas import geonames


def test_number_of_rows():
    assert geonames.counts() == {"countries": 252, "cities": 234_908}
    assert len(list(geonames.continents())) == 7
    assert len(list(geonames.countries())) == 252


def test_every_city_is_unique_and_in_a_known_country():
    known = {row["code"] for row in geonames.countries()}
    keys = []
    for row in geonames.cities():
        keys.append(row["geonameid"])
        assert row["country"] in known
    assert len(keys) == len(set(keys)) == 234_908


def test_cities_are_ordered_by_population():
    populations = [int(row["population"]) for row in geonames.cities(largest=50)]
    assert len(populations) == 50
    assert populations == sorted(populations, reverse=True)
    assert populations[0] > 20_000_000


def test_alternative_names_of_a_city_are_kept():
    cologne = next(row for row in geonames.cities(largest=3_000) if row["name"] == "Köln")
    assert {"Cologne", "Keulen"} <= set(cologne["other_names"].split("|"))


def test_attribution_file_names_source_and_license():
    text = (geonames.DATA / "ATTRIBUTION.md").read_text()
    assert "GeoNames" in text
    assert "creativecommons.org/licenses/by/4.0" in text
