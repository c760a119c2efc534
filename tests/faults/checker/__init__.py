"""An independent checker: clients that know what they must receive, and report deviations.

It imports nothing of the server, Django or the project. It computes expected texts from the seed of
a call with its own code, and reads no log.
"""
