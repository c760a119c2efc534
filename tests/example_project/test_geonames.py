from example_project.atlas import geonames


def test_the_files_hold_what_is_promised():
    assert geonames.counts() == {"countries": 252, "cities": 234_908}
    assert len(list(geonames.continents())) == 7
    assert len(list(geonames.countries())) == 252


def test_every_city_is_there_once_and_in_a_known_country():
    known = {row["code"] for row in geonames.countries()}
    keys = []
    for row in geonames.cities():
        keys.append(row["geonameid"])
        assert row["country"] in known
    assert len(keys) == len(set(keys)) == 234_908


def test_the_largest_cities_come_largest_first():
    populations = [int(row["population"]) for row in geonames.cities(largest=50)]
    assert len(populations) == 50
    assert populations == sorted(populations, reverse=True)
    assert populations[0] > 20_000_000


def test_a_citys_names_abroad_are_kept():
    cologne = next(row for row in geonames.cities(largest=3_000) if row["name"] == "Köln")
    assert {"Cologne", "Keulen"} <= set(cologne["other_names"].split("|"))


def test_the_attribution_stands_beside_the_data():
    text = (geonames.DATA / "ATTRIBUTION.md").read_text()
    assert "GeoNames" in text
    assert "creativecommons.org/licenses/by/4.0" in text
