"""The limits of a column are those that its own validators keep."""

from datetime import date
from decimal import Decimal

import pytest
from django.core import validators
from django.db import models

from django_mcp.bridges.model_arguments import limits


def limited(*found, kind=models.TextField, **options):
    field = kind(validators=list(found), **options)
    field.set_attributes_from_name("made")
    return limits(field, "string" if kind in (models.TextField, models.CharField) else "number")


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (limited(), {"minLength": 1}),
        (limited(blank=True), {}),
        (limited(validators.MinLengthValidator(3)), {"minLength": 3}),
        (limited(validators.MinLengthValidator(3), blank=True), {"minLength": 3}),
        (limited(validators.MaxLengthValidator(9), validators.MaxLengthValidator(7), blank=True),
         {"maxLength": 7}),
        (limited(kind=models.CharField, max_length=5, blank=True), {"maxLength": 5}),
        (limited(validators.RegexValidator("x"), blank=True), {}),
        (limited(validators.MinValueValidator(2), kind=models.FloatField), {"minimum": 2}),
        (limited(validators.MinValueValidator(2), validators.MinValueValidator(4),
                 kind=models.FloatField), {"minimum": 4}),
        (limited(validators.MaxValueValidator(Decimal("2.50")), kind=models.FloatField),
         {"maximum": 2.5}),
        (limited(validators.MaxValueValidator(Decimal("2.00")), kind=models.FloatField),
         {"maximum": 2}),
        (limited(validators.MinValueValidator(lambda: 5), kind=models.FloatField), {}),
        (limited(validators.MinValueValidator(date(2026, 1, 1)), blank=True), {}),
    ],
)  # fmt: skip
def test_limits(found, expected):
    assert found == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (models.IntegerField(), {}),
        (models.PositiveSmallIntegerField(), {"minimum": 0}),
        (models.PositiveIntegerField(validators=[validators.MinValueValidator(1)]), {"minimum": 1}),
        (models.SmallIntegerField(validators=[validators.MaxValueValidator(9)]), {"maximum": 9}),
    ],
)
def test_what_a_database_holds_is_no_limit(field, expected):
    field.set_attributes_from_name("made")
    assert limits(field, "integer") == expected
