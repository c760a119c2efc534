"""Pages with blocks, ingredients and tags, recipes with steps, and reviews."""

from __future__ import annotations

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models
from modelcluster.contrib.taggit import ClusterTaggableManager
from modelcluster.fields import ParentalKey, ParentalManyToManyField
from modelcluster.models import ClusterableModel
from taggit.managers import TaggableManager
from taggit.models import TaggedItemBase
from wagtail.blocks import CharBlock, RichTextBlock
from wagtail.fields import RichTextField, StreamField
from wagtail.models import Orderable, Page


class Review(models.Model):
    """A review of any object."""

    author = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE)
    text = models.TextField()
    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.PositiveIntegerField()
    subject = GenericForeignKey()


class Country(models.Model):
    title = models.CharField(max_length=100)
    reviews = GenericRelation(Review)


class Ingredient(models.Model):
    name = models.CharField(max_length=100)
    tags = TaggableManager(blank=True)


class BreadTag(TaggedItemBase):
    content_object = ParentalKey("Bread", on_delete=models.CASCADE, related_name="tagged")


class Bread(ClusterableModel):
    """A recipe, whose steps, ingredients and tags are saved with it."""

    title = models.CharField(max_length=100)
    introduction = RichTextField(blank=True)
    body = StreamField([("heading", CharBlock()), ("paragraph", RichTextBlock())], blank=True)
    origin = models.ForeignKey(Country, models.SET_NULL, null=True, blank=True)
    ingredients = ParentalManyToManyField(Ingredient, blank=True)
    tags = ClusterTaggableManager(through=BreadTag, blank=True)
    baker = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    reviews = GenericRelation(Review)


class Step(Orderable):
    bread = ParentalKey(Bread, on_delete=models.CASCADE, related_name="steps")
    text = models.CharField(max_length=200)


class BreadPage(Page):
    """A page of the site."""

    introduction = models.TextField(blank=True)
    body = StreamField([("heading", CharBlock())], blank=True)
    bread = models.ForeignKey(Bread, models.SET_NULL, null=True, blank=True)
    ingredients = ParentalManyToManyField(Ingredient, blank=True)
