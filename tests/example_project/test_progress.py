"""The progress bar, at a terminal and in a log."""

import io

from example_project.atlas.progress import Bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_one_line_is_redrawn_at_a_terminal():
    stream = Terminal()
    bar = Bar(4, "Cities", stream)
    for done in (1, 2, 4):
        bar(done)
    text = stream.getvalue()
    assert text.count("\r") == 3
    assert text.count("\n") == 1
    assert text.endswith("\n")
    assert "100 %" in text


def test_each_quarter_is_a_line_elsewhere():
    stream = io.StringIO()
    bar = Bar(1_000, "Cities", stream)
    for done in range(10, 1_001, 10):
        bar(done)
    lines = stream.getvalue().splitlines()
    assert [line.split("]")[1].split()[0] for line in lines] == ["25", "50", "75", "100"]
    assert "\r" not in stream.getvalue()


def test_empty_job_does_not_fail():
    Bar(0, "Nothing", io.StringIO())(0)
