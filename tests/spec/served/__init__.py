"""A small project that real servers serve: what happens in it is seen in its folder."""
