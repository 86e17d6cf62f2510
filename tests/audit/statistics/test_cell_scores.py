"""Scores of outputs with many places: learned place by place, judged on other draws."""

from __future__ import annotations

import numpy as np

from opendp_sim.audit.claims.curves import approx_curve
from opendp_sim.audit.statistics.scores import cells_of, learned, scored_cells, surplus


def test_places_of_outputs() -> None:
    assert cells_of("T--T") == ("T", "-", "-", "T")
    assert cells_of([3, "a", None]) == ("3", "'a'", "None")
    assert cells_of(np.array([[1, 2], [3, 4]])) == ("1", "2", "3", "4")
    assert cells_of(7) == ("7",)
    assert cells_of([]) == ("[]",)


def _marks(rng: np.random.Generator, chance: float, count: int) -> list[tuple[str, ...]]:
    """Sixteen answers that all tell a little; whole outputs hardly repeat."""
    return [
        cells_of("".join("T" if v else "-" for v in rng.random(16) < chance)) for _ in range(count)
    ]


def test_answers_that_tell_a_little_each_tell_much_together() -> None:
    """Each answer keeps epsilon 0.41; sixteen of them do not keep 1. False alarms: a search, none."""
    rng = np.random.default_rng(1)
    left, right = _marks(rng, 0.6, 2000), _marks(rng, 0.4, 2000)
    assert len(set(left)) > 1000
    assert surplus(approx_curve(1.0, 0.0), left, right) > 10
    assert surplus(approx_curve(1.0, 0.0), left, _marks(rng, 0.6, 2000)) < 4
    weights = learned(left, right)
    score = scored_cells(lambda text: text, weights)
    assert score("T" * 16)[0] > 4 > -4 > score("-" * 16)[0]


def test_an_exception_is_an_output_of_one_place() -> None:
    def run(_: object) -> str:
        raise ValueError

    assert scored_cells(run, {(0, "Raised"): 2.0})([]) == [2.0]
