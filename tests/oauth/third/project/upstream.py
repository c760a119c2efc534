"""The module that the page shows."""

from .settings import PAGE, UPSTREAM

exec(compile(UPSTREAM, str(PAGE), "exec", dont_inherit=True))
