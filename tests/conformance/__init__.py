"""The server that the official conformance suite is pointed at, and the run of that suite."""
