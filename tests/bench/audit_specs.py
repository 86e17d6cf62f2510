"""Every spec of the package through the audit command: verdict, seconds and layers of each release.

    python tests/bench/audit_specs.py --write

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

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.bench._results import parser, table, write_section  # noqa: E402

LIMIT = 15.0
"""CPU seconds that a release may take."""
CRASHED = 70


def audited(spec: Path, seed: int) -> tuple[list[list[object]], float, int]:
    """Return a row a release, the CPU seconds of the whole, and the exit code."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from opendp_sim.cli import main; main()", "audit", str(spec),
               "--format", "json", "--seed", str(seed)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    try:
        reports = json.loads(done.stdout)["audits"]
    except (ValueError, KeyError):
        print(done.stdout[-400:], done.stderr[-400:], flush=True)
        return [[spec.stem, "-", f"no report, exit {done.returncode}", "-", "-"]], seconds, CRASHED
    return [_row(spec, report) for report in reports], seconds, done.returncode


def _row(spec: Path, report: dict) -> list[object]:
    ran = [layer for layer in report["layers"] if layer["status"] != "skipped"]
    seconds = sum(layer["seconds"] for layer in report["layers"])
    name = report["subject"].split("#")[1]
    layers = ", ".join(layer["layer"].split()[0] for layer in ran)
    return [spec.stem, name, report["verdict"], round(seconds, 1), layers]


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__ or "")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--only", default="", help="part of a spec's name")
    args = options.parse_args()
    rows: list[list[object]] = []
    refuted, slow, crashed, longest = 0, 0, 0, 0.0
    specs = [p for p in sorted((ROOT / "specs").glob("*.yaml")) if args.only in p.stem]
    for spec in specs:
        found, seconds, code = audited(spec, args.seed)
        releases = len({str(row[1]).removesuffix(" (before the noise)") for row in found})
        crashed += code == CRASHED
        refuted += code == 1
        slow += seconds / releases > LIMIT
        longest = max(longest, seconds / releases)
        for row in found:
            print(*row, f"{seconds:.1f}", flush=True)
            rows.append([*row, f"{seconds:.1f}" if row is found[0] else ""])
    head = [
        "spec",
        "release",
        "verdict",
        "CPU s of its layers",
        "layers that ran",
        "CPU s of the command",
    ]
    text = table(head, rows) + (
        f"\n\n{len(specs)} specs, {len(rows)} audits: {refuted} refuted, {crashed} crashed, {slow} above "
        f"{LIMIT:g} CPU seconds a release; the longest took {longest:.1f}, imports and planning included."
    )
    print(text)
    if args.write:
        write_section("audit_specs", text, f"python tests/bench/audit_specs.py --seed {args.seed}")


if __name__ == "__main__":
    main()
