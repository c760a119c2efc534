"""The recipes of docs/how-to/object-permissions.md, with the packages themselves."""
