"""Declarations of a project: tools, resources, prompts and model resources, on servers.

The package does not know transports, sessions or how a call runs. A server resolves its
declarations once, after all modules are loaded, and the mistakes are reported as system checks.
"""
