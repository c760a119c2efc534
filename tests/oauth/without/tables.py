"""All that is taken away, in the order of the threats."""

from __future__ import annotations

from . import clients, consent, documents, refreshing, resource, tokens, upstream
from .rows import Removal

TABLES = (tokens, refreshing, consent, clients, documents, resource, upstream)
REMOVALS: list[Removal] = sorted(
    (row for table in TABLES for row in table.ROWS), key=lambda row: (len(row.threat), row.threat)
)
