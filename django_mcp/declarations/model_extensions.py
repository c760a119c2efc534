"""The hook by which other packages add declarations to model resources.

``derivations`` is a list of functions. Each returns the declarations that it adds to a model
resource, such as tools that write rows. The app fills the list at startup, and the catalog calls
the functions when it adds a resource. So ``declarations`` does not import the packages that use it.

The module is separate so that those packages can import it without the rest of ``declarations``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .declaration import Declaration
    from .model_resources import ModelResource

# Filled when the app is ready.
derivations: list[Callable[[ModelResource], Iterable[Declaration]]] = []
