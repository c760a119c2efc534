"""A small shop for the tour in the browser."""
