"""The ``outputs`` section: what is computed from releases, and where it goes."""

from __future__ import annotations

from typing import Any

from opendp_sim.core.mechanism import Mechanism
from opendp_sim.dsl.diagnostic import Notes, Path
from opendp_sim.dsl.fields import HOLE, Fields, choice, listing, mapping, shown, text
from opendp_sim.dsl.ir import OutputDecl, SourceRef
from opendp_sim.dsl.read_data import read_source
from opendp_sim.dsl.read_steps import read_steps

__all__ = ["read_outputs"]

KNOWN = ("from", "post", "query", "save", "serve", "store", "public_queries")
ENDINGS = (".npz", ".csv", ".json")


def read_outputs(section: Any, notes: Notes) -> dict[str, OutputDecl | None]:
    """Return the outputs by name; None stands for one that is wrong (reported)."""
    path: Path = ("outputs",)
    if not isinstance(section, dict) or not section:
        if section is not HOLE:
            notes.error("OS305", "a program needs at least one output", path,
                        label=f"got {shown(section)}",
                        help="write `outputs: {name: {from: ..., save: out/name.npz}}`.")  # fmt: skip
        return {}
    return {name: _output(name, value, (*path, name), notes) for name, value in section.items()}


def _output(name: str, value: Any, path: Path, notes: Notes) -> OutputDecl | None:
    before = len(notes.findings)
    fields = Fields(value, path, notes, KNOWN)
    source = fields.take("from", text)
    post: tuple[Mechanism, ...] | None = ()
    if "post" in fields.value:
        raw = fields.take("post", listing)
        post = read_steps(raw, (*path, "post"), notes, ("queries",))
    query = _queries(fields, "query", path, notes)
    public = _queries(fields, "public_queries", path, notes)
    save = fields.take("save", text, None)
    serve = fields.take("serve", choice("queryable", "session"), None)
    store = fields.take("store", text, None)
    if fields.usable and not {"save", "serve"} & set(fields.value):
        notes.error("OS305", f"output `{name}` goes nowhere", path, part="key",
                    label="no `save` and no `serve`", help="add `save: out/name.npz`.")  # fmt: skip
    if isinstance(save, str) and not save.endswith(ENDINGS):
        notes.error("OS304", f"`save` ends in {', '.join(ENDINGS)}", (*path, "save"),
                    label=f"got {shown(save)}",
                    help=".npz holds a release or arrays, .csv and .json a table.")  # fmt: skip
    if len(notes.findings) > before or HOLE in (source, query, public, save, serve, store):
        return None
    if post is None:
        return None
    return OutputDecl(name, source, post, query, save, serve, store, public)


def _queries(fields: Fields, name: str, path: Path, notes: Notes) -> SourceRef | Any | None:
    if name not in fields.value:
        return None
    found = read_source(fields.take(name, mapping), (*path, name), notes)
    return HOLE if found is None else found
