"""The second checker derives what the writer states, and refuses forgeries without the package."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import opendp_sim
from opendp_sim.accounting.certificate import check_certificate as checker
from opendp_sim.accounting.certificate.certificate import FORMER_FORMAT
from opendp_sim.accounting.certificate.check_certificate import (
    DERIVED,
    GAPS,
    REFUSED,
    USAGE,
    WrongError,
    check_certificate,
    main,
)
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import GridRows
from opendp_sim.dsl import apply, plan_file
from opendp_sim.dsl.run.certificate import derived_statement, signed_certificate, statement
from opendp_sim.transformations.sketches.kernels.fourier_sketch import FourierSketch
from tests._plans import planned
from tests._small import write_small
from tests._tiers import tiered
from tests.accounting.certificate._forgeries import (
    BY_ARITHMETIC,
    NEEDS_SIGNATURE,
    PERSONS,
    RACE,
    SELECT,
    VOTES,
    fix,
    forged,
    put,
    stepped,
)

ALL = BY_ARITHMETIC | NEEDS_SIGNATURE
FEW = {"writers-density", "digits-linear", "digit-density"}
"""Specs that plan within a second."""
SPECS = Path(opendp_sim.__file__).parents[1] / "specs"
DATA = b"an output"
FILE = checker.__file__


@cache
def written(spec: str, output: str | None = None) -> str:
    """Return a certificate as the writer makes it of a plan, without a run."""
    plan = planned(SPECS / f"{spec}.yaml")
    name = output or ("stable_set" if spec == SELECT else next(iter(plan.outputs)))
    about = {
        "name": Path(plan.outputs[name].decl.save).name,
        "sha256": hashlib.sha256(DATA).hexdigest(),
        "bytes": len(DATA),
    }
    stated = statement(
        plan, derived_statement(plan, name), about, time="2026-01-01T00:00:00+00:00", ledger=None
    )
    return json.dumps(signed_certificate(stated, None, None), indent=1)


def placed(folder: Path, text: str) -> Path:
    """Write a certificate, with the file that the honest one names."""
    path = folder / "x.certificate.json"
    path.write_text(text)
    name = json.loads(text)["file"]["name"]
    if "/" not in name:
        (folder / name).write_bytes(DATA)
    return path


def quick(table):
    """Return a table's names: every third of what plans at once in the suite, all in `long`."""
    shown = set(list(table)[::3])
    return tiered(list(table), lambda name: name in shown and table[name][0] in FEW)


def test_the_kinds_are_many():
    assert len(BY_ARITHMETIC) >= 22 + 20


@pytest.mark.parametrize("name", quick(BY_ARITHMETIC))
def test_a_forgery_that_arithmetic_can_tell_is_refused(name, tmp_path):
    spec, edit, fits = BY_ARITHMETIC[name]
    with pytest.raises(WrongError):
        check_certificate(placed(tmp_path, forged(json.loads(written(spec)), edit, fits)))


@pytest.mark.parametrize("name", quick(NEEDS_SIGNATURE))
def test_a_forgery_that_only_a_signature_can_tell_is_named(name, tmp_path):
    spec, edit, fits = NEEDS_SIGNATURE[name]
    found = check_certificate(placed(tmp_path, forged(json.loads(written(spec)), edit, fits)))
    assert not found.gaps
    assert any("who made it: there is no signature" in text for text in found.trust)


@pytest.mark.parametrize("spec", tiered(sorted({row[0] for row in ALL.values()}), FEW.__contains__))
def test_the_honest_certificates_are_derived(spec, tmp_path):
    path = placed(tmp_path, written(spec))
    found = check_certificate(path)
    assert not found.gaps
    assert not check_certificate(path, program=found.plan["program"]).gaps
    with pytest.raises(WrongError, match="another program"):
        check_certificate(path, program="0" * 64)


ON_TRUST = re.compile(
    r"time|versions\.|evidence\.|mechanisms\.\d+\.what|derivation\.\w+\.\d+\.(lemma|page)"
    r"|derivation\.\w+\.4\.inputs\.(lower|upper|l2)|derivation\.\w+\.\d+\.inputs\.blocks\.\d+\.[01]$"
    r"|plan\.memory_bytes|plan\.releases\.noisy\.(cells|deviation|sampler|mechanism\.laplace\.sampler)"
    r"|plan\..*\.(expected\..*|advice\.\d+|type|metric|numerics|evidence|monotone|own_steps)$"
)
"""What the checker says is on trust, in `writers-density`: words, times, accuracy, a projection's bounds."""


def leaves(value, path=()):
    """Yield the path and value of everything that is no list or object."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else None
    )
    if inner is None:
        yield path, value
        return
    for key, part in inner:
        yield from leaves(part, (*path, key))


@pytest.mark.parametrize("part", tiered(range(8), lambda part: part == 0))
def test_every_value_but_those_on_trust_is_compared(part, tmp_path):
    """Another value in any one place, digests made to fit, is refused; of what is not, the list is known."""
    whole = json.loads(written("writers-density"))
    for path, value in list(leaves(whole))[part::8]:
        name = ".".join(map(str, path))
        if value == 0.0 or path[0] == "program" or name in ("plan.program", "privacy.program"):
            continue  # another program is another program
        c = json.loads(written("writers-density"))
        held = c
        for key in path[:-1]:
            held = held[key]
        other = value + "x" if isinstance(value, str) else "x" if value is None else value * 0.5
        held[path[-1]] = not value if isinstance(value, bool) else other
        if path[0] == "plan":
            fix(c)
        try:
            check_certificate(placed(tmp_path, json.dumps(c)))
        except WrongError:
            assert not re.fullmatch(r"time|versions\..*", name), name
        else:
            assert ON_TRUST.match(name), f"{name} can be changed, and nothing says so"


def noise_on_rows(c):
    """A Laplace release of rows without a sketch, whose blocks would sum to 0."""
    flow, plan = c["program"]["flow"], c["plan"]
    flow["noisy"]["from"] = plan["stages"]["noisy"]["from"] = "vectors"
    plan["stages"]["noisy"]["steps"].pop()
    plan["stages"]["noisy"]["faces"] = None
    plan["releases"]["noisy"]["maps"].pop()
    c["derivation"]["noisy"].pop(-2)
    c["derivation"]["noisy"][-1]["inputs"]["distance"] = 2
    c["mechanisms"] = [m for m in c["mechanisms"] if m["key"] != "race_sketch"]
    c["evidence"].pop("race_sketch")


def raw_rows(c):
    """Another output, of rows that nobody released."""
    c["program"]["outputs"]["raw"] = {"from": "vectors", "save": "raw.npz"}
    told = {"from": "vectors", "stage": "vectors", "save": "raw.npz"}
    c["plan"]["outputs"]["raw"] = {**c["plan"]["outputs"]["density"], **told}


def public_twin(c):
    """A dataset that is public, and read from the private one's file."""
    twin = {**c["program"]["data"]["writers"], "public": True}
    c["program"]["data"]["twin"] = twin


def no_claim(c):
    c["plan"]["claim"] = c["plan"]["conversion_delta"] = None


def rounded_down(c):
    loss = c["plan"]["releases"]["noisy"]["loss"]
    loss[0] = c["plan"]["total"][0] = loss[0] * (1 - 5e-7)


MECHANISM = "plan.releases.{}.mechanism"
HOSTILE = {
    # name: (spec, edit, what the refusal says)
    "a loss that overflows": (
        PERSONS,
        put("plan.releases.noisy.mechanism.laplace.scale", 5e-324),
        "own.loss",
    ),
    "a default that is not the program's": (
        SELECT,
        put(f"{MECHANISM.format('tested')}.gated_peel.share", 0.01),
        "default",
    ),
    "a threshold for more users": (
        SELECT,
        put(f"{MECHANISM.format('truncated')}.top_stable.distance", 100),
        "default",
    ),
    "a threshold's smaller delta": (
        VOTES,
        put(f"{MECHANISM.format('labels')}.pate_labels.delta", 1e-30),
        "default",
    ),
    "a parameter that nobody states": (
        VOTES,
        put("program.flow.labels.release.mechanism.pate_labels", {}),
        "does not state|default",
    ),
    "noise on rows": (PERSONS, noise_on_rows, "does not take"),
    "an output of raw rows": (PERSONS, raw_rows, "not released"),
    "private data read as public": (PERSONS, public_twin, "as public"),
    "no claim": (RACE, no_claim, "no claim"),
    "a loss rounded down": (PERSONS, rounded_down, "loss"),
    "outputs in a circle": (
        RACE,
        put("program.outputs.densities.from", "answers"),
        "outputs|density",
    ),
    "a number as long as the earth": (
        RACE,
        put("plan.gaussian.mu_squared", "1e99999999"),
        "no fraction",
    ),
    "another language": (RACE, put("program.spec", "opendp_sim/2"), "language"),
    "bounds that fall": (
        PERSONS,
        put("program.data.writers.columns.ink.bounds", [64, 0]),
        "do not rise",
    ),
    "another norm": (PERSONS, stepped("vectors", "clip_rows", norm="l3"), "norm"),
    "a mechanism as a query": (
        PERSONS,
        put("program.outputs.density.post", [{"laplace": {}}]),
        "among the queries|mechanisms",
    ),
    "a derivation of nothing": (
        PERSONS,
        lambda c: c["derivation"].update(other=[]),
        "no private release",
    ),
    "a note in the derivation": (
        PERSONS,
        lambda c: c["derivation"]["noisy"][-1].update(note="x"),
        "field",
    ),
    "a norm bound that nothing derives": (RACE, put("derivation.noisy.1.inputs.l2", 1), "l2"),
    "a fact of no kind": (
        PERSONS,
        lambda c: c["derivation"]["noisy"][0]["inputs"].update(note=1),
        "fact",
    ),
    "no dataset": (PERSONS, put("program.data", {}), "missing|outputs"),
}


@pytest.mark.parametrize("name", tiered(list(HOSTILE), lambda name: HOSTILE[name][0] == PERSONS))
def test_what_a_hostile_reader_tried_is_refused(name, tmp_path):
    spec, edit, says = HOSTILE[name]
    c = json.loads(written(spec))
    edit(c)
    if name == "outputs in a circle":
        c["plan"]["outputs"]["densities"]["from"] = "answers"
    fix(c)
    with pytest.raises(WrongError, match=says):
        check_certificate(placed(tmp_path, json.dumps(c)))


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("jl_projection", {"l1_embedding": {"bits": 2**40, "directions": 5, "clip": 1.0}}),
        ("select", {"select": {"features": ["ink"] * 200_000, "label": None, "person": None}}),
    ],
)
def test_what_would_take_all_memory_is_a_gap(key, values, tmp_path):
    c = json.loads(written(PERSONS))
    steps = c["program"]["flow"]["vectors"]["steps"]
    steps[:] = [values if key in step else step for step in steps]
    new = next(iter(values))
    c = json.loads(json.dumps(c).replace(f'"{key}"', f'"{new}"'))
    for line in c["derivation"]["noisy"]:
        line["formula"] = f"{line['step']}/1"
    fix(c)
    found = check_certificate(placed(tmp_path, json.dumps(c)))
    assert any("takes this file too long" in gap or "columns" in gap for gap in found.gaps)


def test_many_stages_of_wide_rows_are_a_gap(tmp_path):
    c = json.loads(written(PERSONS))
    c["program"]["data"]["writers"]["columns"]["wide"] = {
        "dtype": "array[f64, 1000000]",
        "bounds": [0, 1],
    }
    select = {"select": {"features": "wide", "label": None, "person": None}}
    told = {**c["plan"]["stages"]["vectors"], "steps": [{"step": "select"}], "stability": 1}
    for number in range(500):
        c["program"]["flow"][f"s{number}"] = {"from": "writers", "steps": [select]}
        c["plan"]["stages"][f"s{number}"] = told
    fix(c)
    found = check_certificate(placed(tmp_path, json.dumps(c)))
    assert any("more columns over all steps" in gap for gap in found.gaps)


def test_a_column_of_vectors_has_its_width_in_every_spelling():
    for text in ("array[f32,64]", "array[ f32 , 64 ]", "array[f32, 64]"):
        data = {"columns": {"x": {"dtype": text, "bounds": [0, 1]}}}
        assert checker.select({"features": "x"}, checker.State(data, "row")).width == 64


@pytest.mark.parametrize("features", ["auto", "random", "orthogonal"])
@pytest.mark.parametrize(("columns", "frequencies"), [(1, 65536), (4, 199), (6, 400), (20, 2000)])
@pytest.mark.parametrize("moments", [False, True])
def test_moments_beside_a_fourier_sketch_are_derived(columns, frequencies, features, moments):
    sketch = FourierSketch(
        frequencies=frequencies,
        kernel={"gaussian": {"bandwidth": 0.5}},
        seed=7,
        features=features if columns > 1 else "random",
        moments=moments,
    )
    grid = GridRows(columns, unit=1 / 64, lower=(-64,), upper=(64,))
    found = sketch.bind(grid, Symmetric()).output.blocks
    rows = checker.RowType(columns, (-64,) * columns, (64,) * columns, unit=1 / 64)
    try:
        _, mine = checker.fourier_sketch(sketch.spec(), checker.State({}, "row", rows))
    except checker.GapError:
        assert (sketch.features, columns <= 16) == ("auto", True)
    else:
        told = [(b.l1, b.l2_squared, b.linf, b.weight) for b in found]
        assert [(b.l1, b.l2_squared, b.linf, b.weight) for b in mine] == told


def test_names_are_printed_without_escapes(tmp_path, capsys):
    name = json.dumps("row\r\x1b[2K \u0430\ud800")
    c = json.loads(written(PERSONS).replace('"writer"', name))
    fix(c)
    assert main([str(placed(tmp_path, json.dumps(c)))]) == DERIVED
    assert r"of row\r\x1b[2K \u0430\ud800" in capsys.readouterr().out


MIXED = """
spec: opendp_sim/1
name: mixed
data:
  marks:
    source: {csv: marks.csv}
    columns: {who: {dtype: int64, role: privacy_id}, mark: {dtype: str}}
  open:
    source: {csv: open.csv}
    public: true
    columns: {mark: {dtype: category, keys: [a, b]}}
privacy: {unit: {add_remove: 1, of: who}, measure: approx, budget: {epsilon: 1.0, delta: 1.0e-5}}
flow:
  counts: {from: marks, steps: [bound_contributions: {max_rows: 2}, vote_counts: {item: mark}]}
  top: {from: counts, release: {mechanism: {top_k: {k: 4, ranked: true}}, spend: 50%}}
  cut: {from: counts, release: {mechanism: {top_stable: {k: 3, k_max: 8}}, spend: 50%}}
  shown: {from: open, steps: [vote_counts: {item: mark}], release: none}
outputs:
  marks_at_the_top: {from: top, save: top.json}
  open_marks: {from: shown, save: open.npz}
"""


def test_public_outputs_defaults_and_thresholds_of_an_honest_program_are_derived(tmp_path):
    """The scale of `top` is solved to where its threshold jumps; `distance` is two users' by default."""
    spec = tmp_path / "mixed.yaml"
    spec.write_text(MIXED)
    plan = plan_file(spec)
    for name, output in plan.outputs.items():
        about = {
            "name": output.decl.save,
            "sha256": hashlib.sha256(DATA).hexdigest(),
            "bytes": len(DATA),
        }
        stated = statement(
            plan,
            derived_statement(plan, name),
            about,
            time="2026-01-01T00:00:00+00:00",
            ledger=None,
        )
        text = json.dumps(signed_certificate(stated, None, None))
        found = check_certificate(placed(tmp_path, text))
        assert not found.gaps
        assert any("datasets are public: open" in words for words in found.trust)


def test_the_former_format_is_derived_too(tmp_path):
    c = json.loads(written("writers-density"))
    c.pop("derivation")
    c["format"] = FORMER_FORMAT
    assert not check_certificate(placed(tmp_path, json.dumps(c))).gaps


@pytest.mark.parametrize("key", ["race_sketch", "laplace"])
def test_what_has_no_formula_is_a_gap_and_not_accepted(key, tmp_path, capsys):
    """A mechanism that the table does not have, as a plugin's."""
    text = written("writers-density").replace(key, "somebodys_own")
    c = json.loads(text.replace('"somebodys_own/1"', "null"))
    fix(c)
    path = placed(tmp_path, json.dumps(c))
    assert any("somebodys_own: no formula" in gap for gap in check_certificate(path).gaps)
    assert main([str(path)]) == GAPS
    assert "not derived: noisy: somebodys_own" in capsys.readouterr().out
    claimed = text.replace('"somebodys_own/1"', '"race_sketch/1"')
    c = json.loads(claimed)
    fix(c)
    if key == "laplace":
        with pytest.raises(WrongError, match="another formula"):
            check_certificate(placed(tmp_path, json.dumps(c)))


def test_it_is_one_file_that_imports_the_standard_library_alone():
    tree = ast.parse(Path(FILE).read_text())
    found = {
        alias.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    assert {name.partition(".")[0] for name in found} <= sys.stdlib_module_names


def test_it_runs_where_nothing_is_installed(tmp_path):
    path = placed(tmp_path, written("writers-density"))
    command = [sys.executable, "-I", "-S", FILE, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == DERIVED, done.stdout + done.stderr
    assert "epsilon 2.0 per add_remove 1 of writer" in done.stdout


def test_its_exit_codes_and_messages(tmp_path, capsys):
    path = placed(tmp_path, written("writers-density"))
    assert main([str(path)]) == DERIVED
    assert main([str(tmp_path / "nothing")]) == USAGE
    assert "No such file" in capsys.readouterr().err
    c = json.loads(path.read_text())
    c["plan"]["stages"]["noisy"]["faces"]["l1"] = 61.0
    path.write_text(json.dumps(c))
    assert main([str(path)]) == REFUSED
    assert "L1 sensitivity" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    assert "exit codes: 0 all derived" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 1}',
        "[" * 10**5,
        "\xff",
        '{"format": "opendp_sim/certificate/3"}',
    ],
)
def test_what_is_no_certificate_is_refused(text, tmp_path):
    path = tmp_path / "x.certificate.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(WrongError):
        check_certificate(path)


@pytest.fixture(scope="module")
def paid(tmp_path_factory):
    """A signed certificate that a ledger paid for, its ledger and the public key."""
    folder = tmp_path_factory.mktemp("paid")
    key = Ed25519PrivateKey.generate()
    pem = folder / "key.pem"
    private = serialization.PrivateFormat.PKCS8
    pem.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption())
    )
    public = serialization.PublicFormat.SubjectPublicKeyInfo
    (folder / "public.pem").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, public)
    )
    spec = write_small(
        folder, ("repetitions: 100", "repetitions: 4"), ("l1: 100, l2: 10", "l1: 4, l2: 2")
    )
    done = apply(plan_file(spec), sign=pem)
    return next(iter(done.certificates.values())), folder


def test_a_signature_and_a_ledger_are_checked_by_the_standard_library(paid):
    path, folder = paid
    found = check_certificate(
        path, ledger=folder / "points.ledger", signer=str(folder / "public.pem")
    )
    assert not any("sign" in text or "ledger" in text for text in found.trust)
    c = json.loads(path.read_text())
    check_certificate(path, signer=c["signature"]["key"])
    with pytest.raises(WrongError, match="somebody else"):
        check_certificate(path, signer="1" * 64)
    pages = Path(opendp_sim.__file__).parent
    assert not any("pages" in text for text in check_certificate(path, pages=pages).trust)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "edit",
    ["time", "file", "entry", "value", "key", "spent", "previous", "measure", "limit", "twice"],
)
def test_an_edit_of_what_was_signed_or_paid_for_is_refused(paid, tmp_path, edit):
    path, folder = paid
    c = json.loads(path.read_text())
    if edit == "time":
        c["time"] = "2020-01-01T00:00:00+00:00"
    if edit == "file":
        c["file"]["sha256"] = "0" * 64
    if edit == "entry":
        c["charge"]["entry"] += 1
    if edit in ("value", "key"):
        last = c["signature"][edit]
        c["signature"][edit] = last[:-2] + ("00" if last[-2:] != "00" else "01")
    if edit == "spent":
        c["ledger"]["spent"]["exact"] = ["0x0.0p+0"]
    if edit in ("measure", "limit"):
        spent = {"measure": "pure"} if edit == "measure" else {"exact": ["0x1p+10"]}
        c["ledger"]["spent"].update(spent)
        body = json.loads(c["charge"]["body"])
        body["files"][c["output"]]["statement"] = checker.statement_of(c)
        c["charge"]["body"] = checker.canonical(body)
        c["charge"]["hash"] = checker.sha256(f"{c['charge']['previous']}\n{c['charge']['body']}")
        c["signature"] = None
    if edit == "twice":
        c["charge"]["body"] = '{"loss": {},' + c["charge"]["body"][1:]
        c["charge"]["hash"] = checker.sha256(f"{c['charge']['previous']}\n{c['charge']['body']}")
        c["signature"] = None
    if edit == "previous":
        c["charge"]["previous"] = "0" * 64
    forgery = tmp_path / path.name
    forgery.write_text(json.dumps(c))
    with pytest.raises(WrongError):
        check_certificate(forgery, ledger=folder / "points.ledger")


def test_signatures_are_those_of_the_standard():
    """RFC 8032, 7.1, tests 1 and 2; a signature with another s, and a key of small order, do not hold."""
    key = bytes.fromhex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
    value = bytes.fromhex(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46b"
        "d25bf5f0595bbe24655141438e7a100b"
    )
    assert checker.signed(key, b"", value)
    assert not checker.signed(key, b"x", value)
    larger = int.from_bytes(value[32:], "little") + checker.ORDER
    assert not checker.signed(key, b"", value[:32] + larger.to_bytes(32, "little"))
    zero = (1).to_bytes(32, "little")
    assert not checker.signed(zero, b"", zero + bytes(32))
