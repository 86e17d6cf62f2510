"""What can be stopped: a run, a run over old outputs, a resume, a clean-up, and sessions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.plan import plan
from opendp_sim.dsl.run import publish
from opendp_sim.dsl.run.charge import begin_ledger
from opendp_sim.dsl.text import yaml_document as document

SPEC = """
spec: opendp_sim/1
name: stopped
data:
  people:
    source: {npz: people.npz}
    ledger: {file: people.ledger, limit: {rho: 1000.0}}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      kind: {dtype: category, keys: [a, b]}
      who: {dtype: str, role: privacy_id}
privacy:
  unit: {add_remove: 1, of: WHO}
  measure: zcdp
  budget: {rho: 0.4}
flow:
  rows:
    from: people
    steps:
      - select: {features: x, label: kind}
      - quantize: {bits: 8}
"""
APPLY = (
    SPEC.replace("WHO", "row").replace("      who: {dtype: str, role: privacy_id}\n", "")
    + """\
      - race_sketch: {repetitions: 4, buckets: 16, family: {p_stable_l2: {width: 1.0}}, seed: 7, per_label: true}
  noisy:
    from: rows
    release: {noise: gaussian, scale: 20.0}
outputs:
  density: {from: noisy, post: [density: {estimator: mean}], query: {npz: asked.npz}, save: out/density.csv}
  release: {from: noisy, save: out/release.npz}
"""
)
SERVE = (
    SPEC.replace("WHO", "who")
    + """\
  near:
    from: rows
    release: {mechanism: {ind_knn: {queries: 50, size: 60, threshold: 0.5, centre: false}}, spend: 100%}
outputs:
  answers: {from: near, serve: session, store: people.session}
"""
)
FILES = {
    f"{name}{end}" for name in ("density.csv", "release.npz") for end in ("", ".certificate.json")
}
ASKED = [{"query": [0.5, 0.5]}, {"query": [-0.5, 0.2]}, {"queries": [[0.1, 0.9], [0.7, -0.7]]}]
CHANGED = [
    ASKED[0],
    {"insert": [{"x": [0.4, 0.5], "kind": "a", "who": "p700"}]},
    ASKED[1],
    {"relabel": [{"x": [0.4, 0.5], "kind": "b", "who": "p700"}]},
    ASKED[2],
    {"delete": ["p700"]},
    ASKED[0],
]


class Died(BaseException):
    """Stands for the end of a process."""


@dataclass(frozen=True)
class Case:
    """A kind of run: the files it starts from, its arguments, its standard input."""

    name: str
    arguments: tuple[str, ...]
    prepare: Callable[[Path], object]
    lines: tuple[dict[str, Any], ...] = ()
    weight: int = 1

    @property
    def serves(self) -> bool:
        """Whether it is a session."""
        return self.arguments[0] == "session"

    @property
    def text(self) -> str:
        """Its standard input."""
        return "".join(json.dumps(line) + "\n" for line in self.lines)


def _write(folder: Path) -> Path:
    """Write specs, records and queries; return the spec of a run."""
    rng = np.random.default_rng(1)
    np.savez(
        folder / "people.npz",
        x=rng.uniform(-1, 1, (60, 2)),
        kind=np.array(["a", "b"])[rng.integers(0, 2, 60)],
        who=np.array([f"p{i // 2}" for i in range(60)]),
    )
    np.savez(folder / "asked.npz", x=rng.uniform(-1, 1, (5, 2)))
    (folder / "apply.yaml").write_text(APPLY)
    (folder / "serve.yaml").write_text(SERVE)
    return folder / "apply.yaml"


def _begun(folder: Path, name: str) -> None:
    _write(folder)
    begin_ledger(plan_file(folder / name), None, forget=False)


def _ran(folder: Path) -> None:
    apply(plan_file(_write(folder)))


def _unfinished(folder: Path) -> None:
    """A run that died between its charge and its first rename."""
    spec = _write(folder)
    with mock.patch.object(publish, "_place", side_effect=Died):
        try:
            apply(plan_file(spec))
        except Died:
            return
    raise AssertionError


def _untidy(folder: Path) -> None:
    """What other processes left that were killed."""
    _ran(folder)
    kept = folder / ".opendp_sim-0123456789abcdef"
    kept.mkdir()
    for name in ("lock", "room", "0.csv"):
        (kept / name).write_bytes(b"0" * 300)
    for name in ("density.csv.certificate.json", "release.npz.certificate.json"):
        (folder / "out" / f".{name}.0123456789abcdef.part").write_text("half")


def _served(folder: Path, count: int = 3) -> None:
    from opendp_sim.dsl.run.session import serve

    _write(folder)
    rng = np.random.default_rng(2)
    with serve(plan_file(folder / "serve.yaml")) as served:
        for _ in range(count):
            served.ask([rng.uniform(-1, 1, 2)])


def _served_long(folder: Path) -> None:
    """A store whose next commit folds: entries before the last few are kept as a number (``FOLDS``)."""
    _served(folder, 80)


def cases() -> list[Case]:
    """Return every kind of run."""
    return [
        Case("apply", ("apply", "apply.yaml"), partial(_begun, name="apply.yaml"), weight=4),
        Case("apply over outputs", ("apply", "apply.yaml"), _ran, weight=2),
        Case("resume", ("apply", "apply.yaml"), _unfinished, weight=2),
        Case("resume by number", ("apply", "apply.yaml", "--resume", "2"), _unfinished),
        Case("clean-up", ("apply", "apply.yaml"), _untidy, weight=2),
        Case(
            "session, new",
            ("session", "serve.yaml"),
            partial(_begun, name="serve.yaml"),
            tuple(ASKED),
            weight=3,
        ),
        Case("session", ("session", "serve.yaml"), _served, tuple(ASKED), weight=3),
        Case(
            "session --updates",
            ("session", "serve.yaml", "--updates"),
            _served,
            tuple(CHANGED),
            weight=3,
        ),
        Case("session that folds", ("session", "serve.yaml"), _served_long, tuple(ASKED)),
    ]


@contextmanager
def planned(folder: Path) -> Iterator[None]:
    """Let this process read and plan the specs of a folder once; its forks take what is in memory."""
    parse, plan_of, texts, plans = document.parse, plan.plan_of, {}, {}

    def kept_parse(text: str, name: str, notes: Any) -> Any:
        if (text, name) not in texts:
            texts[text, name] = parse(text, name, notes)
        return texts[text, name]

    def kept_plan(draft: Any) -> Any:
        key = draft.program.hash, draft.program.folder
        if key not in plans:
            plans[key] = plan_of(draft)
        return plans[key]

    folder.mkdir()
    _write(folder)
    with (
        mock.patch.object(document, "parse", kept_parse),
        mock.patch.object(plan, "plan_of", kept_plan),
    ):
        for name in ("apply.yaml", "serve.yaml"):
            plan_file(str(folder / name))
        yield
