"""Measured: what the project costs, alone and beside its peers. `python -m tools benchmark`."""
