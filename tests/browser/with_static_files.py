"""The example project with static files: ``DEBUG`` is off, so no other part serves them."""

from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler

from example_project.asgi import application as project

application = ASGIStaticFilesHandler(project)
