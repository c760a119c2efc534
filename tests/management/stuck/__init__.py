"""A project with tools that do not return, each for another reason."""
