"""What is read from a page is what a reader would type."""

import pytest

from tools.pages import Command, File, commands, file_of, is_shown, of_section, steps, write

PAGE = """
# A page

## First

Prose with `$ no command` in it.

```console
$ mkdir here && cd here
$ pip install \\
    this
$ ls
one
two
```

```python
# here/mcp.py, at the end
x = 1
```

## Then

```json
{"no": "file"}
```

```python
# settings.py
## Then

y = 2
```
"""


def test_commands_and_files_come_in_the_order_of_the_page():
    assert list(steps(PAGE)) == [
        Command("mkdir here && cd here"),
        Command("pip install \\\n    this"),
        Command("ls", "one\ntwo\n"),
        File("here/mcp.py", "x = 1\n", at_end=True),
        File("settings.py", "## Then\n\ny = 2\n"),
    ]


def test_a_section_ends_at_the_next_heading_which_is_none_within_code():
    assert [type(step) for step in steps(PAGE, "Then")] == [File]
    assert "mkdir" in of_section(PAGE, "First") and "json" not in of_section(PAGE, "First")
    with pytest.raises(LookupError):
        of_section(PAGE, "Last")


def test_what_stands_above_the_first_command_is_none():
    assert list(commands("a word\n$ ls\n")) == [Command("ls")]


@pytest.mark.parametrize("block", ["x = 1\n", "# settings\n", "# see settings.py for more\n", ""])
def test_a_comment_that_names_no_file_makes_none(block):
    assert file_of(block) is None


def test_a_file_is_written_and_added_to(tmp_path):
    write(File("a.py", "x = 1\n"), tmp_path)
    write(File("a.py", "y = 2\n", at_end=True), tmp_path)
    assert (tmp_path / "a.py").read_text() == "x = 1\n\n\ny = 2\n"
    with pytest.raises(FileNotFoundError):
        write(File("nowhere/a.py", "x = 1\n"), tmp_path)
    with pytest.raises(FileNotFoundError):
        write(File("b.py", "x = 1\n", at_end=True), tmp_path)


PRINTED = "one  \n(two) 2\nthree\n"


@pytest.mark.parametrize(
    "shown",
    ["one\n(two) 2\nthree", "one\n(two) ...\nthree", "one\n...\nthree", "...\nthree\n", "..."],
)
def test_what_is_shown_was_printed(shown):
    assert is_shown(shown, PRINTED)


@pytest.mark.parametrize(
    "shown",
    ["one", "one\nthree", "one\n(two) 3\nthree", "...\n(two)\n...", "three\n...\none", "o.e\n..."],
)
def test_what_is_shown_was_not_printed(shown):
    assert not is_shown(shown, PRINTED)


def test_a_command_that_goes_on_may_have_printed_more():
    assert is_shown("one\n...2", PRINTED, going_on=True)
    assert not is_shown("...\nfour", PRINTED, going_on=True)
