"""
The fault campaign: real servers and processes, in which faults are injected while clients check.

``python -m tests.faults`` (``make faults``) runs it. ``project`` is the Django project that is
served, with its injection points. ``databases``, ``services``, ``proxy``, ``fork_server`` and
``workers`` run its processes. ``schedule`` derives from a seed which faults are injected when.
``faults`` injects them; ``armed_faults`` are those that wait for an injection point. ``checker`` is
a separate process that shares no code with the rest and reports what clients received
(``checker_process`` starts it). ``report`` decides whether the campaign passed.
"""
