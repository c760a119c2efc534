"""
From what a client asks to what the project's code does, and back.

Rule: one short function per method of the protocol, in one table. Whoever may not use a thing is
told what they would be told if there were none.
"""
