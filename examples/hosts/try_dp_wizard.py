"""Generate a script of DP Wizard, add a release, and run it; run by the Python of its environment.

``python try_dp_wizard.py FOLDER PYTHON``: an empty folder, and the Python of opendp_sim's environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
from charged import WORKER
from dp_wizard.types import Product
from dp_wizard.utils.code_generators import AnalysisPlan, AnalysisPlanColumn
from dp_wizard.utils.code_generators.script_generator import ScriptGenerator
from dp_wizard_context import extended

PROGRAM = {
    "columns": {"age": {"dtype": "float64", "bounds": [0, 100]}},
    "steps": [
        {"select": {"features": "age"}},
        {"quantize": {"bits": 8}},
        {"distance_tree": {"levels": 8}},
    ],
    "release": {"noise": "laplace", "scale": "solve", "spend": "100%"},
    "ask": {"distance": {"queries": [[30.0], [60.0]]}},
}


def generated() -> str:
    """Return a script: a histogram of ages, epsilon 2, two rows of a person."""
    plan = AnalysisPlan(
        product=Product.STATISTICS,
        path=None,
        contributions=2,
        contributions_entity="Person",
        epsilon=2.0,
        max_rows=10_000,
        groups={},
        analysis_columns={"age": [AnalysisPlanColumn("Histogram", 0, 100, 5, 2)]},
        schema_columns={"age": pl.Float64(), "kind": pl.String()},
    )
    return ScriptGenerator(plan, "note").make_py(reformat=True)


def main(folder: Path, python: str) -> None:
    """Write the data and the script, and run it."""
    rows = "\n".join(f"{20 + i % 60}.0,a" if i % 50 else ",a" for i in range(800))
    (folder / "people.csv").write_text(f"age,kind\n{rows}\n")
    ledger = {"file": str(folder / "people.ledger"), "limit": {"epsilon": 2.0}}
    command = [python, str(WORKER), "--ledger", json.dumps(ledger)]
    (folder / "script.py").write_text(extended(generated(), PROGRAM, command, 3))
    done = [sys.executable, "script.py", "--csv", "people.csv"]
    path = os.environ | {"PYTHONPATH": str(WORKER.parent), "MPLBACKEND": "agg"}
    subprocess.run(done, cwd=folder, env=path, check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute(), sys.argv[2])
