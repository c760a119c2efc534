"""The module that the page shows. A test may want it to know things for as long as it says."""

import os

from .settings import PAGE, UPSTREAM

for _name, _shown in (("max_age", 300), ("grace", 600)):
    _known = f"{_name} = {_shown}  #"
    assert _known in UPSTREAM
    UPSTREAM = UPSTREAM.replace(_known, f"{_name} = {os.environ.get(_name.upper(), _shown)}  #")
exec(compile(UPSTREAM, str(PAGE), "exec", dont_inherit=True))
