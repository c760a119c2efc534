"""
Reading rows of a model: which fields are shown, their JSON, keys, filters, search and paging.

The package needs Django and the standard library only, apart from a few helpers of
``declarations``. It knows models and field names. It does not know the client, the permissions or
the protocol.

- ``columns``: how the value of each column type is written as JSON and read back
- ``keys``: primary keys in JSON and in URIs, and paths such as ``customer__name``
- ``field_types``, ``values``: fields that need more than a column type, such as files and arrays
- ``entries``, ``whitelist``: the names in ``fields`` of a model resource, and the JSON of a row
- ``filters``, ``search``, ``keyset``: arguments of a search, and the pages of its result
- ``full_text``: full-text search of the databases
- ``vectors``: the rows whose vectors are nearest to a vector
- ``aggregates``: counts, sums and other aggregates of rows, in groups
"""
