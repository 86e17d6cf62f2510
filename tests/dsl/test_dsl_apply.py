"""``apply`` from end to end: files, bad data, certificates, plans that moved, nothing half done."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import (
    DataError,
    InternalError,
    ReleaseError,
    SimError,
    SpecError,
    refusing,
)
from opendp_sim.dsl import apply, load_plan, plan_file, save_plan, verify
from opendp_sim.io.checked import GatedSource
from tests._cli import begun, run as _run
from tests._small import points, write_small

RHO = 0.02435597  # what OpenDP converts to epsilon 1 at delta 1e-6; the plan has all its digits


def _untouched(folder):
    """Say whether nothing was released and nothing charged."""
    ledger = folder / "points.ledger"
    if ledger.exists():
        with Ledger.open(ledger) as opened:
            assert not opened.charges
    return not (folder / "out").exists() or not list((folder / "out").iterdir())


def test_a_refusal_keeps_nothing_of_the_error_that_it_is_for():
    def fails():
        raise OSError("a record")

    def refusal(_error):
        return DataError("OS601", "file", expected="a file", got="none", hint="name one.")

    with pytest.raises(DataError) as caught, refusing(refusal, OSError):
        fails()
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)
    for place in caught.traceback:
        assert not any(isinstance(value, OSError) for value in place.frame.f_locals.values())
    with pytest.raises(KeyError), refusing(refusal, OSError):
        raise KeyError


# --- the good case --------------------------------------------------------------------------------


def test_apply_writes_release_answers_and_certificates(tmp_path):
    spec = write_small(tmp_path)
    done = apply(plan_file(spec))
    assert set(done.files) == {"density", "release"}
    with done.files["density"].open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 20
    assert {"density:a", "density:b"} <= set(rows[0])
    release = Release.load(done.files["release"])
    assert release.header["privacy"]["total"] == list(done.plan.total)
    assert release.arrays["counts"].shape == (2, 100, 16)
    for certificate in done.certificates.values():
        checked, left = verify(certificate, spec)
        assert len(checked) >= 9
        assert any("noise" in text for text in left)
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert [e.kind for e in ledger.entries] == ["reserve", "charge", "outcome"]
        assert ledger.charges[0] == done.plan.charge
    assert not list(tmp_path.rglob("*.part"))


def test_the_noise_is_there_and_of_the_planned_size(tmp_path):
    spec = write_small(tmp_path)
    plan = plan_file(spec)
    scale = plan.releases["noisy"].bound.record.scale
    assert scale == pytest.approx(10 / np.sqrt(2 * RHO), rel=1e-5)
    exact = _exact(plan, tmp_path)
    noisy = Release.load(apply(plan).files["release"]).arrays["counts"].ravel()
    noise = (noisy - exact).astype(float)
    # 3,200 cells: the sample deviation is within 8 standard errors (false alarms below 1e-14).
    assert noise.std() == pytest.approx(scale, rel=8 / np.sqrt(2 * noise.size))


def _exact(plan, folder):
    from opendp_sim.io.fold import build_sketch
    from opendp_sim.io.protocol import from_arrays

    typed = plan.types["sketch"]
    source = from_arrays(typed.entry.records, points())
    return build_sketch(typed.stages, source.blocks)


# --- where outputs go: tested before anything is charged ------------------------------------------


@pytest.mark.parametrize("blocked", ["a file where a folder should be", "a folder of that name"])
def test_an_output_that_cannot_be_written_is_refused_before_the_charge(tmp_path, blocked):
    spec = write_small(tmp_path)
    where = tmp_path / "elsewhere"
    if blocked.startswith("a file"):
        where.write_text("in the way")
    else:
        (where / "out" / "release.npz").mkdir(parents=True)
    result = _run("apply", begun(spec), "--into", where)
    assert result.exit_code == 4
    assert "error[OS609]" in result.stderr
    assert "`outputs." in result.stderr
    assert _untouched(tmp_path)
    assert not list(tmp_path.rglob("*.part"))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "save", ["../far.npz", "out/../../far.npz", "{outside}/far.npz", "link/far.npz"]
)
def test_an_output_stays_in_its_folder(tmp_path, save):
    inside, outside = tmp_path / "in", tmp_path / "elsewhere"
    inside.mkdir()
    outside.mkdir()
    (inside / "link").symlink_to(outside)
    spec = write_small(inside, ("save: out/release.npz", "save: " + save.format(outside=outside)))
    result = _run("apply", begun(spec))
    assert result.exit_code == 1
    assert "error[OS304]" in result.stderr
    assert "--into" in result.stderr
    assert not list(tmp_path.rglob("far*"))
    assert _run("apply", spec, "--anywhere").exit_code == 0
    assert list(tmp_path.rglob("far.npz"))


def test_an_output_in_a_place_that_nobody_can_write_to(tmp_path):
    spec = write_small(tmp_path, ("save: out/release.npz", "save: /proc/x/release.npz"))
    (tmp_path / "points.npz").unlink()  # the place is tested before the data is looked for
    result = _run("apply", begun(spec), "--anywhere")
    assert "error[OS609]: `outputs.release.save`" in result.stderr
    assert _untouched(tmp_path)


# --- bad data: a coded error with a hint, and nothing released or charged -------------------------


def _with(column, change):
    data = points()
    data[column] = change(data[column])
    return data


def _spoil(values, value):
    values = values.copy()
    values[7, 1] = value
    return values


BAD_DATA = {
    "nan": (_with("x", lambda v: _spoil(v, np.nan)), "OS603"),
    "infinity": (_with("x", lambda v: _spoil(v, np.inf)), "OS603"),
    "out of bounds": (_with("x", lambda v: _spoil(v, 1.5)), "OS605"),
    "wrong width": (_with("x", lambda v: v[:, :2]), "OS602"),
    "wrong dtype": (_with("x", lambda v: v.astype("U8")), "OS602"),
    "unknown label": (_with("kind", lambda v: np.where(np.arange(len(v)) == 5, "c", v)), "OS604"),
    "missing column": ({"x": points()["x"]}, "OS602"),
    "empty": ({"x": np.zeros((0, 3)), "kind": np.zeros(0, dtype="U1")}, "OS608"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_refused_before_the_charge(case, tmp_path):
    data, code = BAD_DATA[case]
    spec = write_small(tmp_path, data=data)
    with pytest.raises(DataError) as caught:
        apply(plan_file(spec))
    assert caught.value.code == code
    assert caught.value.hint
    assert _untouched(tmp_path)
    assert _run("apply", spec).exit_code == 4
    assert _untouched(tmp_path)


def test_a_missing_file_is_refused_before_the_charge(tmp_path):
    spec = write_small(tmp_path)
    (tmp_path / "points.npz").unlink()
    result = _run("apply", begun(spec))
    assert result.exit_code == 4
    assert "OS601" in result.stderr
    assert "help:" in result.stderr
    assert _untouched(tmp_path)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "queries",
    [
        {"x": np.zeros((4, 2))},
        {"x": np.full((4, 3), np.nan)},
        {"y": np.zeros((4, 3))},
        {"x": np.zeros((0, 3))},
    ],
)
def test_bad_queries_are_refused_before_the_charge(queries, tmp_path):
    spec = write_small(tmp_path, queries=queries)
    with pytest.raises(DataError) as caught:
        apply(plan_file(spec))
    assert caught.value.code in ("OS602", "OS607")
    assert caught.value.hint
    assert _untouched(tmp_path)


def test_enforce_clamps_and_drops_instead(tmp_path):
    data = _with("x", lambda v: _spoil(_spoil(v, 1.5), np.nan))
    spec = write_small(tmp_path, ("    columns:", "    ingest: enforce\n    columns:"), data=data)
    assert apply(plan_file(spec)).files["release"].exists()


def test_no_refusal_shows_a_record(tmp_path):
    secret = 0.123456789
    data = _with("x", lambda v: np.where(np.arange(3) == 0, secret, _spoil(v, np.nan)))
    spec = write_small(tmp_path, data=data)
    result = _run("apply", spec)
    assert "0.1234" not in result.stderr + result.stdout


# --- a failure inside a private function ----------------------------------------------------------


def test_a_failure_after_the_charge_is_charged_and_says_nothing(tmp_path, monkeypatch):
    from opendp_sim.dsl.run import execute as released

    real = released.build_sketch

    def broken(stages, blocks, **words):
        if not isinstance(blocks, GatedSource):  # those of the rehearsal, which are none
            return real(stages, blocks, **words)
        raise ValueError("a record: 0.123456789")

    monkeypatch.setattr(released, "build_sketch", broken)
    spec = write_small(tmp_path)
    with pytest.raises(InternalError) as caught:
        apply(plan_file(spec))
    assert caught.value.code == "OS902"
    assert "0.1234" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with Ledger.open(tmp_path / "points.ledger") as ledger:
        assert [e.kind for e in ledger.entries] == ["reserve"]
        assert len(ledger.charges) == 1
    assert not list((tmp_path / "out").iterdir())
    result = _run("apply", spec)
    assert result.exit_code == 70
    assert "0.1234" not in result.stderr


# --- plans that moved -----------------------------------------------------------------------------


def test_another_current_folder_is_not_another_ledger(tmp_path, monkeypatch):
    """A notebook that changed its folder charged a new ledger there, and the spec's own never."""
    write_small(tmp_path)
    monkeypatch.chdir(tmp_path)
    plan = plan_file("small.yaml")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        apply(plan)
        assert not list((tmp_path / name).iterdir())
    with Ledger.open(tmp_path / "points.ledger") as opened:
        assert len(opened.charges) == 2
    assert list((tmp_path / "out").iterdir())


def test_a_plan_document_runs_exactly_itself(tmp_path):
    spec = write_small(tmp_path)
    save_plan(plan_file(spec, {"width": "0.7"}), tmp_path / "p.plan")
    plan = load_plan(tmp_path / "p.plan")
    assert dict(plan.program.values) == {"width": 0.7}
    assert _run("apply", begun(tmp_path / "p.plan")).exit_code == 0
    # The run itself moved the ledger, so the same document does not run twice.
    result = _run("apply", tmp_path / "p.plan")
    assert result.exit_code == 1
    assert "OS309" in result.stderr


def test_a_plan_that_could_not_name_its_spec_is_not_written(tmp_path):
    """It was written, and its own reader refused it: a path with bytes that are no text."""
    folder = tmp_path / "n\udcff"
    folder.mkdir()
    plan = plan_file(write_small(folder))
    with pytest.raises(SpecError, match="OS309"):
        save_plan(plan, tmp_path / "p.plan")
    assert not (tmp_path / "p.plan").exists()
    save_plan(plan, folder / "p.plan")
    assert load_plan(folder / "p.plan").program == plan.program


@pytest.mark.few(3)
@pytest.mark.parametrize("what", ["spec", "versions", "numbers", "ledger"])
def test_a_plan_is_refused_once_anything_moved(what, tmp_path):
    spec = write_small(tmp_path)
    save_plan(plan_file(spec), tmp_path / "p.plan")
    document = json.loads((tmp_path / "p.plan").read_text())
    if what == "spec":
        spec.write_text(spec.read_text().replace("seed: 7", "seed: 8"))
    elif what == "versions":
        document["versions"]["opendp"] = "0.1"
    elif what == "numbers":
        document["plan"]["releases"]["noisy"]["deviation"] /= 2
    else:
        apply(plan_file(spec))
    (tmp_path / "p.plan").write_text(json.dumps(document))
    with pytest.raises(SpecError) as caught:
        load_plan(tmp_path / "p.plan")
    assert caught.value.code == "OS309"


# --- certificates ---------------------------------------------------------------------------------


CHANGES = [
    lambda c: c["plan"]["total"].__setitem__(0, 0.001),
    lambda c: c["plan"]["releases"]["noisy"]["mechanism"]["gaussian"].__setitem__("scale", 1.0),
    lambda c: c["plan"]["releases"]["noisy"]["maps"][-1].__setitem__(1, 1.0),
    lambda c: c["program"]["privacy"]["budget"].__setitem__("epsilon", 2.0),
    lambda c: c["file"].__setitem__("sha256", "0" * 64),
    lambda c: c["charge"].__setitem__("hash", "0" * 64),
    lambda c: c.__setitem__("format", "other"),
]


def test_verify_finds_any_changed_number(tmp_path):
    """One run, edited in one number after another."""
    spec = write_small(tmp_path)
    path = apply(plan_file(spec)).certificates["release"]
    verify(path, spec)
    whole = path.read_text()
    for change in CHANGES:
        body = json.loads(whole)
        change(body)
        path.write_text(json.dumps(body))
        with pytest.raises(ReleaseError) as caught:
            verify(path, spec)
        assert caught.value.code == "OS701"
    assert _run("verify", path, "--spec", spec).exit_code == 5


def test_verify_needs_no_spec_file_and_says_what_is_left(tmp_path):
    path = apply(plan_file(write_small(tmp_path))).certificates["release"]
    checked, left = verify(path)
    assert any("hash" in text for text in checked)
    assert any("--spec" in text for text in left)
    (tmp_path / "small.yaml").write_text("spec: opendp_sim/1\n")
    with pytest.raises(SimError):
        verify(path, tmp_path / "small.yaml")
