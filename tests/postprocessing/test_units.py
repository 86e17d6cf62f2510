"""The unit of a distance is that of its columns, to its power, and of no columns where there are none."""

from __future__ import annotations

import pytest

from opendp_sim.domains.rows import GridRows
from opendp_sim.postprocessing._impl.units import of_distances


@pytest.mark.parametrize(
    ("rows", "power", "summed", "text"),
    [
        (GridRows(2), 1.0, True, "units of the columns, summed"),
        (GridRows(2), 2.0, False, "squared units of the columns"),
        (GridRows(2), 1.5, False, "units of the columns to the power 1.5"),
        (GridRows(2, frame=((0.0, 2.0),)), 1.0, False, "rescaled units"),
        (GridRows(2, distortion=(2.0, 0.1, 0.0)), 2.0, False, "squared units of the rows"),
        (None, 1.0, False, "units of the columns"),
    ],
)
def test_a_distance_has_the_unit_of_its_columns(rows, power, summed, text):
    assert of_distances(rows, power, summed=summed) == text
