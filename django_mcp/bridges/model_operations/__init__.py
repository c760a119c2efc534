"""Tools that create, change and delete rows: ``ModelResource.operations``."""

from .tools import operations_of as operations_of
