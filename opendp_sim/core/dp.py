"""Import OpenDP's prelude without its extras.

The same names, at a tenth of the time and memory. ``opendp.prelude`` imports scikit-learn, polars and
pandas wherever they are installed. ``Context`` is one of its extras: ``core/context.py`` imports it
when somebody registers.
"""

from __future__ import annotations

from opendp import combinators as c, measurements as m, transformations as t
from opendp.domains import *  # noqa: F403
from opendp.measures import *  # noqa: F403
from opendp.metrics import *  # noqa: F403
from opendp.mod import *  # noqa: F403

__all__ = ["c", "m", "t"]
