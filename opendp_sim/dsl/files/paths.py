"""Check the places that a program reads and writes."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Hashable, Iterator, Mapping
from pathlib import Path as File
from typing import Any

from opendp_sim.accounting.ledger._durable import LOCK, SIDES
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.dsl.files.staging import is_run_folder
from opendp_sim.dsl.grammar.program import Program, SourceRef
from opendp_sim.dsl.text.diagnostic import Notes, Path
from opendp_sim.io.origin import Named, Origin, file_names, origin_of

_ARE = {"queries": "queries", "public": "public points"}

_Place = tuple[str, str]
"""(``file`` and its path, links followed; or another kind of source and its name)."""


def _place(ref: SourceRef, folder: str) -> _Place:
    argument = ref.argument.get("file") if isinstance(ref.argument, dict) else ref.argument
    if ref.kind in ("builtin", "memory"):
        return ref.kind, str(argument)
    return _file(File(folder) / str(argument))


def _file(path: File) -> _Place:
    try:
        return "file", str(path.resolve())
    except (
        OSError,
        ValueError,
        RuntimeError,
    ):  # no path at all, or links in a ring: opening it says so
        return "file", str(path)


def _keys(place: _Place) -> Iterator[Hashable]:
    """Yield the keys that two places share if they are one."""
    yield from file_names(place[1]) if place[0] == "file" else [place]


def _same(one: _Place, other: _Place) -> bool:
    """Say whether two places are one."""
    return not set(_keys(one)).isdisjoint(_keys(other))


def one_file(one: File, other: File) -> bool:
    """Say whether two paths are one file, links followed, there or not."""
    return _same(_file(one), _file(other))


def beside(file: File) -> Iterator[File]:
    """Yield a ledger or store and every file beside it."""
    for side in ("", LOCK, *SIDES):
        yield File(f"{file}{side}")


def absent(program: Program) -> list[str]:
    """Return a sentence for each dataset whose file is absent."""
    told = []
    for entry in program.data:
        kind, name = _place(entry.source, program.folder)
        if kind == "file" and not glob.has_magic(name) and not os.path.lexists(name):
            argument = entry.source.argument
            said = argument.get("file") if isinstance(argument, dict) else argument
            told.append(
                f"the data file of `{entry.name}`, {said}, is not there now: a run needs it"
            )
    return told


def private_of(program: Program, memory: Mapping[str, Any] | None = None) -> Origin:
    """Return the origin of a program's private data; nothing is opened."""
    found = Origin()
    for entry in program.data:
        if not entry.public:
            found |= origin_of_ref(entry.source, program.folder, memory)
    return found


def origin_of_ref(ref: SourceRef, folder: str, memory: Mapping[str, Any] | None = None) -> Origin:
    """Return the origin of a spec's file, dataset or table in memory."""
    named = origin_of(Named(ref.kind, ref.argument, File(folder)))
    if ref.kind != "memory" or memory is None or ref.argument not in memory:
        return named
    return named | origin_of(memory[ref.argument])


def is_private(program: Program, ref: SourceRef) -> bool:
    """Return whether public rows would come from a private dataset's place."""
    return origin_of_ref(ref, program.folder).meets(private_of(program))


def check_places(program: Program, notes: Notes, spec: str | None = None) -> None:
    """Report wrong places of a program; files are compared, none is opened.

    These are one private dataset too many, a public dataset that is the private one (OS306), queries
    that are the private dataset (OS704), and outputs that would replace what the program reads, keeps
    or writes otherwise, or keep a store elsewhere (OS304).
    """
    private = [entry.name for entry in program.data if not entry.public]
    for name in private[1:]:
        notes.error("OS306", "a program has one private dataset", ("data", name), part="key",
                    label=f"`{private[0]}` is private already",
                    help="say `public: true` if it is, or write a second spec.")  # fmt: skip
    for entry in program.data:
        if entry.public and is_private(program, entry.source):
            notes.error("OS306", f"`{entry.name}` is declared public and read from private data",
                        ("data", entry.name, "source"), label="the source of a private dataset",
                        help="data is private or public, not both: name another source.")  # fmt: skip
    for output in program.outputs:
        for word, given in (("queries", output.queries), ("public", output.public)):
            if given is not None and is_private(program, given):
                notes.error("OS704", f"`{word}` reads the private dataset",
                            ("outputs", output.name, word), label="neither released nor public",
                            help=f"{_ARE[word]} are public: name another source.")  # fmt: skip
    for entry in program.data:
        if entry.ledger is not None and os.path.isdir(File(program.folder) / entry.ledger.file):  # noqa: PTH112 - no error for an odd name
            notes.error("OS304", f"the ledger of `{entry.name}` is a folder",
                        ("data", entry.name, "ledger"), label="a folder",
                        help="name a file, for example points.ledger.")  # fmt: skip
    _check_encoding(program, notes)
    _check_stores(program, notes)
    _check_names(program, notes)
    if spec is not None:
        _check_link(program, notes, File(spec))
    check_saves(program, notes, File(program.folder), spec)


def _check_encoding(program: Program, notes: Notes) -> None:
    """Report paths that the encoding of a system without UTF-8 lacks (OS304)."""
    named: list[tuple[Path, object]] = [*_counting(program)]
    named += [(("data", entry.name, "source"), entry.source) for entry in program.data]
    for output in program.outputs:
        named += [
            (("outputs", output.name, word), given)
            for word, given in (
                ("save", output.save),
                ("queries", output.queries),
                ("public", output.public),
            )
        ]
    for path, given in named:
        ref = given.argument if isinstance(given, SourceRef) else given
        file = ref.get("file") if isinstance(ref, dict) else ref
        try:
            os.fsencode(str(file))
        except UnicodeEncodeError:
            notes.error("OS304", f"`{file}` is no file name in the encoding of this system",
                        path, label=f"characters that {sys.getfilesystemencoding()} lacks",
                        help="set the environment variable PYTHONUTF8=1, or a locale of UTF-8 "
                        "(LC_ALL=C.UTF-8).")  # fmt: skip


def _counting(program: Program) -> list[tuple[Path, str]]:
    """Return the files that count spending, as (where, file)."""
    kept: list[tuple[Path, str]] = [
        (("data", e.name, "ledger"), e.ledger.file) for e in program.data if e.ledger is not None
    ]
    return kept + [
        (("outputs", o.name, "store"), o.place) for o in program.outputs if o.place is not None
    ]


def _check_link(program: Program, notes: Notes, spec: File) -> None:
    """Report a linked spec that counts in its own folder (OS304).

    The link is in another folder. Each name would have a ledger of its own, beside it, and the budget
    would be spent once for each.
    """
    if not spec.is_symlink() or _file(spec.parent) == _file(File(_file(spec)[1]).parent):
        return
    for path, file in _counting(program):
        if not (is_shared(file) or File(file).is_absolute()):
            notes.error(
                "OS304", f"`{file}` would lie beside a link to the spec, and not beside the spec",
                path, label="another one for each name of the spec",
                help="name the spec's own file, or give this an absolute path.",
            )  # fmt: skip


def _check_names(program: Program, notes: Notes) -> None:
    """Report files in a folder named like a run's private folder (OS304)."""
    kept: list[tuple[Path, str]] = [
        (("outputs", o.name, "save"), o.save) for o in program.outputs if o.save is not None
    ]
    for path, file in kept + _counting(program):
        if any(is_run_folder(part) for part in File(file).parts):
            notes.error(
                "OS304", f"`{file}` lies in a folder that is called as that of a run", path,
                label="such folders are removed", help="choose another name.",
            )  # fmt: skip


def _check_stores(program: Program, notes: Notes) -> None:
    """Report a session's store outside the spec's folder (OS304), links followed."""
    folder = File(_file(File(program.folder))[1])
    for output in program.outputs:
        if output.place is None:
            continue
        if not File(_file(File(program.folder) / output.place)[1]).is_relative_to(folder):
            notes.error("OS304", f"the store of `{output.name}` would lie outside the spec's folder",
                        ("outputs", output.name, "store"), label="leaves the folder",
                        help="name a file below the folder, or none here and one with `session "
                        "--store FILE`.")  # fmt: skip


def check_saves(program: Program, notes: Notes, into: File, spec: str | None = None) -> None:
    """Report outputs that would replace an input or another file (OS304)."""
    taken: dict[Hashable, str] = {}
    for what, place in _inputs(program, spec):
        for key in _keys(place):
            taken.setdefault(key, what)
    for output in program.outputs:
        path: Path = ("outputs", output.name, "save" if output.save is not None else "store")
        written = [_file(file) for file in _written(output.save, output.place, program, into)]
        keys = [key for place in written for key in _keys(place)]
        clash = next((taken[key] for key in keys if key in taken), None)
        if clash is not None:
            notes.error("OS304", f"output `{output.name}` would replace {clash}", path,
                        label="taken", help="write to another file, for example in `out/`.")  # fmt: skip
        for key in keys:
            taken.setdefault(key, f"what output `{output.name}` writes")


def check_inside(program: Program, notes: Notes, into: File) -> None:
    """Report outputs outside the folder ``into`` (OS304)."""
    folder = File(_file(into)[1])
    for output in program.outputs:
        if output.save is None:
            continue
        if not File(_file(into / output.save)[1]).is_relative_to(folder):
            notes.error("OS304", f"output `{output.name}` would be saved outside the folder `{into}`",
                        ("outputs", output.name, "save"), label="leaves the folder",
                        help="save below the folder, choose another with `apply --into FOLDER`, or "
                        "allow it with `--anywhere`.")  # fmt: skip


def _inputs(program: Program, spec: str | None) -> Iterator[tuple[str, _Place]]:
    """Yield as (kind, place) everything that a run must leave unchanged."""
    if spec is not None:
        yield "the spec", _file(File(spec))
    for entry in program.data:
        yield f"the dataset `{entry.name}`", _place(entry.source, program.folder)
        if entry.ledger is not None:
            for file in beside(File(program.folder) / entry.ledger.file):
                yield "the ledger", _file(file)
    for output in program.outputs:
        for word, given in (("queries", output.queries), ("public", output.public)):
            if given is not None:
                yield f"the {_ARE[word]} of `{output.name}`", _place(given, program.folder)


def _written(save: str | None, store: str | None, program: Program, into: File) -> Iterator[File]:
    """Yield every file that an output makes, in passing or to stay."""
    if save is not None:
        file = into / save
        yield file
        yield File(f"{file}.certificate.json")
    if store is not None:
        yield from beside(File(program.folder) / store)
