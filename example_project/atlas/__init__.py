"""The world's continents, countries and cities, and the trips people make through them."""
