"""Code of the README and of the pages that it names runs as it stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.explain.explain import catalogue
from tests._cli import begun
from tests._tiers import some

ROOT = Path(__file__).parents[1]
README = "".join(
    (ROOT / name).read_text(encoding="utf-8")
    for name in ("docs/interfaces.md", "docs/choose.md", "opendp_sim/measurements/knn/sessions.md")
)


def block(kind, start):
    (found,) = [
        b for b in re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL) if b.startswith(start)
    ]
    return found


def served(folder, lines):
    code = "from opendp_sim.cli import app; app()"
    done = subprocess.run(
        [sys.executable, "-c", code, "session", "people.yaml", "--updates"],
        input=lines,
        text=True,
        capture_output=True,
        cwd=folder,
        check=True,
    )
    heads = [line[:9].strip() for line in done.stderr.splitlines()]
    assert heads[-6:] == ["open", "who", "privacy", "error", "cost", "next"]
    return [json.loads(line) for line in done.stdout.splitlines()]


def table_of_mechanisms():
    """Return the README's table: a row a family, from the catalogue and the families' folders."""
    rows: dict[str, tuple[list[str], set[str]]] = {}
    for entry in catalogue():
        folder, _, _ = REGISTRY[entry["key"]].__module__.rpartition(".")
        first = (import_module(folder).__doc__ or "").splitlines()[0].rstrip(".")
        keys, asked = rows.setdefault(first.rpartition(": ")[2], ([], set()))
        keys.append(entry["key"])
        if entry["room"] != "queries":
            asked |= set(entry["with"])
    shown = {
        first: [", ".join(f"`{key}`" for key in sorted(held)) for held in both]
        for first, both in rows.items()
    }
    lines = [f"| {first[0].upper()}{first[1:]} | {a} | {b} |" for first, (a, b) in shown.items()]
    return "\n".join(["| what | mechanisms | questions |", "|---|---|---|", *lines])


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 90
    assert len(text.split()) <= 700


def test_the_table_of_mechanisms_is_the_catalogue_s():
    file = ROOT / "docs" / "choose.md"
    (held,) = re.findall(r"(?m)^\| what \|.*\n(?:\|.*\n)+", README)
    made = table_of_mechanisms() + "\n"
    if os.environ.get("GOLDEN") == "write":
        file.write_text(file.read_text("utf-8").replace(held, made), encoding="utf-8")
        return  # `held` is what it was before
    assert held == made, "GOLDEN=write python -m pytest tests/test_readme.py"


@pytest.mark.parametrize("mapped", some([False, True], 2))
def test_the_session_of_its_page(tmp_path, mapped):
    rng = np.random.default_rng(3)
    spec, names = block("yaml", "# people.yaml"), "x_0,x_1"
    if mapped:
        (option,) = re.findall(r"`(source: \{csv: \{.*?\}\})`", README)
        spec, names = spec.replace("source: {csv: people.csv}", option), "lon,lat"
    (tmp_path / "people.yaml").write_text(spec)
    x = rng.uniform(-1, 1, (600, 2)).round(3)
    people = [f"{a},{b},{'ab'[int(a > 0)]},p{i}" for i, (a, b) in enumerate(x)]
    (tmp_path / "people.csv").write_text("\n".join([f"{names},kind,who", *people]))
    begun(tmp_path / "people.yaml")
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


@pytest.mark.long
def test_the_python_of_the_interfaces(tmp_path, monkeypatch):
    from sklearn.datasets import load_digits

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    delays = pd.array([None, *range(-60, 540)], dtype="Int64")
    flights = pd.DataFrame({"dep_delay": delays, "arr_delay": delays})
    names = {"flights": flights}
    exec(block("python", "import opendp_sim as sim"), names)  # noqa: S102
    assert names["answers"]["density"].shape == (2,)
    assert (tmp_path / "flights.ledger").exists()
    images, digits = load_digits(return_X_y=True)
    names = {"X": images[:300], "y": digits[:300]}
    exec(block("python", "from sklearn.model_selection"), names)  # noqa: S102
    assert names["budget"].fits == 8


@pytest.mark.long
def test_the_python_of_the_readme(tmp_path, monkeypatch):
    import opendp.prelude as dp
    from opendp.extras.numpy import array2_domain
    from sklearn.datasets import load_digits

    import opendp_sim.prelude as sim

    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first, estimators, chain = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {"flights": {"dep_delay": np.arange(600) - 60, "arr_delay": np.arange(600) - 60}}
    exec(first, names)  # noqa: S102
    assert names["answers"]["density"].shape == (2,)
    images, digits = load_digits(return_X_y=True)
    names = {"X": images, "y": digits}
    exec(estimators, names)  # noqa: S102
    assert names["budget"].fits == 1
    dp.enable_features("contrib")
    space = array2_domain(num_columns=32, nan=False, T=float), dp.symmetric_distance()
    names = {"space": space, "sim": sim, "dp": dp}
    exec(chain, names)  # noqa: S102
    assert names["noisy"].map(1) == 1.0  # 64 repetitions and one count cell, over the scale
