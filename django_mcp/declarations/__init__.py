"""
What a project writes, and what it means: tools, resources, models, prompts, on servers.

Rule: nothing here knows of a transport or a session. A declaration is resolved once, and
what is wrong with it is found then.
"""
