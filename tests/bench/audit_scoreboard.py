"""The auditor's scoreboard: twins caught, false alarms, power, time. One JSON, one table.

    python tests/bench/audit_scoreboard.py --seeds 20 --control-audits 1000 --write

``--write`` replaces the record that ships with the package (what the evidence tier reads) and this
script's section of RESULTS.md. Parts can be run alone: ``--only laws,twins,controls,power,defects,mechanisms``;
the others keep what the record already says. Rows are saved one by one, so a run can be
continued; ``--fresh`` starts over.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import opendp.prelude as dp  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402

import opendp_sim.prelude  # noqa: E402, F401 - fills the registry
from opendp_sim.audit import NoiseLaw, Subject, audit, collect  # noqa: E402
from opendp_sim.audit.distribution import distribution_layer  # noqa: E402
from opendp_sim.audit.evidence import RECORD  # noqa: E402
from opendp_sim.audit.findings import Budget  # noqa: E402
from opendp_sim.audit.neighbours import Pair  # noqa: E402
from opendp_sim.audit.noise_law import residual_tests  # noqa: E402
from opendp_sim.audit.runner import SHARES  # noqa: E402
from opendp_sim.audit.spaces import GivenPairs  # noqa: E402
from opendp_sim.audit.sweep import audit_constructor  # noqa: E402
from opendp_sim.core.claims import Interactive, Private, Stable  # noqa: E402
from opendp_sim.testing import Case, laws_about  # noqa: E402
from tests.audit.stand_ins import LINE, PURE, SYMMETRIC, laplace  # noqa: E402
from tests.bench._results import parser, table, write_section  # noqa: E402
from tests.cases import cases  # noqa: E402

BETA = 1e-3
SHORT = replace(
    Budget.of("quick"),
    name="short",
    seconds=0.8,
    stability_seconds=0.4,
    stability_trials=1500,
    structure_pairs=12,
)
"""For the count of false alarms: shorter, so that a thousand audits end; the bound is the same."""


Rows = dict[str, Any]
Save = Callable[[Rows], None]


def twins(seeds: int, budget: Any, rows: Rows, save: Save) -> Rows:
    """Every broken twin, over the seeds; those that the record has at as many seeds are kept."""
    found, _ = collect(ROOT / "tests" / "audit")
    names = {twin.name for twin in found}
    rows = {name: row for name, row in rows.items() if name in names}
    for twin in found:
        if rows.get(twin.name, {}).get("seeds") == seeds:
            continue
        layers: Counter[str] = Counter()
        seconds = []
        for seed in range(seeds):
            begin = time.process_time()
            report = audit(twin.make(), twin.d_in, budget, seed=seed, beta=BETA, **twin.options)
            seconds.append(time.process_time() - begin)
            layers[report.layer or "missed"] += 1
        caught = seeds - layers["missed"]
        rows[twin.name] = {
            "caught": caught, "seeds": seeds, "layers": dict(layers), "seconds_median": round(median(seconds), 3),
            "why": twin.why,
        }  # fmt: skip
        print(
            f"{twin.name:45} {caught:3}/{seeds} {dict(layers)} {median(seconds):.2f} s", flush=True
        )
        save(rows)
    return rows


def controls(audits: int, save: Save) -> Rows:
    """Sound mechanisms, round and round, until so many audits have run."""
    _, found = collect(ROOT / "tests" / "audit")
    rows: dict[str, Any] = defaultdict(lambda: {"audits": 0, "alarms": 0, "seconds": 0.0})
    done = 0
    for seed in range(10_000):
        for control in found:
            if done == audits:
                return dict(rows)
            begin = time.process_time()
            report = audit(
                control.make(), control.d_in, SHORT, seed=seed, beta=BETA, **control.options
            )
            row = rows[control.name]
            row["audits"] += 1
            row["seconds"] += time.process_time() - begin
            done += 1
            if report.evidence is not None:
                row["alarms"] += 1
                print(report, flush=True)
        save(dict(rows))
        print(f"{done} audits, {sum(r['alarms'] for r in rows.values())} alarms", flush=True)
    return dict(rows)


def power(seeds: int) -> dict[str, Any]:
    """Draws until a count with too little noise is refuted; a thousand cells two percent low."""
    rows = {}
    wide = replace(Budget.of("quick"), seconds=60, bet_pairs=200_000)
    for excess, limit in ((1.10, 30_000), (1.05, 110_000)):
        draws = []
        for seed in range(seeds):

            def many(x: Any, count: int, b: float = 1 / excess) -> Any:
                return list(len(x) + laplace((count,), b))

            subject = Subject(
                run=lambda x: many(x, 1)[0], sample=many, input_domain=LINE, input_metric=SYMMETRIC,
                privacy_map=lambda d: 1.0 * d, measure=PURE,
            )  # fmt: skip
            pairs = GivenPairs((Pair([], [1], 1),))
            result = distribution_layer(subject, pairs, 1, wide, np.random.default_rng(seed), BETA)
            draws.append(result.facts["draws"] if result.status == "refuted" else np.inf)
        within = sum(d <= limit for d in draws)
        rows[f"{100 * excess - 100:.0f} % at epsilon 1"] = {
            "limit": limit, "within_limit": within, "seeds": seeds, "median_draws": float(median(draws)),
            "largest_draws": float(max(draws)),
        }  # fmt: skip
    seen = 0
    for seed in range(seeds):
        law = NoiseLaw("discrete_laplace", 50.0)
        residual = laplace((400, 1000), 49.0)
        tests = list(residual_tests(law, residual, np.random.default_rng(seed)))
        seen += min(t.p for t in tests) * len(tests) <= BETA * SHARES["noise"]
    rows["scale 2 % low, 1000 cells, 400 runs"] = {"caught": seen, "seeds": seeds}
    print(json.dumps(rows, indent=2), flush=True)
    return rows


def defects() -> dict[str, Any]:
    """OpenDP's public defects, blind: nothing is given but the constructor."""
    makers = {
        "make_metric_bounded": dp.t.make_metric_bounded,
        "make_sum_of_squared_deviations": dp.t.make_sum_of_squared_deviations,
        "make_variance": dp.t.make_variance,
    }
    rows = {}
    for name, make in makers.items():
        begin, cpu = time.perf_counter(), time.process_time()
        last = audit_constructor(make)[-1]
        evidence = last.evidence
        rows[name] = {
            "verdict": last.verdict, "space": last.origin, "seconds": round(time.perf_counter() - begin, 2),
            "cpu_seconds": round(time.process_time() - cpu, 2),
            "claimed": repr(evidence.claimed) if evidence else "", "measured": repr(evidence.measured) if evidence else "",
        }  # fmt: skip
        print(name, rows[name], flush=True)
    return rows


def mechanisms(seeds: int, rows: Rows, save: Save) -> Rows:
    """Every registered mechanism with a case, on the space of its case."""
    from tests.audit.mechanisms import audited

    subjects_of = audited()
    rows = {key: row for key, row in rows.items() if key in subjects_of}
    for key, subjects in subjects_of.items():
        if len(rows.get(key, {}).get("seeds", ())) == seeds:
            continue
        verdicts, layers = [], set()
        seconds = 0.0
        for name, make, options in subjects:
            for seed in range(seeds):
                report = audit(make(), 1, "quick", seed=seed, beta=BETA, **options)
                verdicts.append(report.verdict)
                layers |= {layer.layer for layer in report.layers if layer.status != "skipped"}
                seconds = max(seconds, report.seconds)
                if report.evidence is not None:
                    print(key, name, report, flush=True)
        rows[key] = {
            "verdict": "refuted" if "refuted" in verdicts else "not refuted", "audits": len(verdicts),
            "seeds": list(range(seeds)), "layers": sorted(layers), "faces": [name for name, _, _ in subjects],
            "budget": "quick", "beta": BETA, "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "longest_seconds": round(seconds, 1),
        }  # fmt: skip
        print(key, rows[key]["verdict"], rows[key]["layers"], f"{seconds:.1f} s", flush=True)
        save(rows)
    return rows


def laws(save: Save) -> Rows:
    """Every law that concerns a mechanism, on its case; what holds idly is not counted."""
    load_profile()
    rows: Rows = {}
    for key, case in sorted(cases().items()):
        held, failed = [], []
        for law in laws_about(case):
            name = law.__name__.removeprefix("check_")
            if law.__name__ in case.excused:
                continue
            try:
                law(case)
            except Exception as error:  # noqa: BLE001 - whatever a law raises, it did not hold
                failed.append(name)
                print(key, name, type(error).__name__, flush=True)
            else:
                held.append(name)
        rows[key] = {
            "kind": kind_of(case), "held": held, "failed": failed,
            "excused": {n.removeprefix("check_"): why for n, why in case.excused.items()},
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        }  # fmt: skip
        print(
            f"{key:24} {rows[key]['kind']:20} {len(held)} laws held, {len(failed)} failed",
            flush=True,
        )
    save(rows)
    return rows


def kind_of(case: Case) -> str:
    """Return what sort of thing a mechanism is, in the words of the record."""
    if case.is_sketch:
        return "sketch"
    claim = case.claim()
    names = {Stable: "row map", Private: "release", Interactive: "interactive release"}
    return names.get(type(claim), "post-processing")


def load_profile() -> None:
    """Hypothesis as in the tests: the same examples each time."""
    settings.register_profile(
        "record", max_examples=40, deadline=None, derandomize=True, database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    settings.load_profile("record")


def summary(record: dict[str, Any]) -> list[list[object]]:
    """The table: figure, target, measured."""
    rows: list[list[object]] = []
    if found := record.get("twins"):
        pairs = sum(r["seeds"] for r in found.values())
        caught = sum(r["caught"] for r in found.values())
        always = sum(r["caught"] == r["seeds"] for r in found.values())
        ever = sum(r["caught"] > 0 for r in found.values())
        rows.append(["broken twins caught", "all", f"{ever} of {len(found)}"])
        rows.append(
            [
                "pairs of twin and seed caught, quick",
                "95 %",
                f"{100 * caught / pairs:.1f} % of {pairs}",
            ]
        )
        rows.append(["twins caught at every seed", "-", f"{always} of {len(found)}"])
        by = Counter(
            layer
            for r in found.values()
            for layer in r["layers"]
            for _ in range(r["layers"][layer])
        )
        rows.append(["caught by", "-", ", ".join(f"{k}: {v}" for k, v in sorted(by.items()))])
        rows.append(
            [
                "median CPU seconds to catch a twin",
                "-",
                median(r["seconds_median"] for r in found.values()),
            ]
        )
    if found := record.get("controls"):
        audits, alarms = (sum(r[k] for r in found.values()) for k in ("audits", "alarms"))
        rows.append(
            [
                "false alarms at beta 1e-3",
                "0 in 1,000",
                f"{alarms} in {audits} ({len(found)} sound mechanisms)",
            ]
        )
        sound = sum(name.startswith("opendp/") for name in found)
        rows.append(["sound OpenDP constructors among them", "24", sound])
    for name, r in record.get("power", {}).items():
        if "limit" in r:
            rows.append([f"true excess {name}", f"within {r['limit']:,} draws",
                         f"{r['within_limit']} of {r['seeds']}; median {r['median_draws']:,.0f}, largest {r['largest_draws']:,.0f}"])  # fmt: skip
        else:
            rows.append([name, "caught", f"{r['caught']} of {r['seeds']}"])
    for name, r in record.get("defects", {}).items():
        rows.append([f"blind: {name}", "< 5 s", f"{r['verdict']}, {r['seconds']} s"])
    if found := record.get("laws"):
        held, failed = (sum(len(r[k]) for r in found.values()) for k in ("held", "failed"))
        rows.append(
            [
                "laws that held, over all mechanisms",
                "all",
                f"{held} of {held + failed}, {len(found)} mechanisms",
            ]
        )
    if found := record.get("mechanisms"):
        refuted = [k for k, r in found.items() if r["verdict"] == "refuted"]
        rows.append(
            [
                "mechanisms of this package",
                "none refuted",
                f"{len(found)} audited, {len(refuted)} refuted {refuted or ''}",
            ]
        )
        rows.append(
            [
                "longest quick audit of one of them",
                "10 s",
                max(r["longest_seconds"] for r in found.values()),
            ]
        )
    return rows


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--control-audits", type=int, default=1000)
    options.add_argument("--mechanism-seeds", type=int, default=3)
    options.add_argument("--only", default="laws,defects,power,mechanisms,twins,controls")
    options.add_argument("--fresh", action="store_true", help="measure again what the record has")
    options.add_argument("--budget", default="quick", choices=("quick", "deep"))
    args = options.parse_args()
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    record = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}

    def keep(name: str, rows: Rows) -> None:
        """Put rows into the record as it is now: parts may be run side by side."""
        kept = json.loads(RECORD.read_text("utf-8")) if args.write and RECORD.exists() else record
        kept |= {name: rows, "opendp": version("opendp"), "numpy": np.__version__, "beta": BETA}
        kept.setdefault("commands", {})[name] = " ".join(sys.argv[1:])
        kept.setdefault("dates", {})[name] = datetime.now(UTC).strftime("%Y-%m-%d")
        if args.write:
            RECORD.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")
        record.update(kept)

    for name in args.only.split(","):
        before = {} if args.fresh else record.get(name, {})
        save = partial(keep, name)
        parts: dict[str, Any] = {
            "laws": lambda s=save: laws(s),
            "defects": defects,
            "power": lambda: power(args.seeds),
            "mechanisms": lambda b=before, s=save: mechanisms(args.mechanism_seeds, b, s),
            "twins": lambda b=before, s=save: twins(args.seeds, args.budget, b, s),
            "controls": lambda s=save: controls(args.control_audits, s),
        }
        keep(name, parts[name]())
    text = table(["figure", "target", "measured"], summary(record))
    print(text)
    if args.write:
        ran = dict.fromkeys(record.get("commands", {}).values())
        command = "; ".join(f"python tests/bench/audit_scoreboard.py {words}" for words in ran)
        write_section("audit_scoreboard", text, command)


if __name__ == "__main__":
    main()
