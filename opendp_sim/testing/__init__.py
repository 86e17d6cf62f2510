"""The conformance kit, shipped for third parties (extra ``testing``).

A mechanism brings one ``Case``; ``laws()`` yields every law, and each is called with the case::

    @pytest.mark.parametrize("law", laws(), ids=lambda law: law.__name__)
    def test_law(law): law(my_case)

Under pytest a law that fails shows the values it compared: importing the kit registers it for that.
Laws are assertions, so Python's ``-O`` would make each of them hold; the kit refuses to load there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

if not __debug__:
    raise ImportError("the laws are assertions, which python -O removes: run it without -O")
if "pytest" in sys.modules:  # before the laws are imported
    names = ("laws", "laws_of_maps", "laws_of_releases", "case")
    sys.modules["pytest"].register_assert_rewrite(*(f"{__name__}.{name}" for name in names))

from opendp_sim.core.claims import Interactive, Post, Private, Stable
from opendp_sim.testing import (
    laws as _any,
    laws_of_domains as _domains,
    laws_of_maps as _maps,
    laws_of_releases as _releases,
)
from opendp_sim.testing.case import Case

__all__ = ["Case", "Law", "all_laws", "laws_about"]

Law = Callable[[Case], None]


def all_laws() -> list[Law]:
    """Return every law, in the order written."""
    return [
        getattr(module, name)
        for module in (_any, _maps, _domains, _releases)
        for name in module.__all__
        if name.startswith("check_")
    ]


_ROWS = (_maps.check_rows_stay_stable, _maps.check_rows_are_local)
_SUMS = (
    _maps.check_sketch_is_a_sum,
    _maps.check_sensitivity_bounds_the_distance,
    _maps.check_sensitivity_is_attained,
)
_NOISE = (_releases.check_noise_is_declared, _releases.check_shapes_do_not_depend_on_data)


def laws_about(case: Case) -> list[Law]:
    """Return the laws that apply to this kind of mechanism.

    The others hold of it trivially.
    """
    return [law for law in all_laws() if _concerns(law, case)]


def _concerns(law: Law, case: Case) -> bool:
    claim = case.claim()
    if law is _maps.check_rows_are_local:
        return case.is_row_map and isinstance(claim, Stable) and claim.function is not None
    if law is _maps.check_device_equals_cpu:
        return isinstance(claim, Stable) and claim.on_device is not None
    if law in _ROWS:
        return case.is_row_map
    if law in _SUMS:
        return case.is_sketch and (law is not _SUMS[-1] or case.attains is not None)
    if law in _NOISE:
        declared = isinstance(claim, Private) and claim.noise is not None
        return declared and (law is _NOISE[1] or claim.core is not None)  # type: ignore[union-attr]
    if law.__module__ == _domains.__name__:
        return not isinstance(claim, Post)
    if law.__module__ == _maps.__name__:
        return isinstance(claim, Stable)
    if law is _releases.check_loss_is_zero_at_zero_and_monotone:
        return isinstance(claim, Private | Interactive)
    if law.__module__ == _releases.__name__:
        return isinstance(claim, Post) and case.released is not None
    return True
