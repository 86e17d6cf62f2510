"""The ledger: durable before anything runs, one writer, a chain that shows every change."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import opendp.prelude as dp
import pytest

from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.composition import Charge, total_of
from opendp_sim.accounting.ledger import _file
from opendp_sim.accounting.ledger._durable import create
from opendp_sim.accounting.ledger._entries import canonical_json
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.core.errors import BudgetError
from opendp_sim.dsl import apply, plan_file
from tests._cli import run as _run
from tests._small import write_small

TERMS = Terms("zcdp", "add_remove 1 of row", Limit(epsilon=3.0, delta=1e-5))


def _refusal(action):
    with pytest.raises(BudgetError) as caught:
        action()
    assert caught.value.hint
    return caught.value


# --- totals ---------------------------------------------------------------------------------------


def test_totals_are_opendps_composition_and_conversion():
    charges = [Charge("zcdp", (0.02,)), Charge("pure", (0.3,)), Charge("zcdp", (0.01,))]
    total = total_of(charges, "zcdp", TERMS.limit)
    assert total.loss[0] == pytest.approx(0.02 + 0.3**2 / 2 + 0.01)
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")
    gaussian = dp.m.make_gaussian(*space, (2 * total.loss[0]) ** -0.5)
    again = dp.c.make_zCDP_to_approxDP(gaussian).map(1).epsilon(1e-5)
    assert total.epsilon == pytest.approx(again, rel=1e-9)


def test_what_is_left_is_the_epsilon_of_the_largest_run_that_fits():
    """The epsilons of zCDP runs do not add up: by OpenDP's conversion of the rho that is left."""
    space = dp.atom_domain(T="i64"), dp.absolute_distance(T="i64")

    def epsilon(rho: float) -> float:
        gaussian = dp.m.make_gaussian(*space, (2 * rho) ** -0.5)
        return dp.c.make_zCDP_to_approxDP(gaussian).map(1).epsilon(1e-5)

    low, high = 0.01, 3.0
    for _ in range(60):
        low, high = (
            ((low + high) / 2, high)
            if epsilon((low + high) / 2) <= 3.0
            else (low, (low + high) / 2)
        )
    total = total_of([Charge("zcdp", (0.075,))], "zcdp", TERMS.limit)
    assert total.left["epsilon"] == pytest.approx(epsilon(low - 0.075), rel=1e-8)
    assert total.share == pytest.approx(0.075 / low, rel=1e-8)


def test_delta_is_a_box_of_its_own_under_approx_zcdp():
    limit = Limit(epsilon=3.0, delta=1e-5, reserve_mechanisms=4e-6)
    fits = total_of([Charge("approx_zcdp", (0.02, 4e-6))], "approx_zcdp", limit)
    assert fits.fits
    assert not total_of([Charge("approx_zcdp", (0.02, 4.1e-6))], "approx_zcdp", limit).fits


@pytest.mark.parametrize(
    ("charge", "measure"), [("zcdp", "pure"), ("approx", "zcdp"), ("zcdp", "approx")]
)
def test_a_charge_that_cannot_join_is_refused(charge, measure):
    loss = (0.1, 1e-7) if charge == "approx" else (0.1,)
    limit = Limit(epsilon=1.0, delta=1e-5)
    error = _refusal(lambda: total_of([Charge(charge, loss)], measure, limit))
    assert error.code == "OS405"


# --- limits ---------------------------------------------------------------------------------------


def test_a_run_past_the_limit_is_refused_with_requested_spent_and_left(tmp_path):
    spec = write_small(tmp_path, ("epsilon: 3.0, delta: 1.0e-5", "epsilon: 1.5, delta: 1.0e-5"))
    apply(plan_file(spec))
    apply(plan_file(spec))
    (tmp_path / "out" / "density.csv").unlink()
    error = _refusal(lambda: apply(plan_file(spec)))
    assert error.code == "OS402"
    for word in ("requested", "spent", "left"):
        assert word in str(error.got)
    result = _run("apply", spec)
    assert result.exit_code == 3
    assert "OS402" in result.stderr
    assert not (tmp_path / "out" / "density.csv").exists()
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert len(ledger.charges) == 2
        assert ledger.total().fits


def test_a_spec_cannot_loosen_its_ledger(tmp_path):
    spec = write_small(tmp_path)
    apply(plan_file(spec))
    for old, new in [
        ("limit: {epsilon: 3.0", "limit: {epsilon: 30.0"),
        ("add_remove: 1, of", "add_remove: 2, of"),
    ]:
        moved = tmp_path / "moved.yaml"
        moved.write_text(spec.read_text().replace(old, new))
        assert _refusal(lambda: apply(plan_file(moved), replace=True)).code == "OS403"  # noqa: B023
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert len(ledger.charges) == 1


# --- one writer, crashes --------------------------------------------------------------------------


def test_a_second_process_is_refused(tmp_path):
    spec = write_small(tmp_path)
    apply(plan_file(spec))
    code = (
        "import sys, time; from opendp_sim.accounting.ledger.ledger import Ledger\n"
        "with Ledger.open(sys.argv[1]): print('open', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "points.ledger")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert holder.stdout.readline().strip() == "open"
        assert _refusal(lambda: apply(plan_file(spec))).code == "OS403"
        assert _run("ledger", "show", tmp_path / "points.ledger").exit_code == 3
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    apply(plan_file(spec))


_CRASH = """
import os, signal, sys
from opendp_sim.dsl import apply, plan_file; from opendp_sim.dsl.run import execute, publish, execute as released
if sys.argv[2] == "before":
    execute.open_private = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
elif sys.argv[2] == "between":
    real, sums = released.build_sketch, []
    def build(*given, **named):  # the first sum is the rehearsal's, over no record
        sums.append(1)
        return real(*given, **named) if len(sums) == 1 else os.kill(os.getpid(), signal.SIGKILL)
    released.build_sketch = build
else:
    publish.write_output = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
apply(plan_file(sys.argv[1]))
"""


@pytest.mark.parametrize(
    ("when", "charged"),
    [("before", 1), *(pytest.param(w, 1, marks=pytest.mark.long) for w in ("between", "writing"))],
)
def test_a_killed_run_costs_budget_and_never_privacy(when, charged, tmp_path):
    spec = write_small(tmp_path)
    ended = subprocess.run(
        [sys.executable, "-c", _CRASH, str(spec), when], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert not (tmp_path / "out" / "density.csv").exists()
    ledger = tmp_path / "points.ledger"
    with Ledger.open(ledger) as opened:
        assert len(opened.charges) == charged
        assert opened.verify() == charged
        assert not [e for e in opened.entries if e.kind == "outcome"]
    shown = _run("ledger", "show", ledger)
    assert ("no outcome" in shown.stdout) == bool(charged)
    apply(plan_file(spec))
    with Ledger.open(ledger) as opened:
        assert len(opened.charges) == charged + 1


@pytest.mark.deep
def test_a_run_killed_at_any_moment_leaves_no_answer_without_its_charge(tmp_path):
    spec = write_small(tmp_path, ("epsilon: 3.0", "epsilon: 300.0"))
    code = "import sys; from opendp_sim.dsl import *; apply(plan_file(sys.argv[1]))"
    whole = time.monotonic()
    subprocess.run([sys.executable, "-c", code, str(spec)], check=True)
    whole = time.monotonic() - whole
    for trial in range(40):
        before = _count(tmp_path)
        for path in (tmp_path / "out").glob("*"):
            path.unlink()
        running = subprocess.Popen([sys.executable, "-c", code, str(spec)])
        time.sleep(whole * (0.3 + 0.7 * trial / 40))
        os.kill(running.pid, signal.SIGKILL)
        running.wait()
        answered = any((tmp_path / "out").glob("*.csv"))
        assert _count(tmp_path) - before >= answered


def _count(folder):
    with Ledger.open(folder / "points.ledger") as ledger:
        return len(ledger.charges)


_CHARGED = """
import os, signal, sys
from opendp_sim.accounting.budget import Limit
from opendp_sim.accounting.ledger.ledger import Ledger, Terms
from opendp_sim.accounting.session.store import SessionStore
from opendp_sim.accounting.composition import Charge
terms = Terms("zcdp", "add_remove 1 of row", Limit(epsilon=3.0, delta=1e-5))
ledger = Ledger.open(sys.argv[1], terms)
ledger.charge(Charge("zcdp", (0.02,)), {})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_crash_the_main_file_alone_holds_every_charge(tmp_path):
    path, copy = tmp_path / "some.ledger", tmp_path / "copy.ledger"
    subprocess.run([sys.executable, "-c", _CHARGED, str(path)], check=False)
    shutil.copy(path, copy)  # as a backup does that does not know of the files beside it
    with Ledger.open(copy, TERMS) as ledger:
        assert [charge.loss for charge in ledger.charges] == [(0.02,)]


@pytest.mark.parametrize("kind", ["ledger", "store"])
def test_no_shared_memory_lies_beside_an_open_file(kind, tmp_path):
    """Of a file without the right to write it would be left, and refuse those that come later."""
    file = tmp_path / "kept"
    for _ in range(2):  # made, then found
        opened = Ledger.open(file, TERMS) if kind == "ledger" else SessionStore(file, "identity")
        with opened:
            if kind == "ledger":
                opened.charge(Charge("zcdp", (0.1,)), {})
            assert {path.name for path in tmp_path.iterdir()} <= {"kept", "kept.lock", "kept-wal"}


def test_an_emptied_or_lost_main_file_is_no_new_ledger(filled):
    content = filled.read_bytes()
    for damaged in (b"", content[: len(content) // 2]):
        filled.write_bytes(damaged)
        assert _refusal(lambda: Ledger.open(filled, TERMS)).code == "OS403"
        assert filled.read_bytes() == damaged
    filled.unlink()
    filled.with_name(filled.name + "-wal").write_bytes(b"something")
    assert _refusal(lambda: Ledger.open(filled, TERMS)).code == "OS407"
    assert _refusal(lambda: Ledger.open(filled, TERMS, forget=True)).code == "OS403"
    filled.with_name(filled.name + ".lock").unlink()
    assert _refusal(lambda: Ledger.open(filled, TERMS)).code == "OS403"
    assert not filled.exists()


@pytest.mark.parametrize("way", ["rename", "link", "remove", "replace"])
def test_a_ledger_that_lost_its_name_while_open_takes_no_charge(filled, tmp_path, way):
    """Its lock is by name: under another one somebody else opens it, and entries would be lost."""
    shutil.copy(filled, tmp_path / "old")
    with Ledger.open(filled) as ledger:
        filled.read_bytes()  # drops SQLite's own lock
        {
            "rename": lambda: filled.rename(tmp_path / "moved"),
            "link": lambda: (tmp_path / "second").hardlink_to(filled),
            "remove": filled.unlink,
            "replace": lambda: (tmp_path / "old").replace(filled),
        }[way]()
        assert _refusal(lambda: ledger.charge(Charge("zcdp", (0.01,)), {})).code == "OS403"


def test_a_ledger_named_from_the_current_folder_is_charged_wherever_that_is_later(
    filled, tmp_path, monkeypatch
):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Ledger.open(filled.name) as ledger:
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert ledger.charge(Charge("zcdp", (0.01,)), {}).seq == 9
        filled.rename(tmp_path / "moved")
        assert _refusal(lambda: ledger.charge(Charge("zcdp", (0.01,)), {})).code == "OS403"


def test_who_died_before_a_new_ledger_had_one_name_stops_nobody(filled, tmp_path):
    (tmp_path / f"{filled.name}.abcd_123.new").hardlink_to(filled)
    with Ledger.open(filled) as ledger:
        assert ledger.charge(Charge("zcdp", (0.01,)), {}).seq == 9
    assert not list(tmp_path.glob("*.new"))


# --- the chain ------------------------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path):
    path = tmp_path / "some.ledger"
    with Ledger.open(path, TERMS) as ledger:
        for place in range(4):
            entry = ledger.charge(Charge("zcdp", (0.01 * (place + 1),)), {"program": str(place)})
            ledger.outcome(entry, {"files": {}})
    return path


_EDITS = {
    "an edited loss": "UPDATE entries SET body = replace(body, 'zcdp', 'pure') WHERE seq = 3",
    "a removed entry": "DELETE FROM entries WHERE seq = 3",
    "a cut tail": "DELETE FROM entries WHERE seq > 5",
    "no entry at all": "DELETE FROM entries",
    "another limit": "UPDATE meta SET value = replace(value, '3.0', '9.0') WHERE key = 'genesis'",
    "a lost head": "DELETE FROM meta WHERE key = 'head'",
    "swapped": "UPDATE entries SET seq = CASE seq WHEN 1 THEN 103 WHEN 3 THEN 101 ELSE seq END;"
    "UPDATE entries SET seq = seq - 100 WHERE seq > 100",
    "renumbered": "DELETE FROM entries WHERE seq = 1; UPDATE entries SET seq = seq - 1",
}


@pytest.mark.parametrize("edit", _EDITS)
def test_verify_detects(edit, filled):
    assert _run("ledger", "verify", filled).exit_code == 0
    connection = sqlite3.connect(filled)
    connection.executescript(_EDITS[edit])
    connection.commit()
    connection.close()
    result = _run("ledger", "verify", filled)
    assert result.exit_code == 3
    assert "OS403" in result.stderr
    # A broken ledger takes no charge either.
    assert _refusal(lambda: Ledger.open(filled, TERMS)).code == "OS403"


def test_an_older_copy_is_found_by_a_head_kept_elsewhere(filled, tmp_path):
    old = filled.read_bytes()
    with Ledger.open(filled) as ledger:
        head = ledger.charge(Charge("zcdp", (0.001,)), {"program": "late"}).hash
    assert _run("ledger", "verify", filled, "--head", head).exit_code == 0
    for side in ("-wal", "-shm"):
        filled.with_name(filled.name + side).unlink(missing_ok=True)
    filled.write_bytes(old)
    assert _run("ledger", "verify", filled).exit_code == 0
    assert _run("ledger", "verify", filled, "--head", head).exit_code == 3


@pytest.mark.parametrize("content", [b"", b"no database at all, but some text" * 40])
def test_what_is_no_ledger_is_refused(content, tmp_path):
    path = tmp_path / "x.ledger"
    path.write_bytes(content)
    result = _run("ledger", "show", path)
    assert result.exit_code == 3
    assert "OS403" in result.stderr
    assert _run("ledger", "show", tmp_path / "none.ledger").exit_code == 3
    assert not (tmp_path / "none.ledger").exists()


def test_show_prints_limit_charges_spent_and_left(filled):
    text = _run("ledger", "show", filled).stdout
    assert "limit     epsilon 3, delta 1e-05" in text
    assert text.count("rho 0.0") == 4
    assert "spent     rho 0.1" in text
    assert "left      room for one more run of epsilon" in text


def test_a_copy_made_by_the_holder_lets_nobody_in(filled):
    """POSIX drops SQLite's lock when this process closes any descriptor of the file."""
    code = (
        "import sys; from opendp_sim.accounting.ledger.ledger import Ledger\n"
        "try: Ledger.open(sys.argv[1]); print('open')\n"
        "except Exception as error: print(error.code)"
    )
    with Ledger.open(filled):
        filled.read_bytes()
        seen = subprocess.run(
            [sys.executable, "-c", code, str(filled)], capture_output=True, text=True, check=True
        )
        assert seen.stdout.strip() == "OS403"


def test_a_fork_cannot_charge(filled):
    with Ledger.open(filled) as ledger:
        ledger._tables._owner += 1
        assert _refusal(lambda: ledger.outcome(ledger.entries[0], {})).code == "OS403"


def test_what_a_dead_process_left_while_it_made_a_ledger_is_removed(tmp_path):
    old = [tmp_path / f"people.ledger.abc_1234.new{end}" for end in ("", "-journal")]
    kept = [tmp_path / name for name in ("people.ledger.mine.new", "people.ledger.fresh_12.new")]
    for path in (*old, *kept):
        path.write_bytes(b"")
    for path in (*old, kept[0]):
        os.utime(path, (0, 0))
    create(tmp_path / "people.ledger", lambda connection: None)
    assert not any(path.exists() for path in old)
    assert all(path.exists() for path in kept)


# --- what else a file of SQLite can hold ----------------------------------------------------------

STRANGE = {
    "a trigger": "CREATE TRIGGER a AFTER INSERT ON entries BEGIN DELETE FROM entries WHERE seq>3; END;",
    "an endless view": """ALTER TABLE entries RENAME TO e2; CREATE VIEW entries AS WITH RECURSIVE c(seq) AS
        (SELECT 1 UNION ALL SELECT seq+1 FROM c) SELECT seq, 'x' body, 'y' hash FROM c;""",
    "a table more": "CREATE TABLE keep AS SELECT * FROM entries;",
    "an index": "CREATE INDEX i ON entries (hash);",
    "another column": "ALTER TABLE entries ADD COLUMN more TEXT;",
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_ledger_with_anything_but_its_two_tables_is_refused(filled, what):
    """A trigger took later charges out again, and a view is a program: it ran for minutes."""
    with closing(sqlite3.connect(filled)) as connection:
        connection.executescript("PRAGMA journal_mode=DELETE;" + STRANGE[what])
    assert _refusal(lambda: Ledger.open(filled)).code == "OS403"
    assert _refusal(lambda: Ledger.open(filled, TERMS)).code == "OS403"


def test_no_lock_is_made_beside_a_file_that_is_no_ledger(tmp_path):
    """The path of a ledger can come out of somebody else's certificate, and other programs have locks."""
    for name, content in (("index", b"DIRC and what git keeps"), ("empty", b"")):
        (tmp_path / name).write_bytes(content)
        assert _refusal(lambda: Ledger.open(tmp_path / name)).code == "OS403"  # noqa: B023
    assert {path.name for path in tmp_path.iterdir()} == {"index", "empty"}


@pytest.mark.parametrize("what", ["other", "link"])
def test_a_lock_that_holds_something_or_is_a_link_is_another_programs(tmp_path, what):
    """``uv.lock`` beside a ledger called ``uv`` was taken for its lock; older lock libraries empty it."""
    with Ledger.open(tmp_path / "uv", TERMS):
        pass
    (tmp_path / "kept").write_bytes(b"precious")
    lock = tmp_path / "uv.lock"
    lock.unlink()
    if what == "other":
        lock.write_bytes(b"precious")
    else:
        lock.symlink_to(tmp_path / "kept")
    assert _refusal(lambda: Ledger.open(tmp_path / "uv", TERMS)).code == "OS403"
    assert lock.read_bytes() == (tmp_path / "kept").read_bytes() == b"precious"


def test_an_entry_that_nobody_could_read_again_is_refused_in_plain_words(tmp_path):
    """It was "restore the ledger from a backup", the one advice that hides charges."""
    with Ledger.open(tmp_path / "a.ledger", TERMS) as ledger:
        made = ledger.reserve(Charge("zcdp", (0.01,)), {"unit": TERMS.unit})
        for action in (
            lambda: ledger.charge(
                Charge("zcdp", (0.01,)), {"unit": TERMS.unit, "name": "x" * 2**20}
            ),
            lambda: ledger.reserve(
                Charge("zcdp", (0.01,)), {"unit": TERMS.unit, "name": "Ł" * 2**19}
            ),
            lambda: ledger.settle(
                made, "charge", {"files": {str(n): "0" * 64 for n in range(20_000)}}
            ),
        ):
            refused = _refusal(action)
            assert refused.code == "OS403"
            assert refused.got == "a longer one; nothing was recorded"
            assert "fewer outputs" in refused.hint
        assert len(ledger.entries) == 1
        longest = "x" * (2**20 - 2**11)
        ledger.charge(Charge("zcdp", (0.01,)), {"unit": TERMS.unit, "name": longest})
    with Ledger.open(tmp_path / "a.ledger", TERMS) as ledger:
        assert ledger.entries[-1].body["name"] == longest


def test_a_run_whose_settlement_is_too_long_is_refused_before_its_charge(tmp_path, monkeypatch):
    """It was charged, and its files were never released."""
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir(), other.mkdir()
    apply(plan_file(write_small(one)), into=one)
    with Ledger.open(next(one.glob("*.ledger"))) as ledger:
        reserve, charge, *_ = ledger.entries
        longest = [len(canonical_json(entry.body)) for entry in (reserve, charge)]
    assert longest[0] + 200 < longest[1]
    monkeypatch.setattr(_file, "LONGEST_ENTRY", 2**10 + longest[0] + 100)
    with pytest.raises(BudgetError, match=r"OS403.*fewer outputs"):
        apply(plan_file(write_small(other)), into=other)
    with Ledger.open(next(other.glob("*.ledger"))) as ledger:
        assert not ledger.entries
    monkeypatch.setattr(_file, "LONGEST_ENTRY", 2**10 + longest[1] + 100)
    assert apply(plan_file(write_small(other)), into=other).charge is not None
