"""
The way forth for answers: what a client said to a question that was asked in older words.

Each change is given the question's canonical parameters, and changes are applied oldest first.
"""

from __future__ import annotations

from . import Changelog
from .requests import ELICIT, box_name, is_choice_of_several, options_of
from .shapes import JSON, within, without

ANSWERS = Changelog()
introduced_in = ANSWERS.introduced_in


@introduced_in("2025-11-25", ELICIT)
def several_options(answer: JSON, params: JSON) -> JSON:
    """Several options may be chosen in one field; before, each is a box to be ticked."""
    form = params.get("requestedSchema", {})

    def choices(content: JSON) -> JSON:
        for name, schema in form.get("properties", {}).items():
            if is_choice_of_several(schema):
                content = _choice(content, name, schema, name in form.get("required", ()))
        return content

    return within(answer, "content", choices)


def _choice(content: JSON, name: str, schema: JSON, required: bool) -> JSON:
    """``content`` with the ticked boxes of a field gathered into a list, if it was answered."""
    boxes = {box_name(name, value): value for value in options_of(schema)}
    chosen = [value for box, value in boxes.items() if content.get(box) is True]
    answered = required or not boxes.keys().isdisjoint(content)
    content = without(content, *boxes)
    return content | {name: chosen} if answered else content
