"""
The canary campaign: what a caller may not see is marked, and looked for in whatever comes out.

``models`` are the rows, ``world`` fills them with canaries, ``exposed`` and ``site`` are what a
project would declare over them, ``attempts`` is what an attacker tries, ``clients`` are the ways
in, ``campaign`` tries it and looks, ``gates`` are what the house is like without each of its gates.

``CANARY_EXAMPLES=100 python -m pytest tests/security/test_canaries.py`` is a longer one than usual:
so many examples, of 25 attempts each, for every aim and revision.
"""
