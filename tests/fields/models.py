"""A model for each case, and the models that their relations refer to."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import models

from .cases import CASES, Case
from .packages import is_installed


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
