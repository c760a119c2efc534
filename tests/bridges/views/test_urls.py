"""URL names of a project: schemas of arguments, and addresses that resolve to the same view."""

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


def test_names_in_includes_and_namespaces_are_found(found):
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
def test_schema_of_a_path_converter(found, name, properties):
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
def test_arguments_of_all_patterns_are_required(found, name, required):
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
def test_address_of_arguments_resolves_to_the_same_view(found, name, given, path, kwargs):
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
def test_argument_that_fits_no_address_is_refused(found, name, given):
    with pytest.raises(InvalidArguments):
        found[name].target(given)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_arbitrary_value_never_resolves_to_another_view(data):
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


def test_address_that_resolves_to_another_view_is_refused(found):
    """The pattern ``s/<str:text>/`` comes first, so ``fixed`` cannot be reached."""
    with pytest.raises(InvalidArguments, match="There is no"):
        found["fixed"].target({})


def test_pattern_with_unnamed_groups_is_not_reversible(found):
    assert not found["unnamed"].reversible
    assert found["regex"].reversible
    assert found["either"].reversible


def test_patterns_with_different_arguments(found):
    assert [list(variant.converters) for variant in found["optional"].variants()] == [
        [], ["page"], ["page", "order"],
    ]  # fmt: skip


@override_settings(FORCE_SCRIPT_NAME="/shop")
def test_script_name_is_not_part_of_the_path():
    with request_environment():
        target = routes()["seen"].target({})
        assert (target.path, path_info("/shop/seen/"), path_info("/seen/")) == (
            "/seen/", "/seen/", None,
        )  # fmt: skip


def test_description_and_path_of_a_view(found):
    assert found["billing:list"].docstring == "The invoices of your company."
    assert found["billing:close"].docstring == "Close an invoice."
    assert found["billing:edit"].docstring is None
    assert found["deep:text"].path == "/in/<int:tenant>/s/<str:text>/"
    assert found["regex"].path.startswith("/plain/r/")
