"""
The servers as protected resources (RFC 9728): what each is called, and who gives out tokens for it.
"""
