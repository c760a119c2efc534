"""The URLs of the page."""

from .settings import PAGE, URLS

exec(compile(URLS, str(PAGE), "exec", dont_inherit=True))
