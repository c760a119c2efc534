"""The server that the official conformance suite tests, and the run of that suite."""
