"""A selection's page says what decides, what a wrong name is, and how many names are right."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.domains.metrics import VectorNorm
from opendp_sim.domains.sketch import IntVector
from opendp_sim.dsl.types.error_terms import NEGATIVE
from opendp_sim.measurements.selection.gaussian_top_k import GaussianTopK
from opendp_sim.measurements.selection.peel import Peel
from opendp_sim.report.disclosures import right_names
from opendp_sim.report.facts import error_notes
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts  # noqa: F401 - in the catalogue
from tests._plans import planned

SPECS = Path(__file__).parents[2] / "specs"


@pytest.mark.few(1)
@pytest.mark.parametrize("by_draws", [True, False])
def test_the_number_of_right_names_is_what_the_mechanism_gives(by_draws):
    """150 runs of the mechanism on the worst case: within 5 deviations of what a page tells."""
    k, others, scale = 5, 45, 20.0
    space = IntVector(k + others), VectorNorm("linf" if by_draws else "l2", monotone=by_draws)
    made = Peel(k=k, scale=scale) if by_draws else GaussianTopK(k=k, scale=scale)
    claim = made.bind(*space)
    deviation = claim.expected["deviation"]  # type: ignore[union-attr]
    for lead in (1.0, 3.0):
        votes = np.full(k + others, 1000)
        votes[:k] += round(lead * deviation)
        runs = [sum(int(i) < k for i in claim.function(votes)) for _ in range(150)]  # type: ignore[union-attr]
        expected = right_names(k, others, round(lead * deviation) / deviation, by_draws=by_draws)
        room = 5 * max(np.std(runs), 0.3) * math.sqrt(1 / 150 + 1 / 400)
        assert np.mean(runs) == pytest.approx(expected, abs=room)


@pytest.mark.parametrize(("stem", "negative"), [("digit-density", True), ("bright-pixels", False)])
def test_a_negative_number_is_explained_where_there_may_be_one(stem, negative):
    assert (NEGATIVE in error_notes(planned(SPECS / f"{stem}.yaml"))) is negative
