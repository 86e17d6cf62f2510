"""Every text that leaves runs on neighbouring data sets, compared byte by byte up to noise.

Each spec of ``specs/`` is run on some of its records by every route (csv, parquet, npz, memory), under `refuse` and
`enforce`, in small blocks: on neighbours, on data with bad records at the first, the last and other places, one or
several, with this value or that (all kinds for the first spec of each declaration of columns, one for the others). Texts are both streams (the progress bar as on a terminal), `--json`, exceptions with
all that hangs on them, log records, warnings, the ledger, certificates, and names, shapes and dtypes of what was
released. Hashes, times and what holds noise are masked; all else has to be the same bytes. Sessions are asked the same
lines, updates among them. How many modes there are is noise, and so is how many lines a `hybrid_knn` session writes into
its store: as many as its answers show that neighbours were asked.

python benchmarks/neighbour_texts.py --write
"""

from __future__ import annotations

import functools
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from difflib import unified_diff
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from ruamel.yaml import YAML  # noqa: E402

from benchmarks import _neighbours as near, _texts as said  # noqa: E402
from benchmarks._results import parser, table, write_figure  # noqa: E402
from opendp_sim.dsl.grammar.reader import draft_of_file  # noqa: E402
from opendp_sim.dsl.plan import plan as planning  # noqa: E402
from opendp_sim.dsl.run import charge as charging, execute, session as serve  # noqa: E402
from opendp_sim.io.open import open_source  # noqa: E402

del execute, serve
_YAML = YAML(typ="safe", pure=True)
_YAML.sort_base_mapping_type_on_output = False
SPECS = sorted((ROOT / "specs").glob("*.yaml"), reverse=True)
RECORDS, BLOCK = 9, 3
Differences = dict[str, set[str]]


class Case:
    """One spec, one route and one word for the gate, in a folder of its own."""

    def __init__(self, spec: Path, route: str, mode: str, folder: Path) -> None:
        self.route, self.mode, self.folder = route, mode, folder
        program = draft_of_file(spec).program
        entry = next(e for e in program.data if not e.public)
        self.records, self.name = entry.records, entry.name
        self.session = any("serve" in out for out in _document(spec)["outputs"].values())
        source = open_source(entry.source.kind, entry.source.argument, self.records, spec.parent)
        self.rows = near.rows_of(source.blocks(), self.records, RECORDS)
        self.spec = folder / "t.yaml"
        _YAML.dump(self._moved(spec), self.spec)

    def _moved(self, spec: Path) -> dict[str, Any]:
        """Return the spec over this case's file, with a ledger, and few queries."""
        document = _document(spec)
        data = document["data"][self.name]
        data["source"] = {self.route: "t" if self.route == "memory" else f"t.{self.route}"}
        data["ingest"] = self.mode
        limit = {k: v for k, v in document["privacy"]["budget"].items() if k != "reserve"}
        data["ledger"] = {"file": "t.ledger", "limit": limit}
        if "measure" in document["privacy"]:
            data["ledger"]["measure"] = document["privacy"]["measure"]
        for out in document["outputs"].values():
            for word in ("query", "queries"):
                if word not in out or "serve" in out:
                    continue
                (kind, argument), *_ = out[word].items()
                if kind == "csv":
                    out[word] = {"csv": str((spec.parent / argument).resolve())}
        return document

    @functools.cached_property
    def plan(self) -> planning.Plan:
        return planning.plan_file(self.spec)

    def clean(self) -> None:
        """Take away what the run before left."""
        said.emptied(self.folder, ("out", "t.ledger*", "*.session*", "s.store*", ".opendp*"))

    def begin(self) -> None:
        """Take away what the run before left, and make the ledger of the next one."""
        self.clean()
        charging.begin_ledger(self.plan, None, forget=False)

    def texts(self, rows: near.Rows, workers: int = 1) -> said.Texts:
        """Return all that leaves one run over these records."""
        memory = near.hold(rows, self.records, self.route, self.folder)
        if self.session:
            return self.conversation(memory)
        out = said.of_python(self.plan, memory, self.clean, workers)
        return out | said.of_files(self.folder / "out", self.folder / "t.ledger")

    def conversation(self, memory: Any) -> said.Texts:
        """Return the answers of a session to the same lines."""
        if self.route == "memory":
            told = said.of_session(self.plan, memory, self.clean, self.lines())
            return told | self._entries()
        told = ["session", str(self.spec), "--updates", "--store", str(self.folder / "s.store")]
        out = said.of_command(told, self.begin, "\n".join(self.lines()))
        return out | self._entries()

    def _entries(self) -> said.Texts:
        """Return the ledger; under `hybrid_knn` without how many lines the store has."""
        out = said.of_files(self.folder / "none", self.folder / "t.ledger")
        if "hybrid_knn" in self.spec.read_text("utf-8"):
            out = {name: re.sub(r'"place":\d+', '"place":#', text) for name, text in out.items()}
        return out

    def lines(self) -> list[str]:
        """Return questions and updates, good and bad, that do not depend on the data."""
        point = {c.name: [1.0] * c.width for c in self.records.columns if c.is_vector}
        label = {c.name: c.keys[0] for c in self.records.columns if c.keys}
        asked = [
            {"query": point},
            {"queries": [point] * 3},
            {"query": {}},
            {"insert": [point | label]},
            {"delete": ["p1"]},
            {"relabel": [point | label]},
            {"insert": [{}]},
            {"x": 1},
        ]
        return [*map(json.dumps, asked), "no json"]

    def commands(self, rows: near.Rows) -> said.Texts:
        """Return what `apply`, as text and as JSON, and `ledger show` print on a terminal."""
        near.hold(rows, self.records, self.route, self.folder)
        out: said.Texts = {}
        for name, words in {"text": [], "json": ["--json"]}.items():
            told = said.of_command(["apply", str(self.spec), "--workers", "2", *words], self.begin)
            out |= {f"{name} {key}": value for key, value in told.items()}
        shown = said.of_command(["ledger", "show", str(self.folder / "t.ledger")], lambda: None)
        return out | {f"ledger {key}": value for key, value in shown.items()}


@functools.cache
def _text(spec: Path) -> str:
    return spec.read_text("utf-8")


@functools.cache
def _plain(spec: Path) -> str:
    return json.dumps(_YAML.load(_text(spec)))


def _document(spec: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_plain(spec))
    return found


@contextmanager
def small_blocks(rows: int = BLOCK) -> Iterator[None]:
    """Cut every source into blocks of so few records, and plan a spec's text only once."""
    from opendp_sim.cli import session, spec as command
    from opendp_sim.io import protocol as source

    plan = functools.lru_cache(lambda path, _text, _given: planning.plan_file(path))

    def planned(path: Any, given: Any = None) -> Any:
        return plan(str(path), Path(path).read_text("utf-8"), json.dumps(given))

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(source, "block_rows", return_value=rows))
        for module in (command, session):
            stack.enter_context(mock.patch.object(module, "plan_file", planned))
        yield


def compared(case: Case, *, whole: bool) -> tuple[Counter[str], Differences]:
    """Return how many runs and texts were compared, and the names of those that differ.

    Args:
        case: what runs.
        whole: try every kind of bad record and the commands too; else neighbours, and one kind.
    """
    sets = {"passes": near.passing(case.rows, case.records, case.route, case.mode)}
    if case.mode == "refuse":
        sets |= near.refused(case.rows, case.records, case.route)
    if not whole:
        every = sets["passes"]
        sets = {name: data[:2] for name, data in list(sets.items())[1:2]}
        sets["passes"] = [every[0], every[1], every[-1]]
    counts, differ = Counter[str](), Differences()
    for name, data in sets.items():
        ways = [(lambda rows: case.texts(rows, workers=2), data)]
        if whole and case.route != "memory" and not case.session:
            ways.append((case.commands, [data[0], data[-1]]))
        for way, tried in ways:
            first = way(tried[0])
            shown = str(first)
            passed = not any(word in shown for word in ("error[", "DataError", '"kind":"refusal"'))
            if passed != (name == "passes"):
                differ.setdefault(name, set()).add("passes" if passed else "is refused")
            for rows in tried[1:]:
                texts = way(rows)
                counts["runs"] += 1
                counts["texts"] += len(first)
                wrong = {
                    key for key in first.keys() | texts.keys() if first.get(key) != texts.get(key)
                }
                if wrong:
                    differ.setdefault(name, set()).update(wrong)
                    for key in sorted(wrong):
                        _show(f"{case.route} {case.mode} {name}: {key}", first, texts, key)
    return counts, differ


def _declared(spec: Path) -> tuple[object, bool]:
    """Return what the gate depends on: the declared columns, and whether a session is served."""
    document = _document(spec)
    served = any("serve" in out for out in document["outputs"].values())
    return json.dumps([entry.get("columns") for entry in document["data"].values()]), served


def _show(title: str, first: said.Texts, other: said.Texts, key: str) -> None:
    """Print how two texts differ: for whoever mends it."""
    pair = [texts.get(key, "").splitlines() for texts in (first, other)]
    print("\n".join([title, *list(unified_diff(*pair, n=0, lineterm=""))[2:8]]), file=sys.stderr)


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--only", default="", help="names of specs that contain this")
    options.add_argument("--keep", type=Path, help="a file of rows: specs that it has are not run")
    args = options.parse_args()
    kept: dict[str, list[Any]] = {}
    if args.keep and args.keep.exists():
        kept = json.loads(args.keep.read_text("utf-8"))
    known: set[object] = set()
    for spec in SPECS:
        declared = _declared(spec)
        whole = declared not in known
        known.add(declared)
        if args.only not in spec.stem or spec.stem in kept:
            continue
        counts, bad = Counter[str](), Counter[str]()
        for route in near.ROUTES:
            for mode in ("refuse", "enforce"):
                with tempfile.TemporaryDirectory() as name, small_blocks():
                    case = Case(spec, route, mode, Path(name))
                    found, differ = compared(case, whole=whole)
                counts += found
                for kind, texts in differ.items():
                    bad[f"{route} {mode} {kind}: {', '.join(sorted(texts))}"] += 1
        kept[spec.stem] = [counts["runs"], counts["texts"], len(bad), "; ".join(bad) or "-"]
        print(spec.stem, kept[spec.stem], flush=True)
        if args.keep:
            args.keep.write_text(json.dumps(kept), "utf-8")
    rows: list[list[object]] = [[name, *found] for name, found in sorted(kept.items())]
    text = table(["spec", "runs compared", "texts", "that differ", "which"], rows)
    total = sum(int(str(row[2])) for row in rows)
    text += f"\n\n{total:,} texts, {sum(int(str(row[3])) for row in rows)} that differ."
    print(text)
    if args.write:
        write_figure("survival/texts", text, "python benchmarks/neighbour_texts.py --write")


if __name__ == "__main__":
    main()
