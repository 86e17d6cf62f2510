"""Counting votes: records of rows, by row and by user."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from opendp_sim.accounting.release.release import Release
from opendp_sim.core.claims import Noise
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.records import Column, Records
from opendp_sim.postprocessing.counts import Counts
from opendp_sim.testing import Case
from opendp_sim.transformations.sketches.counts.vote_counts import VoteCounts

RECORDS = Records((Column("who", "int64", role="privacy_id"), Column("word", "str")))
WORDS = ("a", "b", "c", "d")


def votes(rows):
    return {
        "who": np.array([who for who, _ in rows], dtype=np.int64),
        "word": np.array([word for _, word in rows], dtype=object),
    }


@st.composite
def row_pairs(draw: st.DrawFn):
    """Tables that share some rows."""
    row = st.tuples(st.integers(0, 3), st.sampled_from((*WORDS, "z")))
    shared, left, right = (draw(st.lists(row, max_size=n)) for n in (10, 3, 3))
    return votes(shared + left), votes(right + shared), len(left) + len(right)


def noisy_votes() -> Release:
    """A release of four words' counts."""
    stages = bind_steps(RECORDS, Symmetric(), [VoteCounts(item="word", items=WORDS)])
    noise = Noise("discrete_gaussian", 3.0)
    return Release.of_sketch(stages, np.array([2, 40, -1, 9]), noise, {"rho": 0.5})


CASES = {
    "counts": Case(
        Counts(top=2),
        noisy_votes().released,
        Symmetric(),
        released=lambda: (noisy_votes().arrays, None),
    ),
    "vote_counts": Case(
        VoteCounts(item="word", items=WORDS),
        RECORDS,
        Symmetric(),
        row_pairs(),
        attains=(votes([(0, "a")]), votes([]), 1),
    ),
}
