"""The project of the OAuth tests, which tells others of its tokens as well."""
