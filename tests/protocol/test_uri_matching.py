"""The matching automaton of URI templates."""

import pytest

from django_mcp.protocol.uri_template import capture, either, many, maybe, run, spelt, tokens

NONE = frozenset()


def test_tokens_keep_percent_encoded_octets_together():
    assert tokens("a%c3%A9%") == ["a", "%C3", "%A9", "%"]


@pytest.mark.parametrize(
    ("program", "text", "found"),
    [
        ([], "", []),
        ([], "a", None),
        (spelt("ab"), "ab", []),
        (spelt("ab"), "a", None),
        (spelt("ab"), "ax", None),
        (maybe(spelt("a")) + spelt("b"), "b", []),
        (many(spelt("ab")), "abab", []),
        (many(spelt("ab")), "aba", None),
        (either(spelt("a")), "a", []),
        (either(spelt("a"), spelt("b"), spelt("ab")), "ab", []),
        (capture(1, NONE) + capture(2, NONE), "ab", [(1, "ab"), (2, "")]),
        (capture(1, frozenset("/")) + spelt("/") + capture(2, None), "a/", [(1, "a"), (2, "")]),
        (many(spelt("/") + capture(1, frozenset("/"))), "/a/b", [(1, "a"), (1, "b")]),
    ],
)
def test_programs_match_texts_and_capture_values(program, text, found):
    assert run(program, tokens(text)) == found


def test_each_state_is_visited_once_per_position():
    class Counted(list):
        steps = 0

        def __getitem__(self, index):
            self.steps += 1
            return super().__getitem__(index)

    program = Counted(capture(1, NONE) + capture(2, NONE) + capture(3, NONE) + spelt("!"))
    assert run(program, ["a"] * 100) is None
    assert program.steps <= len(program) * 101
