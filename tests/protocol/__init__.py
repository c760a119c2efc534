"""The protocol is tested without Django and without a database."""
