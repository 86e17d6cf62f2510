"""The conformance kit, shipped for third parties (extra ``testing``).

A mechanism brings one ``Case``; ``laws()`` yields every law, and each is called with the case::

    @pytest.mark.parametrize("law", laws(), ids=lambda law: law.__name__)
    def test_law(law): law(my_case)
"""

from __future__ import annotations

from collections.abc import Callable

from opendp_sim.testing import laws as _any, laws_of_maps as _maps, laws_of_releases as _releases
from opendp_sim.testing.case import Case

__all__ = ["Case", "Law", "all_laws"]

Law = Callable[[Case], None]


def all_laws() -> list[Law]:
    """Return every law, in the order written."""
    return [
        getattr(module, name)
        for module in (_any, _maps, _releases)
        for name in module.__all__
        if name.startswith("check_")
    ]
