"""What each part of the auditor is for: a program that is found with it and missed without it.

    python benchmarks/audit_ablation.py                      # is each part still needed by its recorded program?
    python benchmarks/audit_ablation.py --only dates,chains  # of some parts
    python benchmarks/audit_ablation.py --search 40          # looks among so many programs, of parts without one
    python benchmarks/audit_ablation.py --search 40 --write

A part is switched off by replacing one function of it, and the program is audited at seeds 0, 1 and 2 (``--seeds 1``: at 0). A part is
needed where the verdict without it is weaker (``refuted``, ``priced``, ``not refuted``) at more than half of them.
A part that no program needs is idle, and the next that is deleted. Budgets count work, so load decides nothing;
noise may, which is why there are three seeds. Every audit of ``--search`` is of one seed first.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import opendp.prelude as dp  # noqa: E402

from benchmarks._results import write_figure  # noqa: E402
from opendp_sim.audit import Effort, audit  # noqa: E402
from opendp_sim.audit.checks.stability import Coupling  # noqa: E402
from opendp_sim.audit.findings import LayerResult  # noqa: E402
from opendp_sim.audit.seeds.constants import Mined  # noqa: E402
from tests.audit.checks.test_strassen import repeated  # noqa: E402
from tests.audit.corpus import programs  # noqa: E402
from tests.audit.instrument.test_decompose_chain import BROKEN  # noqa: E402
from tests.audit.instrument.test_reset_state import of_module  # noqa: E402
from tests.audit.opaque import PAIRS  # noqa: E402
from tests.audit.opaque.kit import Pair  # noqa: E402
from tests.audit.outputs.test_reading import Service  # noqa: E402
from tests.audit.report.test_counterexample import _measurement  # noqa: E402
from tests.audit.test_conversations import SERVICES  # noqa: E402
from tests.audit.twins.twins_stand_ins import TWINS  # noqa: E402

FIGURE = "audit/ablation"
NEEDED = Path(__file__).with_name("results") / "audit" / "ablation_programs.json"
"""The program that needs each part, as the last search found it."""
SEEDS = (0, 1, 2)
_RANKS = ("not refuted", "priced", "refuted")
_BUDGET = replace(Effort.of("quick"), witness_seconds=0.0)


@dataclass(frozen=True)
class Part:
    """Name a strategy or a tester, and what stands in its place."""

    places: tuple[str, ...]
    """Module and name below the auditor's package, ``trace.pipeline:loss_step``."""
    instead: Any
    file: str = ""
    """Where it is, if not in the module of the first place."""


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _empty(*_: Any, **__: Any) -> Iterator[Any]:
    return iter(())


def _skipped(*_: Any, **__: Any) -> LayerResult:
    return LayerResult("off", "skipped", "off")


def _word(self: Any, rng: Any, _depth: int = 0) -> str:
    return str(self.word(rng))


_STEPS = {
    "repeated": "repeated_calls",
    "loss": "pipeline",
    "tree": "enumerate_draws",
    "level": "one_draw",
    "support": "one_draw",
}
PARTS: dict[str, Part] = {
    **{
        f"step {name}": Part((f"trace.pipeline:{name}_step",), _nothing, f"trace/{file}.py")
        for name, file in _STEPS.items()
    },
    "structure of releases": Part(("layers:structure_layer",), _skipped, "checks/structure.py"),
    "race of pairs": Part(("layers:traced_distribution",), _skipped, "checks/distribution.py"),
    "coupling of random outputs": Part(("checks.stability:couple",), lambda *_: Coupling(0, None)),
    "first calls": Part(("layers:_first_calls",), _empty, "instrument/reset_state.py"),
    "constants of the code": Part(("run:mined",), lambda *_: Mined(), "seeds/constants.py"),
    "blocks of records": Part(("options:guided",), lambda space, *_: space, "seeds/blocks.py"),
    "costliest record of a path": Part(("trace.context:explore",), _nothing, "seeds/blocks.py"),
    "blocks reversed": Part(("seeds.blocks:BlockSpace._reversed",), _empty),
    "sizes of thresholds and sums": Part(("seeds.blocks:sizes_of",), lambda found, _: found.sizes),
    **{
        f"texts: {kind}": Part((f"seeds.grammar:Grammar.{kind}",), _word)
        for kind in ("date", "document", "joined", "match", "spelling")
    },
    "simplest pairs": Part(("trace.suspicious_pairs:_simplest",), _empty),
    "opposed vectors": Part(("trace.suspicious_pairs:_opposed",), _empty),
    "chains in parts": Part(
        ("trace.scan:taken_apart", "instrument.tape:taken_apart"),
        _nothing,
        "instrument/decompose_chain.py",
    ),
    "queryables in Python": Part(
        ("trace.scan:asked_directly", "adversary.default_analysts:asked_directly"),
        _nothing,
        "instrument/python_queryable.py",
    ),
    "conversations of one question": Part(
        ("adversary.query_search:repeated_queries",), _empty, "adversary/query_search.py"
    ),
    "places of records": Part(("instrument.library_draws:_has_places",), lambda _: False),
    "laws of foreign noise": Part(
        ("instrument.library_draws:drawn_law",), lambda *_: (None, False)
    ),
    "what objects keep": Part(("outputs.reading:state_of",), lambda _: {}),
}


def known_programs() -> dict[str, Pair]:
    """Return the corpus, and broken programs of the tests of single parts."""
    made: dict[str, Callable[[bool], Any]] = {
        **{
            f"service/{make.__name__}": partial(_service, make, option) for make, option in SERVICES
        },
        **{f"chain/{name}": partial(_made, made) for name, made in BROKEN.items()},
        "first call/of_module": partial(_made, partial(_measurement, of_module)),
        "object/service": partial(_made, partial(_measurement, Service)),
        "coupling/repeated": partial(_made, repeated),
    }
    single = (Pair(name, "", make, 1, "", "") for name, make in made.items())
    twins = (
        Pair(f"twin/{one.name}", "", partial(_made, one.make), one.d_in, "", "", one.options)
        for one in TWINS
    )
    return {pair.name: pair for pair in (*PAIRS, *programs(), *single, *twins)}


def _service(make: Callable[..., Any], option: str, broken: bool) -> Any:
    return make(**{option: broken})


def _made(make: Callable[[], Any], broken: bool) -> Any:
    assert broken
    return make()


@contextmanager
def without(part: Part) -> Iterator[None]:
    """Switch a part off inside the context."""
    undo: list[Any] = []
    try:
        for place in part.places:
            owner, name = _owner(place)
            undo.append(patch.object(owner, name, part.instead))
            undo[-1].start()
        if part.places[0].startswith("trace.pipeline:"):
            undo.append(_steps_without(part))
            undo[-1].start()
        yield
    finally:
        for one in reversed(undo):
            one.stop()


def _owner(place: str) -> tuple[Any, str]:
    """Return the object that holds a place, and the place's name in it."""
    module, _, path = place.partition(":")
    owner: Any = import_module(f"opendp_sim.audit.{module}")
    *inner, name = path.split(".")
    for one in inner:
        owner = getattr(owner, one)
    return owner, name


def _steps_without(part: Part) -> Any:
    pipeline = import_module("opendp_sim.audit.trace.pipeline")
    name = part.places[0].partition(":")[2]
    kept = tuple(step for step in pipeline.STEPS if step.__name__ != name)
    return patch.object(pipeline, "STEPS", kept)


def rank(pair: Any, seed: int) -> int:
    """Return how much an audit finds; an error finds nothing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = audit(pair.make(True), pair.d_in, _BUDGET, seed=seed, **dict(pair.options))
        return _RANKS.index(report.verdict)
    except Exception:  # noqa: BLE001 - an object that cannot be audited without the part
        return 0


def needs(pair: Any, part: Part, seeds: tuple[int, ...] = SEEDS) -> bool:
    """Return whether most audits of a program find less without a part."""
    lost = 0
    for seed in seeds:
        with without(part):
            off = rank(pair, seed)
        lost += off < _RANKS.index("refuted") and off < rank(pair, seed)
    return 2 * lost > len(seeds)


def searched(part: Part, among: list[Any], seeds: tuple[int, ...] = SEEDS) -> str:
    """Return the first program that needs a part, or nothing."""
    some = (pair for pair in among if needs(pair, part, seeds[:1]))
    return next((pair.name for pair in some if len(seeds) < 2 or needs(pair, part, seeds)), "")


def lines_of(part: Part) -> int:
    """Return the lines of the file that a part is in."""
    file = part.file or f"{part.places[0].partition(':')[0].replace('.', '/')}.py"
    return len((ROOT / "opendp_sim" / "audit" / file).read_text("utf-8").splitlines())


def table(recorded: dict[str, dict[str, Any]]) -> str:
    """Return the parts with their programs, idle ones last."""
    lines = ["| part | file, lines | program that fails without it |", "| --- | --- | --- |"]
    for name in sorted(recorded, key=lambda name: (not recorded[name]["program"], name)):
        part, program, looked = PARTS[name], recorded[name]["program"], recorded[name]["looked"]
        file = part.file or f"{part.places[0].partition(':')[0].replace('.', '/')}.py"
        idle = f"idle: none of {looked} programs" if looked else "not looked for yet"
        lines.append(
            f"| {name} | {file}, {lines_of(part)} | {f'`{program}`' if program else idle} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Check the recorded programs, or look for others; fail where a part lost its program."""
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    ask.add_argument("--only", default="")
    ask.add_argument("--search", type=int, default=0)
    ask.add_argument("--seeds", type=int, default=len(SEEDS))
    ask.add_argument("--write", action="store_true")
    asked = ask.parse_args()
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    known = known_programs()
    recorded = json.loads(NEEDED.read_text("utf-8"))
    wanted = set(asked.only.split(",")) - {""} or set(PARTS)
    among = sorted(known.values(), key=lambda pair: zlib.crc32(pair.name.encode()))[: asked.search]
    lost = 0
    for name in sorted(wanted):
        entry = recorded.setdefault(name, {"program": "", "looked": 0})
        seeds = SEEDS[: asked.seeds]
        if entry["program"] and needs(known[entry["program"]], PARTS[name], seeds):
            pass
        elif asked.search:
            entry |= {"program": searched(PARTS[name], among, seeds), "looked": len(among)}
        elif entry["program"]:
            lost += 1
            entry |= {"program": "", "looked": 1}
        print(f"{name:32} {entry['program'] or 'idle'}", flush=True)
    text = table({name: recorded[name] for name in PARTS if name in recorded})
    print(text)
    if asked.write:
        NEEDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", "utf-8")
        write_figure(
            FIGURE, text, f"python benchmarks/audit_ablation.py --seeds {asked.seeds} --write"
        )
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
