"""Rows that are created, changed and deleted: the tools of ``ModelResource.operations``."""

from .tools import operations_of as operations_of
