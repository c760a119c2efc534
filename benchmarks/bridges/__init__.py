"""
A small project that several packages expose, to compare them: `python -m tools compare`.

It has invoices of two tenants, a REST API, a django-ninja API and Django's admin. None of this code
knows MCP. `packages` has one module for each package that is compared.
"""
