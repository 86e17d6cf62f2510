"""A certificate binds this program, this charge and these files; every edit is refused by name."""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import opendp_sim
from opendp_sim.accounting.certificate import certificate
from opendp_sim.accounting.certificate.certificate import (
    digest_of,
    read_certificate,
    statement_digest,
)
from opendp_sim.accounting.certificate.signature import signed_text
from opendp_sim.accounting.ledger._entries import canonical_json, entry_hash
from opendp_sim.accounting.ledger._refusals import unavailable
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.core.errors import ReleaseError, SimError
from opendp_sim.dsl import apply, plan_file, verify
from opendp_sim.dsl.run import certificate as certify
from opendp_sim.dsl.run.charge import ledger_terms
from opendp_sim.dsl.verification import charge as verify_charge, verify as verification
from opendp_sim.dsl.verification.charge import stated_wrongly
from opendp_sim.dsl.verification.derivation import derivation
from opendp_sim.dsl.verification.report import NOT_FOUND, NOT_OPENED
from tests._small import write_small
from tests._tiers import some

NAME = "out/release.npz.certificate.json"
PAGE = Path(opendp_sim.__file__).parent / "accounting" / "certificate" / "certificate.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two runs of a program and one of another, on one ledger; the first one's files are kept."""
    folder = tmp_path_factory.mktemp("made")
    spec = write_small(
        folder,
        ("epsilon: 3.0", "epsilon: 30.0"),
        ("repetitions: 100", "repetitions: 4"),
        ("l1: 100, l2: 10", "l1: 4, l2: 2"),
    )
    apply(plan_file(spec))
    shutil.copytree(folder / "out", folder / "first")
    apply(plan_file(spec))
    text = spec.read_text()
    spec.write_text(
        text.replace("epsilon: 1.0", "epsilon: 0.1").replace("name: small", "name: other")
    )
    apply(plan_file(spec), into=folder / "elsewhere")
    spec.write_text(text)
    shutil.rmtree(folder / "out")
    shutil.move(folder / "first", folder / "out")
    return folder


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Plan each program once."""
    real = verification._replayed

    @cache
    def planned(_program, _output, record, path):
        return real(record.value, path)

    class Hidden:  # equal programs share a plan
        def __init__(self, value):
            self.value = value

        def __hash__(self):
            return 0

        def __eq__(self, other):
            return True

    monkeypatch.setattr(
        verification,
        "_replayed",
        lambda record, path: planned(
            canonical_json(record.program), record.output, Hidden(record), path
        ),
    )


def entries(folder):
    with closing(sqlite3.connect(folder / "points.ledger")) as db:
        rows = db.execute("SELECT seq, body, hash FROM entries ORDER BY seq").fetchall()
    found, last = [], None
    for seq, body, digest in rows:
        found.append({"entry": seq, "previous": last, "body": body, "hash": digest})
        last = digest
    return found


def body_of(c, **changes):
    """Change the quoted entry's body and make its hash fit again."""
    body = json.loads(c["charge"]["body"]) | changes
    c["charge"]["body"] = canonical_json(body)
    c["charge"]["hash"] = entry_hash(c["charge"]["previous"], c["charge"]["body"])


def rebound(c):
    """Compute every hash of the certificate again, as somebody would who has no ledger to write to."""
    body = json.loads(c["charge"]["body"])
    body["files"][c["output"]] = {"sha256": c["file"]["sha256"], "statement": statement_digest(c)}
    body_of(c, files=body["files"])


def put(*path):
    """Return an edit that sets the value at a path: its last item is the value."""
    *names, last, value = path

    def edit(c, _folder):
        for name in names:
            c = c[name]
        c[last] = value

    return edit


def quoting(number):
    def edit(c, folder):
        c["charge"] = entries(folder)[number - 1]

    return edit


def loss(value, measure="zcdp"):
    return lambda c, _: body_of(c, loss={"measure": measure, "loss": [float(value).hex()]})


SIGMA = ("plan", "releases", "noisy")
EDITS = {
    # (edit, what the refusal names)
    "the format": (put("format", "opendp_sim/certificate/1"), "format"),
    "a field more": (put("extra", 1), "extra"),
    "a field less": (lambda c, _: c.pop("evidence"), "evidence"),
    "the output": (put("output", "density"), "charge.body|file.name|mechanisms|names"),
    "no such output": (put("output", "nothing"), "output"),
    "the time": (put("time", "2020-01-01T00:00:00+00:00"), "statement"),
    "no time": (put("time", "yesterday"), "time"),
    "the owner": (put("owner", "somebody"), "owner"),
    "a name": (put("names", "dataset", "others"), "names.dataset"),
    "a sentence": (lambda c, _: c["mechanisms"][0].update(what="It is safe."), "mechanisms"),
    "a mechanism less": (lambda c, _: c["mechanisms"].pop(), "mechanisms"),
    "the program's budget": (put("program", "privacy", "budget", "epsilon", 9.0), "plan.program"),
    "the program's unit": (put("program", "privacy", "unit", "add_remove", 2), "plan.program"),
    "the program's bounds": (
        put("program", "data", "points", "columns", "x", "bounds", [0.0, 2.0]),
        "plan.program",
    ),
    "the program's seed": (
        lambda c, _: c["program"]["flow"]["sketch"]["steps"][0]["race_sketch"].update(seed=8),
        "plan.program",
    ),
    "no program": (put("program", {}), "program"),
    "the program without its ledger": (
        lambda c, _: c["program"]["data"]["points"].pop("ledger"),
        "plan.program",
    ),
    "its hash": (put("plan", "program", "0" * 64), "plan.program"),
    "a value": (put("values", "width", 0.6), "the program"),
    "a value more": (put("values", "depth", 1), "statement"),
    "the total": (put("plan", "total", [0.001]), "plan.total"),
    "the claim": (put("plan", "claim", [0.1, 1e-6]), "plan.claim"),
    "the conversion": (put("plan", "conversion_delta", 1e-9), "plan.conversion_delta"),
    "the scale": (put(*SIGMA, "mechanism", "gaussian", "scale", 1.0), "scale"),
    "a map": (lambda c, _: c["plan"]["releases"]["noisy"]["maps"][-1].__setitem__(1, 1.0), "maps"),
    "a loss": (put(*SIGMA, "loss", [0.001]), "loss"),
    "an own loss": (put(*SIGMA, "own", "loss", [0.001]), "own.loss"),
    "the sampler": (put(*SIGMA, "sampler", "none"), "sampler"),
    "the deviation": (put(*SIGMA, "deviation", 0.1), "deviation"),
    "a sensitivity": (put("plan", "stages", "noisy", "faces", "l2", 0.1), "faces"),
    "a number's type": (put("plan", "privacy", "d_in", 1.0), "d_in"),
    "a stage of the plan less": (lambda c, _: c["plan"]["stages"].pop("vectors"), "plan.stages"),
    "no derivation": (lambda c, _: c.pop("derivation"), "derivation"),
    "a lemma's factor": (put("derivation", "noisy", 1, "factor", "2"), "derivation.noisy"),
    "a lemma's page": (put("derivation", "noisy", 0, "page", "0" * 64), "derivation.noisy"),
    "the former format with a derivation": (
        put("format", "opendp_sim/certificate/2"),
        "derivation",
    ),
    "an assumption less": (lambda c, _: c["assumptions"].pop(0), "assumptions"),
    "an assumption more": (lambda c, _: c["assumptions"].append("x"), "assumptions"),
    "the claimed unit": (put("privacy", "unit", {"add_remove": 9, "of": "row"}), "privacy.unit"),
    "the claimed distance": (put("privacy", "d_in", 9), "privacy.d_in"),
    "the claimed measure": (put("privacy", "measure", "pure"), "privacy.measure"),
    "the claimed total": (put("privacy", "total", [0.001]), "privacy.total"),
    "the claimed epsilon": (put("privacy", "claim", [0.1, 1e-6]), "privacy.claim"),
    "a public claim": (put("privacy", {"public": True}), "privacy"),
    "the evidence": (lambda c, _: c["evidence"]["gaussian"].update(tier="divine"), "evidence"),
    "a version": (put("versions", "numpy", "0.1"), "statement"),
    "the file's digest": (put("file", "sha256", "0" * 64), "release.npz"),
    "the file's size": (put("file", "bytes", 1), "file.bytes"),
    "the file's name": (put("file", "name", "density.csv"), "file.name"),
    "a name with a folder": (put("file", "name", "../release.npz"), "file.name"),
    "no ledger": (put("ledger", None), "charge: the program names a ledger"),
    "no charge": (put("charge", None), "charge: the program names a ledger"),
    "neither": (
        lambda c, _: c.update(charge=None, ledger=None),
        "charge: the program names a ledger",
    ),
    "the terms": (put("ledger", "terms", "measure", "pure"), "ledger.terms"),
    "the limit": (put("ledger", "terms", "limit", "epsilon", 1.0), "ledger.terms"),
    "the ledger's name": (put("ledger", "file", "other.ledger"), "statement"),
    "the ledger's name, rehashed": (
        lambda c, f: (put("ledger", "file", "other.ledger")(c, f), rebound(c)),
        "ledger.file",
    ),
    "what was spent": (put("ledger", "spent", "loss", [0.0]), "statement"),
    "what is left": (put("ledger", "left", "epsilon", 99.0), "statement"),
    "what was spent, rehashed": (
        lambda c, f: (put("ledger", "spent", "loss", [0.0])(c, f), rebound(c)),
        "ledger.spent",
    ),
    "the time, rehashed": (
        lambda c, f: (put("time", "2020-01-01T00:00:00+00:00")(c, f), rebound(c)),
        "charge: entry",
    ),
    "entry 999": (put("charge", "entry", 999), "entry 999"),
    "another number": (put("charge", "entry", 5), "entry 5"),
    "entry 0": (put("charge", "entry", 0), "entry 0"),
    "the entry's hash": (put("charge", "hash", "0" * 64), "charge.hash"),
    "the hash before it": (put("charge", "previous", "0" * 64), "charge.hash"),
    "the reserve as its charge": (quoting(4), "charge.body.kind"),
    "an outcome as its charge": (quoting(3), "charge.body.kind"),
    "another run's charge": (quoting(5), "charge.body.files"),
    "another program's charge": (quoting(8), "charge.body.program"),
    "a tenth of the loss": (loss(0.0024), "charge.body.loss"),
    "another measure of the loss": (loss(0.024356, "pure"), "charge.body.loss"),
    "another dataset's charge": (lambda c, _: body_of(c, dataset="others"), "charge.body.dataset"),
    "another unit's charge": (
        lambda c, _: body_of(c, unit="add_remove 9 of row"),
        "charge.body.unit",
    ),
    "another name's charge": (lambda c, _: body_of(c, name="others"), "charge.body.name"),
    "a charge without files": (lambda c, _: body_of(c, files=None), "charge.body.files"),
    "a charge of another time": (
        lambda c, _: body_of(c, time="2020-01-01T00:00:00+00:00"),
        "charge: entry",
    ),
    "a body that is no JSON": (
        lambda c, _: c["charge"].update(body="x", hash=entry_hash(c["charge"]["previous"], "x")),
        "charge.body",
    ),
    "a signature": (
        put("signature", {"scheme": "ed25519", "key": "00" * 32, "value": "00" * 64}),
        "signature",
    ),
}


@pytest.mark.few(9)
@pytest.mark.parametrize("name", some(EDITS, 3))
def test_every_edit_of_a_certificate_is_refused_by_name(made, name):
    path, (edit, named) = made / NAME, EDITS[name]
    whole = path.read_text()
    body = json.loads(whole)
    edit(body, made)
    try:
        path.write_text(json.dumps(body))
        with pytest.raises(ReleaseError, match="OS701") as caught:
            verify(path, made / "small.yaml")
    finally:
        path.write_text(whole)
    assert re.search(named, str(caught.value.got)), caught.value.got


def test_a_certificate_of_the_former_format_still_verifies(made, tmp_path):
    """Format 2 has no derivation; all else is compared, and its own format is what is signed."""
    shutil.copytree(made / "out", tmp_path / "out")
    path = tmp_path / NAME
    former = json.loads(path.read_text())
    assert [step["formula"] for step in former.pop("derivation")["noisy"]]
    former["format"] = "opendp_sim/certificate/2"
    rebound(former)
    path.write_text(json.dumps(former))
    assert "every type" in "\n".join(verify(path, made / "small.yaml", ledger="none")[0])
    assert signed_text(former).startswith(b"opendp_sim/certificate/2 ")
    former["plan"]["releases"]["noisy"]["loss"] = [0.001]
    rebound(former)
    path.write_text(json.dumps(former))
    with pytest.raises(ReleaseError, match="loss"):
        verify(path)


@pytest.mark.parametrize("respelled", [lambda t: t + "0", lambda t: t + "e0", lambda t: t + "e-0"])
def test_a_number_in_another_spelling_is_refused(made, respelled):
    """Digests are of the spelling (`certificate.md`): two checkers would disagree."""
    path = made / NAME
    whole = path.read_text()
    token = re.search(r"\d\.\d{6,}(?=[,}\s])", whole)[0]
    try:
        path.write_text(whole.replace(token, respelled(token)))
        with pytest.raises(ReleaseError, match="OS701"):
            verify(path, made / "small.yaml")
    finally:
        path.write_text(whole)


def test_a_certificate_verifies_and_says_only_what_it_compared(made):
    checked, left = verify(made / NAME, made / "small.yaml")
    text = "\n".join(checked)
    assert "entry 2 of points.ledger, whose chain is whole, is the quoted entry" in text
    assert "per add_remove 1 of row, for dataset points" in text
    assert "the quoted entry holds the digests of this file and of this statement" in text
    assert any("no signature" in line for line in left)
    assert len(EDITS) >= 50


def test_a_ledger_beside_the_certificate_does_not_stand_for_the_programs_own(made, tmp_path):
    """A forged release with a forged ledger in the folder of the outputs was checked against that ledger."""
    shutil.copytree(made, tmp_path / "home")
    path = tmp_path / "home" / NAME
    shutil.copy(tmp_path / "home" / "points.ledger", path.parent)
    with closing(sqlite3.connect(tmp_path / "home" / "points.ledger")) as db:
        db.execute("DELETE FROM entries WHERE seq > 1")
        db.commit()
    with pytest.raises(ReleaseError, match="ledger"):
        verify(path)
    (tmp_path / "home" / "points.ledger").unlink()
    assert any("that points.ledger is the curator's" in line for line in verify(path)[1])


def test_a_ledger_that_nobody_named_is_never_told_as_the_curators(made, tmp_path):
    """With `apply --into` the outputs' folder is where the program seemed to have its ledger."""
    shutil.copytree(made, tmp_path / "into")
    path, told = tmp_path / "into" / NAME, "that ../points.ledger is the curator's"
    assert any(told in line for line in verify(path)[1])
    for named in ({"ledger": made / "points.ledger"}, {"spec": made / "small.yaml"}):
        assert not any("is the curator's" in line for line in verify(path, **named)[1])


def test_a_database_that_does_not_answer_leaves_a_certificate_unchecked(
    made, tmp_path, monkeypatch
):
    def away(path):
        raise unavailable(path, "a database that answers", "no answer", "try again.")

    shutil.copytree(made, tmp_path / "home")
    monkeypatch.setattr(verify_charge.Ledger, "open", away)
    assert any(line.endswith(NOT_OPENED) for line in verify(tmp_path / "home" / NAME)[1])


def test_a_ledger_that_a_run_has_open_leaves_a_certificate_unchecked_and_not_changed(
    made, tmp_path
):
    shutil.copytree(made, tmp_path / "home")
    with Ledger.open(tmp_path / "home" / "points.ledger"):
        checked, left = verify(tmp_path / "home" / NAME)
    assert any(line.endswith(NOT_OPENED) for line in left)
    assert not any("chain is whole" in line for line in checked)


def test_without_the_ledger_it_says_so_and_still_binds(made, tmp_path):
    shutil.copytree(made / "out", tmp_path / "out")
    path = tmp_path / NAME
    checked, left = verify(path)
    assert any("the ledger was not found" in line for line in left)
    assert not any("chain is whole" in line for line in checked)
    verify(path, ledger=made / "points.ledger")
    (tmp_path / "out" / "release.npz").unlink()
    assert any("not beside the certificate" in line for line in verify(path)[1])


INVENTED = {
    # (edit, what the refusal names); every digest and hash is made to fit, and no ledger is there
    "another ledger": (put("ledger", "file", "other.ledger"), "ledger.file"),
    "entry -7": (put("charge", "entry", -7), "entry -7"),
    "entry 0": (put("charge", "entry", 0), "entry 0"),
    "a reserve behind its charge": (lambda c, _: body_of(c, of=9), "charge.body.of"),
    "a measure that is none": (put("ledger", "spent", "measure", "gdpx"), "ledger.spent"),
    "another measure": (put("ledger", "spent", "measure", "pure"), "ledger.spent"),
    "nothing spent": (put("ledger", "spent", "loss", [0.0]), "ledger.spent"),
    "less than this run": (lambda c, _: spending(c, 1e-4), "ledger.spent.loss"),
    "more than the limit": (lambda c, _: spending(c, 1e4), "ledger.spent.loss"),
    "less than nothing": (put("ledger", "spent", "exact", ["-0x1p+0"]), "ledger.spent.loss"),
    "a number as text": (put("ledger", "spent", "loss", ["0x1p-3"]), "ledger.spent"),
    "no sum": (put("ledger", "spent", {}), "ledger.spent"),
    "no list": (put("ledger", "spent", "loss", 0.1), "ledger.spent"),
    "its epsilon": (put("ledger", "spent", "epsilon", 0.01), "ledger.spent"),
    "its text": (put("ledger", "spent", "text", "rho 0"), "ledger.spent"),
    "a field more": (put("ledger", "spent", "seal", "gold"), "ledger.spent"),
    "what is left": (put("ledger", "left", "epsilon", 29.9), "ledger.left"),
    "what is left in words": (put("ledger", "left", "plenty"), "ledger.left"),
}


def spending(c, rho):
    """State another sum, with everything that follows from it."""
    from opendp_sim.accounting.composition import Charge, total_of
    from opendp_sim.accounting.ledger._entries import read_terms
    from opendp_sim.dsl.run.certificate import spent_and_left

    genesis = canonical_json({"format": "opendp_sim/ledger/2", **c["ledger"]["terms"]})
    terms = read_terms(genesis, AssertionError)
    total = total_of((Charge(terms.measure, (rho,)),), terms.measure, terms.limit)
    c["ledger"] |= spent_and_left(total)


@pytest.mark.few(6)
@pytest.mark.parametrize("name", INVENTED)
def test_what_is_invented_about_a_ledger_that_is_not_there_is_refused(made, tmp_path, name):
    shutil.copytree(made / "out", tmp_path / "out")
    path, (edit, named) = tmp_path / NAME, INVENTED[name]
    body = json.loads(path.read_text())
    edit(body, made)
    rebound(body)
    path.write_text(json.dumps(body))
    with pytest.raises(ReleaseError, match="OS701") as caught:
        verify(path)
    assert named in str(caught.value.got), caught.value.got


def test_a_program_without_a_ledger_has_none_stated(made, tmp_path):
    record, plain = read_certificate(made / NAME)
    plan, body = plan_file(made / "small.yaml"), json.loads(plain["charge"]["body"])
    terms = ledger_terms(plan)
    assert stated_wrongly(plan, terms, record, body) is None
    none = ("    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n", "")
    without = plan_file(write_small(tmp_path, none))
    assert stated_wrongly(without, terms, record, body) == "ledger"


def test_a_sum_that_could_be_is_left_to_the_ledger(made, tmp_path):
    shutil.copytree(made / "out", tmp_path / "out")
    body = json.loads((tmp_path / NAME).read_text())
    spending(body, 0.5)
    rebound(body)
    (tmp_path / NAME).write_text(json.dumps(body))
    assert any(NOT_FOUND in line for line in verify(tmp_path / NAME)[1])
    with pytest.raises(ReleaseError, match="OS701"):
        verify(tmp_path / NAME, ledger=made / "points.ledger")


def test_a_certificate_of_before_states_no_exact_sum(made, tmp_path):
    """Its floats count as their shortest texts say, which a limit in decimals holds."""
    shutil.copytree(made / "out", tmp_path / "out")
    body = json.loads((tmp_path / NAME).read_text())
    del body["ledger"]["spent"]["exact"]
    rebound(body)
    (tmp_path / NAME).write_text(json.dumps(body))
    assert any(NOT_FOUND in line for line in verify(tmp_path / NAME)[1])


def _copy(made, tmp_path):
    shutil.copytree(made, tmp_path / "all")
    return tmp_path / "all"


LEDGER = {
    "an edited entry": "UPDATE entries SET body = replace(body, 'zcdp', 'pure') WHERE seq = 2",
    "a removed entry": "DELETE FROM entries WHERE seq = 2",
    "a cut tail": "DELETE FROM entries WHERE seq > 1",
    "other terms": "UPDATE meta SET value = replace(value, '30.0', '90.0') WHERE key = 'genesis'",
    "no head": "DELETE FROM meta WHERE key = 'head'",
}


@pytest.mark.parametrize("edit", LEDGER)
def test_an_edited_ledger_beside_it_is_refused(made, tmp_path, edit):
    folder = _copy(made, tmp_path)
    with closing(sqlite3.connect(folder / "points.ledger")) as db:
        db.executescript(LEDGER[edit])
    with pytest.raises(ReleaseError, match="the ledger"):
        verify(folder / NAME)


def test_a_release_that_was_exchanged_or_edited_is_refused(made, tmp_path):
    folder = _copy(made, tmp_path)
    saved = folder / "out" / "release.npz"
    raw = saved.read_bytes()
    saved.write_bytes(raw[:-1])
    with pytest.raises(ReleaseError, match="OS701"):
        verify(folder / NAME)
    shutil.copy(folder / "elsewhere" / "out" / "release.npz", saved)
    with pytest.raises(ReleaseError, match=r"the file release\.npz"):
        verify(folder / NAME)
    # ... and with every digest of the certificate made to fit: the release's own header disagrees.
    body = json.loads((folder / NAME).read_text())
    body["file"] |= {"sha256": digest_of(saved), "bytes": saved.stat().st_size}
    rebound(body)
    (folder / NAME).write_text(json.dumps(body))
    with pytest.raises(ReleaseError, match="release's header"):
        verify(folder / NAME)


def test_a_release_with_another_ones_certificate_answers_nothing(made, tmp_path):
    from typer.testing import CliRunner

    from opendp_sim.cli import app

    folder = _copy(made, tmp_path)
    saved = folder / "out" / "release.npz"
    words = ["answer", str(saved), "--query", str(folder / "queries.npz"), "--post", "density"]
    assert CliRunner().invoke(app, words).exit_code == 0
    shutil.copy(folder / "elsewhere" / "out" / "release.npz", saved)
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 5
    assert "certificate" in result.stderr
    (folder / NAME).unlink()
    assert CliRunner().invoke(app, words).exit_code == 0
    assert isinstance(Release.load(saved), Release)


def test_the_derivation_shows_every_number(made):
    text = "\n".join(derivation(made / NAME))
    plan = json.loads((made / NAME).read_text())["plan"]
    for number in (*plan["total"], *plan["claim"], plan["releases"]["noisy"]["maps"][-1][1]):
        assert repr(number) in text
    assert "^2 / 2 =" in text
    assert "sha256" in text


@pytest.mark.skipif(shutil.which("node") is None, reason="the page's check is in JavaScript")
def test_the_forty_lines_of_the_page_check_a_certificate(made, tmp_path):
    """It shares no code with this package, and refuses what `verify` refuses without a ledger."""
    script = re.search(r"```js\n(.*?)```", PAGE.read_text(), re.DOTALL).group(1)
    check = tmp_path / "check.js"
    check.write_text(script)
    words = ["node", str(check), str(made / NAME)]
    good = subprocess.run(words, capture_output=True, text=True, check=False)
    assert good.returncode == 0, good.stdout + good.stderr
    assert good.stdout.count("ok ") >= 7
    whole = (made / NAME).read_text()
    for name in (
        "the total",
        "the program's budget",
        "a value",
        "the time",
        "an own loss",
        "a public claim",
        "the owner",
        "another run's charge",
        "the file's digest",
        "the evidence",
    ):
        body = json.loads(whole)
        EDITS[name][0](body, made)
        try:
            (made / NAME).write_text(json.dumps(body))
            bad = subprocess.run(words, capture_output=True, text=True, check=False)
        finally:
            (made / NAME).write_text(whole)
        assert bad.returncode != 0, name


def test_a_signature_shows_who_made_it(tmp_path):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives import serialization as s
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    def keys(name):
        key = Ed25519PrivateKey.generate()
        secret, public = tmp_path / f"{name}.pem", tmp_path / f"{name}.pub.pem"
        secret.write_bytes(
            key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption())
        )
        public.write_bytes(
            key.public_key().public_bytes(s.Encoding.PEM, s.PublicFormat.SubjectPublicKeyInfo)
        )
        return secret, public

    (mine, public), (_, other) = keys("mine"), keys("other")
    spec = write_small(
        tmp_path, ("repetitions: 100", "repetitions: 4"), ("l1: 100, l2: 10", "l1: 4, l2: 2")
    )
    with pytest.raises(ReleaseError, match="Ed25519"):
        apply(plan_file(spec), sign=public)
    assert not (tmp_path / "points.ledger").exists()
    path = apply(plan_file(spec), sign=mine).certificates["release"]
    checked, left = verify(path, signer=public)
    assert any("signed by the key" in line for line in checked)
    assert not any("whose key" in line for line in left)
    for signer, named in ((other, "signature.key"), (None, None)):
        if named:
            with pytest.raises(ReleaseError, match=named):
                verify(path, signer=signer)
    text = path.read_text()
    path.write_text(text.replace('"total":', '"total": [5e-07], "total":'))
    assert json.loads(path.read_text()) == json.loads(
        text
    )  # a reader that takes the last sees nothing
    with pytest.raises(ReleaseError, match="OS701"):
        verify(path, signer=public)
    body = json.loads(text)
    for change in (
        lambda b: b.update(signature=None),
        lambda b: b["signature"].update(value="00" * 64),
        lambda b: (b.update(time="2020-01-01T00:00:00+00:00"), rebound(b)),
    ):
        edited = json.loads(json.dumps(body))
        change(edited)
        path.write_text(json.dumps(edited))
        with pytest.raises(ReleaseError, match=r"signature|charge"):
            verify(path, signer=public)


def test_a_public_program_has_no_charge(tmp_path):
    spec = write_small(
        tmp_path,
        ("    ledger: {file: points.ledger, limit: {epsilon: 3.0, delta: 1.0e-5}}\n", ""),
        ("repetitions: 100", "repetitions: 4"),
        ("l1: 100, l2: 10", "l1: 4, l2: 2"),
    )
    path = apply(plan_file(spec)).certificates["release"]
    checked, left = verify(path)
    assert "the program names no ledger, and the certificate no charge" in checked
    assert any("nobody counts" in line for line in left)
    assert np.isfinite(json.loads(path.read_text())["plan"]["total"]).all()


def test_what_is_no_certificate_is_refused(tmp_path):
    path = tmp_path / "x.certificate.json"
    for content in (
        b"",
        b"[]",
        b"{}",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format": 1e999}',
        b'"\\ud800"',
    ):
        path.write_bytes(content)
        with pytest.raises(SimError, match="OS701"):
            verify(path)
    with pytest.raises(SimError, match="OS701"):
        verify(tmp_path)


def test_a_certificate_in_former_words_is_verified(tmp_path, monkeypatch):
    """A reworded assumption refused every older certificate, though its versions were these."""
    spec = write_small(
        tmp_path, ("repetitions: 100", "repetitions: 4"), ("l1: 100, l2: 10", "l1: 4, l2: 2")
    )
    former = {new: old for old, new in certificate._FORMER.items()}
    real = certify.assumptions
    older = [former.get(text, text) for text in real("refuse", by_person=False)]
    assert sum(text in certificate._FORMER for text in older) == 5
    for worded, verdict in ((older, True), ([*older[:-1], "Data is fine."], False)):
        with monkeypatch.context() as patch:
            patch.setattr(certify, "assumptions", lambda *_, _worded=worded, **__: _worded)
            apply(plan_file(spec))
        if verdict:
            _, left = verify(tmp_path / NAME)
            assert [f"assumed: {text}" for text in real("refuse", by_person=False)] == left[
                -len(older) :
            ]
        else:
            with pytest.raises(ReleaseError, match="assumptions") as caught:
                verify(tmp_path / NAME)
            assert "the version that wrote it can verify it" in caught.value.hint
    public = ["Dataset `a` was declared public: nothing is claimed about its records."]
    assert certificate.as_worded_now(public)[0].startswith("Dataset `a` is declared public: ")
