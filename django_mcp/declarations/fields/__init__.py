"""
Reading rows of a model: which fields are shown, their JSON, keys, filters, search and paging.

The package needs Django and the standard library only, apart from a few helpers of
``declarations``. It knows models and field names. It does not know the client, the permissions or
the protocol.

- ``columns``: how the value of each column type is written as JSON and read back
- ``keys``: primary keys in JSON and in URIs, and paths such as ``customer__name``
- ``field_types``, ``values``: fields that need more than a column type, such as files and arrays
- ``entries``, ``whitelist``: the names in ``fields`` of a model resource, and the JSON of a row
- ``search``: the arguments of a search, among them filters, and the rows that it selects
- ``search_methods``: full-text search of the databases, and vector search
- ``keyset``: the pages of the result of a search
- ``aggregates``: counts, sums and other aggregates of rows, in groups
"""
