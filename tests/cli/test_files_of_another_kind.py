"""A private file that is named by mistake, where a spec belongs: no command quotes any of it."""

from __future__ import annotations

import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.system.file_kinds import kind_of_file
from tests._cli import begun, run
from tests._small import write_small

PERSON = "anna-has-it"
COMMANDS = (
    "report",
    "plan",
    "plan --json",
    "check",
    "check --json",
    "verify",
    "explain",
    "apply",
    "types",
    "doctor",
    "init",
    "session",
    "answer",
    "ledger show",
    "ledger show --json",
    "ledger verify",
    "ledger new",
    "plot --output p.svg",
    "audit",
)


def named(folder: Path) -> list[Path]:
    """Private files of several kinds, under names that commands take for one of theirs."""
    store = folder / "a.session"
    with closing(sqlite3.connect(store)) as made, made:
        made.execute("CREATE TABLE kept (what TEXT)")
        made.execute("INSERT INTO kept VALUES (?)", (f"\n{PERSON}\n",))
    np.savez(folder / "a.npz", rows=np.array([f"\n{PERSON}\n".encode()]))
    kinds = [store.read_bytes(), (folder / "a.npz").read_bytes()]
    kinds += [
        f"{PERSON}: é".encode("latin-1"),
        PERSON.encode("utf-16"),
        b"a: \x00" + PERSON.encode(),
    ]
    kinds += [b"SQLite format 3" + PERSON.encode()]
    files = [store, folder / "a.npz"]
    for at, raw in enumerate(kinds):
        ends = ("yaml", "plan", "json", "ledger", "certificate.json", "py", "session")
        for end in ends if at == 0 else ends[at : at + 1]:
            files.append(folder / f"{at}.{end}")
            files[-1].write_bytes(raw)
    return files


@pytest.mark.few(2)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_quotes_a_file_that_is_no_text(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in named(tmp_path):
        done = CliRunner().invoke(app, [*command.split(), str(file)])
        said = done.stdout + done.stderr
        assert PERSON not in said, (file.name, said)
        assert "SQLite format" not in said, (file.name, said)
        assert "PK\\x03" not in said, (file.name, said)
        assert done.exit_code != 0 or command == "init", (file.name, said)
        if command in ("report", "check", "plan") and file.suffix == ".session":
            assert "not UTF-8 text" in said
            assert "a session's store, of which nothing is shown" in said


TABLE = f"name,has\n{PERSON},1\n"
OTHERS = {
    "records.csv": (TABLE, "a table of values (CSV)"),
    "a.csv": (TABLE, "`opendp-sim report a.csv.certificate.json` makes a page about it"),
    "no": (TABLE, "of which nothing is shown"),
    "list.yaml": (f"- {PERSON}\n- b\n", "got a list, of which nothing is shown"),
    "empty.yaml": ("", "an empty file"),
}
"""Texts that are named where a spec belongs, and what is said of them."""


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("command", ["plan", "check", "apply", "report", "session", "types"])
def test_a_text_that_is_no_spec_is_told_by_its_kind(
    tmp_path: Path, name: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text, told = OTHERS[name]
    Path(name).write_text(text)
    Path("a.csv.certificate.json").write_text("{}")
    done = CliRunner().invoke(app, [command, name])
    said = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code == 1
    assert PERSON not in said
    assert told in said


WRONG = {
    "report small.npz": "got a saved release = help: `opendp-sim answer small.npz --post",
    "verify small.npz": "got a saved release",
    "verify small.yaml": "got a spec = help: name the file that ends in .certificate.json; `opendp-sim plan",
    "apply small.npz.certificate.json": "= a certificate = help: name a spec; `opendp-sim verify small.npz.",
    "check small.plan": "a plan, as `plan -o` writes it = help: name a spec; `opendp-sim apply small.plan`",
    "plot small.npz.certificate.json -o p.svg": "got a certificate",
    "ledger show small.npz": "got a saved release = help: name the ledger",
    "answer small.yaml --post density --queries digits": "`small.yaml` expects a release file",
    "answer smal.npz --post density --queries digits": "got no such file",
    "plan smal.yaml": "= no such file = help: `small.yaml` is there; `opendp-sim init FILE`",
    "plan gone/small.yaml": "its folder is not there either",
    "plan .": "= a folder = help: name a file in it",
    "report small.json": "got a JSON file",
    "audit small.npz": "got a saved release, at small.npz",
    "report gone.plan": "got no such file",
}
"""Commands with a wrong file, and what is said."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file of each kind; none of them is read further than to its kind."""
    made: Path = tmp_path_factory.mktemp("kinds")
    with zipfile.ZipFile(made / "small.npz", "w") as archive:
        archive.writestr("header.json", PERSON)
    (made / "small.npz.certificate.json").write_text('{"format": "opendp_sim/certificate/2"}')
    (made / "small.plan").write_text('{"format": "opendp_sim/plan/1"}')
    (made / "small.yaml").write_text("# a note\nspec: opendp_sim/1\n")
    (made / "small.json").write_text(f'["{PERSON}"]')
    return made


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_file_is_told_by_its_kind_and_what_it_is_for(
    folder: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(app, command.split())
    said = " ".join((done.stdout + done.stderr).split())
    assert done.exit_code in (1, 2, 3, 4, 5), said
    assert PERSON not in said
    assert WRONG[command] in said, said


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 cut", "archive"),
        (b"SQLite format 3\0", "database"),
        (b"\xff\xfe", "bytes"),
        (b"anything", "text"),
        (b'{\n "audits": []}', "audit"),
        (b"a\nspec: opendp_sim/1", "spec"),
    ],
)
def test_a_file_has_a_kind(tmp_path: Path, content: bytes, name: str) -> None:
    (tmp_path / "a").write_bytes(content)
    assert kind_of_file(tmp_path / "a").name == name


DAMAGE = {
    "line ends": lambda raw: raw.replace(b"\n", b"\r\n"),
    "half": lambda raw: raw[: len(raw) // 2],
    "re-coded": lambda raw: raw.decode("latin-1").encode(),
    "a number": lambda raw: raw.replace(b"1e-05", b"1e-5"),
    "a mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "UTF-16": lambda raw: raw.decode("latin-1").encode("utf-16"),
}
"""What other programs do to a file: git, an editor, a copy that was cut."""
READERS = {
    "small.plan": ("apply FILE", "a plan"),
    "points.ledger": ("ledger show FILE", "a ledger"),
    "out/release.npz": ("answer FILE --post density --queries queries.npz", "a saved release"),
    "out/release.npz.certificate.json": ("verify FILE", "a certificate"),
    "renamed.json": ("report FILE", "a certificate"),
    "audit.json": ("report FILE", "the result of an audit"),
}
"""Files that commands write, and a command that reads each."""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of each kind that commands write."""
    made: Path = tmp_path_factory.mktemp("written")
    spec = write_small(made)
    assert run("apply", begun(spec)).exit_code == 0
    assert run("plan", spec, "-o", made / "small.plan").exit_code == 0
    certificate = (made / "out/release.npz.certificate.json").read_bytes()
    (made / "renamed.json").write_bytes(certificate)
    (made / "audit.json").write_text('{"audits": [], "verdict": "not refuted", "left_out": []}')
    return made


@pytest.mark.few(1)
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_never_said_to_be_what_it_should_be(
    written: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was "expects a ledger, got a ledger"; the advice was to run the plan that cannot be run."""
    monkeypatch.chdir(written)
    command, kind = READERS[name]
    raw = (written / name).read_bytes()
    file = written / name.replace(".", "2.", 1)
    for damage, change in DAMAGE.items():
        file.write_bytes(change(raw))
        done = run(*command.replace("FILE", str(file)).split())
        said = " ".join((done.stdout + done.stderr).split())
        assert "OS9" not in said, damage
        assert f"= got {kind} =" not in said, (damage, said)
        advised = command.replace("FILE", str(file)) in said
        assert done.exit_code == 0 or not advised, (damage, said)
        file.unlink()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"spec: opendp_sim/1\nname: a\0b\n", "the spec is no text --> x.yaml:2:8 = a zero byte"),
        ("spec: opendp_sim/1\n".encode("utf-16"), "not UTF-8 text --> x.yaml:1:1 = UTF-16"),
        ("spec: opendp_sim/1\n".encode("utf-16-le"), "not UTF-8 text --> x.yaml:1:2 = UTF-16"),
        (b"spec: opendp_sim/1\nname: \xe9\n", "x.yaml:2:7 = bytes that are not UTF-8"),
    ],
)
def test_a_spec_that_is_no_text_is_refused_by_its_fault(tmp_path, monkeypatch, raw, said) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_bytes(raw)
    assert said in " ".join(run("check", "x.yaml").stderr.split())
