"""
What a project has already, exposed: models that are written, forms, and views.

Rule: a bridge adds no right. Whoever comes over it may do what Django would let them do on the
site, and the project's own rules decide. Modules are called after their bridge:
``model_operations`` and ``operation_*``; ``forms`` and ``form_*``; ``views`` and ``view_*``.
"""
