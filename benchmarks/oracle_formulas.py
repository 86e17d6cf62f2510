"""The code beside the formulas of the check scripts that print figures of their own.

Each script is run to its end (their output is not shown), and its own functions and numbers are compared with ours on
the same input; `oracles.py` has the four that are libraries. A difference is relative to the largest number.

Where it is not rounding: RACE's noise is that of an estimate corrected for collisions in 64 buckets, by a number of records that is released too, which the script leaves out; the tail of two Laplace
variables is that of whole ones here, and the published bound lies above the exact tail, so ours needs a lower threshold; `paired_projections` counts
a row once and reads both signs of a direction, where the script counts a row and its mirror image and reads once: half the L1 norm, the same
Gaussian noise; a moment tree is for Laplace noise unless told otherwise, here it was told; multipliers of `moments_sketch` are whole numbers;
thresholds are for whole noise; a purse is rounded against its owner; Fourier phases are 1 of so many steps, whose rounding is what
answers with public points differ by.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import itertools
import math
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import opendp.prelude as dp
from scipy.special import polygamma, psi

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks._oracle_sketches import density, frames, noise_of_sketches, trees
from benchmarks._results import parser, table, write_section
from benchmarks.oracles import apart
from opendp_sim.accounting.measures.conversion import gdp_to_epsilon, zcdp_to_epsilon
from opendp_sim.core.mechanism import lookup
from opendp_sim.domains.counts import USERS, votes_space
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.domains.sketch import IntVector
from opendp_sim.measurements.knn._impl.privacy_filter import IndividualFilter
from opendp_sim.measurements.knn._impl.vote import Near, Scales, vote
from opendp_sim.measurements.selection._impl.gaussian_tail import threshold_for
from opendp_sim.measurements.selection._impl.selection import peel_rho
from opendp_sim.measurements.selection.top_stable import difference_tail
from opendp_sim.transformations.sketches.kernels._impl.hash_families import PStableL2
from opendp_sim.transformations.sketches.kernels._impl.kernels import (
    Exponential,
    Gaussian,
    Laplacian,
    Rational,
)
from opendp_sim.transformations.sketches.kernels.exponential_sum import terms_of

dp.enable_features("contrib")
Lines = list[list[str]]


def budgets(of: ModuleType) -> Lines:
    """The analytic Gaussian mechanism, zCDP, and the tail of a difference of two Laplace variables."""
    epsilons = (0.5, 1.0, 2.0, 4.0)
    sigmas = [of.sigma_analytic(e, 1e-5) for e in epsilons]
    rhos = [1 / (2 * s * s) for s in sigmas]
    gdp = apart([gdp_to_epsilon(1 / s**2, 1e-5) for s in sigmas], epsilons)
    theirs = [of.zcdp_eps(rho, 1e-5) for rho in rhos]
    zcdp = apart([zcdp_to_epsilon(rho, 1e-5) for rho in rhos], theirs)
    wide, bar, own, exact, published = 2 / of.e2, 1 / of.e1, [], [], []
    for chance in (0.1, 0.01, 0.001):
        far = math.log(1 / chance) * wide
        tails = wide**2 * math.exp(-far / wide) - bar**2 * math.exp(-far / bar)
        exact.append(tails / (2 * (wide**2 - bar**2)))
        own.append(difference_tail(4000 * wide, 4000 * bar, math.ceil(4000 * far)))
        published.append(of.dm(chance, of.c))
    over = ", ".join(f"{p / e:.3f}" for p, e in zip(published, exact, strict=True))
    return [
        ["budgets_and_thresholds: epsilon of a Gaussian mechanism", gdp],
        ["budgets_and_thresholds: epsilon of zCDP", zcdp],
        ["budgets_and_thresholds: tail of two Laplace variables, real ones", apart(own, exact)],
        ["budgets_and_thresholds: the published tail over the exact one", f"{over}: see below"],
    ]


def sets(of: ModuleType) -> Lines:
    """Every histogram of 4 items with up to 4 votes, and its top sets."""
    votes, same, tried = votes_space("oracle", IntVector(4), USERS), 0, 0
    for counts in itertools.product(range(5), repeat=4):
        for k in (1, 2, 3):
            found = votes.rank(np.array(counts), k + 1)
            gap = int(found.counts[k - 1] - found.counts[k])
            own = frozenset(found.places[:k].tolist())
            same += own == of.topk(counts, k) and gap == of.gap(counts, k)
            tried += 1
    rho = apart(peel_rho(1, 1 / 2.0, 1), 2.0**2 / 8)
    return [
        ["gap_bruteforce_and_pf: top sets and their gaps", f"{same} of {tried} equal"],
        ["gap_bruteforce_and_pf: rho of one draw, epsilon^2 / 8", rho],
    ]


def kernels(of: ModuleType) -> Lines:
    """Sums of exponentials for 1 / (1 + z), and what a projection may cost a kernel."""
    rows = []
    for alpha in (0.1, 0.01, 1e-4):
        (rates, weights), (_, masses, times) = terms_of(alpha), of.build(alpha)
        text = " and ".join((apart(rates, times), apart(weights, masses)))
        rows.append([f"expsum_1_over_1pz: rates and weights, accuracy {alpha:g}", text])
    return rows


def projections(of: ModuleType) -> Lines:
    """The change of a kernel's mean behind a projection."""
    grid = GridRows(width=2000, unit=2.0**-12, lower=(-4096,), upper=(4096,), l2=4096)
    names = {"gauss": "gaussian", "exp": "exponential", "cauchy": "cauchy", "1/(1+r)": "rational"}
    own, theirs = [], []
    for k in (10, 50, 100, 400, 1600):
        expected = lookup("jl_projection")(dimension=k, seed=0).bind(grid, Symmetric()).expected
        spread = np.sqrt(polygamma(1, k / 2) / 4 + ((psi(k / 2) - np.log(k / 2)) / 2) ** 2)
        for short, name in names.items():
            own.append(expected[f"jl_error_{name}"])
            theirs.append(of.ker[short][1] * spread)
    r = np.logspace(-2, 1.5, 40)
    curves = [
        (Gaussian(bandwidth=1.0), "gauss"),
        (Exponential(bandwidth=1.0), "exp"),
        (Laplacian(bandwidth=1.0), "exp"),
        (Rational(bandwidth=1.0), "cauchy"),
        (Rational(bandwidth=1.0, distance="l2"), "1/(1+r)"),
        (Rational(bandwidth=1.0, distance="l1"), "1/(1+r)"),
    ]
    each = [apart(kernel.value(r), of.ker[short][0](r)) for kernel, short in curves]
    steep = apart([kernel.steepness for kernel, _ in curves], [of.ker[s][1] for _, s in curves])
    return [
        ["jl_kernel_error_and_matousek: bound on a kernel's error", apart(own, theirs)],
        ["jl_kernel_error_and_matousek: steepness of six kernels", steep],
        ["jl_kernel_error_and_matousek, mixture_rff: six kernels", ", ".join(each)],
    ]


def hashes(of: ModuleType) -> Lines:
    """The chance that two points share a bucket."""
    far = np.logspace(-3, 3, 200)
    return [["race_noise: kernel", apart(PStableL2(width=4.0).kernel(far), of.PL2(far, 4.0))]]


def pairs(of: ModuleType) -> Lines:
    """One record's change of the paired hashes: theirs counts a row and its mirror image, ours the row."""
    grid = GridRows(width=of.d - 1, unit=2.0**-12, lower=(-4096,), upper=(4096,))
    made = lookup("paired_projections")(repetitions=of.R, bits=of.p, seed=0)
    norms = made.bind(grid, Symmetric()).sensitivity
    change = f"{of.C.sum()} and {np.square(of.C).sum()} there, {norms.bound('l1', 1):g} and "
    return [["prp_sensitivity: L1 and squared L2", f"{change}{norms.bound('l2', 1) ** 2:.6g} here"]]


def purses(of: ModuleType) -> Lines:
    """Adversarial weights against a purse, and a query that nobody is near."""
    generator, worst = np.random.default_rng(1), 0
    count = of.s1
    for _ in range(300):
        purse, spent = IndividualFilter(of.B, 1), 0
        who = np.zeros(1, dtype=np.int64)
        for _ in range(of.T):
            near = Near(who, who, np.array([int(4096 * generator.random())]), True)
            charges: list = []
            scales = Scales(count, 4096 * of.s2, int(30 * math.exp(generator.exponential(1.5))))
            vote(near, 2, scales, purse, lambda cells, _: cells, charges)
            spent += sum(int(units.sum()) for _, units in charges)
        worst = max(worst, spent)
    most, there = (
        f"{worst / 2**62:.15f} of a purse here",
        f"{of.worst_fix:.15f}, and {of.worst_code:.4f}",
    )
    return [
        [
            "indknn_filter: the most that a purse pays",
            f"{most}, {there} by the published rule there",
        ]
    ]


def nobody(_: ModuleType) -> Lines:
    """What a query is answered that nobody is near: 1 of 10 classes is 0 if its votes are noise alone."""
    generator = np.random.default_rng(2)
    none = np.zeros(0, dtype=np.int64)

    def noisy(cells: np.ndarray, scale: float) -> np.ndarray:
        return cells + np.rint(generator.normal(0, scale, cells.shape)).astype(np.int64)

    other, scales = 0, Scales(20.0, 2048.0, 30)
    for _ in range(4000):
        found = vote(Near(none, none, none, True), 10, scales, IndividualFilter(1.0, 0), noisy, [])
        other += int(found.votes.argmax() != 0)
    text = f"{other / 4000:.3f} here, .9 where one is near and 0 by the published code there"
    return [["indknn_branch_leak: other answers than class 0 without a neighbour", text]]


def stable(of: ModuleType) -> Lines:
    """The thresholds of stable sets, and rho from epsilon."""
    own, theirs, rhos, wanted = [], [], [], []
    for size in (51406, 2293):
        for epsilon in (0.4, 0.8, 1.0):
            delta = 1 / size
            rho = of.brentq(lambda r, d=delta, e=epsilon: of.zeps(r, d / 2) - e, 1e-8, 10)
            rhos.append(zcdp_to_epsilon(rho, delta / 2))
            wanted.append(epsilon)
            for share in (1.0, 0.5):
                sigma = 1 / math.sqrt(rho * share)
                own.append(threshold_for(sigma, delta / 2, 1))
                theirs.append(1 + sigma * of.norm.isf(delta / 2))
    most = np.abs(np.array(own) - np.array(theirs)).max()
    text = f"{most:.2f} votes apart at most: whole noise, .5 to 1.5 above a real normal"
    return [
        ["stabletopk_calibration: epsilon of zCDP", apart(rhos, wanted)],
        ["stabletopk_calibration: 12 thresholds", text],
    ]


def run(name: str, data: Path) -> ModuleType:
    """Run a script to its end, silently, and return what it defined."""
    kept, sys.argv = sys.argv, [name, str(data)]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            made = importlib.import_module(name)
    finally:
        sys.argv = kept
    return made


WAYS = {
    "budgets_and_thresholds": budgets,
    "gap_bruteforce_and_pf": sets,
    "expsum_1_over_1pz": kernels,
    "jl_kernel_error_and_matousek": projections,
    "race_noise": hashes,
    "prp_sensitivity": pairs,
    "moment_tree_lib": trees,
    "frame_and_centre": frames,
    "expected_error": density,
    "indknn_filter": purses,
    "indknn_branch_leak": nobody,
    "stabletopk_calibration": stable,
}


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--checks", type=Path, required=True)
    given = options.parse_args()
    sys.path.insert(0, str(given.checks))
    rows = noise_of_sketches()
    for name, way in WAYS.items():
        rows += way(run(name, given.data))
        print(*rows[-1], sep=" | ", flush=True)
    text = table(["what", "difference"], rows) + "\n\n" + " ".join((__doc__ or "").split())
    print(text)
    if given.write:
        write_section(
            "Oracles: formulas",
            text,
            "python -m benchmarks.oracle_formulas --write --checks FOLDER",
        )


if __name__ == "__main__":
    main()
