"""The auditor's scoreboard: twins caught, false alarms, power, time. One JSON, one table.

    python benchmarks/audit_scoreboard.py --seeds 20 --control-audits 1000 --write

``--write`` replaces the record in ``results/audit`` and the line a mechanism that ships of it
(``opendp_sim/accounting/evidence.jsonl``). Parts can be run alone, ``--only twins,controls``; the others keep what
the record already says, and with ``--family vote_counts`` so do the twins of other families. Every audit is a line of ``--rows`` as soon as it has ended, seeds outermost, so
a run that is cut off is continued by the same command and can be summed up before it ends
(``--seeds 7``). Lines of another engine, a hash of the code of the layers and of OpenDP, do not count,
and with ``--family`` none that were written before a change of the package or of its twins.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import opendp.prelude as dp  # noqa: E402

import opendp_sim.prelude  # noqa: E402, F401 - fills the registry
from benchmarks._audit_laws import laws  # noqa: E402
from benchmarks._audit_parts import BETA, controls, defects, mechanisms, power, twins  # noqa: E402
from benchmarks._audit_rows import RowFile, engine_of, recorded, tree_of, write_record  # noqa: E402
from benchmarks._results import parser, table  # noqa: E402
from opendp_sim.core.mechanism import REGISTRY  # noqa: E402

OF_A_FAMILY = "laws,mechanisms,twins,controls"
PARTS = "laws,defects,power,mechanisms,twins,deep,controls"


Table = list[list[object]]


def summary(record: dict[str, Any]) -> Table:
    """The table: figure, target, measured, and the engine that it was measured with."""
    twins = record.get("twins", {})
    own = {name: row for name, row in twins.items() if name.split("/")[0] in REGISTRY}
    declared = {name: row for name, row in twins.items() if name not in own}
    defects = [
        [f"blind: {name}", "< 5 s", f"{row['verdict']}, {row['seconds']} s"]
        for name, row in record.get("defects", {}).items()
    ]
    parts: list[tuple[str, Table]] = [
        ("twins", _twins(own, "own mechanisms: ")),
        ("twins", _twins(declared, "declared objects: ")),
        ("opaque", _opaque(record.get("opaque", {}))),
        ("deep", _deep(record.get("deep", {}))),
        ("controls", _controls(record.get("controls", {}))),
        ("power", _power(record.get("power", {}))),
        ("defects", [list(row) for row in defects]),
        ("laws", _laws(record.get("laws", {}))),
        ("mechanisms", _mechanisms(record.get("mechanisms", {}))),
    ]
    return [[*row, made_with(record, part)] for part, rows in parts for row in rows]


def made_with(record: dict[str, Any], part: str) -> str:
    """Return the engines of a part and their days; families that were measured later have theirs."""
    engines, dates = record.get("engines", {}), record.get("dates", {})
    if part not in engines:
        return "not recorded"
    later = sorted({engines[name][:7] for name in engines if name.startswith(f"{part} of ")})
    families = f"; families later: {', '.join(later)}" if later else ""
    return f"{engines[part][:7]} ({dates.get(part, 'no day')}){families}"


def _opaque(found: dict[str, Any]) -> Table:
    """Strangers' Python behind `make_user_measurement`, nothing declared, default settings."""
    out: Table = []
    for kind, target in (("broken", "90 %"), ("sound", "0")):
        rows = [row for name, row in found.items() if name.startswith(f"{kind}/")]
        if not rows:
            continue
        audits, refuted = (sum(row[k] for row in rows) for k in ("seeds", "refuted"))
        seconds = [row["seconds_median"] for row in rows]
        longest = max(row["seconds_max"] for row in rows)
        out += [
            [
                f"opaque objects: {kind}, refuted",
                target,
                f"{refuted} of {audits} audits of {len(rows)}",
            ],
            [
                f"opaque objects: {kind}, CPU seconds of an audit, median and longest",
                "3 and 12" if kind == "broken" else "12 at most",
                f"{median(seconds):.2g} and {longest:.3g}",
            ],
        ]
    return out


def _twins(found: dict[str, Any], whose: str) -> Table:
    """The rows of one part of the corpus; ``whose`` names the part."""
    return [[f"{whose}{row[0]}", *row[1:]] for row in _twin_rows(found)]


def _twin_rows(found: dict[str, Any]) -> Table:
    if not found:
        return []
    rows = found.values()
    pairs, caught = (sum(row[k] for row in rows) for k in ("seeds", "caught"))
    by = Counter[str]()
    for row in rows:
        by.update(row["layers"])
    agreed, asked = (sum(row.get("second_tester", (0, 0))[k] for row in rows) for k in (0, 1))
    never = sorted(name for name, row in found.items() if not row["caught"])
    seldom = sorted(name for name, row in found.items() if row["caught"] < row["seeds"])
    seeds = sorted({row["seeds"] for row in rows})
    return [
        [
            "broken twins caught, quick",
            "all",
            f"{len(found) - len(never)} of {len(found)}{_named(never)}",
        ],
        [
            "pairs of twin and seed caught, quick",
            "95 %",
            f"{100 * caught / pairs:.2f} % of {pairs:,} ({'-'.join(map(str, seeds))} seeds)",
        ],
        [
            "twins caught at every seed",
            "-",
            f"{len(found) - len(seldom)} of {len(found)}{_named(seldom)}",
        ],
        ["caught by", "-", ", ".join(f"{k}: {v:,}" for k, v in sorted(by.items()))],
        [
            "second tester (Clopper-Pearson) agrees with L3's bets, in a few fresh runs",
            "-",
            f"{agreed} of {asked}",
        ],
        [
            "CPU seconds to catch a twin, median and largest of the medians",
            "-",
            f"{median(row['seconds_median'] for row in rows):.2g} and {max(row['seconds_median'] for row in rows):.2g}",
        ],
    ]


def _named(names: list[str]) -> str:
    return f"; not {', '.join(names)}" if names else ""


def _deep(found: dict[str, Any]) -> Table:
    if not found:
        return []
    missed = sorted(name for name, row in found.items() if row["caught"] < row["seeds"])
    pairs = sum(row["seeds"] for row in found.values())
    return [
        [
            "broken twins caught, deep",
            "all",
            f"{len(found) - len(missed)} of {len(found)} ({pairs} audits){_named(missed)}",
        ]
    ]


def _controls(found: dict[str, Any]) -> Table:
    if not found:
        return []
    audits, alarms = (sum(row[k] for row in found.values()) for k in ("audits", "alarms"))
    native = [row for name, row in found.items() if name.startswith("opendp/")]
    return [
        [
            "false alarms at beta 1e-3, short audits",
            "0 in 1,000",
            f"{alarms} in {audits:,} ({len(found)} sound mechanisms)",
        ],
        [
            "OpenDP's own constructors among them, and alarms",
            "24, none",
            f"{len(native)}, {sum(row['alarms'] for row in native)} in {sum(row['audits'] for row in native)} audits",
        ],
    ]


def _power(found: dict[str, Any]) -> Table:
    out: Table = []
    for name, row in found.items():
        if "limit" in row:
            text = (
                f"{row['within_limit']} of {row['seeds']} seeds; median {row['median_draws']:,.0f}, "
                f"largest {row['largest_draws']:,.0f}"
            )
            out.append([f"true excess {name}", f"within {row['limit']:,} draws", text])
        else:
            out.append([name, "caught", f"{row['caught']} of {row['seeds']}"])
    return out


def _laws(found: dict[str, Any]) -> Table:
    if not found:
        return []
    held, failed = (sum(len(row[k]) for row in found.values()) for k in ("held", "failed"))
    return [
        [
            "laws that held, over all mechanisms",
            "all",
            f"{held} of {held + failed}, {len(found)} mechanisms",
        ]
    ]


def _mechanisms(found: dict[str, Any]) -> Table:
    if not found:
        return []
    refuted = sorted(key for key, row in found.items() if row["verdict"] == "refuted")
    audits = sum(row["audits"] for row in found.values())
    longest = max(found, key=lambda key: found[key]["longest_seconds"])
    return [
        [
            "mechanisms of this package",
            "none refuted",
            f"{len(found)} audited, {audits} audits, {len(refuted)} refuted {', '.join(refuted)}".strip(),
        ],
        [
            "longest quick audit of one of them, CPU seconds",
            "10",
            f"{found[longest]['longest_seconds']} ({longest})",
        ],
    ]


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--seeds", type=int, default=20)
    options.add_argument("--deep-seeds", type=int, default=1)
    options.add_argument("--control-audits", type=int, help="default 1000, of a family 20")
    options.add_argument("--mechanism-seeds", type=int, default=3)
    options.add_argument("--only", help=f"parts, of {PARTS}, or `table`: print what is recorded")
    options.add_argument(
        "--family", help="only this one's twins, controls, laws or audits; the others keep theirs"
    )
    options.add_argument(
        "--rows", type=Path, default=Path(tempfile.gettempdir()) / "audit_scoreboard.jsonl"
    )
    options.add_argument("--engine", default=engine_of(ROOT), help="whose rows count")
    args = options.parse_args()
    args.only = args.only or (OF_A_FAMILY if args.family else PARTS)
    args.control_audits = args.control_audits or (20 if args.family else 1000)
    if args.family and {"defects", "power"} & set(args.only.split(",")):
        options.error("the parts defects and power have no families")
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    rows = RowFile(args.rows, args.engine + (f" {tree_of(ROOT)}" if args.family else ""))
    record = recorded()
    parts: dict[str, Callable[[], Any]] = {
        "laws": lambda: laws(args.family),
        "defects": defects,
        "power": lambda: power(args.seeds, rows),
        "mechanisms": lambda: mechanisms(args.mechanism_seeds, rows, args.family),
        "twins": lambda: twins(args.seeds, "quick", rows, args.family),
        "deep": lambda: twins(args.deep_seeds, "deep", rows, args.family),
        "controls": lambda: controls(args.control_audits, rows, args.family),
    }
    for part in args.only.split(",") if args.only != "table" else ():
        found = parts[part]()
        # read again: other parts may have been written meanwhile
        record = recorded() if args.write else record
        if args.family:
            found = record.get(part, {}) | found
        name = f"{part} of {args.family}" if args.family else part  # whose engine and command
        record |= {part: found, "opendp": version("opendp"), "numpy": np.__version__, "beta": BETA}
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        of = {"engines": args.engine, "commands": _command(part, args), "dates": day}
        for kind, value in of.items():  # a whole part replaces what its families had
            former = record.get(kind, {}).items()
            whole = {n: v for n, v in former if args.family or not n.startswith(f"{part} of ")}
            record[kind] = whole | {name: value}
        if args.write:
            write_record(record)
    text = table(["figure", "target", "measured", "engine (day)"], summary(record))
    text += (
        f"\n\nAn engine is a hash of the auditor's code and of OpenDP's version. When this table was written the code was "
        f"{engine_of(ROOT)[:7]} (layers) and {engine_of(ROOT, whole=True)[:7]} (whole, for opaque objects): "
        "a figure of another engine was not measured on it."
    )
    print(text)


def _command(name: str, args: Any) -> str:
    """Return the words that measure one part."""
    numbers = {
        "power": f" --seeds {args.seeds}",
        "twins": f" --seeds {args.seeds}",
        "deep": f" --deep-seeds {args.deep_seeds}",
        "controls": f" --control-audits {args.control_audits}",
        "mechanisms": f" --mechanism-seeds {args.mechanism_seeds}",
    }
    family = f" --family {args.family}" if args.family else ""
    return f"--only {name}{family}{numbers.get(name, '')} --write"


if __name__ == "__main__":
    main()
