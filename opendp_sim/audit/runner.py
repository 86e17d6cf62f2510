"""One call: read the object, run the layers, stop at the first refutation, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from opendp_sim.audit.asked import check_claimed, check_unconditional, checked_distance
from opendp_sim.audit.driver import Driver
from opendp_sim.audit.drivers import default_driver
from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.given import first_tried, scored
from opendp_sim.audit.guided import guided
from opendp_sim.audit.layers import Case, layers_of, tracer_of
from opendp_sim.audit.members import MemberPairs, quiet_member
from opendp_sim.audit.mining import Mined, mined
from opendp_sim.audit.neighbours import Pair, PairSpace
from opendp_sim.audit.pace import paced
from opendp_sim.audit.reachable import functions_of
from opendp_sim.audit.reading import Reader
from opendp_sim.audit.report import Report, versions
from opendp_sim.audit.sampling import begin_coins
from opendp_sim.audit.scripts import Shown
from opendp_sim.audit.spaces import space_of
from opendp_sim.audit.subject import Subject, read_subject
from opendp_sim.audit.witness import Witness, find_witness
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError
from opendp_sim.core.randomness import public_generator

__all__ = ["assert_not_refuted", "audit"]

_A_RUN = 0.02
"""Part of the trace's seconds that one run may take, in the mean, on the longest dataset."""
_LONGER = 3
"""How many times its seconds the search for a plain event gets, where the layers left them."""


def audit(
    obj: Any,
    d_in: Any = 1,
    budget: str | Budget = "quick",
    *,
    seed: int = 0,
    beta: float = 1e-3,
    core: Callable[[Any], Any] | None = None,
    noise: Any = None,
    drive: Callable[[Any], Any] | None = None,
    sample: Callable[[Any, int], Any] | None = None,
    pmf: Callable[[Any], Mapping[Hashable, Any]] | None = None,
    composed: bool = False,
    pairs: Iterable[tuple[Any, Any]] = (),
    generator: Callable[[np.random.Generator], Any] | None = None,
    events: Mapping[str, Callable[[Any], float]] | None = None,
    output_distance: Callable[[Any, Any], Any] | None = None,
    trace: bool = True,
    mine: bool = True,
    origin: str = "",
) -> Report:
    """Try to refute a claim.

    Args:
        obj: a Transformation, Measurement or Odometer of OpenDP (native, ours, or a plugin's), or a
            ``Subject``.
        d_in: the input distance of the claim.
        budget: ``"quick"`` (at most about 10 s), ``"deep"`` (about two minutes), or a ``Budget``.
        seed: of the public search. Noise has no seed.
        beta: bound on the probability of refuting a true claim, over all layers together.
        core: the noiseless part (dataset to array), when the object does not carry it.
        noise: what is added to it: a ``NoiseLaw``, or an OpenDP measurement applied to ``core``.
        drive: how to talk to an interactive release (queryable to transcript); without it, OpenDP's
            compositions and odometers are asked measurements and this package's services are asked
            queries near a record (``Driver``), and the report says so.
        sample: many independent releases at once (dataset, count to sequence), for speed.
        pmf: the exact distribution of a finite output (dataset to probabilities).
        composed: the object is nothing but a composition of OpenDP measurements and
            post-processing, so that its releases can be replayed to a neighbour.
        pairs: neighbouring pairs of the user's, tried first; those with a dataset that is no member of
            the input domain are dropped with a warning.
        generator: makes a dataset, for domains the auditor does not know.
        events: further scores of an output (output to number), by name.
        output_distance: distance of two outputs, for an output metric the auditor does not know.
        trace: record the noise of an opaque Python measurement; its function is then run thousands of
            times on synthetic datasets, with draws set to zero and replayed.
        mine: try the constants that the object's Python code names.
        origin: what the object was made from, for the report.

    Raises:
        AuditError: OS501, the object has no claim, or one that holds while a sample is secret; nothing
            says what its datasets are; ``d_in`` is no distance that it claims anything about; or no
            dataset drawn is in the input domain.
    """
    begin = time.perf_counter(), time.process_time()
    spend = _checked_budget(budget, beta)
    check_unconditional(obj)
    d_in = checked_distance(getattr(obj, "input_metric", None), d_in)
    driver = default_driver(obj, d_in) if drive is None else drive
    given = tuple(Pair(left, right, d_in) for left, right in pairs)
    if isinstance(driver, Driver):
        given += driver.pairs
    subject = _subject(obj, d_in, driver, core, noise, sample)
    functions = functions_of(obj) if mine and not isinstance(obj, Subject) else []
    found = mined(functions)
    space = _space(subject, d_in, given, generator, found if functions else None)
    if functions:
        part = _A_RUN * spend.trace_seconds
        space = paced(space, subject.run, public_generator(seed, "audit", "pace"), part)
    members = MemberPairs(space, quiet_member(subject.input_domain))
    given = members.kept(given)
    case = Case(
        subject,
        first_tried(given, members),
        first_tried(given, space),
        members,
        d_in,
        spend,
        public_generator(seed, "audit"),
        beta,
        given,
        pmf,
        composed,
        scored(events),
        output_distance,
    )
    opaque = driver is None and subject.core is None and sample is None
    if trace and functions and opaque and isinstance(obj, dp.Measurement):
        case = replace(case, tracer=tracer_of(case, functions, found))
    return _reported(case, driver, seed, origin, begin)


def _checked_budget(budget: str | Budget, beta: float) -> Budget:
    """Return a budget by its name or as it is, or refuse it or the risk."""
    known = isinstance(budget, Budget) or budget in ("quick", "deep")
    if not known or not 0 < beta < 1:
        raise AuditError(
            "OS501", "audit.budget", expected='"quick" or "deep", and 0 < beta < 1',
            got=f"{budget}, {beta}",
            hint="quick is for a test suite, deep for the night.",
        )  # fmt: skip
    return budget if isinstance(budget, Budget) else Budget.of(budget)


def _subject(
    obj: Any, d_in: Any, driver: Any, core: Any, noise: Any, sample: Callable[..., Any] | None
) -> Subject:
    """Return the object as the layers see it; a driver may know its noiseless part."""
    traced = getattr(driver, "trace", None)
    if core is None and isinstance(driver, Driver) and traced is not None:
        core, noise = traced, driver.noise
    subject = read_subject(obj, d_in, core=core, noise=noise, drive=driver, sample=sample)
    subject = replace(subject, traced=core is not None and core is traced)
    if subject.private:
        subject = replace(subject, run=Reader().reading(subject.run))
    check_claimed(subject, d_in)
    return subject


def _space(
    subject: Subject,
    d_in: Any,
    given: tuple[Pair, ...],
    generator: Callable[[np.random.Generator], Any] | None,
    found: Mined | None,
) -> PairSpace:
    """Return the space of pairs, with what the code says where any was read."""
    space = space_of(
        subject.input_domain,
        subject.input_metric,
        d_in,
        pairs=tuple((p.left, p.right) for p in given),
        generator=generator,
    )
    if found is None or generator is not None:
        return space
    out: PairSpace = guided(space, subject.input_domain, found)
    return out


def _reported(
    case: Case, driver: Any, seed: int, origin: str, begin: tuple[float, float]
) -> Report:
    """Run the layers up to the first that refutes, look for a witness, and report."""
    layers: list[LayerResult] = []
    begin_coins()
    for layer in layers_of(case):
        layers.append(layer)
        if layer.status == "refuted":
            break
    subject, evidence = case.subject, layers[-1].evidence
    spent = time.process_time() - begin[1]
    witness = _witness(case, evidence, origin, driver, spent)
    return Report(
        subject.name,
        case.d_in,
        case.budget.name,
        seed,
        case.beta,
        tuple(layers),
        time.perf_counter() - begin[0],
        versions(),
        origin,
        driver.words if isinstance(driver, Driver) else "",
        time.process_time() - begin[1],
        witness,
        tuple(getattr(subject.run, "reader", Reader()).unread),
        subject.private and subject.core is None,
    )


def _witness(
    case: Case, evidence: Evidence | None, origin: str, driver: Any, spent: float
) -> Witness | None:
    """Look for a plain event of the refuted pair; for a transformation there are the outputs."""
    subject, seconds = case.subject, case.budget.witness_seconds
    alone = driver is None or isinstance(subject.outer, dp.Measurement)
    if (
        evidence is None
        or evidence.pair is None
        or not subject.private
        or seconds <= 0
        or not alone
    ):
        return None
    drive = "" if driver is None else "drive"
    if isinstance(driver, Driver):
        drive = f"default_driver(M, {case.d_in!r})"
    return find_witness(
        getattr(subject.run, "raw", subject.run),
        evidence.pair,
        subject.curve(evidence.pair.distance),
        max(seconds, min(_LONGER * seconds, case.budget.total - spent)),
        member=quiet_member(subject.input_domain),
        shown=Shown(origin=origin, drive=drive, note=_calculated(evidence)),
    )


def _calculated(evidence: Evidence) -> str:
    """Return what a script says of a finding that its draws do not show."""
    return (
        f"{evidence.kind}: {evidence.detail}\nclaimed {evidence.claimed}\n"
        f"measured {evidence.measured} ({evidence.confidence})"
    )


def assert_not_refuted(
    obj: Any, d_in: Any = 1, budget: str | Budget = "quick", **options: Any
) -> Report:
    """Audit in a test: raise with the whole report when the claim is refuted.

    Raises:
        AssertionError: the claim is refuted; the message is the report.
    """
    report = audit(obj, d_in, budget, **options)
    if report.evidence is not None:
        raise AssertionError(str(report))
    return report
