"""Check and render templates of Django's template language, for prompts and for pages of tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.template import Context, TemplateDoesNotExist, TemplateSyntaxError
from django.template.backends.django import Template
from django.template.loader import get_template


def problem(name: str) -> str | None:
    """Return why the template ``name`` cannot be used, or None."""
    try:
        template: Any = get_template(name)
    except (TemplateDoesNotExist, TemplateSyntaxError, ImproperlyConfigured) as error:
        words = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        return f"The template {name!r} cannot be loaded ({words})."
    if not isinstance(template, Template):
        return f"The template {name!r} is not one of Django's template language."
    return None


def render(name: str, context: Mapping[str, Any], *, autoescape: bool) -> str:
    """Return the text of the template ``name``. Context processors do not run."""
    template: Any = get_template(name)  # the engine's template wraps Django's own
    return str(template.template.render(Context(dict(context), autoescape=autoescape)))
