"""
The canary campaign: values that a caller may not see are marked, and searched for in all output.

``models`` defines the rows and ``dataset`` fills them with canaries. ``exposed`` and ``site`` are
what a project would declare for them. ``attempts`` lists what an attacker tries, with the clients
of ``clients``. ``campaign`` executes attempts and checks the output. ``defences`` removes one
defence at a time: the campaign must then find a leak.

``CANARY_EXAMPLES=100 python -m pytest tests/security/test_canaries.py`` runs more examples than
usual, each of 25 attempts, for every aim and revision.
"""
