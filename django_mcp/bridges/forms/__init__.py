"""Django's forms as tools: ``FormTool``."""

from .tools import FormTool as FormTool
