"""Flows are drawn from their text, and what is in the repository is what is drawn."""

from xml.etree import ElementTree

import pytest

from tools import flows

NAMED = {path.stem: path for path in sorted(flows.SOURCES.glob("*.txt"))}
SMALL = """
title: Small & true
about: A asks B.

a = A
b = B

a -> b: a question that is far too long to be written above an arrow that is as short as this one
b -x a: lost
b: thinks
...: Then
b ends: of old age
"""


@pytest.mark.parametrize("name", NAMED)
def test_a_picture_is_what_its_text_says(name):
    picture = flows.PICTURES / f"flow-{name}.svg"
    drawn = flows.drawn(flows.read(NAMED[name].read_text("utf-8")))
    assert picture.read_text("utf-8") == drawn, "python -m tools flows"


def test_there_is_no_picture_without_a_text():
    pictures = {path.stem.removeprefix("flow-") for path in flows.PICTURES.glob("flow-*.svg")}
    assert pictures == set(NAMED)


def test_it_draws_what_there_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(flows, "PICTURES", tmp_path)
    assert flows.main([]) == 0
    drawn = sorted(tmp_path.iterdir())
    assert capsys.readouterr().out.split() == [str(path) for path in drawn]
    assert [path.name for path in drawn] == [f"flow-{name}.svg" for name in NAMED]


def test_a_picture_is_whole():
    svg = ElementTree.fromstring(flows.drawn(flows.read(SMALL)))
    texts = [one.text or "" for one in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert svg.find("{*}title").text == "Small & true"
    assert svg.find("{*}desc").text == "A asks B."
    assert texts[:2] == ["A", "B"] and {"lost", "thinks", "Then", "of old age"} <= set(texts)
    assert "prefers-color-scheme:dark" in svg.find("{*}style").text


def test_nothing_is_beyond_the_edge():
    for path in NAMED.values():
        svg = ElementTree.fromstring(flows.drawn(flows.read(path.read_text("utf-8"))))
        height = int(svg.attrib["height"])
        for one in svg.iter("{http://www.w3.org/2000/svg}text"):
            half = flows.measured(one.text) / 2
            assert half < int(one.attrib["x"]) < flows.WIDTH - half, one.text
            assert int(one.attrib["y"]) < height - flows.GAP, one.text


def test_words_go_into_lines_of_about_one_length():
    assert flows.wrapped("one two three four", 1000) == ["one two three four"]
    assert flows.wrapped("aaaa bbbb cccc dddd", 130) == ["aaaa bbbb", "cccc dddd"]
    assert flows.wrapped("far-too-long-a-word", 20) == ["far-too-long-a-word"]


@pytest.mark.parametrize("line", ["a -> c: to nobody", "c: nobody's", "a => b: no arrow", "a"])
def test_a_line_that_cannot_be_read_is_told(line):
    with pytest.raises(ValueError, match="No step of a flow"):
        flows.read(f"a = A\nb = B\n{line}")
