"""The matching automaton of URI templates."""

import pytest

from django_mcp.protocol.uri_template import (
    alternatives,
    capture,
    literal,
    match_program,
    optional,
    tokens,
    zero_or_more,
)

NONE = frozenset()


def test_tokens_keep_percent_encoded_octets_together():
    assert tokens("a%c3%A9%") == ["a", "%C3", "%A9", "%"]


@pytest.mark.parametrize(
    ("program", "text", "found"),
    [
        ([], "", []),
        ([], "a", None),
        (literal("ab"), "ab", []),
        (literal("ab"), "a", None),
        (literal("ab"), "ax", None),
        (optional(literal("a")) + literal("b"), "b", []),
        (zero_or_more(literal("ab")), "abab", []),
        (zero_or_more(literal("ab")), "aba", None),
        (alternatives(literal("a")), "a", []),
        (alternatives(literal("a"), literal("b"), literal("ab")), "ab", []),
        (capture(1, NONE) + capture(2, NONE), "ab", [(1, "ab"), (2, "")]),
        (capture(1, frozenset("/")) + literal("/") + capture(2, None), "a/", [(1, "a"), (2, "")]),
        (zero_or_more(literal("/") + capture(1, frozenset("/"))), "/a/b", [(1, "a"), (1, "b")]),
    ],
)
def test_programs_match_texts_and_capture_values(program, text, found):
    assert match_program(program, tokens(text)) == found


def test_each_state_is_visited_once_per_position():
    class Counted(list):
        steps = 0

        def __getitem__(self, index):
            self.steps += 1
            return super().__getitem__(index)

    program = Counted(capture(1, NONE) + capture(2, NONE) + capture(3, NONE) + literal("!"))
    assert match_program(program, ["a"] * 100) is None
    assert program.steps <= len(program) * 101
