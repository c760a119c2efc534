"""Scopes: what each covers, which ones a token lacks, and which ones to request."""

from __future__ import annotations

import dataclasses

import pytest
from django.test import override_settings
from django.utils.translation import gettext_lazy
from hypothesis import given, strategies

import django_mcp as mcp
from django_mcp.auth.scopes import (
    broader,
    covers,
    lacking,
    narrowest,
    offered,
    patterns,
    problem,
    to_ask,
)
from django_mcp.checks import check_settings

VIEW, CHANGE = "shop.view_invoice", "shop.change_invoice"
LADDER = {
    "read": mcp.Scope("Look", covers=["*.view_*"]),
    "write": mcp.Scope("Change", covers=["read", "*.add_*", "*.change_*"]),
    "all": mcp.Scope("Everything", covers=["*"]),
}


def offering(scopes):
    return override_settings(DJANGO_MCP={"SCOPES": scopes})


@pytest.fixture
def ladder():
    with offering(LADDER):
        yield


# What is offered.


def test_default_scope_covers_everything():
    with override_settings(DJANGO_MCP={}):
        assert list(offered()) == ["mcp"]
        assert covers(["mcp"], VIEW) and covers(["mcp"], "tool:x") and covers(["mcp"], "anything")


def test_scope_given_as_text_covers_its_own_name():
    with offering({"read": "Look"}):
        assert offered() == {"read": mcp.Scope("Look")}
        assert covers(["read"], "read") and not covers(["read"], VIEW)


def test_scope_descriptions_may_be_lazy():
    with offering({"read": gettext_lazy("Yes"), "more": mcp.Scope(gettext_lazy("No"))}):
        assert [str(one) for one in offered().values()] == ["Yes", "No"]
        assert problem(offered()) is None


def test_scope_is_immutable():
    with pytest.raises(dataclasses.FrozenInstanceError):
        mcp.Scope("Look").description = "Rule"


# What one covers.


@pytest.mark.parametrize(
    ("pattern", "needed", "is_covered"),
    [
        ("shop.view_invoice", VIEW, True), ("shop.view_*", VIEW, True), ("*.view_*", VIEW, True),
        ("shop.*", VIEW, True), ("*", VIEW, True), ("shop.view_?nvoice", VIEW, True),
        ("shop.[vc]*", VIEW, True), ("shop.[!v]*", VIEW, False),
        ("shop.view", VIEW, False), ("view_*", VIEW, False), ("shop.view_", VIEW, False),
        ("shop.view_*", CHANGE, False), ("bookshop.view_*", VIEW, False),
        ("shop.VIEW_*", VIEW, False), ("shop.view_*", "shop.View_invoice", False),
        ("shop", VIEW, False), ("shop.view_invoice", "shop.view_invoices", False),
        ("tool:*", "tool:close_month", True), ("tool:*", "prompt:close_month", False),
        ("*close*", "tool:close_month", True),
    ],
)  # fmt: skip
def test_pattern_covers_exactly_what_it_matches(pattern, needed, is_covered):
    with offering({"one": mcp.Scope("One", covers=[pattern])}):
        assert covers(["one"], needed) is is_covered


def test_scope_covers_its_own_name(ladder):
    assert covers(["read"], "read") and covers(["unheard:of"], "unheard:of")
    assert not covers(["read"], "write") and not covers([], "read")


def test_scope_that_is_not_offered_covers_only_its_name(ladder):
    assert patterns("billing") == ("billing",)
    assert not covers(["billing"], VIEW)


@pytest.mark.parametrize("wild", ["*", "shop.*", "tool:?", "[a-z]*"])
def test_granted_name_with_stars_is_not_a_pattern(ladder, wild):
    """Attack: an issuer grants the scope "*", which is not offered here."""
    for needed in (VIEW, "tool:x", "shop.x"):
        assert not covers([wild], needed)
    assert covers([wild], wild)


def test_offered_name_with_stars_is_not_a_pattern():
    with offering({"shop.*": "The shop"}):
        assert not covers(["shop.*"], VIEW) and narrowest(VIEW) is None


def test_scope_includes_the_scopes_it_covers(ladder):
    assert covers(["write"], VIEW) and covers(["write"], CHANGE) and covers(["write"], "read")
    assert not covers(["read"], CHANGE) and not covers(["write"], "shop.delete_invoice")


def test_inclusion_of_scopes_is_transitive():
    deep = {str(n): mcp.Scope("Deep", covers=[str(n + 1)]) for n in range(50)}
    with offering({**deep, "50": mcp.Scope("End", covers=["shop.*"])}):
        assert covers(["0"], VIEW) and covers(["0"], "50") and not covers(["50"], "0")


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_scopes_that_include_each_other_cover_the_same(names):
    circle = {
        one: mcp.Scope(one, covers=[names[(at + 1) % len(names)], f"shop.{one}*"])
        for at, one in enumerate(names)
    }
    with offering(circle):
        for one in names:
            assert set(patterns(one)) == {*names, *(f"shop.{other}*" for other in names)}
            assert covers([one], f"shop.{names[-1]}x") and not covers([one], "shop.zx")
            assert narrowest("shop.ax") == "a"


def test_changed_setting_takes_effect():
    with offering({"read": mcp.Scope("Look", covers=["shop.*"])}):
        assert covers(["read"], VIEW)
    with offering({"read": mcp.Scope("Look", covers=["blog.*"])}):
        assert not covers(["read"], VIEW)


# What a token lacks.


def test_token_without_scopes_is_unlimited(ladder):
    assert lacking(frozenset(), (VIEW, CHANGE)) == ()


def test_missing_permissions_are_returned_in_order(ladder):
    assert lacking(frozenset(["read"]), ("tool:x", VIEW, CHANGE)) == ("tool:x", CHANGE)
    assert lacking(frozenset(["all"]), ("tool:x", VIEW)) == ()
    assert lacking(frozenset(["read", "write"]), (VIEW, CHANGE)) == ()


def test_no_permissions_are_missing_if_none_are_needed(ladder):
    assert lacking(frozenset(["read"]), ()) == ()


# What to ask for.


@pytest.mark.parametrize(
    ("needed", "found"),
    [(VIEW, "read"), (CHANGE, "write"), ("shop.delete_invoice", "all"), ("read", "read"),
     ("write", "write"), ("tool:x", "all")],
)  # fmt: skip
def test_narrowest_scope_that_covers_a_permission(ladder, needed, found):
    assert narrowest(needed) == found


@pytest.mark.parametrize("order", [["all", "write", "read"], ["write", "all", "read"]])
def test_narrowest_scope_does_not_depend_on_the_order(order):
    with offering({name: LADDER[name] for name in order}):
        assert narrowest(VIEW) == "read" and narrowest(CHANGE) == "write"


def test_first_of_equal_or_incomparable_scopes_is_chosen():
    twins = {name: mcp.Scope(name, covers=["shop.*"]) for name in ("b", "a")}
    with offering(twins):
        assert narrowest(VIEW) == "b"
    with offering({"b": mcp.Scope("b", ["shop.*"]), "a": mcp.Scope("a", ["*.view_*"])}):
        assert narrowest(VIEW) == "b"


def test_scope_with_the_needed_name_is_the_narrowest():
    with offering({"all": mcp.Scope("All", ["*"]), "tool:x": "Only x"}):
        assert narrowest("tool:x") == "tool:x" and narrowest("tool:y") == "all"


def test_uncovered_permission_cannot_be_requested():
    with offering({"read": LADDER["read"]}):
        assert narrowest(CHANGE) is None
        assert to_ask(["read"], [VIEW, CHANGE]) is None
        assert to_ask(["read"], [VIEW]) == ("read",)


def test_all_needed_scopes_are_requested_together():
    some = {name: mcp.Scope(name, [f"*.{name}_*"]) for name in ("view", "add", "change")}
    with offering(some):
        assert to_ask(["x"], [VIEW, CHANGE, "shop.add_note"]) == ("view", "change", "add")
        assert to_ask(["x"], [VIEW, "blog.view_post"]) == ("view",)


def test_held_scopes_are_requested_again(ladder):
    """Clients request exactly the named scopes, and would lose the others."""
    assert to_ask(["read"], [VIEW, CHANGE]) == ("read", "write")
    assert to_ask(["write"], [VIEW, "tool:x"]) == ("write", "all")


def test_held_scope_that_is_no_longer_offered_is_not_requested():
    with offering({"read": LADDER["read"]}):
        assert to_ask([VIEW], [VIEW]) == ("read",)


def test_no_scopes_are_requested_if_none_are_needed(ladder):
    assert to_ask(["read"], []) == ()


# Which token is good for more.


@pytest.mark.parametrize(
    ("granted", "scopes", "found"),
    [
        (["all"], ["read", "write", "all", "profile"], ()),
        (["write"], ["read", "write", "all"], ("all",)),
        (["read"], ["write", "read", "profile"], ("write", "profile")),
        (["read", "profile"], ["profile", "read"], ()),
        (["read"], [], ()),
    ],
)
def test_broader_returns_scopes_not_covered_by_the_grant(ladder, granted, scopes, found):
    assert broader(granted, scopes) == found


def test_scope_that_covers_the_name_of_another_is_not_as_broad():
    """Attack: "shop:admin" would count as held, and the user would never see it."""
    few = {"shop": mcp.Scope("Some", ["shop:*"]), "shop:admin": mcp.Scope("All", ["*"])}
    with offering(few):
        assert covers(["shop"], "shop:admin")
        assert broader(["shop"], ["shop:admin"]) == ("shop:admin",)


@pytest.mark.parametrize(
    ("outer", "inner"),
    [("?", "*"), ("[!v]*", "*"), ("shop.[!v]*", "shop.*"), ("a?", "a*"), ("a[*]", "a*"),
     ("shop.*", "*"), ("*.view_*", "*"), ("*a", "*"), ("shop.view", "shop.*"),
     # What stands in brackets is not what is matched.
     ("*d*", "shop.[de]*"), ("*]*", "[ab]*"), ("*!*", "[!a]"), ("*a]", "[]a]")],
)  # fmt: skip
def test_pattern_is_not_within_one_that_matches_less(outer, inner):
    few = {"outer": mcp.Scope("Outer", [outer, "[i]nner"]), "inner": mcp.Scope("Inner", [inner])}
    with offering(few):
        assert covers(["outer"], "inner")
        assert broader(["outer"], ["inner"]) == ("inner",)


@pytest.mark.parametrize("wild", ["*", "t*"])
def test_granted_name_with_stars_is_as_broad_as_itself(ladder, wild):
    assert broader([wild], [wild]) == ()


@pytest.mark.parametrize("wild", ["*", "t*"])
def test_granted_name_with_stars_is_no_broader_than_itself(ladder, wild):
    assert broader([wild], ["read", "tool:x"]) == ("read", "tool:x")


@given(strategies.text("ab*?[!]", max_size=5), strategies.text("ab*?[!]", max_size=5),
       strategies.text("ab", max_size=5))  # fmt: skip
def test_scope_that_is_not_broader_covers_nothing_more(outer, inner, needed):
    few = {"x": mcp.Scope("x", [outer or "*", "[y]"]), "y": mcp.Scope("y", [inner or "*"])}
    with offering(few):
        if not broader(["x"], ["y"]) and covers(["y"], needed):
            assert covers(["x"], needed)


NAMES = strategies.sampled_from(["a", "b", "c", "d"])
COVERS = strategies.lists(
    strategies.one_of(NAMES, strategies.sampled_from(["x.*", "x.y_*", "x.y_z", "*", "tool:t"])),
    max_size=3,
)
NEEDED = ["x.y_z", "x.w", "tool:t", "tool:u", "a"]


@given(strategies.dictionaries(NAMES, COVERS, min_size=1),
       strategies.lists(strategies.sampled_from(NEEDED), unique=True),
       strategies.sets(NAMES))  # fmt: skip
def test_requested_scopes_always_cover_the_needed_permissions(given, needed, granted):
    with offering({name: mcp.Scope(name, some) for name, some in given.items()}):
        asked = to_ask(granted, needed)
        if asked is None:
            assert any(not covers(offered(), one) for one in needed)
            return
        assert set(asked) <= offered().keys() and len(set(asked)) == len(asked)
        assert lacking(frozenset(asked), tuple(needed)) == () if asked else not needed


# What is wrong with the setting.

GOOD = [
    {"mcp": "x"}, {"mcp": "x", "billing:read": "y"}, {"mcp": mcp.Scope("x")},
    {"mcp": mcp.Scope("x", covers=("*", "tool:*", "other"))}, {"mcp": mcp.Scope("x", ["a.b"])},
    {"mcp": gettext_lazy("Yes")}, {"!#[]~": "x"},
]  # fmt: skip
BAD = [
    {}, {"a b": "x"}, {"": "x"}, {'"': "x"}, {"\\": "x"}, {1: "x"},
    {"é": "x"}, {"a\n": "x"}, {"offline_access": "x"}, {"mcp": ""}, {"mcp": None}, {"mcp": 5},
    {"mcp": mcp.Scope("")}, {"mcp": mcp.Scope(None)}, {"mcp": mcp.Scope(["x"])},
    {"mcp": {"words": "x"}}, {"mcp": mcp.Scope},
    {"mcp": mcp.Scope("x", covers="*")}, {"mcp": mcp.Scope("x", covers=[""])},
    {"mcp": mcp.Scope("x", covers=[1])}, {"mcp": mcp.Scope("x", covers=None)},
    {"mcp": mcp.Scope("x", covers=5)}, {"mcp": mcp.Scope("x", covers=[["*"]])},
    {"mcp": mcp.Scope("x", covers={"*": 1})},
    {"mcp": "x", "more": mcp.Scope("y", covers=b"*")},
]  # fmt: skip


def found(scopes):
    with offering(scopes):
        return [(message.id, bool(message.hint)) for message in check_settings()]


@pytest.mark.parametrize("scopes", GOOD, ids=str)
def test_valid_scopes_setting_is_accepted(scopes):
    assert problem(scopes) is None and found(scopes) == []


@pytest.mark.parametrize("scopes", BAD, ids=str)
def test_invalid_scopes_setting_is_an_error(scopes):
    assert problem(scopes)
    assert found(scopes) == [("django_mcp.E089", True)]


@pytest.mark.parametrize("scopes", [[], None, "mcp", 5, ["mcp"]], ids=str)
def test_scopes_setting_must_be_a_dict(scopes):
    assert problem(scopes)
    assert found(scopes) == [("django_mcp.E094", True)]
