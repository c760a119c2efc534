"""A project that trusts other issuers, without the embedded authorization server."""
