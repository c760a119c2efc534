"""A model for each case, and the models that their relations refer to."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import connection, models

from .cases import CASES, CHOICES, Case
from .packages import has_vector_extension, is_installed


class Target(models.Model):
    label = models.CharField(max_length=50)


class Remark(models.Model):
    """The target of a generic relation."""

    content_type = models.ForeignKey(ContentType, models.CASCADE, related_name="+")
    object_id = models.PositiveIntegerField()
    about = GenericForeignKey()


def _fetched(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


def _declared(case: Case) -> type[models.Model]:
    """Return the model of a case: a label and the field."""
    attributes: dict[str, Any] = {
        "__module__": __name__,
        "label": models.CharField(max_length=50, default="x"),
        **case.before(),
    }
    if case.make is not None:
        attributes[case.attribute] = case.make()
    bases = tuple(_fetched(base) for base in case.bases)
    return type(case.model_name, bases, attributes)


def _is_here(case: Case) -> bool:
    return case.make is not None and not case.why_absent and case.is_of_this_database


MODELS: dict[str, type[models.Model]] = {}

if is_installed("modelcluster") and is_installed("taggit"):
    from modelcluster.fields import ParentalKey
    from modelcluster.models import ClusterableModel
    from taggit.models import ItemBase, Tag

    class Cluster(ClusterableModel):
        label = models.CharField(max_length=50, default="x")

    class Part(models.Model):
        cluster = ParentalKey(Cluster, on_delete=models.CASCADE, related_name="parts")

    class ClusterTagged(ItemBase):
        tag = models.ForeignKey(Tag, models.CASCADE, related_name="cluster_tagged")
        content_object = ParentalKey(
            "fields.DjangoModelclusterClusterTaggableManager",
            on_delete=models.CASCADE,
            related_name="tagged",
        )

    MODELS["django-modelcluster: reverse ParentalKey"] = Cluster


class Parent(models.Model):
    """The target of reverse relations."""

    label = models.CharField(max_length=50, default="x")


class Child(models.Model):
    parent = models.ForeignKey(Parent, models.CASCADE, related_name="children")


class Ordered(models.Model):
    label = models.CharField(max_length=50, default="x")
    parent = models.ForeignKey(Parent, models.CASCADE, null=True)

    class Meta:
        order_with_respect_to = "parent"


class Many(models.Model):
    parents = models.ManyToManyField(Parent, related_name="many")


class Twin(models.Model):
    parent = models.OneToOneField(Parent, models.CASCADE, related_name="twin")


MODELS |= {f"Django: reverse {kind}": Parent for kind in (
    "ForeignKey", "ManyToManyField", "OneToOneField",
)}  # fmt: skip
MODELS["Django: OrderWrt"] = Ordered
MODELS |= {case.id: _declared(case) for case in CASES if _is_here(case)}

if connection.vendor == "postgresql":
    from django.contrib.postgres import fields as postgres
    from django.contrib.postgres.search import SearchVector, SearchVectorField

    WORDS = postgres.ArrayField(models.TextField())

    class Booking(models.Model):
        """Arrays and ranges of several types, and generated columns."""

        label = models.CharField(max_length=50)
        tags = postgres.ArrayField(models.CharField(max_length=5), null=True)
        kinds = postgres.ArrayField(models.CharField(max_length=1, choices=CHOICES), default=list)
        sizes = postgres.ArrayField(models.SmallIntegerField(), default=list)
        moments = postgres.ArrayField(models.DateTimeField(), default=list)
        grid = postgres.ArrayField(postgres.ArrayField(models.IntegerField()), default=list)
        period = postgres.DateRangeField(null=True)
        opened = postgres.DateTimeRangeField(null=True)
        numbers = postgres.IntegerRangeField(null=True)
        big = postgres.BigIntegerRangeField(null=True)
        prices = postgres.DecimalRangeField(null=True)
        document = models.GeneratedField(
            expression=SearchVector("label", config="english"),
            output_field=SearchVectorField(),
            db_persist=True,
        )
        parts = models.GeneratedField(
            expression=models.Func(
                "label", models.Value(","), function="string_to_array", output_field=WORDS
            ),
            output_field=WORDS,
            db_persist=True,
        )

    class Stay(models.Model):
        """A row that a booking is found by, or finds."""

        booking = models.ForeignKey(Booking, models.CASCADE, related_name="stays")
        nights = postgres.DateRangeField()


if has_vector_extension():
    from pgvector.django import HnswIndex, VectorField

    class Note(models.Model):
        """A text with its vector. Users see the notes of their team."""

        team = models.CharField(max_length=10, default="red")
        text = models.CharField(max_length=50)
        kind = models.CharField(max_length=10, default="plain")
        embedding = VectorField(dimensions=2, null=True)
        anything = VectorField(null=True)
        similar_to = models.ForeignKey("self", models.SET_NULL, null=True)

        class Meta:
            indexes = [HnswIndex(fields=["embedding"], name="note_l2", opclasses=["vector_l2_ops"])]
