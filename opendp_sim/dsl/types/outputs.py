"""Infer every output's type, post-processing of releases or public data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from opendp_sim.core.claims import Interactive, Noise, Post, Stable
from opendp_sim.core.errors import SimError
from opendp_sim.core.space import Domain
from opendp_sim.domains.released import AnswerColumns, Released
from opendp_sim.dsl.grammar.parse_steps import locate
from opendp_sim.dsl.grammar.program import OutputDecl, Program
from opendp_sim.dsl.text.diagnostic import Notes, Path, suggest
from opendp_sim.dsl.types.error_terms import accuracy_of
from opendp_sim.dsl.types.infer import bind_release, release_record
from opendp_sim.dsl.types.records import Bound, Typed

_PREDICTED = {"density": "kernel_sums", "distance": "distance_sums"}
"""Questions whose errors public points tell, and what a sketch answers them by."""


@dataclass(frozen=True)
class OutputType:
    """One output with its type.

    Attributes:
        stage: the released stage that it comes from.
        posts: every post-processing claim since the release, this output's last.
        domain: what a query is answered with; the release itself when ``posts`` is empty.
        stated: what a release states of its own accuracy: votes, selections, steps of a fit.
        interactive: whether the release answers one question after another.
    """

    decl: OutputDecl
    stage: Typed
    posts: tuple[Post, ...]
    domain: Domain | None
    stated: Mapping[str, float] = field(default_factory=dict)
    interactive: bool = False

    @property
    def expected(self) -> dict[str, float]:
        """Expected errors that the post-processing states, or without any the release itself."""
        told = {name: float(v) for post in self.posts for name, v in post.expected.items()}
        return told if self.posts else dict(self.stated)


def is_predicted(output: OutputType) -> bool:
    """Return whether public points determine an output's error.

    ``plan --like`` (``predict.py``). It answers queries by sums of a kernel of l1 or l2, or of
    distances, of all records together.
    """
    claim, post = output.stage.stages[-1].claim if output.stage.stages else None, output.decl.post
    name = _PREDICTED.get(post[0].key) if post and output.decl.query is not None else None
    sums = claim.capabilities.get(name) if name and isinstance(claim, Stable) else None
    if sums is None or sums.labels is not None:
        return False
    return name != "kernel_sums" or sums.distance in ("l1", "l2")


def released_domain(typed: Typed, bound: Bound | None) -> Domain | None:
    """Return the domain of a released sketch, or of a mechanism's answers."""
    noise: Noise | None = getattr(bound.claim, "noise", None) if bound is not None else None
    noise_only = typed.release is not None and typed.release.kind in ("noise", "none")
    if typed.is_sketch and noise_only:
        sketch = typed.sketch
        return Released(sketch.output, sketch.capabilities, noise, typed.stages[-1].domain)
    if bound is None or isinstance(bound.claim, Interactive):
        return None
    if bound.claim.capabilities and bound.claim.output is not None:
        return Released(bound.claim.output, bound.claim.capabilities, None, bound.domain)
    return bound.claim.output


def type_outputs(
    program: Program,
    types: Mapping[str, Typed | None],
    broken: frozenset[str],
    notes: Notes,
    bounds: Mapping[str, Bound] | None = None,
) -> dict[str, OutputType | None]:
    """Type every output that can be typed, with the solved ``bounds``."""
    found: dict[str, OutputType | None] = dict.fromkeys(broken)
    declared = {output.name: output for output in program.outputs}
    held = dict(bounds or {})
    for output in program.outputs:
        _visit(output, program, declared, types, found, held, notes, ())
    _one_session_each(found, notes)
    _concurrent(found, held, notes)
    return found


def _one_session_each(found: Mapping[str, OutputType | None], notes: Notes) -> None:
    """Report a second session of one release."""
    served: dict[str, str] = {}
    for name, output in found.items():
        if output is None or output.decl.serve != "session":
            continue
        first = served.setdefault(output.stage.name, name)
        if first != name:
            notes.error("OS306", f"`{output.stage.name}` is served by two sessions",
                        ("outputs", name, "serve"), label=f"`{first}` serves it already",
                        help="a release pays for one session: ask that one, or give a second stage "
                        "a `release:` and a share of the budget.")  # fmt: skip


def _concurrent(
    found: Mapping[str, OutputType | None], bounds: Mapping[str, Bound], notes: Notes
) -> None:
    """Report concurrent sessions without a composition theorem."""
    served = [output for output in found.values() if output is not None and output.interactive]
    for output in served if len(served) > 1 else ():
        bound = bounds.get(output.stage.name)
        if bound is not None and bound.claim.measure == "approx_zero_concentrated_divergence":
            notes.error("OS306", f"`{output.stage.name}` is served beside another session",
                        ("outputs", output.decl.name, "serve"), label="its measure is approximate zCDP",
                        help="serve it from a spec of its own: that such sessions add up while both "
                        "are asked is not proved.")  # fmt: skip


def unreleased(program: Program, types: Mapping[str, Typed | None], notes: Notes) -> None:
    """Report unused stages without a release."""
    if None in types.values():
        return  # what was to use the stage may be what is broken
    used = {s.source for s in program.flow} | {o.source for o in program.outputs}
    for name, typed in types.items():
        if typed is not None and typed.release is None and name not in used:
            last = typed.stages[-1].mechanism.key if typed.stages else typed.entry.name
            notes.error("OS307", f"stage `{name}` ends without a release", ("flow", name), part="key",
                        label=f"no `release:`: it ends in `{last}`, and nothing uses it",
                        help="add `release: {noise: gaussian, spend: 100%}`, or drop it.")  # fmt: skip


def _visit(
    decl: OutputDecl,
    program: Program,
    declared: Mapping[str, OutputDecl],
    types: Mapping[str, Typed | None],
    found: dict[str, OutputType | None],
    bounds: dict[str, Bound],
    notes: Notes,
    trail: tuple[str, ...],
) -> OutputType | None:
    if decl.name in found:
        return found[decl.name]
    if trail[-1:] == (decl.name,) and program.stage(decl.name) is not None:
        return None  # it means the stage of its own name, which was reported
    if decl.name in trail:
        notes.error("OS306", "outputs feed each other in a circle", ("outputs", decl.name, "from"),
                    label=" -> ".join((*trail, decl.name)),
                    help="start from a released stage.")  # fmt: skip
        return None
    base: OutputType | None
    if decl.source in declared:
        base = _visit(
            declared[decl.source],
            program,
            declared,
            types,
            found,
            bounds,
            notes,
            (*trail, decl.name),
        )
        base = None if base is None else replace(base, decl=decl)
    else:
        base = _from_stage(decl, program, types, bounds, notes)
    found[decl.name] = None if base is None else _output(decl, base, notes)
    return found[decl.name]


def _from_stage(
    decl: OutputDecl,
    program: Program,
    types: Mapping[str, Typed | None],
    bounds: dict[str, Bound],
    notes: Notes,
) -> OutputType | None:
    path: Path = ("outputs", decl.name, "from")
    if program.entry(decl.source) is not None:
        notes.error("OS704", f"`{decl.source}` is a dataset, not a release", path,
                    label="neither released nor public",
                    help="name a stage that has `release:`, or another output.")  # fmt: skip
        return None
    if decl.source not in types:
        known = [o.name for o in program.outputs if o.name != decl.name]
        known += [s.name for s in program.flow]
        notes.error("OS303", f"no stage or output is called `{decl.source}`", path,
                    label="not known", help=suggest(decl.source, known)
                    or f"use one of {', '.join(known)}.")  # fmt: skip
        return None
    typed = types[decl.source]
    if typed is None:
        return None
    if typed.release is None:
        code = "OS307" if typed.is_sketch else "OS704"
        released = [name for name, t in types.items() if t is not None and t.release is not None]
        notes.error(
            code,
            f"stage `{decl.source}` is not released",
            path,
            label="its chain ends without noise" if typed.is_sketch else "still private",
            help=f"name `{released[0]}`, which is released."
            if released
            else f"add `release: {{noise: gaussian, spend: 100%}}` to `{decl.source}`.",
        )
        return None
    bound = bounds.get(typed.name)
    if bound is None and typed.release.kind != "none":
        bound = bind_release(typed, release_record(typed.release, probe=True))
        bounds[typed.name] = bound  # many outputs may be of one release
    told = {} if bound is None else accuracy_of(bound.claim.expected, bound.record)
    asked = bound is not None and isinstance(bound.claim, Interactive)
    return OutputType(decl, typed, (), released_domain(typed, bound), told, asked)


def _output(decl: OutputDecl, base: OutputType, notes: Notes) -> OutputType | None:
    domain, posts = base.domain, list(base.posts)
    for place, mechanism in enumerate(decl.post):
        path: Path = ("outputs", decl.name, "post", place, mechanism.key)
        if domain is None:
            notes.error("OS306", f"nothing can be computed from `{decl.source}` by post steps", path,
                        part="key", label="a session answers by itself",
                        help="leave `post:` out and use `serve: session`.")  # fmt: skip
            return None
        try:
            claim: Any = mechanism.bind(domain, base.stage.metric)
        except SimError as error:
            where = locate(error, mechanism.key, mechanism.spec(), path)
            notes.from_error(error, where, "key" if where == path else "value")
            return None
        posts.append(claim)
        domain = claim.output
    typed = replace(base, decl=decl, posts=tuple(posts), domain=domain)
    return typed if _saves(typed, notes) else None


def _pointed(output: OutputType, notes: Notes) -> bool:
    """Check that public points exist exactly where needed."""
    decl, path = output.decl, ("outputs", output.decl.name)
    reads = any(getattr(mechanism, "public", None) == "points" for mechanism in decl.post)
    if reads == (decl.public is not None):
        return True
    if reads:
        notes.error("OS305", f"output `{decl.name}` has no public points", path, part="key",
                    label="no `public`", help="add `public: {npz: points.npz}`, or write "
                    "`public: queries`.")  # fmt: skip
    else:
        notes.error("OS305", "`public` needs a query that reads with it", (*path, "public"),
                    part="key", label="nobody reads them",
                    help="add for example `post: [density: {public: points}]`.")  # fmt: skip
    return False


def _serves(output: OutputType, notes: Notes) -> bool:
    """Check that exactly the interactive releases are served."""
    decl, asked = output.decl, output.interactive
    if asked == (decl.serve == "session") and not (asked and decl.save is not None):
        return True
    notes.error("OS306", f"`{output.stage.name}` is " + ("a session" if asked else "no session"),
                ("outputs", decl.name, "save" if asked and decl.save is not None else "serve"),
                label="not saved, and not otherwise served" if asked else "nobody can ask it",
                help="write `serve: session`, and nothing to save: its answers come one by one."
                if asked else "`serve: session` is for releases such as ind_knn: write `save: "
                "out/name.npz`, and ask it with `opendp-sim answer`.")  # fmt: skip
    return False


def _saves(output: OutputType, notes: Notes) -> bool:
    decl, path = output.decl, ("outputs", output.decl.name)
    if not _pointed(output, notes) or not _serves(output, notes):
        return False
    released = isinstance(output.domain, Released)
    needs_queries = any(post.takes == "release" and post.asks for post in output.posts)
    if decl.query is not None and not output.posts:
        notes.error("OS305", "`queries` need a `post` step that answers them", (*path, "queries"),
                    part="key", label="nobody answers",
                    help="add for example `post: [density: {}]`.")  # fmt: skip
        return False
    if decl.texts is not None and not (decl.save or "").endswith(".csv"):
        notes.error("OS305", "`texts` is for a table in a .csv", (*path, "texts"), part="key",
                    label="nothing that a spreadsheet opens", help="leave it out, or write `save: "
                    "out/name.csv`.")  # fmt: skip
        return False
    if decl.save is None or decl.save.endswith(".npz"):
        return True
    if released:
        notes.error("OS304", "a release is saved as .npz", (*path, "save"),
                    label="another ending", help=f"write `save: {decl.save.rsplit('.', 1)[0]}.npz`, "
                    "or add `post` and `query`.")  # fmt: skip
        return False
    if needs_queries and isinstance(output.domain, AnswerColumns) and decl.query is None:
        notes.error("OS305", f"output `{decl.name}` has no queries to answer", path, part="key",
                    label="no `queries`", help="add `queries: {npz: queries.npz}`, or save the "
                    "release as .npz and ask it with `opendp-sim answer`.")  # fmt: skip
        return False
    return True
