"""The recipe for django-tenants, with two tenants in two schemas of PostgreSQL."""
