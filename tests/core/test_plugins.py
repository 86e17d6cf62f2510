"""A stranger's package brings a sketch, a question and a query; nothing of ours is edited for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from opendp_sim.core.errors import InternalError
from opendp_sim.core.mechanism import REGISTRY, load_plugins, register
from opendp_sim.transformations.row_maps.quantize import Quantize

SOURCE = Path(__file__).parents[1] / "plugin"
SPEC = """
spec: opendp_sim/1
name: corners
data:
  points:
    source: {npz: points.npz}
    columns: {x: {dtype: "array[f64, 2]", bounds: [-1, 1]}}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 1000}
flow:
  noisy:
    from: points
    steps:
      - select: {features: x}
      - quantize: {bits: 8}
      - corner_counts: {cut: 0}
    release: {noise: gaussian, spend: 100%}
outputs:
  sizes: {from: noisy, post: [corner_size], query: {npz: asked.npz}, save: out/sizes.csv}
  all: {from: noisy, save: out/corners.npz}
"""
PYTHON = """
import json
import numpy as np
from typer.testing import CliRunner
import opendp_sim as sim
from opendp_sim.cli import app

def run(line):
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0, done.output
    return done.output

assert "95% of answers within ±" in run("plan corners.yaml"), run("plan corners.yaml")
run("apply corners.yaml")
release = sim.load("out/corners.npz")
assert release.ops == ("corner_size",), release.ops
asked = np.array([[0.5, 0.5], [-0.5, -0.5]])
sizes = np.asarray(release.ask("corner_size", asked)["size"])
assert np.abs(sizes - [30, 12]).max() < 1, sizes
assert (np.asarray(release.corner_size(asked)["size"]) == sizes).all()
from opendp.mod import deserialize, enable_features, serialize
enable_features("contrib")
from opendp.extras.numpy import array2_domain
from opendp.metrics import symmetric_distance
space = array2_domain(num_columns=2, nan=False, T=float), symmetric_distance()
counts = space >> sim.then_quantize(bits=8, bounds=(-1.0, 1.0)) >> sim.then_corner_counts(cut=0)
again = deserialize(serialize(counts))
assert again(asked) == counts(asked) and again.map(3) == counts.map(3) and len(counts(asked)) > 1
try:
    release.ask("density", asked)
except sim.SimError as error:
    assert error.code == "OS702", error
    assert "corner_size" in str(error), error
else:
    raise AssertionError("a release of corners answers no density")

run("report out/sizes.csv.certificate.json -o page.html --force")
assert "size, in records" in open("page.html").read()

listed = {entry["key"]: entry for entry in json.loads(run("ops --json"))}
assert listed["corner_counts"]["with"] == ["corner_size"]
assert listed["corner_size"]["with"] == ["corner_counts"]
assert listed["corner_counts"]["evidence"] == "proved", "its document lies beside its module"
assert "corner_size     asks a release of corner_counts" in run("ops")
page = run("explain corner_counts")
assert "Answers   corner_size" in page and "corner_counts.md" in page, page
assert "corner_counts" in run("schema")
answered = json.loads(run("answer out/corners.npz --queries asked.npz --post corner_size --json"))
assert "size" in str(answered), answered
"""


def installed(folder: Path, entry: str = "corners") -> Path:
    """Lay a package out as an installer does: a module, and metadata that name its entry point."""
    folder.mkdir()
    for file in SOURCE.iterdir():
        if file.suffix in (".py", ".md"):
            shutil.copy(file, folder)
    about = folder / "corners-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: corners\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[opendp_sim.mechanisms]\ncorners = {entry}\n")
    return folder


def fresh(site: Path, folder: Path, code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python afresh with ``site`` among its packages."""
    path = os.pathsep.join([str(site), str(Path(__file__).parents[2])])
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_stranger_s_sketch_question_and_query(tmp_path):
    site = installed(tmp_path / "site")
    points = np.concatenate([np.full((30, 2), 0.25), np.full((12, 2), -0.25)])
    np.savez(tmp_path / "points.npz", x=points)
    np.savez(tmp_path / "asked.npz", x=np.array([[0.5, 0.5], [-0.5, -0.5]]))
    (tmp_path / "corners.yaml").write_text(SPEC)
    done = fresh(site, tmp_path, PYTHON)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "out" / "sizes.csv").read_text().splitlines()
    assert "size" in lines[0]
    assert len(lines) == 3


def test_a_broken_plugin_is_named_and_nothing_runs(tmp_path):
    site = installed(tmp_path / "site", "absent")
    done = fresh(site, tmp_path, "from opendp_sim.cli import main; main()", "ops")
    assert done.returncode == 70, done.stderr
    assert "OS903 plugin corners" in done.stderr
    assert "absent" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plugin_cannot_take_a_key_of_ours(monkeypatch):
    class Theirs(Quantize):
        pass

    entry = SimpleNamespace(name="theirs", value="theirs", load=lambda: register(Theirs))
    monkeypatch.setattr("opendp_sim.core.mechanism.entry_points", lambda group: [entry])
    with pytest.raises(InternalError, match=r"OS903 plugin theirs.*a key taken by"):
        load_plugins()
    assert REGISTRY["quantize"] is Quantize


NATIVE = """
spec: opendp_sim/2
name: native
data:
  people:
    source: {npz: people.npz}
    columns: {age: {dtype: float64, bounds: [0, 120]}}
    ledger: {file: native.ledger, limit: {epsilon: 5}}
privacy:
  unit: {add_remove: 1, of: row}
  measure: pure
  budget: {epsilon: 4}
flow:
  ages: {from: people, steps: [select: {features: age}]}
  counted:
    from: ages
    release: {mechanism: {native_chain: {chain: [{t.count: {}}, {m.laplace: {}}]}}, spend: 50%}
  chosen:
    from: ages
    release:
      mechanism:
        native_chain: {chain: [{m.private_quantile: {candidates: [10, 20, 30, 40, 50], alpha: 0.5}}]}
      spend: 50%
outputs:
  number: {from: counted, save: out/number.json}
  median: {from: chosen, save: out/median.json}
"""
COMMANDS = """
import json, pathlib
from typer.testing import CliRunner
from opendp_sim.cli import app

def run(line, code=0):
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == code, (done.exit_code, done.output)
    return done.output

plan = " ".join(run("plan native.yaml").split())
assert "95% of counts within ±1.5 rows" in plan, plan  # 2.12 sqrt(2) / 2
assert "the rank is off by" in plan and "rows or less in 95% of runs" in plan, plan
assert "epsilon 4" in plan or "(4, 0)" in plan, plan
run("ledger new native.yaml")
done = json.loads(run("apply native.yaml --json"))
found = {name: json.loads(pathlib.Path(f"out/{name}.json").read_text()) for name in ("number", "median")}
print(json.dumps(found))
for certificate in done["certificates"].values():
    run(f"verify {certificate} --spec native.yaml")
    run(f"report {certificate} -o page.html --force")
    assert "native_chain" in pathlib.Path("page.html").read_text()
import native_chain
from dataclasses import replace
from fractions import Fraction
from opendp_sim.core.errors import SimError
from opendp_sim.dsl.plan.plan import plan_file

def refused(code):
    try:
        plan_file("native.yaml").forecast()
    except SimError as error:
        return error.code == code
    return False

kept = native_chain.NativeChain._again
native_chain.NativeChain._again = lambda self: lambda d_in: (Fraction(d_in) / Fraction(self.scale) / 2,)
assert refused("OS901"), "OpenDP's map and another computation disagree"
native_chain.NativeChain._again = kept
kept = dict(native_chain.NativeChain.stated_errors)
for name, told in kept.items():
    native_chain.NativeChain.stated_errors = kept | {name: replace(told, line="{no_such_fact}")}
    assert refused("OS903"), "a text that names no fact"
native_chain.NativeChain.stated_errors = kept
text = pathlib.Path("native.yaml").read_text()
pathlib.Path("people.npz").unlink()  # what follows is refused before data is looked for
for old, new, code in (
    ("t.count", "t.cuont", "OS101"),
    ("t.count: {}", "t.count: {size: 3}", "OS101"),
    ("t.count: {}", "t.user_transformation: {}", "OS101"),
    ("t.count: {}", "t.sum: {}", "OS101"),  # of floats it adds 2**20 records at most
    ("{t.count: {}}, ", "", "OS201"),
    (", {m.laplace: {}}", "", "OS201"),
    ("[10, 20, 30, 40, 50]", "[50, 40]", "OS101"),
    ("alpha: 0.5", "alpha: 2.0", "OS201"),
):
    assert old in text
    pathlib.Path("native.yaml").write_text(text.replace(old, new))
    done = CliRunner().invoke(app, ["check", "native.yaml"])
    assert done.exit_code and code in done.output, (old, new, done.output)
"""


def test_a_stranger_s_step_runs_opendp_s_own_constructors_by_name(tmp_path):
    """A count and a quantile under one ledger, typed before data is opened; nothing of ours is edited."""
    site = installed(tmp_path / "site", "native_chain")
    np.savez(tmp_path / "people.npz", age=np.array([29.0] * 300 + [31.0] * 400 + [90.0] * 100))
    (tmp_path / "native.yaml").write_text(NATIVE)
    done = fresh(site, tmp_path, COMMANDS)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert "30" in json.dumps(found["median"])
