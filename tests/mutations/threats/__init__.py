"""The defences of the authorization server that mutations remove, in the order of the threats."""

from __future__ import annotations

from ..mutation import Mutation
from . import clients, consent, documents, refreshing, resource, tokens, upstream

TABLES = (tokens, refreshing, consent, clients, documents, resource, upstream)
MUTATIONS: list[Mutation] = sorted(
    (row for table in TABLES for row in table.ROWS), key=lambda row: (len(row.subject), row.subject)
)
