"""Benchmarks of the project, alone and beside its peers: `python -m tools benchmark`."""
