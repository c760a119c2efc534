"""
The servers as OAuth 2.0 protected resources (RFC 9728): resource names, metadata, body limits.
"""
