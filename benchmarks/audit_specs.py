"""Every spec of the package through the audit command: verdict, seconds and layers of each release.

    python benchmarks/audit_specs.py --write

Each spec runs in a process of its own, as `opendp-sim audit SPEC --format json` does, so that a crash is a
row and not the end. CPU seconds are those of that process, planning and imports included.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks._results import parser, table, write_section  # noqa: E402

LIMIT = 15.0
"""CPU seconds that a release may take."""
CRASHED = 70


def audited(spec: Path, seed: int) -> tuple[list[list[object]], float, int]:
    """Return a row a release, the CPU seconds of the whole, and the exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [
        sys.executable,
        "-c",
        "from opendp_sim.cli import main; main()",
        "audit",
        str(spec),
        "--format",
        "json",
        "--seed",
        str(seed),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        reports = json.loads(done.stdout)["audits"]
    except (ValueError, KeyError):
        print(done.stdout[-400:], done.stderr[-400:], flush=True)
        return [[spec.stem, "-", f"no report, exit {done.returncode}", "-", "-"]], seconds, CRASHED
    return [_row(spec, report) for report in reports], seconds, done.returncode


def _row(spec: Path, report: dict[str, Any]) -> list[object]:
    ran = [layer for layer in report["layers"] if layer["status"] != "skipped"]
    seconds = sum(layer["seconds"] for layer in report["layers"])
    name = report["subject"].split("#")[1]
    layers = ", ".join(layer["layer"].split()[0] for layer in ran)
    return [spec.stem, name, report["verdict"], round(seconds, 1), layers]


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__ or "")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="a spec's name")
    options.add_argument("--keep", type=Path, help="a file of rows: specs that it has are not run")
    args = options.parse_args()
    kept: dict[str, dict[str, Any]] = {}
    if args.keep and args.keep.exists():
        kept = json.loads(args.keep.read_text("utf-8"))
    specs = sorted((ROOT / "specs").glob("*.yaml"))
    for spec in specs:
        if spec.stem in kept or args.only not in ("", spec.stem):
            continue
        rows, seconds, code = audited(spec, args.seed)
        kept[spec.stem] = {"rows": rows, "seconds": round(seconds, 1), "code": code}
        print(spec.stem, kept[spec.stem], flush=True)
        if args.keep:
            args.keep.write_text(json.dumps(kept), "utf-8")
    text = summary({spec.stem: kept[spec.stem] for spec in specs if spec.stem in kept})
    print(text)
    if args.write:
        write_section("audit_specs", text, f"python benchmarks/audit_specs.py --seed {args.seed}")


def summary(kept: dict[str, dict[str, Any]]) -> str:
    """Return the table, and in a sentence what it must show."""
    table_rows: list[list[object]] = []
    longest, slow = 0.0, 0
    for found in kept.values():
        releases = {str(row[1]).removesuffix(" (before the noise)") for row in found["rows"]}
        each = found["seconds"] / len(releases)
        longest, slow = max(longest, each), slow + (each > LIMIT)
        first = found["rows"][0]
        table_rows += [[*row, found["seconds"] if row is first else ""] for row in found["rows"]]
    head = [
        "spec",
        "release",
        "verdict",
        "CPU s of its layers",
        "layers that ran",
        "CPU s of the command",
    ]
    codes = [found["code"] for found in kept.values()]
    return table(head, table_rows) + (
        f"\n\n{len(kept)} specs, {len(table_rows)} audits: {codes.count(1)} refuted, "
        f"{codes.count(CRASHED)} without a report, {slow} above {LIMIT:g} CPU seconds a release; the "
        f"longest took {longest:.1f}, imports and planning included."
    )


if __name__ == "__main__":
    main()
