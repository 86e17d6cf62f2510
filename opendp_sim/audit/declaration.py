"""Check a declaration (``core=``, ``noise=``) against the object.

Before a finding that depends on it is reported. A finding of L1 or L2 takes the declaration at its word,
so it shows that the object or the declaration is wrong, and not which. Releases tell some of
that:

* L2 finds releases that are not ``core=`` plus the declared noise: that is what is shown, and said.
* L1 prices ``core=`` by ``noise=``. Releases that lie on one side of the noiseless part are no sum
  of it and centred noise; then the price says nothing of the object, and the audit is made again without
  the declaration. What that refutes is refuted; if it refutes nothing, the declaration is refused.
* Where they do lie around it and L2 finds another noise, the finding is one of L2. Else it stands.

The first audit spends at most .3 of beta before it gets here; the second is given the other .7.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from opendp_sim.audit.checks.noise import noise_layer
from opendp_sim.audit.claims.noise_laws import difference, flattened
from opendp_sim.audit.findings import LayerResult
from opendp_sim.audit.layers import SHARES, LayerInput
from opendp_sim.audit.outputs.encoding import Raised, outcome
from opendp_sim.audit.report.report import Report
from opendp_sim.audit.statistics.sampling import draw, surely_differ
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import work_seconds
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

OF_DECLARATIONS = ("L1", "L2")
"""Layers that take a declaration at its word."""
REST = 0.7
"""Part of beta that is left for an audit without the declaration."""
_RUNS, _SECONDS, _RISK = 400, 0.2, 1e-6
"""Releases of one dataset, in at most so many seconds, and the risk of calling a right one wrong."""
_DATASETS, _CELLS = 30, 400
_LEFT_OUT = "releases do not fit core= and noise=, which were left out"
_EITHER = "the object releases something else than core= and noise= say, or they are wrong"


def check_declaration(case: LayerInput) -> None:
    """Refuse a noiseless part that cannot fit the releases.

    It always raises, or always has another shape.

    Raises:
        AuditError: OS501, on every dataset tried.
    """
    reasons = []
    for data in _datasets(case, 4):
        reason = _unfit(case.subject, data)
        if not reason:
            return
        reasons.append(reason)
    raise AuditError(
        "OS501", "audit.core", expected="the noiseless part of a release, as numbers of its shape",
        got=f"{reasons[-1]}, as on every dataset tried",
        hint="leave core= and noise= out where no output is a sum of both.",
    )  # fmt: skip


def _unfit(subject: Subject, data: Any) -> str:
    """Say what is wrong with the noiseless part of one dataset."""
    core = outcome(subject.core, data) if subject.core is not None else None
    if isinstance(core, Raised):
        return f"{core.text.partition(':')[0]} when it was called"
    if isinstance(subject.noise, dp.Measurement):
        through = outcome(subject.noise, core)
        return "what noise= does not take" if isinstance(through, Raised) else ""
    (release,) = draw(subject, data, 1)
    if isinstance(release, Raised):
        return ""
    try:
        size, cells = flattened(core).size, flattened(release).size
        difference(flattened(release), flattened(core)) if size == cells else None
    except (TypeError, ValueError, OverflowError):
        return "no numbers, or a release that is none"
    return "" if size == cells else f"{size} numbers where a release has {cells}"


def settled(report: Report, case: LayerInput, again: Callable[[], Report]) -> Report:
    """Return what the finding of an audit with a declaration comes to.

    Raises:
        AuditError: OS501, releases do not lie around the declared noiseless part, and nothing else
            refutes the object.
    """
    evidence = report.evidence
    if evidence is None or report.layer[:2] not in OF_DECLARATIONS:
        return report
    if report.layer[:2] == "L2":
        return _with_note(report, _EITHER)
    sides = () if evidence.pair is None else (evidence.pair.left, evidence.pair.right)
    if any(has_other_type(case.subject, data) for data in (*sides, *_farthest(case))):
        return _without(report, again())
    risk = case.beta * SHARES["noise"]
    noise = noise_layer(case.subject, case.space, case.budget, case.rng, risk, evidence.pair)
    return report if noise.evidence is None else _with_note(_by_noise(report, noise), _EITHER)


def _without(report: Report, other: Report) -> Report:
    """Return the audit without the declaration, or refuse the declaration."""
    if other.evidence is not None:
        return _with_note(replace(other, beta=report.beta), _LEFT_OUT)
    raise AuditError(
        "OS501", "audit.core", expected="a declaration that releases fit",
        got=f"releases on one side of core=; by it {report.layer} would refute the object, which "
        "nothing else did",
        hint="pass what a release is without its noise, or leave core= and noise= out.",
    )  # fmt: skip


def _with_note(report: Report, said: str) -> Report:
    """Return a report whose finding mentions the declaration."""
    last = report.layers[-1]
    assert last.evidence is not None  # noqa: S101 - it refutes
    told = replace(last.evidence, extra={**last.evidence.extra, "declared": said})
    return replace(report, layers=(*report.layers[:-1], replace(last, evidence=told)))


def _by_noise(report: Report, noise: LayerResult) -> Report:
    """Return the report with the refuted noise as its finding."""
    reason = "the noise is not as declared"
    skipped = replace(report.layers[-1], status="skipped", reason=reason, evidence=None)
    return replace(report, layers=(*report.layers[:-1], skipped, noise), witness=None)


# --- releases against a noiseless part --------------------------------------------------


def has_other_type(subject: Subject, data: Any) -> bool:
    """Return whether releases are certainly not centred on their noiseless part.

    Noise is as often above zero as below, so a cell of ``n`` releases has more than k on one side with
    the probability of k heads in n tosses; all cells and both sides share the risk.
    """
    core = outcome(subject.core, data) if subject.core is not None else None
    releases = _releases(subject, data)
    there = [release for release in releases if not isinstance(release, Raised)]
    if isinstance(core, Raised) or not there:
        return isinstance(core, Raised) == bool(there)
    if isinstance(subject.noise, dp.Measurement):
        return surely_differ(there, [outcome(subject.noise, core) for _ in there], _RISK)
    try:
        cells = flattened(core)
        residual = np.stack([difference(flattened(one), cells) for one in there])
    except (TypeError, ValueError, OverflowError):
        return True
    some = np.linspace(0, residual.shape[1] - 1, min(_CELLS, residual.shape[1])).astype(np.int64)
    residual = residual[:, some]
    most = max((residual > 0).sum(axis=0).max(initial=0), (residual < 0).sum(axis=0).max(initial=0))
    p = 2 * residual.shape[1] * float(stats.binom.sf(most - 1, len(there), 0.5))
    return bool(p <= _RISK)


def _releases(subject: Subject, data: Any) -> list[Any]:
    end, out = work_seconds() + _SECONDS, draw(subject, data, 8)
    while len(out) < _RUNS and work_seconds() < end:
        out += draw(subject, data, 32)
    return out


def _datasets(case: LayerInput, count: int) -> list[Any]:
    out = []
    for number, pair in enumerate(case.space.corners(case.rng)):
        if number == count:
            break
        out += [pair.left, pair.right]
    return [*out, *(case.space.draw(case.rng).left for _ in range(count))]


def _farthest(case: LayerInput) -> list[Any]:
    """Return the dataset with the most distant noiseless part."""
    found: tuple[float, Any] | None = None
    for data in _datasets(case, _DATASETS // 3):
        core = outcome(case.subject.core, data) if case.subject.core is not None else None
        try:
            size = float(np.abs(flattened(core).astype(float)).sum())
        except (TypeError, ValueError, OverflowError):
            continue
        if np.isfinite(size) and size < 2.0**40 and (found is None or size > found[0]):
            found = size, data
    return [] if found is None else [found[1]]
