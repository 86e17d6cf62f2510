"""The auditor's scoreboard: twins caught, false alarms, power, time. One JSON, one table.

    python tests/bench/audit_scoreboard.py --seeds 20 --control-audits 1000 --write

``--write`` replaces the record that ships with the package (what the evidence tier reads) and this
script's section of RESULTS.md. Parts can be run alone, ``--only twins,controls``; the others keep what
the record already says. Every audit is a line of ``--rows`` as soon as it has ended, seeds outermost, so
a run that is cut off is continued by the same command and can be summed up before it ends
(``--seeds 7``). Lines of another engine, a hash of the code of the layers and of OpenDP, do not count.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import opendp.prelude as dp  # noqa: E402

from opendp_sim.audit.evidence import RECORD  # noqa: E402
from tests.bench._audit_laws import laws  # noqa: E402
from tests.bench._audit_parts import (  # noqa: E402
    BETA,
    controls,
    defects,
    mechanisms,
    power,
    twins,
)
from tests.bench._audit_rows import RowFile, engine_of  # noqa: E402
from tests.bench._results import parser, table, write_section  # noqa: E402

PARTS = "laws,defects,power,mechanisms,twins,deep,controls"


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
    options.add_argument("--deep-seeds", type=int, default=1)
    options.add_argument("--control-audits", type=int, default=1000)
    options.add_argument("--mechanism-seeds", type=int, default=3)
    options.add_argument("--only", default=PARTS)
    options.add_argument(
        "--rows", type=Path, default=Path(tempfile.gettempdir()) / "audit_scoreboard.jsonl"
    )
    options.add_argument("--engine", default=engine_of(ROOT), help="whose rows count")
    args = options.parse_args()
    dp.enable_features("contrib", "honest-but-curious", "idealized-numerics")
    rows = RowFile(args.rows, args.engine)
    record: dict[str, Any] = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else {}
    parts: dict[str, Callable[[], Any]] = {
        "laws": laws,
        "defects": defects,
        "power": lambda: power(args.seeds, rows),
        "mechanisms": lambda: mechanisms(args.mechanism_seeds, rows),
        "twins": lambda: twins(args.seeds, "quick", rows),
        "deep": lambda: twins(args.deep_seeds, "deep", rows),
        "controls": lambda: controls(args.control_audits, rows),
    }
    for name in args.only.split(","):
        found = parts[name]()
        # read again: other parts may have been written meanwhile
        record = json.loads(RECORD.read_text("utf-8")) if args.write and RECORD.exists() else record
        record |= {name: found, "opendp": version("opendp"), "numpy": np.__version__, "beta": BETA}
        record.setdefault("engines", {})[name] = args.engine
        record.setdefault("commands", {})[name] = _command(name, args)
        record.setdefault("dates", {})[name] = datetime.now(UTC).strftime("%Y-%m-%d")
        if args.write:
            RECORD.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", "utf-8")
    text = table(["figure", "target", "measured"], summary(record))
    print(text)
    if args.write:
        ran = dict.fromkeys(record.get("commands", {}).values())
        command = "; ".join(f"python tests/bench/audit_scoreboard.py {words}" for words in ran)
        write_section("audit_scoreboard", text, command)


def _command(name: str, args: Any) -> str:
    """Return the words that measure one part."""
    numbers = {
        "power": f" --seeds {args.seeds}", "twins": f" --seeds {args.seeds}",
        "deep": f" --deep-seeds {args.deep_seeds}",
        "controls": f" --control-audits {args.control_audits}",
        "mechanisms": f" --mechanism-seeds {args.mechanism_seeds}",
    }  # fmt: skip
    return f"--only {name}{numbers.get(name, '')} --write"


if __name__ == "__main__":
    main()
