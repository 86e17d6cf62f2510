"""Runs with files and sessions in one spec: one charge for everything, whenever the process dies."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.core.errors import BudgetError, DataError, SpecError
from opendp_sim.dsl import apply, plan_file, verify
from opendp_sim.dsl.files.staging import RunFolder
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run import execute, publish, session, stores
from opendp_sim.dsl.run.charge import Transaction
from opendp_sim.dsl.run.session import serve
from opendp_sim.dsl.text.diagnostic import Refused
from opendp_sim.engines.engine import engine_of
from opendp_sim.measurements.knn.ind_knn import IndKnn
from tests._cli import run
from tests._tiers import tiered

SPEC = """
spec: opendp_sim/1
name: mixed
data:
  points:
    source: {npz: points.npz}
    ledger: {file: points.ledger, limit: {rho: 1.0}}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      kind: {dtype: category, keys: [a, b]}
privacy:
  unit: {add_remove: 1, of: row}
  measure: zcdp
  budget: {rho: 0.3}
flow:
  rows:
    from: points
    steps:
      - select: {features: x, label: kind}
      - quantize: {bits: 4}
  tree:
    from: rows
    steps:
      - distance_tree: {levels: 2}
    release: {noise: gaussian, scale: solve, spend: 50%}
  near:
    from: rows
    release: {mechanism: {ind_knn: {queries: 20, size: 60, threshold: 0.5, centre: false}}, spend: 50%}
outputs:
  distances: {from: tree, save: out/tree.npz}
  answers: {from: near, serve: session, store: out/near.session}
"""
SECOND = """
  far:
    from: rows
    release: {mechanism: {ind_knn: {queries: 9, size: 60, threshold: 0.5, centre: false}}, spend: 20%}
outputs:
  others: {from: far, serve: session}
"""
ONE = [[0.5, 0.5]]


def spec_in(folder: Path, text: str = SPEC) -> Path:
    rng = np.random.default_rng(1)
    kinds = np.array(["a", "b"])[rng.integers(0, 2, 60)]
    np.savez(folder / "points.npz", x=rng.uniform(-1, 1, (60, 2)), kind=kinds)
    (folder / "mixed.yaml").write_text(text)
    return folder / "mixed.yaml"


def two_sessions() -> str:
    text = SPEC.replace("\noutputs:\n", SECOND, 1)
    first, second = text.rsplit("spend: 50%}", 1)
    return first + "spend: 30%}" + second


def alone() -> str:
    """The spec without a file: only its session is left."""
    before, after = SPEC.split("  tree:", 1)
    return (
        before
        + "  near:"
        + after.split("  near:", 1)[1]
        .replace("  distances: {from: tree, save: out/tree.npz}\n", "")
        .replace("spend: 50%", "spend: 100%")
    )


def moved(plan: Plan, folder: Path) -> Plan:
    """Return the same plan for files in another folder."""
    return replace(plan, program=replace(plan.program, written_folder=str(folder)), path=None)


def kinds(folder: Path) -> list[str]:
    with Ledger.open(folder / "points.ledger") as ledger:
        return [entry.kind for entry in ledger.entries]


def charged(folder: Path, plan: Plan) -> int:
    """Return how many times the whole program was charged; never a part of it."""
    if not (folder / "points.ledger").exists():
        return 0
    with Ledger.open(folder / "points.ledger") as ledger:
        assert {charge.loss for charge in ledger.charges} <= {plan.charge.loss}
        return len(ledger.charges)


def ask(plan: Plan, output: str | None = None) -> None:
    with serve(plan, output) as served:
        assert served.ask(ONE).labels[0] in ("a", "b")


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("out/tree.npz*")}


WHOLE = {"tree.npz", "tree.npz.certificate.json"}


# --------------------------------------------------------------------------------------------------
# One charge.


def test_apply_writes_every_output_makes_the_store_and_charges_once(tmp_path):
    plan = plan_file(spec_in(tmp_path))
    done = apply(plan)
    assert (set(done.files), set(done.stores)) == ({"distances"}, {"answers"})
    assert done.stores["answers"].exists()
    assert "answers asked from" in repr(done)
    assert kinds(tmp_path) == ["reserve", "charge", "outcome"]
    verify(done.certificates["distances"], tmp_path / "mixed.yaml")
    for _ in range(3):
        ask(plan)
    assert charged(tmp_path, plan) == 1
    assert files(tmp_path) == WHOLE


def test_another_run_replaces_a_store_only_if_told_to(tmp_path):
    plan = plan_file(spec_in(tmp_path))
    apply(plan)
    ask(plan)
    before = stores.place_at(tmp_path / "out/near.session")
    with before, pytest.raises(BudgetError, match="OS407"):
        apply(plan, replace=True)  # somebody has it open: nothing is charged, nothing is lost
    assert charged(tmp_path, plan) == 1
    apply(plan, replace=True)
    with serve(plan) as served:
        assert served.session.answered == 0
    assert charged(tmp_path, plan) == 2
    (tmp_path / "out/near.session").write_bytes(b"somebody's notes")
    with pytest.raises(BudgetError, match="OS407"):
        apply(plan, replace=True)
    assert (tmp_path / "out/near.session").read_bytes() == b"somebody's notes"
    assert charged(tmp_path, plan) == 2


def test_of_two_sessions_each_is_chosen_by_name_and_both_are_charged_once(tmp_path):
    plan = plan_file(spec_in(tmp_path, two_sessions()))
    with pytest.raises(SpecError, match="OS305"):
        serve(plan)
    ask(plan, "others")
    assert (tmp_path / "out/near.session").exists()
    assert (tmp_path / "others.session").exists()
    ask(plan, "answers")
    ask(plan, "others")
    assert charged(tmp_path, plan) == 1
    with serve(plan, "answers") as one, serve(plan, "others") as two:
        assert [one.session.answered, two.session.answered] == [1, 2]
    names = [stores.place_at(tmp_path / f) for f in ("out/near.session", "others.session")]
    assert len({place.mark.name for place in names}) == 2
    for place in names:
        place.take().close()
    # A store that is gone was paid for, and its budget went with it: one more is one more run.
    (tmp_path / "others.session").unlink()
    with pytest.raises(DataError, match="OS609"):
        serve(plan, "others")
    assert charged(tmp_path, plan) == 1


def test_a_copy_of_one_store_is_not_another_ones(tmp_path):
    """Both are made by one entry: a copy keeps its name, whatever output it is served as."""
    plan = plan_file(spec_in(tmp_path, two_sessions()))
    apply(plan)
    shutil.copy(tmp_path / "out/near.session", tmp_path / "others.session")
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan, "others")
    ask(plan, "answers")
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan, "others")
    assert charged(tmp_path, plan) == 1


def test_the_sums_of_an_engine_are_released_beside_a_session(tmp_path):
    plan = plan_file(spec_in(tmp_path))
    done = apply(plan, engine=engine_of("local"))
    assert done.stores["answers"].exists()
    ask(plan)
    assert charged(tmp_path, plan) == 1


@pytest.mark.parametrize("engine", [None, "local"])
def test_what_the_gate_refuses_is_returned_and_makes_no_store(tmp_path, engine):
    spec = spec_in(tmp_path)
    np.savez(tmp_path / "points.npz", x=np.full((3, 2), 7.0), kind=np.array(["a"] * 3))
    plan = plan_file(spec)
    with pytest.raises(DataError):
        apply(plan, engine=None if engine is None else engine_of(engine))
    assert kinds(tmp_path) == ["reserve", "refusal"]
    assert charged(tmp_path, plan) == 0
    assert not (tmp_path / "out/near.session").exists()


def test_without_a_ledger_the_store_that_a_run_made_is_served(tmp_path):
    text = SPEC.replace("    ledger: {file: points.ledger, limit: {rho: 1.0}}\n", "")
    plan = plan_file(spec_in(tmp_path, text))
    apply(plan)
    ask(plan)
    with serve(plan) as served:
        assert served.session.answered == 1


@pytest.mark.parametrize(
    ("output", "code"),
    [
        ("{from: near, save: out/a.npz}", "OS306"),
        ("{from: near, serve: queryable}", "OS306"),
        ("{from: near, serve: session, save: out/a.npz}", "OS306"),
        ("{from: tree, serve: session}", "OS306"),
    ],
)
def test_what_cannot_be_saved_or_served_is_refused_by_check(tmp_path, output, code):
    """`check` and `plan` passed each of them, and `apply` or `session` refused."""
    text = SPEC.replace("{from: near, serve: session, store: out/near.session}", output)
    with pytest.raises(Refused, match=code):
        plan_file(spec_in(tmp_path, text))


def test_sessions_that_are_not_known_to_add_up_side_by_side_are_refused(tmp_path, monkeypatch):
    """OpenDP lets only the last interactive release of approximate zCDP be asked; so does `check`."""
    real = IndKnn.bind

    def bind(self, domain, metric):
        return replace(real(self, domain, metric), measure="approx_zero_concentrated_divergence")

    monkeypatch.setattr(IndKnn, "bind", bind)
    with pytest.raises(Refused, match="OS306"):
        plan_file(spec_in(tmp_path, two_sessions()))


def test_what_opendp_composes_ends_with_what_is_asked(tmp_path):
    """Under approximate zCDP it locks an earlier one: the sketch `tree` came after the session `near`."""
    text = SPEC.replace("measure: zcdp", "measure: approx_zcdp")
    text = text.replace("budget: {rho: 0.3}", "budget: {epsilon: 2.0, delta: 1.0e-5}")
    plan = plan_file(spec_in(tmp_path, text.replace("{rho: 1.0}", "{epsilon: 8.0, delta: 1.0e-3}")))
    points = np.load(tmp_path / "points.npz")
    rows = {"x": points["x"], "kind": (points["kind"] == "b").astype(np.int64)}
    *_, asked = plan.to_opendp()(rows)
    assert asked(np.array([[8.0, 8.0]])).labels[0] in ("a", "b")


def test_a_store_that_cannot_be_opened_leaves_the_files_and_is_paid_for(tmp_path, monkeypatch):
    plan = plan_file(spec_in(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(stores, "make_store", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            apply(plan)
    assert files(tmp_path) == WHOLE
    ask(plan)
    assert charged(tmp_path, plan) == 1


# --------------------------------------------------------------------------------------------------
# A process that is killed at any step.

STEPS = {
    "open": Transaction,
    "reserve": Transaction,
    "open_private": execute,
    "_made_releases": execute,
    "stage": execute,
    "complete": RunFolder,
    "settle": Transaction,
    "_place": publish,
    "make_store": stores,
    "outcome": Ledger,
    "done": RunFolder,
    "release": RunFolder,
    "take_turn": session,
    "opened": Ledger,
}
SERVING = ("take_turn", "opened")
FILES = ("stage", "complete", "_place", "outcome", "done", "release")
KILLS = [
    (text, action, name, when)
    for text in ("mixed", "alone")
    for action in ("apply", "session")
    for name in STEPS
    for when in ("before", "after")
    if (action == "session" or name not in SERVING) and (text == "mixed" or name not in FILES)
]
FEW = {
    ("mixed", "apply", "reserve", "after"),
    ("mixed", "apply", "complete", "after"),
    ("mixed", "apply", "make_store", "after"),
    ("mixed", "session", "settle", "after"),
    ("mixed", "session", "take_turn", "before"),
    ("alone", "apply", "make_store", "before"),
}
"""Kills in the suite; the others in `long`."""
WINDOW = {
    ("reserve", "after"),
    ("open_private", "before"),
    ("open_private", "after"),
    ("_made_releases", "before"),
    ("_made_releases", "after"),
    ("stage", "before"),
    ("complete", "before"),
}
"""Between the reserve and the complete list of files: what was drawn there is lost, and paid for."""


def killed(plan: Plan, where: object, name: str, when: str, action) -> bool:
    """Run in a process that SIGKILL ends at a step; say whether it came so far."""
    real = getattr(
        where, name
    )  # an absent step fails here: a child that fails goes on as its parent
    child = os.fork()
    if child == 0:

        def step(*given, **named):
            if when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            found = real(*given, **named)
            os.kill(os.getpid(), signal.SIGKILL)
            return found

        setattr(where, name, step)
        for module in (execute, session):  # where the same function is known by name
            if getattr(module, name, None) is real:
                setattr(module, name, step)
        with suppress(BaseException):
            action(plan)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.few(2)
@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
@pytest.mark.parametrize("kill", tiered(KILLS, FEW.__contains__), ids="-".join)
def test_killed_at_a_step_the_ledger_holds_the_plans_total(tmp_path, kill):
    """A session never charges again; `apply` does only where what was drawn is lost."""
    text, action, name, when = kill
    folder, other = tmp_path / "one", tmp_path / "other"
    folder.mkdir()
    plan = plan_file(spec_in(folder, SPEC if text == "mixed" else alone()))
    act = apply if action == "apply" else lambda plan: serve(plan).__enter__()
    assert killed(plan, STEPS[name], name, when, act)
    assert charged(folder, plan) <= 1
    shutil.copytree(folder, other)
    lost = text == "mixed" and (name, when) in WINDOW
    assert lost <= (charged(folder, plan) == 1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ask(plan)
    ask(plan)
    assert charged(folder, plan) == 1
    assert any("are lost" in str(w.message) for w in said) == lost
    twin, most = moved(plan, other), 2 if lost else 1
    with suppress(DataError):  # OS609: all was made, and the store is there
        apply(twin)
    assert charged(other, plan) == most
    ask(twin)
    assert charged(other, plan) == most
    if text == "mixed":
        assert files(folder) == (set() if lost else WHOLE)
        assert files(other) == WHOLE


@pytest.mark.skipif(sys.platform == "win32", reason="no fork")
def test_four_processes_that_open_one_new_store_charge_once(tmp_path):
    plan, children = plan_file(spec_in(tmp_path)), []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                ask(plan)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    with suppress(BudgetError):
        ask(plan)
    assert charged(tmp_path, plan) == 1
    ask(plan)
    assert charged(tmp_path, plan) == 1


def test_the_hint_about_stores_of_a_forgotten_ledger_leads_on(tmp_path):
    """It said that `session` serves the other store and charges nothing: each of two named the other."""
    spec = spec_in(tmp_path, two_sessions())
    plan = plan_file(spec)
    apply(plan)
    for file in tmp_path.glob("points.ledger*"):
        file.unlink()
    assert run("ledger", "new", spec, "--forget").exit_code == 0
    for name, other in (("answers", "others"), ("others", "answers")):
        with pytest.raises(
            DataError, match=rf"OS609 outputs.{other}.store.*was forgotten"
        ) as caught:
            serve(plan, name=name)
        assert "charges nothing" not in caught.value.hint
        assert "move that file away" in caught.value.hint
    with pytest.raises(DataError, match="move that file away"):
        apply(plan)
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert not ledger.charges
    (tmp_path / "others.session").rename(tmp_path / "others.old")
    (tmp_path / "out" / "tree.npz").unlink()
    (tmp_path / "out" / "tree.npz.certificate.json").unlink()
    with serve(plan, name="answers") as served:
        assert len(served.ask(ONE).labels) == 1
    with serve(plan, name="others") as served:
        assert len(served.ask(ONE).labels) == 1
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert [charge.loss for charge in ledger.charges] == [plan.charge.loss]
