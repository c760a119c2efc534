"""What the code of an action shows, and the query string of arguments."""

from __future__ import annotations

import functools

import pytest
from django import forms

from django_mcp.bridges.api_endpoints import (
    _parameters_of_form_field,
    attribute_chains,
    chains_of_functions,
)
from django_mcp.bridges.api_tools import QueryParameter, query_string


class Base:
    def create(self, request):
        return request


class View(Base):
    def create(self, request, *args, **kwargs):
        return super().create(request, *args, **kwargs)

    def after_assignment(self, request):
        found = 1
        made = self.create(request)
        return found, made

    def of_a_manager(self, request, pk):
        Base.objects.filter(pk=pk).update(number=1)
        return Base.objects.create()

    def item(self, request):
        return request.auth["tenant"]

    def attribute(self):
        token = self.request.auth.scope
        return token

    def assigned(self, request):
        given = self.request.data.get("a")
        return given


@pytest.mark.parametrize(
    ("method", "chain"),
    [
        (View.create, ("super", "create")),
        (View.after_assignment, ("self", "create")),
        (View.of_a_manager, ("Base", "objects", "create")),
        (View.of_a_manager, ("()", "update")),
        (View.item, ("request", "auth", "[]")),
        (View.attribute, ("self", "request", "auth", "scope")),
        (View.assigned, ("self", "request", "data", "get")),
    ],
)
def test_chains_of_attributes_are_found(method, chain):
    assert chain in set(attribute_chains(method))


def test_call_of_another_object_is_not_one_of_the_view():
    assert ("self", "create") not in set(attribute_chains(View.of_a_manager))
    assert ("super", "update") not in set(attribute_chains(View.of_a_manager))


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args)

    return wrapper


def closed_over(function):
    def wrapper(*args):
        return function(*args)

    return wrapper


@pytest.mark.parametrize("decorator", [decorated, closed_over])
def test_decorated_functions_are_looked_into(decorator):
    chains = {one for found in chains_of_functions(decorator(View.create)) for one in found}
    assert ("super", "create") in chains


def test_query_string_repeats_or_joins_lists():
    parameters = [
        QueryParameter("a", {}), QueryParameter("b", {}, separator=","), QueryParameter("c", {}),
        QueryParameter("d", {}), QueryParameter("e", {}),
    ]  # fmt: skip
    given = {"a": ["x&y", 2], "b": ["-a", "b"], "c": True, "d": None, "other": 1}
    assert query_string(parameters, given) == "a=x%26y&a=2&b=-a%2Cb&c=true"


@pytest.mark.parametrize(
    ("field", "schema"),
    [
        (forms.CharField(max_length=3), {"type": "string", "maxLength": 3}),
        (forms.FloatField(required=False), {"type": "number"}),
        (forms.NullBooleanField(), {"type": "boolean"}),
        (forms.JSONField(), {"type": ["string", "number", "boolean"]}),
        (
            forms.TypedMultipleChoiceField(choices=[(1, "One"), (2, "Two")]),
            {
                "type": "array", "maxItems": 1000, "items": {"type": "integer", "enum": [1, 2]},
                "description": "1: One; 2: Two",
            },
        ),
    ],
)  # fmt: skip
def test_schema_of_a_filter(field, schema):
    (parameter,) = _parameters_of_form_field("x", field)
    assert (parameter.schema, parameter.required) == (schema, field.required)
