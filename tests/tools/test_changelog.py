import pytest

from tools import changelog

GOOD = """# Changelog

## 1.2.0 - unreleased

### New

- A thing.

## 1.1.10 - 2026-02-03

### Fixed

## 1.1.9 - 2026-01-02
"""


def test_the_changelog_and_the_version_agree():
    assert changelog.main([]) == 0


def test_a_good_changelog_has_no_problems():
    assert changelog.problems(GOOD, "1.2.0") == []


@pytest.mark.parametrize(
    ("text", "version", "problem"),
    [
        (GOOD, "1.3.0", "its newest release is 1.2.0, the version is 1.3.0"),
        ("# Changelog", "1.0.0", "its newest release is none"),
        (GOOD.replace("2026-02-03", "soon"), "1.2.0", "'## 1.1.10 - soon' is not"),
        (GOOD.replace("1.1.9", "1.1.11"), "1.2.0", "1.1.10 stands above 1.1.11"),
        (GOOD.replace("### New", "### Misc"), "1.2.0", "'Misc' is none of the groups"),
    ],
)
def test_problems_are_told(text, version, problem):
    found = changelog.problems(text, version)
    assert len(found) == 1
    assert problem in found[0]
