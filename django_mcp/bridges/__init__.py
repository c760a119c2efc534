"""
What a project has already, exposed: models that are written, forms, and views.

Rule: a bridge adds no right. Whoever comes over it may do what Django would let them do on the
site, and the project's own rules decide. Each has a room of its
own, of which the face is what a project imports.
"""
