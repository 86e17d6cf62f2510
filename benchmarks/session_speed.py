"""CPU time of a session: opening it over many persons, and one question to it, beside the bare product.

The bare product is that of the question with all rows, in the float in which it is exact; questions and products
take turns. ``--persons 1000000 --questions 60`` measures the opening.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks._results import parser, table, write_figure
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run.session import serve

COLUMNS, CLASSES = 16, 4
SPEC = """
spec: opendp_sim/1
name: people
data:
  people:
    source: {{npz: people.npz}}
    columns:
      x: {{dtype: "array[f64, {columns}]", bounds: [-1, 1]}}
      kind: {{dtype: category, keys: [0, 1, 2, 3]}}
      who: {{dtype: {dtype}, role: privacy_id}}
privacy:
  unit: {{add_remove: 1, of: who}}
  measure: gdp
  budget: {{mu: 0.9}}
flow:
  rows:
    from: people
    steps:
      - select: {{features: x, label: kind}}
      - quantize: {{bits: 8}}
  near:
    from: rows
    release: {{mechanism: {{ind_knn: {{queries: 1000, size: {persons}}}}}, spend: 100%}}
outputs:
  live: {{from: near, serve: session, store: people.session}}
"""


def made(folder: Path, persons: int, kind: str) -> np.ndarray[Any, Any]:
    """Write a spec and its table; return public questions."""
    rng = np.random.default_rng(0)
    centres = rng.normal(0, 0.4, (20, COLUMNS))

    def rows(count: int) -> tuple[Any, Any]:
        place = rng.integers(0, 20, count)
        return (centres[place] + rng.normal(0, 0.15, (count, COLUMNS))).clip(-1, 1), place

    x, place = rows(persons)
    who: Any = rng.permutation(persons).astype(np.int64)
    if kind == "str":
        who = np.array([f"p{number:08d}" for number in who.tolist()])
    np.savez(folder / "people.npz", x=x, kind=place % CLASSES, who=who)
    text = SPEC.format(columns=COLUMNS, dtype=kind, persons=persons)
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    return np.asarray(rows(3000)[0])


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measured(persons: int, kind: str, questions: int) -> list[Any]:
    """Open, ask, close, open again."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        folder = Path(name)
        asked = made(folder, persons, kind)
        plan = plan_file(folder / "s.yaml")
        opening, served = cpu(lambda: serve(plan))
        served.reference([list(q) for q in asked[:100]])
        right = np.rint(np.random.default_rng(1).normal(0, 40, (persons, COLUMNS)))
        right = right.astype(np.float32)
        spent, bare = [], []
        for query in asked[100 : 100 + questions]:
            spent.append(cpu(partial(served.ask, [list(query)]))[0])
            bare.append(cpu(partial(np.matmul, query[None].astype(np.float32), right.T))[0])
        served.session.close()
        again, served = cpu(lambda: serve(plan))
        served.session.close()
    half = len(spent) // 2
    product = float(np.median(bare)) * 1e3
    early, late = (float(np.median(part)) * 1e3 for part in (spent[:half], spent[half:]))
    least = float(np.min(spent[half:])) * 1e3
    return [f"{persons:,}", kind, opening, again, product, early, late, least, late / product]


HEAD = ["persons", "ids", "open, s", "open again, s", "bare product, ms"]
HEAD += ["a question, first half, ms", "second half, ms", "least, ms", "second half / product"]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--persons", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--questions", type=int, default=400)
    args = options.parse_args()
    rows = []
    for persons in args.persons:
        for kind in ("int64", "str"):
            rows.append(measured(persons, kind, args.questions))
            print(rows[-1], flush=True)
    text = table(HEAD, rows)
    text += (
        f"\n\n`ind_knn` over rows of {COLUMNS} columns from .npz, one row a person, through `dsl.serve`; single questions, each "
        "finding some 2 % of the persons, charged and durable (in memory) before its answer; medians of CPU time, one BLAS "
        f"thread. Opening holds reading, the gate, quantizing, persons and purses. Load {os.getloadavg()[0]:.1f} on 2 cores."
    )
    print(text)
    if args.write:
        write_figure("knn/session", text, "python -m benchmarks.session_speed --write")


if __name__ == "__main__":
    main()
