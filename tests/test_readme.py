"""What the README shows of sessions runs as it stands."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def block(kind, start):
    (found,) = [
        b for b in re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL) if b.startswith(start)
    ]
    return found


def served(folder, lines):
    code = "from opendp_sim.cli import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, "session", "people.yaml", "--updates"], input=lines, text=True,
        capture_output=True, cwd=folder, check=True,
    )  # fmt: skip
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("mapped", [False, True])
def test_the_session_of_the_readme(tmp_path, mapped):
    rng = np.random.default_rng(3)
    spec, names = block("yaml", "# people.yaml"), "x_0,x_1"
    if mapped:
        (option,) = re.findall(r"`(source: \{csv: \{.*?\}\})`", README)
        spec, names = spec.replace("source: {csv: people.csv}", option), "lon,lat"
    (tmp_path / "people.yaml").write_text(spec)
    x = rng.uniform(-1, 1, (600, 2)).round(3)
    people = [f"{a},{b},{'ab'[int(a > 0)]},p{i}" for i, (a, b) in enumerate(x)]
    (tmp_path / "people.csv").write_text("\n".join([f"{names},kind,who", *people]))
    asked = "\n".join(f"{a},{b}" for a, b in rng.uniform(-1, 1, (60, 2)))
    (tmp_path / "asked.csv").write_text(f"x_0,x_1\n{asked}")
    lines = block("json", '{"query"')
    one, two, more, *updates = served(tmp_path, lines)
    assert {"label", "count", "votes", "deviation"} == set(one) == set(two) - {"id"}
    assert two["id"] == "second"
    assert len(more["answers"]) == 2
    assert updates == [{"ok": True}] * 3
    again = served(tmp_path, lines)  # the same store, charged once
    assert "label" in again[0]
