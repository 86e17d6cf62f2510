"""How ``opendp_sim.core.about`` words what a parameter takes, and what is said of too few entries."""

from __future__ import annotations

from opendp_sim.core.about import describe
from opendp_sim.transformations.row_maps.quantize import Quantize
from opendp_sim.transformations.row_maps.rescale import Rescale


def test_a_list_is_told_in_plain_words():
    assert describe(Rescale)["centre"].range.endswith("or a list of numbers")


def test_a_pair_with_one_entry_has_too_few():
    (refused,) = Quantize.problems({"bits": 12, "bounds": [20.0]})
    assert refused.got == "too few entries"
