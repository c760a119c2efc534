"""
The canary campaign: what a caller may not see is marked, and looked for in whatever comes out.

``models`` are the rows, ``world`` fills them with canaries, ``exposed`` is what a project would
declare over them, ``attempts`` is what an attacker tries, ``campaign`` tries it and looks.
"""
