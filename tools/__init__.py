"""The project's tooling: `python -m tools` lists what there is."""
