"""
Declarations of a project: tools, resources, prompts and model resources, on servers.

The package does not know transports, sessions or how a call runs. A server resolves its
declarations once, after all modules are loaded, and the mistakes are reported as system checks.

What a project declares:

- ``declaration``: the base class ``Declaration``, and ``decide``: who may use one
- ``tools``, ``resources``, ``prompts``, ``model_resources``: its four kinds
- ``model_rows``: the rows of a model that a user may see, their keys and their JSON
- ``model_tools``: the tools and files that a model resource adds: search its rows, count and sum
  them, find similar ones
- ``generic_tools``: five tools that serve many models, ``register_models``
- ``ui``, ``ui_resources``: ``UI``, the page of a tool, and the resource from which clients read it
- ``django_templates``: Django templates that prompts and pages name
- ``permissions``: the permissions of declarations
- ``throttles``: how often they may be called

Servers:

- ``server``: a set of declarations at one URL path, and the decorators ``mcp.tool``,
  ``mcp.resource``, ``mcp.prompt`` and ``mcp.register``
- ``registry``: the declarations as the project wrote them
- ``catalog``: the same, resolved once and then unchanged
- ``attribute_checks``: system checks of declarations
- ``redaction``: names that look like names of credentials, and arguments without their secrets,
  for the audit log and for approvals

Arguments and results of the project's functions:

- ``request``: ``Request``, their first argument
- ``arguments``: their other arguments: schema, validation, binding to rows
- ``outputs``: what they return: schema, JSON, and the check of returned rows
- ``content``: images, audio, resources and files that they may return
- ``fields``: the fields of rows that are shown, and how rows are searched
- ``completions``: suggested values of arguments
- ``schemas``: the JSON Schema of a type annotation, made with pydantic, and validation with JSON
  Schema
- ``schema_summary``: a JSON Schema as English text
- ``cursors``: sealed values, such as the cursor of a list

Questions to the client:

- ``questions``: elicitation, sampling and roots
- ``elicitation_forms``: the forms of elicitations, their checks, and reading the answer
- ``form_values``: the values of form fields as JSON
"""
