"""
Bridges: expose existing Django code (model writes, forms and views) as MCP tools and resources.

A bridge grants no rights. A caller may do over MCP what the same user may do on the site, and the
project's own permission checks decide.

Tools that write models (``ModelResource.operations``):

- ``model_operations``: the tools that create, update and delete rows; lock, validate and save the
  rows, and log the change in the admin
- ``model_arguments``: their arguments: JSON Schema, parsing and assignment to fields

Forms and views:

- ``forms``: a Django form as a tool, ``FormTool``
- ``form_input``: the JSON Schema of a form, and the form bound to arguments
- ``views``: Django's views as tools and as resources

REST APIs:

- ``api_tools``: operations of an API as tools, what the bridges to both frameworks share

Django REST framework:

- ``rest_framework``: its views as tools, ``ViewSetTools`` and ``APIViewTools``
- ``api_endpoints``: one method of a view, and what it takes and returns
- ``serializer_schemas``: serializers as JSON Schemas
- ``authenticator_checks``: find views that need their own authenticator

django-ninja:

- ``ninja``: its operations as tools, ``NinjaTools``
- ``ninja_operations``: where an operation is, and what it takes and returns

Django's admin:

- ``admin_site``: models of an admin site as tools, ``register_admin``
- ``admin_pages``: open and post the admin's pages as the caller
- ``admin_schemas``: the arguments that filter and order the list of rows, and the output schemas
"""
