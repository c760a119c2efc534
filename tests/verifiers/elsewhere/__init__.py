"""The project of the OAuth tests, with an introspection endpoint for other projects."""
