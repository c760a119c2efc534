"""The project's tooling: `python -m tools` lists the commands."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # of the checkout
