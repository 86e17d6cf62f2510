"""Compare the claim with independent accountants (layer L5).

At the worst pair found.

The attained curve of the declared noise at that pair is computed a second time, from the definition:
by Google's dp-accounting where it is installed (``opendp_sim[audit]``), else by convolving privacy
losses on a grid, rounded so that the result stays below the truth.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.claims.curves import gaussian_delta
from opendp_sim.audit.claims.noise_laws import NoiseLaw, difference
from opendp_sim.audit.findings import Evidence, LayerResult
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds
from opendp_sim.core.errors import AuditError

_LAYER = "L5 accountants"
_TOLERANCE = 1e-6
_STEP = 1e-3
_MOST_KINDS, _RATIO = 40, 1.05
"""Kinds of cells (step and scale) that the quadrature convolves, and how far a step is rounded down."""
_FINE = 4096.0
"""From this many steps a scale on, a discrete Gaussian attains what the continuous does: its losses are
``mu / scale`` apart, which moves delta by less than 1e-8 times ``mu**2``."""


def accounting_layer(subject: Subject, pair: Pair | None) -> LayerResult:
    """Compare the claim with the declared noise's curve, at the worst pair."""
    begin = work_seconds()
    if not subject.private or subject.core is None or subject.noise is None:
        return LayerResult(_LAYER, "skipped", "no declared noise to account for (core=, noise=)")
    if pair is None:
        return LayerResult(_LAYER, "skipped", "no pair with a distance was found")
    shift = difference(subject.noiseless(pair.right), subject.noiseless(pair.left))
    law = subject.law(shift.size)
    if law is None or not shift.any():
        return LayerResult(_LAYER, "skipped", "the noise is another measurement, or nothing moved")
    curve = subject.curve(pair.distance)
    epsilons = np.unique(np.concatenate([curve.grid[:: max(1, len(curve.grid) // 8)], [0.0]]))
    attained, how = attained_delta(law, shift, epsilons)
    allowed = curve.delta(epsilons)
    gaps = attained - allowed
    spot = int(np.argmax(gaps))
    slack = _slack(law, shift, subject, pair)
    facts = {"accountant": how, "slack": slack}
    seconds = work_seconds() - begin
    if gaps[spot] > _TOLERANCE:
        evidence = Evidence(
            "number",
            f"the claimed number is below what the declared noise attains ({how})",
            f"delta({epsilons[spot]:.4g}) <= {allowed[spot]:.6g}",
            f"{attained[spot]:.6g}",
            pair,
        )
        return LayerResult(_LAYER, "refuted", "", 1, seconds, evidence, facts=facts)
    note = f"; the claim is {100 * slack:.0f} % above what was attained" if slack > 0.1 else ""
    return LayerResult(
        _LAYER,
        "not refuted",
        "",
        1,
        seconds,
        power=f"delta at {len(epsilons)} epsilons by {how}, to {_TOLERANCE:.0e}{note}",
        facts=facts,
    )


def _slack(law: NoiseLaw, shift: NDArray[np.float64], subject: Subject, pair: Pair) -> float:
    from opendp_sim.audit.claims.losses import claim_ratio  # noqa: PLC0415

    if subject.measure is None or subject.privacy_map is None:
        return 0.0
    used = claim_ratio(law, shift, subject.measure, subject.privacy_map(pair.distance))
    return 1 / used - 1 if used > 0 else 0.0


def attained_delta(
    law: NoiseLaw, shift: NDArray[np.float64], epsilons: NDArray[np.float64]
) -> tuple[NDArray[np.float64], str]:
    """Return a lower bound on delta(eps) at a shift, and its accountant."""
    fine = float(np.min(law.scales(shift.size)[shift != 0], initial=math.inf)) / law.grid >= _FINE
    if law.gaussian and (not law.discrete or fine):
        mu = math.sqrt(2 * law.loss(shift))
        return np.array([gaussian_delta(mu, float(e)) for e in epsilons]), "the closed form"
    if importlib.util.find_spec("dp_accounting") is not None and not law.discrete:
        return pld_delta(law, shift, epsilons), "dp-accounting"
    return quadrature_delta(law, shift, epsilons), "quadrature of our own"


def pld_delta(
    law: NoiseLaw, shift: NDArray[np.float64], epsilons: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute delta(eps) with dp-accounting's optimistic privacy loss distributions.

    Raises:
        AuditError: OS503, the package is not installed.
    """
    try:
        from dp_accounting.pld import privacy_loss_distribution as pld  # noqa: PLC0415
    except ImportError as error:
        raise AuditError(
            "OS503", "audit.accountants", expected="dp-accounting", got="no such package",
            hint="pip install 'opendp_sim[audit]'; without it a quadrature of our own is used.",
        ) from error  # fmt: skip
    scaled = np.abs(shift) / law.scales(shift.size)
    make: Any = pld.from_gaussian_mechanism if law.gaussian else pld.from_laplace_mechanism
    total = None
    for step, count in zip(*np.unique(scaled[scaled > 0], return_counts=True), strict=True):
        one = make(
            1 / float(step),
            pessimistic_estimate=False,
            value_discretization_interval=_STEP,
            use_connect_dots=False,
        )
        part = one.self_compose(int(count)) if count > 1 else one
        total = part if total is None else total.compose(part)
    if total is None:
        return np.zeros_like(epsilons)
    return np.array([float(total.get_delta_for_epsilon(float(e))) for e in epsilons])


def quadrature_delta(
    law: NoiseLaw, shift: NDArray[np.float64], epsilons: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return a lower bound on delta(eps) by convolution on a grid."""
    total, offset = np.ones(1), 0
    for step, scale, count in _kinds(np.abs(shift), law.scales(shift.size), law.grid):
        mass, start = _losses(law, step, scale)
        for _ in range(min(count, 400)):
            total, offset = (
                np.convolve(total, mass) if total.size * mass.size < 4e6 else _fft(total, mass),
                offset + start,
            )
            total, offset = _trim(total, offset)
    losses = (np.arange(total.size) + offset) * _grid(law)
    return np.array(
        [float(np.sum(total * np.maximum(0.0, 1 - np.exp(e - losses)))) for e in epsilons]
    )


def _kinds(
    shift: NDArray[np.float64], scales: NDArray[np.float64], grid: float
) -> list[tuple[float, float, int]]:
    """Return (step, scale, cells) of the shifted cells.

    A smaller step loses less (the laws are log-concave), and a cell that is not looked at loses
    nothing: steps are rounded down to a geometric grid, on multiples of the law's own, and the kinds
    that matter most are kept.
    """
    moved = shift > 0
    found, counts = np.unique(
        np.column_stack([shift[moved], scales[moved]]), axis=0, return_counts=True
    )
    if len(found) > _MOST_KINDS:
        rounded = _RATIO ** np.floor(np.log(shift[moved]) / math.log(_RATIO) + 1e-12)
        lower = np.where(
            rounded >= grid, np.minimum(np.floor(rounded / grid) * grid, shift[moved]), shift[moved]
        )
        found, counts = np.unique(
            np.column_stack([lower, scales[moved]]), axis=0, return_counts=True
        )
        worth = counts * (found[:, 0] / found[:, 1]) ** 2
        kept = np.argsort(-worth, kind="stable")[:_MOST_KINDS]
        found, counts = found[kept], counts[kept]
    return [(float(s), float(b), int(n)) for (s, b), n in zip(found, counts, strict=True)]


def _grid(law: NoiseLaw) -> float:
    del law
    return _STEP * 2


def _losses(law: NoiseLaw, step: float, scale: float) -> tuple[NDArray[np.float64], int]:
    """Return the masses of one cell's rounded losses, and the offset."""
    if law.discrete:
        z, p = law.support(scale)
    else:
        edges = np.linspace(-40 * scale, 40 * scale, 40_001)
        z = (edges[:-1] + edges[1:]) / 2
        p = np.exp(-np.abs(z) / scale) if not law.gaussian else np.exp(-(z**2) / (2 * scale**2))
        p = p / p.sum()
    loss = law.cell_llr(z, step, scale) if law.gaussian else (np.abs(z - step) - np.abs(z)) / scale
    index = np.floor(loss / _grid(law) + 1e-9).astype(np.int64)
    start = int(index.min())
    return np.bincount(index - start, weights=p).astype(np.float64), start


def _fft(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.signal import fftconvolve  # noqa: PLC0415

    return np.asarray(np.maximum(fftconvolve(first, second), 0.0), dtype=np.float64)


def _trim(mass: NDArray[np.float64], offset: int) -> tuple[NDArray[np.float64], int]:
    """Drop tails of mass below 1e-12."""
    keep = np.flatnonzero(mass > 1e-15)
    return mass[keep[0] : keep[-1] + 1], offset + int(keep[0])
