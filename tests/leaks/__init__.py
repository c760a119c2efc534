"""
Test that hidden data changes no response, in a schema made at random.

``schema`` makes models from a seed: tenants, owners, deleted rows, hidden fields, relations.
``project`` exposes them through each bridge, as its how-to page recommends. ``attempts`` derives
calls from the schemas of the tools. ``campaign`` makes each call in two worlds that differ only in
what the caller may not see, and compares the responses. ``protections`` removes one protection at a
time. The campaign must then find a leak.

Each run prints its seed. ``LEAK_SEED=7 python -m tools test -m "" tests/leaks`` repeats a run.
``tests/canaries`` does the same for a fixed schema, with subscriptions, sessions, HTTP and scopes.
"""
