"""One call: read the object, run the layers, stop at the first refutation.

The risk of a false alarm is bounded over everything together. L1, L4, L5 and the replay are exact and
spend none. L0, the coupling test of L1, L2 and L3 get fixed shares of beta that add up to it; inside a
layer, L3's wealth needs no further split (one supermartingale), the others divide by their tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opendp_sim.audit.accountants import accounting_layer
from opendp_sim.audit.asked import check_claimed, check_unconditional, checked_distance
from opendp_sim.audit.distribution import distribution_layer
from opendp_sim.audit.driver import Driver
from opendp_sim.audit.drivers import default_driver
from opendp_sim.audit.enumeration import enumeration_layer
from opendp_sim.audit.findings import Budget, Evidence, LayerResult
from opendp_sim.audit.given import first_tried, scored
from opendp_sim.audit.guided import guided
from opendp_sim.audit.members import MemberPairs, quiet_member
from opendp_sim.audit.mining import mined
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.noise_law import noise_layer
from opendp_sim.audit.reachable import functions_of
from opendp_sim.audit.report import Report, versions
from opendp_sim.audit.shape import structure_layer
from opendp_sim.audit.spaces import PairSpace, space_of
from opendp_sim.audit.stability import StabilitySearch
from opendp_sim.audit.subject import Subject, read_subject
from opendp_sim.audit.trace import Tracer, trace_layer, traced_distribution
from opendp_sim.audit.witness import Witness, find_witness
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError
from opendp_sim.core.randomness import public_generator

__all__ = ["SHARES", "assert_not_refuted", "audit"]

SHARES = {"structure": 0.05, "coupling": 0.05, "noise": 0.2, "trace": 0.3, "distribution": 0.4}
"""How beta is divided; they add up to one."""
_FIRST_LOOK = 0.08
"""Part of L1's seconds that it gets before L2, and the most seconds that can be."""
_LONGEST_FIRST_LOOK = 1.0


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
    begin, cpu = time.perf_counter(), time.process_time()
    known = isinstance(budget, Budget) or budget in ("quick", "deep")
    if not known or not 0 < beta < 1:
        raise AuditError(
            "OS501", "audit.budget", expected='"quick" or "deep", and 0 < beta < 1',
            got=f"{budget}, {beta}",
            hint="quick is for a test suite, deep for the night.",
        )  # fmt: skip
    spend = budget if isinstance(budget, Budget) else Budget.of(budget)
    check_unconditional(obj)
    d_in = checked_distance(getattr(obj, "input_metric", None), d_in)
    driver = default_driver(obj, d_in) if drive is None else drive
    given = tuple(Pair(left, right, d_in) for left, right in pairs)
    if isinstance(driver, Driver):
        given += driver.pairs
        if core is None and driver.trace is not None:
            core, noise = driver.trace, driver.noise
    subject = read_subject(obj, d_in, core=core, noise=noise, drive=driver, sample=sample)
    subject = replace(subject, traced=core is not None and core is getattr(driver, "trace", None))
    check_claimed(subject, d_in)
    space = space_of(
        subject.input_domain,
        subject.input_metric,
        d_in,
        pairs=tuple((p.left, p.right) for p in given),
        generator=generator,
    )
    functions = functions_of(obj) if mine and not isinstance(obj, Subject) else []
    found = mined(functions)
    if functions and generator is None:
        space = guided(space, subject.input_domain, found)
    members = MemberPairs(space, quiet_member(subject.input_domain))
    given = members.kept(given)
    fast, space = first_tried(given, space), first_tried(given, members)
    rng = public_generator(seed, "audit")
    tracer = None
    opaque = driver is None and subject.core is None and sample is None
    if trace and functions and opaque and isinstance(obj, dp.Measurement):
        share = beta * SHARES["trace"]
        tracer = Tracer(subject, space, d_in, spend, rng, share, given, functions, found)
    case = _Case(
        subject,
        space,
        fast,
        members,
        d_in,
        spend,
        rng,
        beta,
        given,
        pmf,
        composed,
        scored(events),
        output_distance,
        tracer,
    )
    layers: list[LayerResult] = []
    for layer in _layers(case):
        layers.append(layer)
        if layer.status == "refuted":
            break
    witness = _witness(subject, layers[-1].evidence, spend, origin) if driver is None else None
    return Report(
        subject.name,
        d_in,
        spend.name,
        seed,
        beta,
        tuple(layers),
        time.perf_counter() - begin,
        versions(),
        origin,
        driver.words if isinstance(driver, Driver) else "",
        time.process_time() - cpu,
        witness,
        subject.private and subject.core is None,
    )


def _witness(
    subject: Subject, evidence: Evidence | None, budget: Budget, origin: str
) -> Witness | None:
    """Look for a plain event of the refuted pair; for a transformation there are the outputs."""
    seconds = budget.witness_seconds
    if evidence is None or evidence.pair is None or not subject.private or seconds <= 0:
        return None
    curve = subject.curve(evidence.pair.distance)
    member = quiet_member(subject.input_domain)
    return find_witness(subject.run, evidence.pair, curve, seconds, origin=origin, member=member)


@dataclass(frozen=True)
class _Case:
    """What the layers are given."""

    subject: Subject
    space: PairSpace
    fast: PairSpace
    """The same for L0 and L1, which ask for membership only where a pair matters."""
    members: MemberPairs
    """The same without the user's pairs."""
    d_in: Any
    budget: Budget
    rng: np.random.Generator
    beta: float
    given: tuple[Pair, ...]
    pmf: Any
    composed: bool
    events: Any
    output_distance: Any
    tracer: Tracer | None


def _layers(case: _Case) -> Iterable[LayerResult]:
    """Yield the layers in order; each is run only when asked for."""
    begin = time.process_time()
    subject, space, spend, rng = case.subject, case.space, case.budget, case.rng
    risk = {layer: case.beta * share for layer, share in SHARES.items()}
    yield structure_layer(
        subject, case.fast, case.members, spend, rng, risk["structure"], composed=case.composed
    )
    # Exact, and done in milliseconds: whatever it shows needs no trace.
    yield enumeration_layer(subject, space, spend, rng, case.pmf)
    if case.tracer is not None:
        case.tracer.begin = time.process_time()
        yield trace_layer(case.tracer)
    else:  # nothing was drawn for it, so its part of the risk is free
        risk["distribution"] += risk["trace"]
    search = StabilitySearch(
        subject, case.fast, case.d_in, spend, rng, risk["coupling"], case.output_distance
    )
    # Gross faults of the noise are common and seen at once: only a short look comes before them.
    first = min(_FIRST_LOOK * spend.stability_seconds, _LONGEST_FIRST_LOOK)
    found = search.look(first)
    noise = None
    if found.status == "not refuted":
        noise = noise_layer(subject, space, spend, rng, risk["noise"], _worth(found))
        if noise.status != "refuted":
            found = search.look(spend.stability_seconds - first)
    yield found
    hint = _worth(found)
    yield noise or noise_layer(subject, space, spend, rng, risk["noise"], hint)
    yield accounting_layer(subject, hint)
    hints = (*case.given, hint) if hint is not None else case.given
    if subject.traced:  # what is released is no noisy version of what a transcript hides
        subject = replace(subject, core=None, noise=None)
    rest = spend.left(time.process_time() - begin)
    if case.tracer is not None:
        yield traced_distribution(case.tracer, rest, risk["distribution"], hints, case.events)
        return
    yield distribution_layer(
        subject, space, case.d_in, rest, rng, risk["distribution"], hints, case.events
    )


def _worth(found: LayerResult) -> Pair | None:
    """Return the pair that L1 liked best, if anything moved there."""
    pair: Pair | None = found.facts.get("pair")
    return pair if found.facts.get("largest_ratio") else None


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
