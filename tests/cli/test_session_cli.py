"""``opendp-sim session``: lines in, answers out, errors as coded JSON."""

from __future__ import annotations

import json
import shutil
import sqlite3
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from opendp_sim.accounting.ledger._durable import claimed
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.session.postgres import place_at
from opendp_sim.cli import app
from opendp_sim.cli.session import session_command
from opendp_sim.core.errors import BudgetError, DataError
from opendp_sim.dsl.plan.plan import plan_file
from opendp_sim.dsl.run import stores as session_turns
from opendp_sim.dsl.run.charge import Transaction
from opendp_sim.dsl.run.session import serve
from opendp_sim.io.builtin import builtin_source
from opendp_sim.report.ledger import ledger_facts
from tests._cli import begun

SPECS = Path(__file__).parents[2] / "specs"
PEOPLE = """
spec: opendp_sim/1
name: people
data:
  people:
    source: {npz: people.npz}
    ledger: {file: ledger.jsonl, limit: {rho: 1.0}}
    columns:
      x: {dtype: "array[f64, 2]", bounds: [-1, 1]}
      kind: {dtype: category, keys: [a, b]}
      who: {dtype: str, role: privacy_id}
privacy:
  unit: {add_remove: 1, of: who}
  measure: zcdp
  budget: {rho: 0.4}
flow:
  rows:
    from: people
    steps:
      - select: {features: x, label: kind}
      - quantize: {bits: 8}
  near:
    from: rows
    release: {mechanism: {ind_knn: {queries: 50, size: 60, threshold: 0.5, centre: false}}, spend: 100%}
outputs:
  answers: {from: near, serve: session, store: people.session}
"""


@pytest.fixture
def folder(tmp_path):
    shutil.copy(SPECS / "digits-session.yaml", tmp_path)
    rng = np.random.default_rng(1)
    np.savez(
        tmp_path / "people.npz",
        x=rng.uniform(-1, 1, (60, 2)),
        kind=np.array(["a", "b"])[rng.integers(0, 2, 60)],
        who=np.array([f"p{i // 2}" for i in range(60)]),
    )
    (tmp_path / "people.yaml").write_text(PEOPLE)
    begun(tmp_path / "people.yaml")
    return tmp_path


def run(*arguments, lines=()):
    alone = typer.Typer()
    alone.command()(session_command)
    text = "".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines)
    result = CliRunner().invoke(alone, [str(a) for a in arguments], input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


def refused(*arguments, code=1):
    """Return what standard error says of a refusal."""
    result = CliRunner().invoke(app, ["session", *map(str, arguments)])
    assert result.exit_code == code
    return result.stderr


def test_lines_are_answered_and_faults_are_coded(folder):
    digits = next(iter(builtin_source("digits_test").blocks(4)))["pixels"].tolist()
    lines = [
        {"query": digits[0], "id": 7},
        {"query": {"pixels": digits[1]}},
        {"queries": digits},
        {"query": [1, 2]},
        "nonsense\n",
        "\n",
        {"delete": ["x"]},
        {"query": None},
        {},
        {"reference": digits},
        {"query": [float("nan")] * 64},
    ]
    out = run(folder / "digits-session.yaml", lines=lines)
    assert out[0]["id"] == 7
    assert {"label", "count", "votes", "deviation"} <= set(out[0])
    assert len(out[1]["votes"]) == 10
    assert len(out[2]["answers"]) == 4
    codes = [answer["error"]["code"] if "error" in answer else None for answer in out[3:]]
    assert codes == ["OS607", "OS304", "OS304", "OS607", "OS304", None, "OS607"]
    assert out[8] == {"ok": False}


def test_a_file_is_answered_in_order_and_the_store_remembers(folder):
    spec = folder / "digits-session.yaml"
    queries = next(iter(builtin_source("digits_test").blocks(300)))
    np.savez(folder / "queries.npz", pixels=queries["pixels"])
    out = run(spec, "--batch", folder / "queries.npz")
    assert len(out) == 300
    right = np.mean(
        [answer["label"] == label for answer, label in zip(out, queries["label"], strict=True)]
    )
    assert right > 0.5  # about 0.85 with a deviation of 0.02
    with serve(plan_file(spec)) as served:
        assert served.session.answered == 300
    assert "error[OS304]" in refused(spec, "--batch", folder / "queries.txt")
    assert "error[OS305]" in refused(spec, "--output", "other")


def test_the_curator_updates_by_person_and_the_ledger_is_charged_once(folder):
    spec = folder / "people.yaml"
    new = {"x": [0.5, 0.5], "kind": "b", "who": "new"}
    lines = [
        {"query": [0.5, 0.5]},
        {"insert": [new]},
        {"relabel": [new | {"kind": "a"}]},
        {"delete": ["new", "nobody"]},
        {"insert": [{"x": [9, 9], "kind": "a", "who": "q"}]},
        {"query": [0.1, 0.5]},
    ]
    out = run(spec, "--updates", lines=lines)
    assert [set(answer) for answer in out[1:4]] == [{"ok"}] * 3
    assert out[4]["error"]["code"] == "OS607"
    assert "label" in out[5]
    assert charges(folder) == 1
    assert len(run(spec, lines=[{"query": [0.5, 0.5]}])) == 1
    assert charges(folder) == 1
    assert run(spec, lines=[{"insert": [new]}])[0]["error"]["code"] == "OS304"


def charges(folder):
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        return len(ledger.charges)


ONE = [{"query": [0.5, 0.5]}]


def test_a_copy_of_a_store_is_no_second_set_of_purses(folder):
    """With a ledger, of a store and its copies only the one that was served last goes on."""
    spec, store = folder / "people.yaml", folder / "people.session"
    run(spec, lines=ONE)
    early, copy = folder / "early.session", folder / "copy.session"
    shutil.copy(store, early)
    shutil.copy(store, copy)
    run(spec, lines=ONE)  # the original goes on: its copies are older
    assert charges(folder) == 1
    for other in (early, copy):
        assert "an older copy" in refused(spec, "--store", other, code=3)
    shutil.copy(store, copy)
    assert "label" in run(spec, "--store", copy, lines=ONE)[0]  # a store may move
    assert "an older copy" in refused(spec, code=3)  # but not be in two places
    shutil.copy(early, copy)  # nor come back from a backup
    assert "an older copy" in refused(spec, "--store", copy, code=3)
    assert charges(folder) == 1


def test_another_store_is_another_charge(folder):
    """Deleted, elsewhere, made without the ledger, or under another one: the purses are paid for."""
    spec, store = folder / "people.yaml", folder / "people.session"
    run(spec, lines=ONE)
    run(spec, "--store", folder / "other.session", lines=ONE)
    assert charges(folder) == 2
    assert "error[OS402]" in refused(spec, "--store", folder / "third.session", code=3)
    store.unlink()
    assert "error[OS402]" in refused(spec, code=3)  # 0.4 of 1.0, three times
    text = spec.read_text()
    (folder / "free.yaml").write_text(
        text.replace("    ledger: {file: ledger.jsonl, limit: {rho: 1.0}}\n", "")
    )
    run(folder / "free.yaml", "--store", folder / "free.session", lines=ONE)
    assert "error[OS402]" in refused(spec, "--store", folder / "free.session", code=3)
    (folder / "two.yaml").write_text(text.replace("ledger.jsonl", "two.jsonl"))
    run(begun(folder / "two.yaml"), "--store", folder / "other.session", lines=ONE)
    with Ledger.open(folder / "two.jsonl") as ledger:
        assert len(ledger.charges) == 1  # this ledger had not been charged for it


def test_without_a_ledger_nobody_counts_stores(folder):
    """What cannot be refused, and is said: each store is a budget of its own."""
    spec = folder / "digits-session.yaml"
    query = [{"query": [1.0] * 64}]
    for name in ("a", "b"):
        assert "label" in run(spec, "--store", folder / f"{name}.session", lines=query)[0]
    shutil.copy(folder / "a.session", folder / "c.session")
    assert "label" in run(spec, "--store", folder / "c.session", lines=query)[0]
    with serve(plan_file(spec), store=folder / "c.session") as served:
        assert served.session.answered == 2


def test_a_copy_made_since_the_last_opening_is_seen_after_a_clean_end(folder):
    """The ledger was told where the chain ended."""
    spec, copy, end = folder / "people.yaml", folder / "copy.session", folder / "end.session"
    with serve(plan_file(spec)) as served:
        served.ask([[0.5, 0.5]])
        shutil.copy(folder / "people.session", copy)
        served.ask([[0.5, 0.5]])
    shutil.copy(folder / "people.session", end)
    shutil.copy(copy, folder / "people.session")
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec))
    shutil.copy(end, folder / "people.session")
    with serve(plan_file(spec)) as served:
        assert served.session.answered == 2


def test_a_copy_made_since_the_last_opening_is_not_seen_after_a_kill(folder):
    """What a ledger cannot tell, and is said: it hears of openings and ends, not of answers."""
    spec, copy = folder / "people.yaml", folder / "copy.session"
    served = serve(plan_file(spec))
    served.ask([[0.5, 0.5]])
    shutil.copy(folder / "people.session", copy)
    served.ask([[0.5, 0.5]])
    served.session.close()  # as a process that is killed leaves it: the ledger hears nothing
    shutil.copy(copy, folder / "people.session")
    with serve(plan_file(spec)) as served:
        assert served.session.answered == 1


def test_a_session_ends_in_any_thread_once_its_ledger_heard_of_it(folder):
    """The ledger heard of the end, the store stayed open and answered: it was refused for ever."""
    spec = folder / "people.yaml"
    with ThreadPoolExecutor(1) as other:
        for _ in range(2):
            served = serve(plan_file(spec))
            assert len(other.submit(served.ask, [[0.5, 0.5]]).result().labels) == 1
            other.submit(served.__exit__, None, None, None).result()
            with pytest.raises(BudgetError, match="one that was closed"):
                served.ask([[0.5, 0.5]])
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        assert [bool(entry.body.get("ended")) for entry in ledger.entries[2:]] == [False, True] * 2


def test_a_session_that_ended_well_states_its_answers_in_the_ledger(folder):
    spec, file = folder / "people.yaml", folder / "ledger.jsonl"
    run(spec, lines=ONE * 3)
    shown = CliRunner().invoke(app, ["ledger", "show", str(file)]).output
    assert "  3 answered" in shown
    run(spec, lines=ONE * 2)
    with Ledger.open(file) as ledger:
        (charge,) = [entry for entry in ledger.entries if entry.kind == "charge"]
        assert ledger.answered_of(charge) == 5
        assert ledger.answered_of(ledger.entries[0]) == 5  # of the reserve of the same store
    page = " ".join(row[1] for row in ledger_facts(file).cards[0].parts[1].body)
    assert "5 answered" in page


def test_a_session_beyond_its_planned_questions_warns_once(folder):
    """The answer is paid for: it leaves also where warnings are errors."""
    spec = folder / "people.yaml"
    spec.write_text(spec.read_text().replace("queries: 50", "queries: 2"))
    with serve(plan_file(spec)) as served, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        served.ask([[0.5, 0.5]] * 2)
        assert not told
        served.ask([[0.5, 0.5]])
        served.ask([[0.5, 0.5]])
    assert ["planned for 2 questions" in str(one.message) for one in told] == [True]
    with serve(plan_file(spec)) as served, warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(served.ask([[0.5, 0.5]]).labels) == 1
    shown = CliRunner().invoke(app, ["session", str(spec)], input="")
    assert "5 questions answered so far, 2 planned" in shown.stderr


def test_a_file_that_is_exchanged_while_it_is_opened_is_refused(folder, monkeypatch):
    spec, store, early = folder / "people.yaml", folder / "people.session", folder / "early.session"
    run(spec, lines=ONE)
    shutil.copy(store, early)
    run(spec, lines=ONE)

    def exchanged(path):
        place = place_at(path)
        shutil.copy(early, store)
        return place

    monkeypatch.setattr("opendp_sim.dsl.run.stores.place_at", exchanged)
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec))


def test_of_two_first_openings_the_second_is_refused_and_not_charged(folder, monkeypatch):
    """It found no store, as the first one did: both were charged, and one of them for nothing."""
    spec = folder / "people.yaml"

    def meanwhile(plan, stack, *, real=Transaction.open, **named):
        patched.undo()
        with pytest.raises(BudgetError, match="OS407"):
            serve(plan)
        return real(plan, stack, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "open", meanwhile)
        assert "label" in run(spec, lines=ONE)[0]
    assert charges(folder) == 1
    assert "label" in run(spec, lines=ONE)[0]
    assert charges(folder) == 1


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_process_that_dies_before_the_ledger_hears_can_return(folder, monkeypatch, rounds):
    spec = folder / "people.yaml"
    run(spec, lines=ONE)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "opened", lambda *_: 1 / 0)
        for _ in range(rounds):
            with pytest.raises(ZeroDivisionError):
                serve(plan_file(spec))
    shutil.copy(folder / "people.session", folder / "copy.session")
    assert "label" in run(spec, lines=ONE)[0]
    assert "an older copy" in refused(spec, "--store", folder / "copy.session", code=3)
    assert charges(folder) == 1


def test_a_store_that_is_open_or_foreign_is_refused_before_the_ledger_is_asked(folder):
    spec, store = folder / "people.yaml", folder / "people.session"
    with serve(plan_file(spec)):
        assert "error[OS407]" in refused(spec, code=3)
    store.write_bytes(b"no store")
    assert "error[OS407]" in refused(spec, code=3)
    store.write_bytes(b"")
    assert "error[OS407]" in refused(spec, code=3)
    assert charges(folder) == 1


@pytest.mark.parametrize("second", ["near", "answers"])
def test_two_sessions_of_one_release_would_be_charged_as_one(folder, second):
    """Each store starts from full purses; the plan's total holds one of them."""
    again = f"  more: {{from: {second}, serve: session, store: more.session}}\n"
    (folder / "people.yaml").write_text(PEOPLE + again)
    message = refused(folder / "people.yaml", "--output", "more")
    assert "error[OS306]" in message
    assert "two sessions" in message
    assert not (folder / "more.session").exists()


@pytest.mark.parametrize("place", ["../people.session", "/people.session", "link/people.session"])
def test_a_store_outside_the_folder_is_refused_at_check_too(folder, tmp_path_factory, place):
    (folder / "link").symlink_to(tmp_path_factory.mktemp("elsewhere"))
    (folder / "people.yaml").write_text(PEOPLE.replace("store: people.session", f"store: {place}"))
    done = CliRunner().invoke(app, ["check", str(folder / "people.yaml")])
    assert done.exit_code == 1
    assert "error[OS304]" in done.stderr
    assert "leaves the folder" in done.stderr


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.filterwarnings("error")
def test_no_line_ends_the_session_or_anybody_s_purse(folder):
    """Whatever a line holds, it gets one line of strict JSON, and the next one is answered."""
    bad = [
        {"delete": [["p1", "p2"]]},
        {"delete": [["p1"], ["p2", "p3"]]},
        {"delete": [5]},
        {"delete": ["p1", 5]},
        {"delete": [True]},
        {"delete": [None]},
        {"delete": [{"who": "p1"}]},
        {"insert": [3]},
        {"insert": [{"x": [0, 0], "kind": "a", "who": 5}]},
        {"insert": [{"x": [0, 0], "kind": "a", "who": None}]},
        {"relabel": [[["p1"]]]},
        {"queries": [[1, 2], [3]]},
        {"query": [[1, 2], [3]]},
        {"query": DEEP[:400]},
        {"query": {"x": [[1], 2]}},
        {"query": [1e400, 1]},
        {"query": [10**400, 1]},
        {"query": "text"},
        {"query": True},
        f'{{"query": {DEEP}}}\n',
        DEEP + "\n",
        '{"query": [0, 0], "id": NaN}\n',
        '{"query": [0, 0], "id": 1e999}\n',
        '{"query": 1' + "0" * 5000 + "}\n",
    ]
    lines = [{"query": [0.5, 0.5]}, *bad, {"query": [1e308, 1]}, {"query": [0.5, 0.5]}]
    out = run(folder / "people.yaml", "--updates", lines=lines)
    assert len(out) == len(lines)
    assert {answer["error"]["code"] for answer in out[1:-2]} == {"OS304", "OS607"}
    assert "label" in out[-2]
    assert "label" in out[-1]


def test_bytes_that_are_no_text_are_one_bad_line(folder):
    lines = b'{"delete": ["\xff"]}\n{"query": [0.5, 0.5]}\n'
    alone = typer.Typer()
    alone.command()(session_command)
    spec = str(folder / "people.yaml")
    result = CliRunner().invoke(alone, [spec, "--updates"], input=lines)
    first, second = map(json.loads, result.stdout.splitlines())
    assert first["error"]["code"] == "OS304"
    assert "label" in second


def test_a_deletion_names_persons_in_the_type_of_their_column(folder):
    """An integer is nobody among texts; a category is named by its public keys."""
    spec = (folder / "people.yaml").read_text()
    for dtype, who, good, bad in (
        ("int64", np.arange(60) // 2, 5, "5"),
        ("{dtype: category, keys: [u, v], role: privacy_id}", np.array(["u", "v"] * 30), "u", "w"),
    ):
        held = dict(np.load(folder / "people.npz")) | {"who": who}
        np.savez(folder / "people.npz", **held)
        name = dtype[:4].strip("{")
        typed = spec.replace(
            "{dtype: str, role: privacy_id}",
            dtype if "{" in dtype else f"{{dtype: {dtype}, role: privacy_id}}",
        )
        (folder / "typed.yaml").write_text(typed.replace("people.session", f"{name}.session"))
        with serve(plan_file(folder / "typed.yaml")) as served:
            alive = served.session._service._pool.alive
            with pytest.raises(DataError, match="OS607"):
                served.update("delete", [bad])
            assert alive[:60].all()
            served.update("delete", [good])
            assert 0 < (~alive[:60]).sum() == (who == good).sum()


def test_the_store_of_a_spec_stays_in_its_folder(folder):
    (folder / "link").symlink_to(folder.parent)
    plain = (folder / "people.yaml").read_text()
    for place in ("../out.session", "link/out.session", str(folder.parent / "out.session")):
        (folder / "away.yaml").write_text(plain.replace("people.session", place))
        assert "error[OS304]" in refused(folder / "away.yaml")
        assert not (folder.parent / "out.session").exists()
        assert not (folder / "people.ledger").exists()
    run(folder / "away.yaml", "--store", folder.parent / f"{folder.name}.session", lines=ONE)


def test_a_copy_of_a_store_that_is_served_is_refused_until_the_end(folder):
    """Both have the ledger's turn; what is locked is the name, which they share."""
    spec, store, copy = folder / "people.yaml", folder / "people.session", folder / "copy.session"
    (folder / "links").mkdir()
    (folder / "links" / "ledger.jsonl").symlink_to(folder / "ledger.jsonl")
    shutil.copy(folder / "people.npz", folder / "links")
    linked = folder / "links" / "people.yaml"
    shutil.copy(spec, linked)
    with serve(plan_file(spec)) as served:
        shutil.copy(store, copy)
        for other in (spec, linked):
            with pytest.raises(BudgetError, match="OS407"):
                serve(plan_file(other), store=copy)
        served.ask([[0.5, 0.5]])
        run(spec, "--store", folder / "other.session", lines=ONE)  # of another name
    assert charges(folder) == 2
    with Ledger.open(folder / "ledger.jsonl") as ledger:
        assert ledger.refusals() == 0
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec), store=copy)
    with serve(plan_file(spec)) as served:
        assert served.session.answered == 1


def test_a_refused_opening_leaves_the_name_of_its_store_free(folder, monkeypatch):
    spec = folder / "people.yaml"
    run(spec, lines=ONE)
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "opened", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            serve(plan_file(spec))
    served = serve(plan_file(spec))
    served.session.close()
    with serve(plan_file(spec)) as served:
        assert served.session.answered == 1


def test_the_end_of_a_session_waits_for_the_ledger(folder):
    """Another run has it for a moment: a copy that was made meanwhile is refused all the same."""
    spec, store, copy = folder / "people.yaml", folder / "people.session", folder / "copy.session"
    with serve(plan_file(spec)) as served:
        shutil.copy(store, copy)
        served.ask([[0.5, 0.5]])
        busy = claimed(folder / "ledger.jsonl")
        free = threading.Timer(0.4, busy.release)
        free.start()
    free.join()
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec), store=copy)


@pytest.mark.parametrize("noted", [True, False])
def test_an_end_that_the_ledger_does_not_hear_is_noted_beside_it_or_said(
    folder, monkeypatch, noted
):
    """With the note a copy is refused at once; without it when the store was opened again."""
    spec, store, copy = folder / "people.yaml", folder / "people.session", folder / "copy.session"
    monkeypatch.setattr("opendp_sim.dsl.run.stores._PATIENCE", 0.2)
    served = serve(plan_file(spec))
    shutil.copy(store, copy)
    served.ask([[0.5, 0.5]])
    busy = claimed(folder / "ledger.jsonl")
    if noted:
        with served:
            pass
    else:
        monkeypatch.setattr("opendp_sim.dsl.run.stores.note_end", _full)
        with pytest.warns(RuntimeWarning, match="did not record the end"), served:
            pass
    busy.release()
    assert len(list(folder.glob("*.end"))) == noted
    for _ in range(2):
        if noted:
            with pytest.raises(BudgetError, match="OS407"):
                serve(plan_file(spec), store=copy)
        run(spec, lines=ONE)
        assert not list(folder.glob("*.end"))
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec), store=copy)


def test_an_end_that_somebody_stops_while_it_waits_is_noted(folder, monkeypatch):
    """Ctrl-C while the ledger was busy: nothing was noted or said, and an older copy answered again."""
    spec, store, copy = folder / "people.yaml", folder / "people.session", folder / "copy.session"

    def stopped(*_):
        raise KeyboardInterrupt

    served = serve(plan_file(spec))
    shutil.copy(store, copy)
    served.ask([[0.5, 0.5]])
    with monkeypatch.context() as patch:
        patch.setattr("opendp_sim.dsl.run.stores._record_end", stopped)
        with pytest.raises(KeyboardInterrupt):
            served.__exit__(None, None, None)
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec), store=copy)
    served = serve(plan_file(spec))
    with monkeypatch.context() as patch:
        patch.setattr("opendp_sim.dsl.run.stores._record_end", stopped)
        patch.setattr("opendp_sim.dsl.run.stores.note_end", _full)
        with (
            pytest.raises(KeyboardInterrupt),
            pytest.warns(RuntimeWarning, match="did not record the end"),
        ):
            served.__exit__(None, None, None)


@pytest.mark.filterwarnings("error")
def test_a_stop_just_after_the_note_says_nothing_that_is_not_so(folder, monkeypatch):
    """The note was there, and a warning said that nothing was."""
    spec, store, copy = folder / "people.yaml", folder / "people.session", folder / "copy.session"

    def noted_then_stopped(*words, note=session_turns.note_end):
        note(*words)
        raise KeyboardInterrupt

    served = serve(plan_file(spec))
    shutil.copy(store, copy)
    served.ask([[0.5, 0.5]])
    with monkeypatch.context() as patch:
        patch.setattr(session_turns, "note_end", noted_then_stopped)
        with pytest.raises(KeyboardInterrupt):
            served.__exit__(None, None, None)
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec), store=copy)


def _full(*_):
    raise OSError


def test_a_note_that_is_none_is_refused_and_an_old_one_is_not_asked(folder, monkeypatch):
    spec = folder / "people.yaml"
    monkeypatch.setattr("opendp_sim.dsl.run.stores._PATIENCE", 0.0)
    served = serve(plan_file(spec))
    busy = claimed(folder / "ledger.jsonl")
    with served:
        pass
    busy.release()
    (note,) = folder.glob("*.end")
    text = note.read_text()
    note.write_text("{}")
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec))
    note.write_text(text)
    run(spec, lines=ONE)
    note.write_text(text)  # as if the process had died before it removed it
    run(spec, lines=ONE)


@pytest.mark.parametrize("way", ["append", "fold"])
def test_a_store_that_was_rewritten_with_its_hashes_after_an_end_is_refused(folder, way):
    """Full purses in an entry of their own, after the head that the ledger heard or instead of it."""
    from opendp_sim.accounting.session import _chain as chain

    spec = folder / "people.yaml"
    run(spec, lines=[*ONE] * 3)
    with closing(sqlite3.connect(folder / "people.session", isolation_level=None)) as db:
        told, folded = chain.read_chain_head(db), chain.read_folded(db)
        units = np.frombuffer(db.execute("SELECT units FROM purses").fetchone()[0], "<i8")
        copy = np.full_like(units, units.max()).tobytes()
        (payload,) = db.execute("SELECT payload FROM entry WHERE kind = 'answers'").fetchone()
        if way == "fold":
            db.execute("DELETE FROM entry WHERE kind = 'answers'")
            kept = chain.start(str(chain._about(db, "name")))
            for *row, _ in db.execute(chain._ROWS + "ORDER BY place").fetchall():
                kept = chain.linked(kept, tuple(row))
            folded = chain.Folded(place=told.place, hash=told.hash, answers=0, kept=kept, marks={})
            chain.write_value(db, "folded", folded)
        row = (told.place + 1, "answers", payload, None, None, 0, chain.copy_hash(copy, folded))
        head = chain.Head(place=row[0], hash=chain.linked(told.hash, row))
        db.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*row, head.hash))
        db.execute("DELETE FROM purses")
        db.execute("INSERT INTO purses VALUES (?, ?)", (head.place, copy))
        chain.write_value(db, "head", head)
    with pytest.raises(BudgetError, match="OS407"):
        serve(plan_file(spec))
