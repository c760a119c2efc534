"""How Sphinx makes pages of these files: `python -m tools docs`."""

import sys
from pathlib import Path

import django
from django.conf import settings

sys.path.insert(0, str(Path(__file__).parents[1]))
settings.configure(
    INSTALLED_APPS=[
        "django.contrib.contenttypes",
        "django.contrib.auth",
        "oauth2_provider",
        "django_mcp",
        "django_mcp.oauth",
    ],
    SECRET_KEY="for the documentation",
    USE_TZ=True,
)
django.setup()

import django_mcp  # noqa: E402

project = "django_mcp"
copyright = "the authors of django_mcp, under the MIT license"
release = version = django_mcp.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"django_mcp {release}"
html_copy_source = html_show_sphinx = False
exclude_patterns = ["images"]

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]  # what a terminal shows is of no language

# Docstrings are the truth about a name; what is written in the pages explains it.
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
nitpick_ignore_regex = [("py:.*", ".*")]  # types of Python, Django and pydantic have no pages here

linkcheck_timeout = 20
linkcheck_retries = 2
linkcheck_ignore = [r"http://127\.0\.0\.1.*", r"http://localhost.*"]


def plain(app, what, name, object, options, signature, returns):
    """A signature as it is written: a default that has no name is one that means "not given"."""
    if not signature:
        return None
    shown = signature.replace("~collections.abc.", "").replace("~typing.", "")
    return shown.replace("<object object>", "..."), returns


def setup(app):
    app.connect("autodoc-process-signature", plain)
