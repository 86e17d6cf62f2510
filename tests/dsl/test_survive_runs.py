"""Runs that are killed, or whose disk fails, at any file call: never uncharged, never charged twice."""

from __future__ import annotations

import errno
import itertools
import json
import os
import sqlite3
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519
from filelock import FileLock, Timeout
from typer.testing import CliRunner

from opendp_sim.accounting.atomic_files import replacing
from opendp_sim.accounting.certificate.certificate import digest_of
from opendp_sim.accounting.certificate.signature import Signer
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.release.release import Release
from opendp_sim.cli import app
from opendp_sim.core.errors import BudgetError, DataError, ReleaseError, SimError
from opendp_sim.dsl import apply, plan_file, verify
from tests._small import write_small
from tests._tiers import some

CALLS = ("open", "fsync", "replace", "unlink", "mkdir", "posix_fallocate")


def small(folder):
    return write_small(
        folder,
        ("repetitions: 100", "repetitions: 4"),
        ("l1: 100, l2: 10", "l1: 4, l2: 2"),
        ("epsilon: 3.0, delta: 1.0e-5", "epsilon: 300.0, delta: 1.0e-5"),
    )


class Stopped(BaseException):
    """Stands for the end of the process: nothing of ours catches it."""


class Stops:
    """Counts file calls under a folder, and stops or fails at one of them."""

    def __init__(self, monkeypatch, folder, at, fault):
        self.left, self.fault, self.folder, self.reached = at, fault, str(folder), False
        for name in CALLS:
            monkeypatch.setattr(os, name, self.around(name, getattr(os, name)))

    def around(self, name, real):
        def call(first, *more, **named):
            where = first if isinstance(first, int) else os.fspath(first)
            mine = isinstance(where, int) or self.folder in str(where)
            if mine and self.left is not None and not (name == "open" and not more):
                self.left -= 1
                if self.left == 0:
                    self.reached = True
                    raise self.fault()
                if self.reached and isinstance(self.fault(), Stopped):
                    raise Stopped  # a dead process cleans nothing up
            return real(first, *more, **named)

        return call


def state(folder):
    with Ledger.open(folder / "points.ledger") as ledger:
        return len(ledger.charges), [entry.kind for entry in ledger.entries]


def published(folder):
    out = folder / "out"
    return {p.name for p in out.iterdir() if not p.name.startswith(".")} if out.exists() else set()


def released_as_charged(folder, *, whole=True):
    """Every published pair verifies; a file without a certificate is one that can be finished."""
    for path in (folder / "out").glob("*.certificate.json"):
        if whole:
            verify(path, folder / "small.yaml")
        said = json.loads(path.read_text())
        assert digest_of(path.with_name(said["file"]["name"])) == said["file"]["sha256"]


def moved(plan, folder):
    """Return the same plan for files in another folder."""
    return replace(plan, program=replace(plan.program, written_folder=str(folder)), path=None)


@pytest.mark.parametrize(
    "fault", ["stop", errno.ENOSPC, pytest.param(errno.EIO, marks=pytest.mark.long)]
)
def test_at_every_file_call_nothing_is_released_uncharged_or_charged_twice(tmp_path, fault):
    """The first run is stopped at its k-th call, then it is run again (benchmarks has every k)."""
    plan = plan_file(small(tmp_path))
    made = Stopped if fault == "stop" else lambda: OSError(fault, "injected")
    ended = set()
    for at in itertools.count({"stop": 1, errno.ENOSPC: 2, errno.EIO: 4}[fault], 19):
        folder = tmp_path / str(at)
        folder.mkdir()
        small(folder)
        with pytest.MonkeyPatch.context() as patch:
            stops = Stops(patch, folder, at, made)
            try:
                apply(moved(plan, folder))
            except Stopped:
                ended.add("stopped")
            except SimError as error:
                ended.add(error.code)
        if not stops.reached:
            break
        charged, _ = state(folder) if (folder / "points.ledger").exists() else (0, [])
        assert charged <= 1
        assert not published(folder) or charged == 1
        released_as_charged(folder, whole=False)
        kept = [p for p in folder.glob(".opendp_sim-*") if (p / "run.json").exists()]
        done = apply(moved(plan, folder))
        after, _ = state(folder)
        assert (done.resumed is not None) <= bool(kept)
        assert after == charged + (done.resumed is None)
        assert published(folder) == {
            "density.csv",
            "release.npz",
            "density.csv.certificate.json",
            "release.npz.certificate.json",
        }
        released_as_charged(folder, whole=done.resumed is not None)
        assert not list(folder.rglob(".opendp_sim-*/run.json"))
    assert at > 60
    assert ended <= {"stopped", "OS403", "OS609", "OS601"}
    assert ended >= ({"stopped"} if fault == "stop" else {"OS609"})


def unfinished(folder, monkeypatch, stopped_at="_place", **named):
    """Return the spec of a run that was stopped between its charge and its first rename, or before."""
    from opendp_sim.dsl.run import publish
    from opendp_sim.dsl.run.charge import Transaction

    spec = small(folder)

    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(publish if stopped_at == "_place" else Transaction, stopped_at, stop)
        with pytest.raises(Stopped):
            apply(plan_file(spec), **named)
    assert not published(folder)
    return spec


def test_resume_finishes_what_was_charged_and_nothing_else(tmp_path, monkeypatch):
    spec = unfinished(tmp_path, monkeypatch)
    before, kinds = state(tmp_path)
    assert (before, kinds) == (1, ["reserve", "charge"])
    staged = next(tmp_path.glob(".opendp_sim-*"))
    assert staged.stat().st_mode & 0o777 == 0o700
    waiting = Release.load(staged / "1.npz")
    with pytest.raises(ReleaseError, match="OS702"):
        apply(plan_file(spec), resume=17)
    result = CliRunner().invoke(app, ["apply", str(spec), "--resume", "2"])
    assert result.exit_code == 0, result.output
    assert "nothing new was charged" in result.stdout
    assert state(tmp_path) == (1, ["reserve", "charge", "outcome"])
    got = Release.load(tmp_path / "out" / "release.npz")
    assert np.array_equal(got.arrays["counts"], waiting.arrays["counts"])
    released_as_charged(tmp_path)
    assert not list(tmp_path.glob(".opendp_sim-*"))
    with pytest.raises(ReleaseError, match="OS702"):
        apply(plan_file(spec), resume=2)
    assert apply(plan_file(spec)).resumed is None
    assert state(tmp_path)[0] == 2


def test_a_resumed_run_that_is_stopped_says_what_stands(tmp_path, monkeypatch):
    from opendp_sim.dsl.run import execute as going_on

    spec, said = unfinished(tmp_path, monkeypatch), []

    def stop(*_):
        raise Stopped

    monkeypatch.setattr(going_on, "publish", stop)
    for resume in (2, None):
        with pytest.raises(Stopped):
            apply(plan_file(spec), resume=resume, charged=said.append)
        assert said[-1].startswith("entry 2 of ")
        assert said[-1].endswith(", and stands")
    assert len(said) == 2


def test_a_table_that_is_not_looked_at_is_told(tmp_path, monkeypatch):
    """A run that is finished releases what was handed over then, without a word once."""
    tables = [{"x": np.full((50, 3), value), "kind": np.repeat("a", 50)} for value in (0.1, 0.9)]
    source = ("source: {npz: points.npz}", "source: {memory: points}")
    spec = write_small(tmp_path, source)

    def stop(*_):
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr("opendp_sim.dsl.run.publish._place", stop)
        with pytest.raises(Stopped):
            apply(plan_file(spec), memory={"points": tables[0]})
    with pytest.warns(RuntimeWarning, match="this call was not looked at"):
        done = apply(plan_file(spec), memory={"points": tables[1]})
    assert done.resumed == 2
    assert apply(plan_file(spec), memory={"points": tables[1]}).resumed is None


def test_a_charge_that_may_have_been_made_is_told(tmp_path, monkeypatch):
    """The disk failed after the entry was kept: a Ctrl-C then said that nothing was charged."""
    said: list[str] = []

    def full(_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    plan = plan_file(small(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr("opendp_sim.accounting.ledger._file.checkpoint", full)
        with pytest.raises(BudgetError):
            apply(plan, charged=said.append)
    assert "may have been charged" in said[-1]
    assert state(tmp_path)[1] == ["reserve"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("name", "part"), [("0.csv", 0.5), ("1.npz", 0.5), ("run.json", 0.1), ("run.json", 0.9)]
)
def test_a_kept_file_that_was_changed_is_never_published(tmp_path, monkeypatch, name, part):
    """The list holds statements, and at its end the seal of all that is before."""
    spec = unfinished(tmp_path, monkeypatch)
    file = next(tmp_path.glob(".opendp_sim-*")) / name
    raw = file.read_bytes()
    middle = int(len(raw) * part)
    file.write_bytes(raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :])
    with pytest.raises(ReleaseError, match="OS70"):
        apply(plan_file(spec), resume=2)
    assert not published(tmp_path)
    file.write_bytes(raw)
    assert apply(plan_file(spec)).resumed == 2


@pytest.mark.few(2)
@pytest.mark.parametrize("way", ["link", "second name", "pipe"])
@pytest.mark.parametrize("name", some(["0.csv", "1.npz", "run.json"], 2))
def test_a_kept_file_is_a_file_of_its_own(tmp_path, monkeypatch, name, way):
    """The same bytes under a link are another's, who could change them when they are published."""
    spec = unfinished(tmp_path, monkeypatch)
    file, other = next(tmp_path.glob(".opendp_sim-*")) / name, tmp_path / "other"
    file.rename(other)
    {
        "link": lambda: file.symlink_to(other),
        "second name": lambda: file.hardlink_to(other),
        "pipe": lambda: os.mkfifo(file),
    }[way]()
    with pytest.raises(ReleaseError, match="OS70"):
        apply(plan_file(spec), resume=2)
    assert not published(tmp_path)
    file.unlink()
    other.rename(file)
    assert apply(plan_file(spec)).resumed == 2
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())


def kept_list(folder):
    """Return the file of a kept run's list, its bytes, and what it lists."""
    file = next(folder.glob(".opendp_sim-*")) / "run.json"
    raw = file.read_bytes()
    return file, raw, json.loads(raw.partition(b"\n")[0])


def relist(file, listed):
    """Put another list before the seal."""
    seal = file.read_bytes().partition(b"\n")[2]
    file.write_bytes(json.dumps(listed).encode() + b"\n" + seal)


@pytest.mark.few(1)
@pytest.mark.parametrize("member", ["charge", "signature"])
def test_a_kept_statement_says_nothing_that_is_not_in_its_digest(tmp_path, monkeypatch, member):
    spec = unfinished(tmp_path, monkeypatch)
    file, raw, listed = kept_list(tmp_path)
    listed["files"][0]["statement"][member] = None
    relist(file, listed)
    with pytest.raises(ReleaseError, match="OS701"):
        apply(plan_file(spec))
    file.write_bytes(raw)
    assert apply(plan_file(spec)).resumed == 2
    released_as_charged(tmp_path)


@pytest.mark.few(1)
@pytest.mark.parametrize("stopped_at", ["settle", "_place"])
def test_whoever_can_write_the_private_folder_cannot_have_it_published(
    tmp_path, monkeypatch, stopped_at
):
    """All of it agrees with itself after the edit: only the ledger knows what the run left."""
    spec = unfinished(tmp_path, monkeypatch, stopped_at)
    before = state(tmp_path)
    file, _, listed = kept_list(tmp_path)
    folder = file.parent
    whole = {p.name: p.read_bytes() for p in folder.iterdir()}
    table = (folder / "0.csv").read_bytes()
    (folder / "0.csv").write_bytes(table + b"0")
    listed["files"][0]["sha256"] = digest_of(folder / "0.csv")
    listed["files"][0]["statement"]["file"]["sha256"] = digest_of(folder / "0.csv")
    relist(file, listed)
    for resume in (before[0], 2, None):
        with pytest.raises(ReleaseError, match="OS70"):
            apply(plan_file(spec), resume=resume)
    assert not published(tmp_path)
    assert state(tmp_path) == before
    for name, raw in whole.items():
        (folder / name).write_bytes(raw)
    assert apply(plan_file(spec)).resumed == 2
    released_as_charged(tmp_path)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("signer", "0" * 64),
        ("program", "0" * 64),
        ("reserve", 7),
        ("ledger", "0" * 64),
        ("files", []),
    ],
)
def test_every_field_of_the_list_is_sealed(tmp_path, monkeypatch, field, value):
    spec = unfinished(tmp_path, monkeypatch)
    file, _, listed = kept_list(tmp_path)
    relist(file, listed | {field: value})
    with pytest.raises(ReleaseError, match="OS701"):
        apply(plan_file(spec))
    assert state(tmp_path)[0] == 1


def test_another_plan_does_not_take_over_a_run(tmp_path, monkeypatch):
    spec = unfinished(tmp_path, monkeypatch)
    text = spec.read_text()
    spec.write_text(text.replace("seed: 7", "seed: 8"))
    assert apply(plan_file(spec)).resumed is None
    spec.write_text(text)
    assert apply(plan_file(spec), replace=True).resumed == 2
    assert state(tmp_path)[0] == 2


def test_a_full_disk_is_found_before_anything_is_charged(tmp_path, monkeypatch):
    """The room for the outputs is taken before the reserve."""
    spec = small(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        for _ in range(3):
            with pytest.raises(DataError, match="OS609") as caught:
                apply(plan_file(spec))
    assert "nothing was charged" in caught.value.hint
    assert state(tmp_path) == (0, [])
    assert not list(tmp_path.glob(".opendp_sim-*"))


@pytest.mark.parametrize("which", ["room3", "lock"])
def test_a_disk_without_room_for_a_file_is_found_before_anything_is_charged(
    tmp_path, monkeypatch, which
):
    """It had bytes and no name left: each try was charged. No more files are made later than are held."""
    from opendp_sim.dsl.files.staging import RunFolder

    spec, real, counts, full = small(tmp_path), os.open, [], [True]

    def count():
        return sum(1 for _ in tmp_path.rglob("*"))

    def opened(path, flags, *more, **named):
        if Path(path).name == which and ".opendp_sim-" in str(path) and full:
            raise OSError(errno.ENOSPC, "no inode")
        made = real(path, flags, *more, **named)
        if flags & os.O_CREAT and counts:
            counts.append(count())
        return made

    def given(self, real_give=RunFolder.give_room):
        counts.append(count())
        real_give(self)

    monkeypatch.setattr(os, "open", opened)
    with pytest.raises(DataError, match="OS609"):
        apply(plan_file(spec))
    assert state(tmp_path) == (0, [])
    assert not list(tmp_path.glob(".opendp_sim-*"))
    full.clear()
    monkeypatch.setattr(RunFolder, "give_room", given)
    (tmp_path / "out").rmdir()
    apply(plan_file(spec))
    assert len(counts) > 5
    assert max(counts[1:]) <= counts[0]


@pytest.mark.few(1)
@pytest.mark.parametrize("where", ["stage", "_place"])
def test_a_disk_that_fails_later_loses_no_results_and_says_what_stands(
    tmp_path, monkeypatch, where
):
    from opendp_sim.dsl.run import publish

    spec = small(tmp_path)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(publish, "write_output" if where == "stage" else where, full)
        with pytest.raises(DataError, match="OS609") as caught:
            apply(plan_file(spec))
    assert set(caught.value.results) == {"density", "release"}
    assert (
        "entry 1" in str(caught.value.got)
        if where == "stage"
        else "--resume 2" in caught.value.hint
    )
    assert not published(tmp_path)
    done = apply(plan_file(spec))
    assert (done.resumed is None) == (where == "stage")
    assert state(tmp_path)[0] == (2 if where == "stage" else 1)


def test_leftovers_of_the_dead_are_removed_and_those_of_the_living_stay(tmp_path):
    target = tmp_path / "a.json"
    dead = tmp_path / ".a.json.0123456789abcdef.part"
    dead.write_text("half")
    other = tmp_path / ".b.json.0123456789abcdef.part"
    other.write_text("somebody else's")
    with replacing(target, "w") as stream:
        stream.write("first")
        living = next(p for p in tmp_path.glob(".a.json.*.part") if p != dead)
        assert not dead.exists()
        with replacing(target, "w") as second:
            second.write("second")
            assert living.exists()
    assert target.read_text() == "first"
    assert sorted(p.name for p in tmp_path.iterdir()) == [other.name, "a.json"]


def test_a_link_is_not_followed(tmp_path):
    """The old fixed name `.partial` was: its target was overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "a.json").symlink_to(victim)
    (tmp_path / "a.json.partial").symlink_to(victim)
    with replacing(tmp_path / "a.json", "w") as stream:
        stream.write("new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "a.json").read_text() == "new"
    assert not (tmp_path / "a.json").is_symlink()


def test_a_failed_replacement_leaves_the_old_file(tmp_path):
    target = tmp_path / "a.json"
    target.write_text("old")
    with suppress(KeyError), replacing(target, "w") as stream:
        stream.write("half")
        raise KeyError
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("kind", ["refusal", "void"])
def test_a_reserve_is_settled_once(tmp_path, kind):
    from tests.accounting.ledger.test_ledger import TERMS, Charge

    with Ledger.open(tmp_path / "l.ledger", TERMS) as ledger:
        reserved = ledger.reserve(Charge("zcdp", (0.02,)), {"token": "t"})
        assert ledger.total().loss[0] == pytest.approx(0.02)
        again = ledger.settle(reserved, kind, {"code": "OS605"})
        assert ledger.settle(reserved, kind, {"code": "OS605"}) == again
        assert ledger.total().loss == (0.0,)
        with pytest.raises(BudgetError, match="OS403"):
            ledger.settle(reserved, "charge", {})
        other = ledger.reserve(Charge("zcdp", (0.03,)), {})
        ledger.settle(other, "charge", {})
        assert [c.loss for c in ledger.charges] == [(0.03,)]
        with pytest.raises(BudgetError, match="OS403"):
            ledger.settle(other, kind, {"code": "OS605"})


def test_an_open_reserve_counts_against_the_limit(tmp_path):
    from tests.accounting.ledger.test_ledger import TERMS, Charge

    with Ledger.open(tmp_path / "l.ledger", TERMS) as ledger:
        ledger.reserve(Charge("zcdp", (0.15,)), {})
        with pytest.raises(BudgetError, match="OS402"):
            ledger.reserve(Charge("zcdp", (0.15,)), {})


def test_an_edited_ledger_of_whole_hashes_is_still_read_strictly(tmp_path):
    """Somebody recomputes every hash: what is no entry is refused, and never a traceback."""
    from opendp_sim.accounting.ledger._entries import canonical_json, entry_hash
    from tests.accounting.ledger.test_ledger import TERMS

    path = tmp_path / "l.ledger"
    for body in ("[]", "{}", "1", '{"kind":"charge"}', '{"kind":"other","time":"2026-01-01"}',
                 '{"kind":"charge","time":"2026-01-01","loss":{"measure":"zcdp","loss":["x"]}}',
                 '{"kind":"charge","time":"2026-01-01","loss":{"measure":"zcdp","loss":["0x1p99999"]}}',
                 '{"kind":"charge","time":"never","loss":{"measure":"zcdp","loss":["0x1p0"]}}'):  # fmt: skip
        Path(path).unlink(missing_ok=True)
        Ledger.open(path, TERMS, forget=True).close()
        with sqlite3.connect(path) as db:
            genesis = db.execute("SELECT value FROM meta WHERE key='genesis'").fetchone()[0]
            digest = entry_hash(entry_hash("", genesis), body)
            db.execute("INSERT INTO entries VALUES (1, ?, ?)", (body, digest))
            head = canonical_json({"count": 1, "hash": digest})
            db.execute("UPDATE meta SET value=? WHERE key='head'", (head,))
        db.close()
        with pytest.raises(BudgetError, match="OS403"):
            Ledger.open(path)


def test_a_damaged_list_stops_its_own_program_only(tmp_path, monkeypatch):
    spec = unfinished(tmp_path, monkeypatch)
    file = next(tmp_path.glob(".opendp_sim-*")) / "run.json"
    raw = file.read_bytes()
    file.write_bytes(raw[:-20])
    with pytest.raises(ReleaseError, match="OS701") as refused:
        apply(plan_file(spec))
    assert str(file.parent) in str(refused.value)
    spec.write_text(spec.read_text().replace("seed: 7", "seed: 8"))
    assert apply(plan_file(spec)).resumed is None
    assert file.exists()  # the other program's, left alone


def test_an_unfinished_run_that_cannot_be_looked_at_is_not_paid_for_again(tmp_path, monkeypatch):
    """A disk error at its lock passed it over: `apply` ran again, and charged again."""
    from opendp_sim.dsl.files import staging as run_folder

    spec = unfinished(tmp_path, monkeypatch)

    class Broken(FileLock):
        def acquire(self, *_, **__):
            raise OSError(errno.EIO, "injected")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "filelock", SimpleNamespace(FileLock=Broken, Timeout=Timeout))
        with pytest.raises(ReleaseError, match="OS701"):
            apply(plan_file(spec))
    assert state(tmp_path) == (1, ["reserve", "charge"])
    assert apply(plan_file(spec)).resumed == 2


def key_file(path):
    key = ed25519.Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    path.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    public = path.with_suffix(".pub")
    info = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(pem, info))
    return path


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("stopped_at", "started"),
    [
        ("settle", True),
        ("_place", False),
        pytest.param("settle", False, marks=pytest.mark.long),
        pytest.param("_place", True, marks=pytest.mark.long),
    ],
)
def test_a_run_is_signed_by_the_key_that_it_was_started_with(
    tmp_path, monkeypatch, started, stopped_at
):
    """Any key was taken: whoever finished a run vouched for a table that somebody else had handed over."""
    mine, other = key_file(tmp_path / "mine.pem"), key_file(tmp_path / "other.pem")
    sign = mine if started else None
    spec = unfinished(tmp_path, monkeypatch, stopped_at, sign=sign)
    before = state(tmp_path)
    for wrong in {None, mine, other} - {sign}:
        for number in (2, None):
            with pytest.raises(ReleaseError, match="OS702") as refused:
                apply(plan_file(spec), sign=wrong, resume=number if before[1][1:] else None)
            assert refused.value.where == "--sign"
            assert str(refused.value.got) == (
                "none" if wrong is None else f"{Signer(wrong).public[:16]}..."
            )
    assert (published(tmp_path), state(tmp_path)) == (set(), before)
    done = apply(plan_file(spec), sign=sign)
    assert done.resumed == 2
    for path in done.certificates.values():
        verify(path, signer=mine.with_suffix(".pub") if started else None)


def test_the_key_is_in_the_sealed_list(tmp_path, monkeypatch):
    mine, other = key_file(tmp_path / "mine.pem"), key_file(tmp_path / "other.pem")
    spec = unfinished(tmp_path, monkeypatch, sign=mine)
    file, _, listed = kept_list(tmp_path)
    assert listed["signer"] == Signer(mine).public
    for changed in ({"signer": Signer(other).public}, {"signer": None}):
        relist(file, listed | changed)
        with pytest.raises(ReleaseError, match="OS701"):
            apply(plan_file(spec), sign=other if changed["signer"] else None)
    assert not published(tmp_path)
