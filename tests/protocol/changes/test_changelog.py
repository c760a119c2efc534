"""The changelog applies the changes between revisions in order."""

from django_mcp.protocol.changes import Changelog, RevisionChange


def made():
    changelog = Changelog()

    @changelog.introduced_in("2001", "a")
    def old(value, *about):
        return None if value == "gone" else f"{value} old"

    @changelog.introduced_in("2002", "a", "b")
    def new(value, *about):
        return f"{value} new{''.join(about)}"

    @changelog.introduced_in("2002")
    def every(value, *about):
        return f"{value} every"

    return changelog


def test_changes_are_undone_from_newest_to_oldest():
    assert made().undo("2000", ("a",), "v") == "v new every old"
    assert made().undo("2001", ("a",), "v", "!") == "v new! every"
    assert made().undo("2000", ("c", "b"), "v") == "v new every"
    assert made().undo("2000", ("c",), "v") == "v every"
    assert made().undo("2002", ("a",), "v") == "v"
    changelog = made()
    assert changelog.undo("2001", ("c",), "v") == changelog.undo("2001", ("c",), "v") == "v every"


def test_changes_are_redone_from_oldest_to_newest():
    assert made().redo("2000", ("a",), "v") == "v old every new"
    assert made().redo("2002", ("a",), "v") == "v"


def test_removed_value_is_not_passed_to_further_changes():
    changelog = Changelog()
    changelog.introduced_in("2002")(lambda value: None)
    changelog.introduced_in("2001")(lambda value: value["never"])
    assert changelog.undo("2000", ("a",), {}) is None


def test_change_registered_later_is_applied():
    changelog = made()
    assert changelog.undo("2000", ("c",), "v") == "v every"
    changelog.introduced_in("2003", "c")(lambda value: f"{value} newest")
    assert changelog.undo("2000", ("c",), "v") == "v newest every"


def test_change_concerns_older_revisions_only():
    line = RevisionChange("2001", frozenset({"a"}), str)
    assert line.concerns("2000", ("b", "a"))
    assert not line.concerns("2001", ("a",))
    assert not line.concerns("2000", ("b",))
