"""Import the declarations of the compared package. Two packages look for this module."""

from importlib import import_module

from django.conf import settings

import_module(settings.COMPARED)
