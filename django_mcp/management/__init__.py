"""
The code behind the ``manage.py`` commands: arguments, output, and what several commands share.

Commands parse arguments and print. The work is done by the same code that serves clients.
"""
