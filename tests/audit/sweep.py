"""Audit a constructor over the domains and metrics that it accepts.

Without further knowledge. Bounds far from zero, where rounding is coarse, and sizes from 3 to 1024 are
part of the sweep: bugs of finite arithmetic sit there and nowhere else.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from opendp_sim.audit.findings import Effort
from opendp_sim.audit.report.report import Report
from opendp_sim.audit.run import audit
from opendp_sim.core import dp

_SHORT = replace(
    Effort.of("quick"), name="sweep", stability_seconds=0.25, stability_trials=800, seconds=1.0
)


def spaces_for() -> Iterator[tuple[dp.Domain, dp.Metric]]:
    """Yield input spaces, plain ones first, then coarse ones."""
    atoms: list[Any] = [
        dp.atom_domain(T=int),
        dp.atom_domain(bounds=(0.0, 10.0), nan=False),
        dp.atom_domain(bounds=(2.0**50, 2.0**50 + 1), nan=False),
        dp.atom_domain(bounds=(0, 10)),
        dp.atom_domain(T=float, nan=False),
        dp.atom_domain(bounds=(-(2.0**52), 2.0**52), nan=False),
        dp.atom_domain(T=str),
        dp.atom_domain(T=bool),
    ]
    metrics = [
        dp.symmetric_distance(),
        dp.insert_delete_distance(),
        dp.change_one_distance(),
        dp.hamming_distance(),
    ]
    for size, metric, atom in itertools.product((5, None, 1024), metrics, atoms):
        domain = dp.vector_domain(atom) if size is None else dp.vector_domain(atom, size=size)
        yield domain, metric


def audit_constructor(
    make: Callable[[dp.Domain, dp.Metric], Any], d_in: int = 2, *, seed: int = 0, beta: float = 1e-3
) -> list[Report]:
    """Audit what ``make(domain, metric)`` builds on every space that it accepts.

    Stops at the first refutation, which is then the last report; beta is shared by all of them.

    Args:
        make: a constructor; partial application gives it further arguments.
        d_in: the input distance; 2 lets sized domains change.
        seed: of the search.
        beta: bound on the probability of a false alarm, over the whole sweep.
    """
    reports: list[Report] = []
    spaces = list(spaces_for())
    for domain, metric in spaces:
        try:
            made = make(domain, metric)
        except Exception:  # noqa: BLE001, S112
            continue
        place = f"{domain}, {metric}"
        reports.append(audit(made, d_in, _SHORT, seed=seed, beta=beta / len(spaces), origin=place))
        if reports[-1].evidence is not None:
            break
    return reports
