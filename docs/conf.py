"""Sphinx configuration of the documentation: `python -m tools docs` builds it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import django_mcp  # noqa: E402

project = "django_mcp"
copyright = "the authors of django_mcp, under the MIT license"
release = version = django_mcp.__version__
extensions = ["myst_parser"]
html_theme = "furo"
html_title = f"django_mcp {release}"
html_copy_source = html_show_sphinx = False
exclude_patterns = ["images"]

myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # terminal output has no language

linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [r"http://127\.0\.0\.1.*", r"http://localhost.*"]
