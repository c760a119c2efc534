"""From the names of URLs to arguments and addresses, and back to the same view."""

from __future__ import annotations

import uuid
from datetime import date

import pytest
from django.test import override_settings
from hypothesis import given, settings
from hypothesis import strategies as st

from django_mcp.bridges.views.execution import request_environment
from django_mcp.bridges.views.urls import path_info, routes
from django_mcp.exceptions import InvalidArguments

pytestmark = pytest.mark.urls("tests.bridges.site")
KEY = str(uuid.UUID(int=7))


@pytest.fixture
def found():
    with request_environment():
        yield routes()


def test_names_are_found_below_includes_and_namespaces(found):
    assert {"seen", "billing:list", "deep:text", "text"} <= set(found)
    assert None not in found


@pytest.mark.parametrize(
    ("name", "properties"),
    [
        ("seen", {}),
        ("billing:detail", {"pk": {"type": "integer", "minimum": 0}}),
        ("text", {"text": {"type": "string", "pattern": "^[^/]+$"}}),
        ("slug", {"slug": {"type": "string", "pattern": "^[-a-zA-Z0-9_]+$"}}),
        ("uuid", {"key": {"type": "string", "format": "uuid"}}),
        ("path", {"rest": {"type": "string", "minLength": 1}}),
        ("year", {"year": {"type": "string", "pattern": "^(?:[0-9]{4})$"}}),
        ("regex", {"number": {"type": "string"}, "letter": {"type": "string"}}),
        ("default", {"a": {"type": "integer", "minimum": 0}}),
    ],
)
def test_converters_have_schemas(found, name, properties):
    assert found[name].properties == properties


@pytest.mark.parametrize(
    ("name", "required"),
    [
        ("billing:detail", ["pk"]),
        ("optional", []),
        ("regex", ["number"]),
        ("deep:optional", ["tenant"]),
    ],
)
def test_what_every_pattern_needs_is_required(found, name, required):
    assert found[name].required == required


@pytest.mark.parametrize(
    ("name", "given", "path", "kwargs"),
    [
        ("seen", {}, "/seen/", {}),
        ("billing:detail", {"pk": 7}, "/billing/7/", {"pk": 7}),
        (
            "deep:text",
            {"tenant": 3, "text": "a b%ü"},
            "/in/3/s/a b%ü/",
            {"tenant": 3, "text": "a b%ü"},
        ),
        ("uuid", {"key": KEY}, f"/plain/u/{KEY}/", {"key": uuid.UUID(int=7)}),
        ("path", {"rest": "a/b/../c"}, "/plain/p/a/b/../c", {"rest": "a/b/../c"}),
        ("year", {"year": "2026"}, "/plain/y/2026/", {"year": date(2026, 1, 1)}),
        ("optional", {}, "/plain/o/", {"page": 1}),
        ("optional", {"page": 2}, "/plain/o/2/", {"page": 2}),
        ("optional", {"page": 2, "order": "x"}, "/plain/o/2/x/", {"page": 2, "order": "x"}),
        ("regex", {"number": "7"}, "/plain/r/7/", {"number": "7"}),
        ("regex", {"number": "7", "letter": "c"}, "/plain/r/7/xc/", {"number": "7", "letter": "c"}),
        ("default", {"a": 1}, "/plain/default/1/", {"a": 1, "b": "given"}),
    ],
)
def test_arguments_make_an_address_that_leads_back(found, name, given, path, kwargs):
    target = found[name].target(given)
    assert (target.name, target.path, dict(target.kwargs)) == (name, path, kwargs)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("billing:detail", {"pk": -1}),
        ("billing:detail", {"pk": "7/edit"}),
        ("billing:detail", {"pk": "7\n"}),
        ("text", {"text": "a/b"}),
        ("text", {"text": ""}),
        ("text", {"text": "a\nb"}),
        ("text", {"text": "a\x00"}),
        ("text", {"text": "a\ud800"}),
        ("slug", {"slug": "a b"}),
        ("slug", {"slug": "a\n"}),
        ("path", {"rest": "a\r\nX: y"}),
        ("path", {"rest": "a\x00b"}),
        ("year", {"year": "0000"}),
        ("year", {"year": "20266"}),
        ("uuid", {"key": "x"}),
        ("regex", {"number": "x"}),
        ("regex", {"number": "7/x"}),
        ("optional", {"order": "x"}),
    ],
)
def test_what_fits_no_address_is_refused(found, name, given):
    with pytest.raises(InvalidArguments):
        found[name].target(given)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_no_value_reaches_what_was_not_named(data):
    """Whatever is given: the named view with these values, or nothing."""
    name = data.draw(st.sampled_from(["deep:text", "text", "slug", "path", "regex", "answered"]))
    odd = st.sampled_from(
        ["fixed", "..", ".", "%2F", "%2e%2e/fixed", "a/../fixed", "?", "#", "//x"]
    )
    value = data.draw(st.text(max_size=12) | odd | st.integers().map(str))
    with override_settings(ROOT_URLCONF="tests.bridges.site"), request_environment():
        route = routes()["answer" if name == "answered" else name]
        variable = [one for one in route.converters if one != "tenant"][0]
        values = {variable: value} | ({"tenant": 3} if "tenant" in route.converters else {})
        try:
            found = route.target(values)
        except InvalidArguments:
            return
        assert found.name == route.name
        assert {key: str(one) for key, one in found.kwargs.items()} == {
            key: str(one) for key, one in values.items()
        }


def test_a_value_that_leads_to_another_view_is_refused(found):
    """`s/<str:text>/` comes first here, so it is `fixed` that cannot be reached."""
    with pytest.raises(InvalidArguments, match="There is no"):
        found["fixed"].target({})


def test_groups_without_names_and_alternatives_make_no_address(found):
    assert not found["unnamed"].reversible
    assert found["regex"].reversible
    assert found["either"].reversible


def test_each_set_of_arguments_is_a_way(found):
    assert [list(way.converters) for way in found["optional"].ways()] == [
        [], ["page"], ["page", "order"],
    ]  # fmt: skip


@override_settings(FORCE_SCRIPT_NAME="/shop")
def test_a_mount_point_is_no_part_of_the_path():
    with request_environment():
        target = routes()["seen"].target({})
        assert (target.path, path_info("/shop/seen/"), path_info("/seen/")) == (
            "/seen/", "/seen/", None,
        )  # fmt: skip


def test_what_a_view_says_of_itself(found):
    assert found["billing:list"].words == "The invoices of your company."
    assert found["billing:close"].words == "Close an invoice."
    assert found["billing:edit"].words is None
    assert found["deep:text"].path == "/in/<int:tenant>/s/<str:text>/"
    assert found["regex"].path.startswith("/plain/r/")
