"""Broken twins of the nearest-neighbour services: the real code with one thing done wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np
import opendp.prelude as dp

from opendp_sim.audit import Subject
from opendp_sim.domains.rows import GridRows, Rows
from opendp_sim.measurements.knn._impl import predictor as _knn_predictor
from opendp_sim.measurements.knn._impl.predictor import Predictor
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.vote import Near, Outcome, vote
from opendp_sim.measurements.knn._impl.vote_noise import Stock, add_rounded_gaussian
from opendp_sim.measurements.knn.ind_knn import IndKnn
from opendp_sim.measurements.knn.private_knn import PrivateKnn, SampledVotes
from tests.audit.twins.entries import Control, Twin
from tests.audit.twins.faults import named

dp.enable_features("contrib")
GRID = GridRows(width=2, labels=(0, 1), ids=True, lower=(-9,), upper=(9,))
PLAIN = GridRows(width=2, labels=(0, 1), lower=(-9,), upper=(9,))
RHO = 0.25
SETTING = IndKnn(
    rho=RHO,
    queries=4,
    size=2,
    threshold=0.5,
    centre=False,
    levels=4,
    count_scale=1.5,
    vote_scale=0.5,
    minimum_count=1,
)
PATIENT = SETTING.model_copy(update={"count_scale": 4.0})
"""Counts so cheap that something of the purse is left for votes."""
TARGET = np.array([[9.0, 0.0]])


def rows(*labels: int) -> Rows:
    values = np.repeat(TARGET, len(labels), axis=0).reshape(-1, 2)
    return Rows(values, np.array(labels, dtype=np.int64), np.arange(len(labels)))


WITH, WITHOUT = rows(1), rows()


def transcript(service: Any, queries: int = 4) -> tuple[float, ...]:
    out: list[float] = []
    for _ in range(queries):
        answer = service.predict(TARGET)
        out += [float(answer.counts[0]), *map(float, answer.votes[0])]
    return tuple(out)


def subject(run: Callable[[Rows], Any]) -> Subject:
    return Subject(
        run=run,
        privacy_map=lambda d: RHO * d * d,
        measure=dp.zero_concentrated_divergence(),
        name="ind_knn",
    )


def served(
    voting: Callable[..., Outcome] = vote, setting: IndKnn = SETTING, queries: int = 4
) -> Subject:
    def run(data: Rows) -> Any:
        with patch.object(_knn_predictor, "vote", voting):
            return transcript(Predictor(setting, GRID, data), queries)

    return subject(run)


# --- each breaks one thing ------------------------------------------------------------------------


def silent_when_empty(near: Near, classes: int, *rest: Any) -> Outcome:
    if not len(near.owners):
        return Outcome(0, np.zeros(classes, dtype=np.int64), 1.0)
    return vote(near, classes, *rest)


def exact_count(
    near: Near, classes: int, scales: Any, purses: Any, draw: Any, charges: Any
) -> Outcome:
    def half(cells: Any, scale: float) -> Any:
        return cells if len(cells) == 1 else draw(cells, scale)

    return vote(near, classes, scales, purses, half, charges)


def quiet_votes(
    near: Near, classes: int, scales: Any, purses: Any, draw: Any, charges: Any
) -> Outcome:
    def quarter(cells: Any, scale: float) -> Any:
        return draw(cells, scale if len(cells) == 1 else scale / 4)

    return vote(near, classes, scales, purses, quarter, charges)


class Bottomless(IndividualFilter):
    """Purses that pay for anything: nobody is clipped and nobody retires."""

    def affordable(self, who: Any, price: int) -> Any:
        return np.full(len(who), 2**20, dtype=np.int64)

    def charge(self, who: Any, distances: Any, price: int) -> Any:
        return distances


def never_charged(near: Near, classes: int, scales: Any, purses: Any, *rest: Any) -> Outcome:
    return vote(near, classes, scales, Bottomless(RHO, 9), *rest)


class Generous(IndividualFilter):
    """Charges what is there and lets the rest pass: the contribution is not clipped."""

    def affordable(self, who: Any, price: int) -> Any:
        return np.full(len(who), 2**20, dtype=np.int64) * (self._purses[who] > 0)

    def charge(self, who: Any, distances: Any, price: int) -> Any:
        units = np.minimum(self._purses[who], distances.astype(object) ** 2 * price).astype(
            np.int64
        )
        self._purses[who] -= units
        return units


def unclipped(data: Rows) -> Any:
    with patch.object(_knn_predictor, "IndividualFilter", Generous):
        return transcript(Predictor(DEAR, GRID, data))


DEAR = SETTING.model_copy(update={"vote_scale": 0.1})
"""Votes so dear that clipping decides everything."""


def one_noise_for_all(data: Rows) -> Any:
    kept: dict[Any, Any] = {}

    def stale(_: Any, cells: Any, scale: float) -> Any:
        key = len(cells)
        if key not in kept:
            kept[key] = add_rounded_gaussian(np.zeros_like(cells), scale)
        return cells + kept[key]

    with patch.object(Stock, "noisy", stale):
        return transcript(Predictor(SETTING, GRID, data))


def fresh_purse_on_relabel(data: Rows) -> Any:
    service = Predictor(SETTING, GRID, data)
    out: list[float] = []
    for _ in range(6):
        out += transcript(service, 1)
        service._purses = IndividualFilter(
            RHO, 9
        )  # a relabelled record comes back with a new purse
    return tuple(out)


def lifetime_purse_on_relabel(data: Rows) -> Any:
    service = Predictor(SETTING, GRID, data)
    out: list[float] = []
    for _ in range(6):
        out += transcript(service, 1)
        if len(data):
            service.relabel(data)
    return tuple(out)


VOTED = PrivateKnn(epsilon=1.0, delta=1e-2, queries=4, neighbours=1, rate=0.2, centre=False)


@cache
def scale_of_votes() -> float:
    """The scale that the accountant finds for the setting: public, and slow to find."""
    return float(VOTED.scale)


def as_it_is(cells: Any, width: float) -> Any:
    return add_rounded_gaussian(cells, width)


def none_on_zeros(cells: Any, width: float) -> Any:
    return add_rounded_gaussian(cells, width) if cells.any() else cells


def a_quarter(cells: Any, width: float) -> Any:
    return add_rounded_gaussian(cells, width / 4)


def on_the_first(cells: Any, width: float) -> Any:
    """Noise on the votes of the first label alone."""
    return np.concatenate([add_rounded_gaussian(cells[:1], width), cells[1:]])


def kept(noise: dict[int, Any], cells: Any, width: float) -> Any:
    """The noise of the first query, for all of them."""
    return cells + noise.setdefault(0, add_rounded_gaussian(np.zeros_like(cells), width))


def sampled(
    rate: float = 0.2, draw: Callable[[Any, float], Any] = as_it_is, *, keep: bool = False
) -> Subject:
    """The service at a rate and with a noise; accounted at .2 and as it is."""
    scale = scale_of_votes()

    def run(data: Rows) -> Any:
        used = VOTED.model_copy(update={"rate": rate})
        own = partial(kept, {}) if keep else draw
        with patch.object(Stock, "noisy", lambda _, cells, width: own(cells, width)):
            service = SampledVotes(used, PLAIN, Rows(data.values, data.labels), scale)
            return tuple(float(v) for _ in range(4) for v in service.predict(TARGET).votes[0])

    return Subject(
        run=run,
        privacy_map=lambda d: (1.0, 1e-2),
        name="private_knn",
        measure=dp.approximate(dp.max_divergence()),
    )


_PAIRS = {"pairs": [(WITH, WITHOUT), (WITHOUT, WITH)]}
_VOTES = {**_PAIRS, "events": {"votes": lambda t: sum(t[2::3]), "counts": lambda t: sum(t[::3])}}
_SAMPLED = {**_PAIRS, "events": {"votes": lambda t: sum(t[1::2])}}


def _twin(label: str, make: Callable[[], Subject]) -> Twin:
    return Twin(**named(label), make=make, options=_VOTES if "ind_" in label else _SAMPLED)


TWINS = [
    _twin(
        "ind_knn/silent_when_empty: no noise when nobody is near", lambda: served(silent_when_empty)
    ),
    _twin(
        "ind_knn/exact_count: the number of neighbours is used without noise",
        lambda: served(exact_count),
    ),
    _twin(
        "ind_knn/quiet_votes: vote noise a quarter of what is charged",
        lambda: served(quiet_votes, PATIENT),
    ),
    _twin(
        "ind_knn/never_charged: no purse: every query is answered in full",
        lambda: served(never_charged),
    ),
    _twin(
        "ind_knn/unclipped: the last vote is not clipped to the purse", lambda: subject(unclipped)
    ),
    _twin(
        "ind_knn/one_noise: noise drawn once and kept for all queries",
        lambda: subject(one_noise_for_all),
    ),
    _twin(
        "ind_knn/fresh_purse_on_relabel: a relabelled record starts with a full purse",
        lambda: subject(fresh_purse_on_relabel),
    ),
    _twin(
        "private_knn/no_subsample: everybody is in every sample, accounted at rate 0.2",
        lambda: sampled(1.0),
    ),
    _twin(
        "private_knn/silent_when_empty: no noise on an empty sample",
        lambda: sampled(draw=none_on_zeros),
    ),
    _twin("private_knn/quarter_noise: a quarter of the scale", lambda: sampled(draw=a_quarter)),
    _twin(
        "private_knn/first_label_alone: noise on the votes of the first label alone",
        lambda: sampled(draw=on_the_first),
    ),
    _twin(
        "private_knn/one_noise: the noise of the first query, for all queries",
        lambda: sampled(keep=True),
    ),
]
CONTROLS = [
    Control(name="ind_knn/sound", make=served, options=_VOTES),
    Control(name="ind_knn/sound_dear", make=lambda: served(setting=DEAR), options=_VOTES),
    Control(
        name="ind_knn/lifetime_purse",
        make=lambda: subject(lifetime_purse_on_relabel),
        options=_VOTES,
    ),
    Control(name="private_knn/sound", make=sampled, options=_SAMPLED),
]
