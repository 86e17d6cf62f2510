"""Run the layers of an audit up to the first refutation."""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from opendp_sim.audit.adversary.analyst import Driver
from opendp_sim.audit.adversary.default_analysts import costliest_analyst, default_driver
from opendp_sim.audit.claimed_distance import (
    check_claimed,
    check_computes,
    check_unconditional,
    checked_distance,
    claimed_words,
)
from opendp_sim.audit.declaration import OF_DECLARATIONS, REST, check_declaration, settled
from opendp_sim.audit.findings import Effort, Evidence, LayerResult
from opendp_sim.audit.generators.copies import on_its_own
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.spaces import members_of
from opendp_sim.audit.instrument.memoize import scales_kept
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.reset_state import Kept
from opendp_sim.audit.instrument.tape import Tape
from opendp_sim.audit.layers import LayerInput, layers_of, tracer_of
from opendp_sim.audit.options import (
    as_given,
    checked_budget,
    checked_events,
    checked_options,
    checked_pmf,
    first_tried,
    given_pairs,
    scored,
    searched_space,
)
from opendp_sim.audit.outputs.encoding import outcome
from opendp_sim.audit.outputs.reading import Reader, kept_words, numpys_own
from opendp_sim.audit.report.counterexample import Witness, find_witness
from opendp_sim.audit.report.report import Report, versions
from opendp_sim.audit.report.repro_script import Shown, imported
from opendp_sim.audit.seeds.constants import Mined, is_query_plan, mined
from opendp_sim.audit.size_limit import paced
from opendp_sim.audit.state.reachable import arguments_of, functions_of
from opendp_sim.audit.statistics.sampling import begin_coins, differ
from opendp_sim.audit.subject import Subject, read_subject, rows_apart
from opendp_sim.audit.trace.repeated_calls import repeated_releases
from opendp_sim.audit.work import guard, guard_restored, guarded_out, invoked, metered, work_seconds
from opendp_sim.core import dp
from opendp_sim.core.bridge import resolved
from opendp_sim.core.errors import AuditError
from opendp_sim.core.randomness import public_generator

# --------------------------------------------------------------------------------------------------
# The counterexample of a finding: where an event is looked for, what its script says of the object.

_LONGER = 3
"""How many times its seconds the search for a plain event gets, where the layers left them."""


def witness_of(
    case: LayerInput, evidence: Evidence | None, origin: str, driver: Any, spent: float
) -> Witness | None:
    """Search a plain event of the refuted pair.

    For a transformation the outputs are the event. An error in that search is said beside the finding,
    which stands without an event.
    """
    if evidence is None:
        return None
    try:
        return _event(case, evidence, origin, driver, spent)
    except Exception as error:  # noqa: BLE001 - odd outputs may upset a look at them
        evidence.extra["event"] = f"none; the search for one ended with {type(error).__name__}"
        return None


def _event(
    case: LayerInput, evidence: Evidence, origin: str, driver: Any, spent: float
) -> Witness | None:
    subject, seconds = case.subject, case.budget.witness_seconds
    alone = driver is None or isinstance(subject.outer, dp.Measurement)
    if (
        evidence.pair is None
        or not differ(evidence.pair.left, evidence.pair.right)  # of one dataset: no event tells
        or not subject.private
        or seconds <= 0
        or not alone
    ):
        return None
    drive = "" if driver is None else "drive"
    if isinstance(driver, Driver):
        drive = f"default_driver(M, {case.d_in!r}{driver.options}){driver.place}"
    elif drive:
        drive = imported(driver) or drive
    subject = replace(subject, run=metered(getattr(subject.run, "raw", subject.run)))
    if evidence.extra.get("first") and case.kept is not None:
        subject = replace(subject, run=case.kept.first(subject.run))
        with case.kept.lent():
            return _found(case, evidence, subject, origin, drive, spent)
    return _found(case, evidence, subject, origin, drive, spent)


def _found(
    case: LayerInput, evidence: Evidence, subject: Subject, origin: str, drive: str, spent: float
) -> Witness | None:
    """Look for an event in a subject's own releases."""
    pair, seconds = evidence.pair, case.budget.witness_seconds
    calls = int(evidence.extra.get("calls", 1))
    if pair is None:
        return None
    together = subject if calls == 1 else repeated_releases(subject, calls) or subject
    for _ in range(calls):  # what is taken back at every second call may be out of step with runs
        found = find_witness(
            together.run,
            pair,
            together.curve(pair.distance),
            max(seconds, min(_LONGER * seconds, case.budget.total - spent)),
            member=quiet_member(subject.input_domain),
            steps=calls,
            shown=Shown(
                origin=origin,
                drive=drive,
                note=_calculated(evidence),
                calls=calls,
                first=bool(evidence.extra.get("first")),
            ),
        )
        if calls == 1 or (found is not None and found.certified):
            break
        outcome(subject.run, pair.left)
    return found


def _calculated(evidence: Evidence) -> str:
    """Return a script's text for a calculated finding."""
    return (
        f"{evidence.kind}: {evidence.detail}\nclaimed {evidence.claimed}\n"
        f"measured {evidence.measured} ({evidence.confidence})"
    )


# --------------------------------------------------------------------------------------------------

_PRICED = 5
"""Pairs of each kind on which conversations are priced."""
_LOOKED_AT = 16
"""Datasets of which the shortest is the first that a release is made of."""
_A_RUN = 0.02
"""Part of the trace's seconds that one run may take, in the mean, on the longest dataset."""
_ENDED = (
    "the last guard on CPU seconds ended the search before its budget of runs was used up: a faster"
    ' machine may find more; pass smaller pairs= or budget="deep"'
)


@contextmanager
def _apart() -> Iterator[None]:
    """Leave printed lines out, limit CPU seconds, and isolate numpy's errors."""
    with ExitStack() as stack:
        if not isinstance(getattr(sys.stdout, "lines", None), int):  # the command counts lines
            nothing = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nothing))
        for context in (numpys_own(), guard_restored(), scales_kept()):
            stack.enter_context(context)
        yield


@_apart()
def audit(
    obj: Any,
    d_in: Any = 1,
    budget: str | Effort = "quick",
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
        obj: a Transformation, Measurement or Odometer of OpenDP (native, ours, or a plugin's), a query
            of a ``dp.Context`` (whose data is not touched), or a ``Subject``.
        d_in: the input distance of the claim; on frames a list of ``Bound`` too. A query has its own.
        budget: ``"quick"`` (at most about 10 s), ``"deep"`` (about two minutes), or an ``Effort``.
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
        mine: try the constants that the object's Python code names, and entries of containers that
            it holds: a report may print them. The text of an exception is an output, printed anyway.
            Without it the noise is recorded all the same, on records that no code suggested.
        origin: what the object was made from, for the report.

    Raises:
        AuditError: OS501, the object has no claim, or one that holds while a sample is secret; nothing
            says what its datasets are; ``d_in`` is no distance that it claims anything about; or no
            dataset drawn is in the input domain.
    """
    begin = time.perf_counter(), time.process_time(), work_seconds()
    obj, d_in = resolved(obj, d_in)
    functions = [] if isinstance(obj, Subject) else functions_of(obj)
    kept = Kept(functions) if isinstance(obj, dp.Measurement) and functions else None
    spend = checked_budget(budget, beta)
    guard(spend.most)
    checked_options(
        seed,
        noise,
        core=core,
        drive=drive,
        sample=sample,
        pmf=pmf,
        generator=generator,
        output_distance=output_distance,
    )
    options: dict[str, Any] = {
        "drive": drive,
        "sample": sample,
        "pmf": pmf,
        "composed": composed,
        "pairs": pairs,
        "generator": generator,
        "events": events,
        "output_distance": output_distance,
        "trace": trace,
        "mine": mine,
        "origin": origin,
    }
    given_so = as_given({"core": core, "noise": noise, **options, "origin": ""})
    check_unconditional(obj)
    d_in = checked_distance(getattr(obj, "input_metric", None), d_in)
    driver = default_driver(obj, d_in, mine=mine) if drive is None else drive
    given = given_pairs(
        pairs, d_in, *(getattr(obj, f"input_{k}", None) for k in ("metric", "domain"))
    )
    if isinstance(driver, Driver):
        given += driver.pairs
    subject = _subject(obj, d_in, driver, core, noise, sample)
    seeds = arguments_of(obj)
    seeded = mine and bool(functions or any(map(is_query_plan, seeds)))
    found = mined(functions, seeds) if seeded else Mined()
    space = searched_space(subject, d_in, given, generator, found if seeded else None)
    check_computes(subject.run, _short(space, public_generator(seed, "audit", "wait")))
    if isinstance(driver, Driver) and driver.others and functions:
        corners = space.corners(public_generator(seed, "audit", "priced"))
        priced = [*driver.pairs[:_PRICED], *itertools.islice(corners, _PRICED)]
        rng = public_generator(seed, "audit", "conversation")
        driver = costliest_analyst(subject, driver, d_in, functions, priced, rng)
        subject = _subject(obj, d_in, driver, core, noise, sample)
    if functions:
        pacer, part = public_generator(seed, "audit", "pace"), _A_RUN * spend.trace_seconds
        tape = Tape(subject.outer, pacer)
        with tapped(tape, functions):
            space = paced(space, subject.run, pacer, part, tape)
    members = members_of(subject, space, d_in)
    given = members.kept(given)
    case = LayerInput(
        subject,
        first_tried(given, members),
        first_tried(given, space),
        members,
        d_in,
        spend,
        public_generator(seed, "audit"),
        beta,
        given,
        checked_pmf(pmf),
        composed,
        scored(checked_events(events)),
        output_distance,
    )
    opaque = subject.core is None and sample is None
    if trace and functions and opaque and isinstance(obj, dp.Measurement):
        case = replace(case, tracer=tracer_of(case, functions, found), kept=kept)
    if core is None or noise is None or subject.core is not core:
        return _reported(case, driver, seed, origin, begin, given_so, declared=False)
    check_declaration(case)
    report = _reported(case, driver, seed, origin, begin, given_so, declared=True)
    tried = [(pair.left, pair.right) for pair in given]
    return settled(
        report,
        case,
        lambda: audit(obj, d_in, budget, seed=seed, beta=REST * beta, **options | {"pairs": tried}),
    )


def _short(space: Any, rng: np.random.Generator) -> Any:
    """Return a dataset of few records."""
    drawn = [space.draw(rng).left for _ in range(_LOOKED_AT)]
    return min(drawn, key=lambda data: len(data) if hasattr(data, "__len__") else 0)


def _subject(
    obj: Any, d_in: Any, driver: Any, core: Any, noise: Any, sample: Callable[..., Any] | None
) -> Subject:
    """Return the object as a ``Subject``."""
    traced = getattr(driver, "trace", None)
    if core is None and isinstance(driver, Driver) and traced is not None:
        core, noise = traced, driver.noise
    subject = read_subject(obj, d_in, core=core, noise=noise, drive=driver, sample=sample)
    if subject is obj:  # OpenDP hands nothing to its function
        subject = replace(subject, run=on_its_own(subject.run))
    subject = replace(subject, traced=core is not None and core is traced)
    if type(obj) is dp.Measurement and subject.run is obj:
        subject = replace(subject, run=invoked(obj))
    if subject.private:
        bits = str(getattr(subject.input_domain, "carrier_type", "")) == "BitVector"
        subject = replace(subject, run=Reader().reading(subject.run, bits=bits))
    else:
        subject = rows_apart(subject)
        subject = replace(subject, run=metered(subject.run))
    check_claimed(subject, d_in)
    return subject


def _reported(
    case: LayerInput,
    driver: Any,
    seed: int,
    origin: str,
    begin: tuple[float, float, float],
    given: str,
    *,
    declared: bool,
) -> Report:
    """Run the layers, search a witness, and report."""
    layers: list[LayerResult] = []
    begin_coins()
    for layer in layers_of(case):
        layers.append(layer)
        if layer.status == "refuted":
            break
    if guarded_out():
        layers[-1] = replace(layers[-1], facts={**layers[-1].facts, "warning": _ENDED})
    subject, evidence = case.subject, layers[-1].evidence
    spent = work_seconds() - begin[2]
    witness = witness_of(case, evidence, origin, driver, spent)
    if evidence is not None:
        told = evidence.flipped() if witness is not None and witness.turned else evidence
        if declared and layers[-1].layer[:2] in OF_DECLARATIONS:
            told = replace(told, extra={**told.extra, "declared": True})
        kept = getattr(getattr(subject.run, "reader", None), "kept", {})
        words = kept_words(kept, None if witness is None else witness.event)
        told = replace(told, detail=told.detail + words)
        layers[-1] = replace(layers[-1], evidence=told)
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
        claimed_words(subject, case.d_in),
        given=given,
    )


def assert_not_refuted(
    obj: Any, d_in: Any = 1, budget: str | Effort = "quick", **options: Any
) -> Report:
    """Audit in a test, and raise on refutation.

    The exception's text is the whole report. A claim that is priced passes with a warning: what draws
    did not confirm is for a person.

    Raises:
        AssertionError: the claim is refuted; the message is the report.
        AuditError: OS501, every release raised, so that a test would pass of nothing; or as ``audit``.
    """
    __tracebackhide__ = True  # pytest shows the report, and the test's own line
    report = audit(obj, d_in, budget, **options)
    if report.evidence is not None:
        raise AssertionError(str(report))
    if report.empty:
        raise AuditError(
            "OS501", "audit.releases", expected="an object that releases something",
            got=report.raised, hint="every release raised; call it in Python on a dataset of its domain.",
        )  # fmt: skip
    if report.verdict == "priced":
        warnings.warn(str(report), UserWarning, stacklevel=2)
    for text in report.warnings:
        warnings.warn(f"{report.origin or report.subject}: {text}", UserWarning, stacklevel=2)
    return report
