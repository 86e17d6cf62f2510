"""What the auditor's scoreboard measures: each part audits, and appends a row for each audit."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import opendp.prelude as dp

from benchmarks._audit_rows import RowFile, auditor, code_of
from opendp_sim.audit import NoiseLaw, Report, Subject, audit
from opendp_sim.audit.checks.distribution import distribution_layer
from opendp_sim.audit.checks.noise import LOOKS, residual_tests
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import GivenPairs
from opendp_sim.audit.layers import SHARES
from tests.audit.mechanisms import audited
from tests.audit.sweep import audit_constructor
from tests.audit.twins.entries import Control, Twin, collect
from tests.audit.twins.stand_ins import LINE, PURE, SYMMETRIC, laplace

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "audit" / "twins"
BETA = 1e-3
SHORT = replace(
    Effort.of("quick"),
    name="short",
    seconds=0.4,
    stability_seconds=0.2,
    stability_trials=1000,
    structure_pairs=12,
    noise_runs=150,
)
"""For the count of false alarms: shorter, so that a thousand audits end; the bound is the same."""

Rows = dict[str, Any]
E = TypeVar("E", Twin, Control)


def _timed(run: Callable[[], Report]) -> tuple[Report, float]:
    begin = time.process_time()
    report = run()
    return report, round(time.process_time() - begin, 3)


def _of_family(found: list[E], family: str | None) -> list[E]:
    kept = [entry for entry in found if family in (None, entry.family)]
    if not kept:
        raise SystemExit(f"no entry of the corpus is of family {family!r}")
    return kept


def twins(seeds: int, budget: str, rows: RowFile, family: str | None = None) -> Rows:
    """Every broken twin, seed after seed: a run that is cut off leaves whole seeds behind."""
    found = _of_family(collect(CORPUS)[0], family)
    part = f"twins {budget}"
    for seed in range(seeds):
        for twin in found:
            if rows.has(part, twin.name, seed):
                continue
            begin = time.process_time()
            report = audit(twin.make(), twin.d_in, budget, seed=seed, beta=BETA, **twin.options)
            seconds = round(time.process_time() - begin, 3)
            agrees = (
                None
                if report.evidence is None
                else report.evidence.extra.get("clopper_pearson_agrees")
            )
            rows.add(
                part,
                twin.name,
                seed,
                layer=report.layer or "missed",
                seconds=seconds,
                agrees=agrees,
            )
            print(f"{seed:3} {twin.name:45} {report.layer or 'MISSED'} {seconds:.2f} s", flush=True)
    return _of_twins(rows.of(part), {twin.name: twin.why for twin in found})


def _of_twins(found: dict[str, list[Rows]], why: dict[str, str]) -> Rows:
    out: Rows = {}
    for name, audits in found.items():
        layers = Counter(row["layer"] for row in audits)
        if name in why:
            out[name] = {
                "caught": len(audits) - layers["missed"],
                "seeds": len(audits),
                "layers": dict(layers),
                "seconds_median": round(median(row["seconds"] for row in audits), 3),
                "second_tester": [
                    sum(row["agrees"] is True for row in audits),
                    sum(row["agrees"] is not None for row in audits),
                ],
                "why": why[name],
            }
    return out


def controls(audits: int, rows: RowFile, family: str | None = None) -> Rows:
    """Sound mechanisms, round and round, until so many audits have run."""
    found = _of_family(collect(CORPUS)[1], family)
    for done in range(audits):
        seed, spot = divmod(done, len(found))
        control = found[spot]
        if rows.has("controls", control.name, seed):
            continue
        report, seconds = _timed(
            lambda c=control, s=seed: audit(c.make(), c.d_in, SHORT, seed=s, beta=BETA, **c.options)
        )
        alarm = report.evidence is not None
        rows.add("controls", control.name, seed, alarm=alarm, seconds=seconds)
        if alarm:
            print(report, flush=True)
        if spot == len(found) - 1:
            print(f"{done + 1} audits", flush=True)
    return {
        name: {
            "audits": len(audited_),
            "alarms": sum(row["alarm"] for row in audited_),
            "seconds": round(sum(row["seconds"] for row in audited_), 3),
        }
        for name, audited_ in rows.of("controls").items()
        if name in {control.name for control in found}
    }


def mechanisms(seeds: int, rows: RowFile, family: str | None = None) -> Rows:
    """Every registered mechanism with a case, or the one called ``family``, on the space of its case."""
    subjects_of = {key: each for key, each in audited().items() if family in (None, key)}
    part = f"mechanisms {auditor()}"
    for seed in range(seeds):
        for key, subjects in subjects_of.items():
            for name, make, options in subjects:
                if rows.has(f"{part} {code_of(key)}", f"{key}:{name}", seed):
                    continue
                run = partial(audit, d_in=1, budget="quick", seed=seed, beta=BETA, **options)
                report, seconds = _timed(lambda m=make, r=run: r(m()))
                ran = [layer.layer for layer in report.layers if layer.status != "skipped"]
                rows.add(
                    f"{part} {code_of(key)}",
                    f"{key}:{name}",
                    seed,
                    verdict=report.verdict,
                    layers=ran,
                    seconds=seconds,
                    wall=round(report.seconds, 2),
                    date=_today(),
                )
                print(seed, key, name, report.verdict, f"{seconds:.1f} s", flush=True)
                if report.evidence is not None:
                    print(report, flush=True)
    return {
        key: _of_mechanism(key, names, rows.of(f"{part} {code_of(key)}"))
        for key, names in subjects_of.items()
    }


def _of_mechanism(key: str, subjects: Any, found: dict[str, list[Rows]]) -> Rows:
    names = [name for name, _, _ in subjects]
    done = [row for name in names for row in found.get(f"{key}:{name}", [])]
    refuted = any(row["verdict"] == "refuted" for row in done)
    return {
        "verdict": "refuted" if refuted else "not refuted",
        "audits": len(done),
        "seeds": sorted({row["seed"] for row in done}),
        "layers": sorted({layer for row in done for layer in row["layers"]}),
        "norms": names,
        "budget": "quick",
        "beta": BETA,
        "date": max(row["date"] for row in done),
        "longest_seconds": round(max(row["seconds"] for row in done), 1),
        "code": code_of(key),
        "auditor": auditor(),
    }


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


def power(seeds: int, rows: RowFile) -> Rows:
    """Draws until a count with too little noise is refuted; a thousand cells two percent low."""
    out: Rows = {}
    for excess, limit in ((1.10, 30_000), (1.05, 110_000)):
        name = f"{100 * excess - 100:.0f} % at epsilon 1"
        for seed in range(seeds):
            if not rows.has("power", name, seed):
                rows.add("power", name, seed, draws=_draws(1 / excess, seed))
        draws = [row["draws"] or np.inf for row in rows.of("power")[name]]
        out[name] = {
            "limit": limit,
            "within_limit": sum(d <= limit for d in draws),
            "seeds": len(draws),
            "median_draws": float(median(draws)),
            "largest_draws": float(max(draws)),
        }
        print(name, out[name], flush=True)
    seen = 0
    for seed in range(seeds):
        law = NoiseLaw("discrete_laplace", 50.0)
        tests = list(residual_tests(law, laplace((400, 1000), 49.0), np.random.default_rng(seed)))
        seen += min(t.p for t in tests) * len(tests) <= BETA * SHARES["noise"] * LOOKS[-1][1]
    out["scale 2 % low, 1000 cells, 400 runs"] = {"caught": seen, "seeds": seeds}
    return out


def _draws(scale: float, seed: int) -> int | None:
    """Draws of both sides, learning included, until refuted at the risk that L3 has in an audit."""

    def many(x: Any, count: int) -> Any:
        return list(len(x) + laplace((count,), scale))

    wide = replace(Effort.of("quick"), seconds=60, bet_pairs=200_000)
    subject = Subject(
        run=lambda x: many(x, 1)[0],
        sample=many,
        input_domain=LINE,
        input_metric=SYMMETRIC,
        privacy_map=lambda d: 1.0 * d,
        measure=PURE,
    )
    pairs, rng = GivenPairs((Pair([], [1], 1),)), np.random.default_rng(seed)
    result = distribution_layer(subject, pairs, 1, wide, rng, BETA * SHARES["distribution"])
    return int(result.facts["draws"]) if result.status == "refuted" else None


def defects() -> Rows:
    """OpenDP's public defects, blind: nothing is given but the constructor."""
    makers = {
        "make_metric_bounded": dp.t.make_metric_bounded,
        "make_sum_of_squared_deviations": dp.t.make_sum_of_squared_deviations,
        "make_variance": dp.t.make_variance,
    }
    out = {}
    for name, make in makers.items():
        begin, cpu = time.perf_counter(), time.process_time()
        last = audit_constructor(make)[-1]
        evidence = last.evidence
        out[name] = {
            "verdict": last.verdict,
            "space": last.origin,
            "seconds": round(time.perf_counter() - begin, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "claimed": repr(evidence.claimed) if evidence else "",
            "measured": repr(evidence.measured) if evidence else "",
        }
        print(name, out[name], flush=True)
    return out
