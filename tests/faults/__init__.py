"""
The campaign of faults: real servers and processes, and what strikes them while clients watch.

``python -m tests.faults`` (``make faults``) starts it all. ``project`` is what is served, with the
points where faults strike; ``databases``, ``services``, ``proxy``, ``zygote`` and ``workers`` are
the machines; ``schedule`` says what strikes and when, a function of the seed; ``faults`` does it,
with ``arms`` where it waits for a point; ``checker`` is a process that shares no code with any of
this, and tells what clients saw (``checking`` starts it); ``report`` judges.
"""
