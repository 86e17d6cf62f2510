"""Declare the ``outputs`` section, answers from releases and their files."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from opendp_sim.core.mechanism import Mechanism
from opendp_sim.dsl.grammar.data import SOURCE, SourceRef
from opendp_sim.dsl.grammar.flow import RELEASE, Expect, ReleaseDecl, StageDecl
from opendp_sim.dsl.grammar.section import Refusal, Section, not_a_word, word
from opendp_sim.dsl.grammar.steps import steps_reader


class OutputDecl(Section):
    """What is computed from a release, and where it goes.

    Queries are public, have the features of a record, and cost nothing: only the release did. ``regress``
    wants the target's column among them too; what stands there is ignored.

    An interactive release (ind_knn, hybrid_knn, private_knn) answers one question after another:

        live: {from: near, serve: session, store: live.session, queries: {npz: asked.npz}}

    ``opendp-sim session SPEC`` reads lines such as {"query": [0.1, 0.2]} and answers each in one line,
    charged before it leaves. See ``opendp-sim session --help``.

    An output that alone uses a release may state the stage itself:

        hours: {from: trips, steps: [vote_counts: {item: hour}], release: 20%, save: h.npz}

    It is the output of a stage ``hours_released`` of `flow`, and the program of both texts is the same.
    """

    some_of: ClassVar = ("anyOf", ("save", "serve"), Refusal(
        "output `{name}` goes nowhere", "add `save: out/name.npz`.", code="OS305",
        label="no `save` and no `serve`", part="key",
    ))  # fmt: skip
    template: ClassVar[str] = """\
outputs:
  density:
    from: noisy
    post: [density: {estimator: mean}]
    save: out/density.npz                 # ask it later: opendp-sim answer out/density.npz --queries ...
  # answers: {from: noisy, post: [density: {}], queries: {csv: asked.csv}, save: out/answers.csv}
  # One question after another: `release: {mechanism: {ind_knn: ...}}`, and an output that says
  # `serve: session`, with `queries: {npz: ...}`; see `opendp-sim explain session`.
"""
    name: str = not_a_word()
    source: str = word(
        "The stage that was released, or an output before this one.", spelled="from", min_length=1
    )
    steps: Annotated[tuple[Mechanism, ...], steps_reader("rows", "sketches")] = word(
        "The steps of a stage of its own, from a dataset or stage.", ()
    )
    release: Annotated[ReleaseDecl | None, RELEASE] = word(
        "The release of a stage of its own, from a dataset or stage.", None
    )
    expect: Expect | None = word("Your assumptions about that stage, which are checked.", None)
    post: Annotated[tuple[Mechanism, ...], steps_reader("queries")] = word(
        "Queries in order, such as [density: {confidence: 0.9}].", ()
    )
    queries: Annotated[SourceRef | None, SOURCE] = word(
        """\
Public queries: those that are answered, or what those of a session look like. There a mechanism without
a `threshold` of its own takes it from them, or from a line {"reference": [[0.1, 0.2], ...]} that comes
first.""",
        None,
        formerly=("query", "public_queries"),
    )
    public: Annotated[SourceRef | None, SOURCE] = word(
        "Public points that look like the data, chosen without looking at the seed, for a query with "
        "`public: points`: their part of an answer is exact.",
        None,
    )
    save: str | None = word(
        "The file: .npz holds a release or arrays, .csv and .json a table.", None,
        pattern=r"\.(npz|csv|json)$", min_length=1,
        refusal=Refusal("`save` ends in .npz, .csv, .json",
                        ".npz holds a release or arrays, .csv and .json a table."),
    )  # fmt: skip
    texts: Literal["spreadsheet"] | None = word(
        """\
How texts are written to a .csv. Without it as they are, for programs. `spreadsheet`: what a spreadsheet
would run as a formula begins with an apostrophe, and control characters are escaped; this changes the
text.""",
        None,
    )
    serve: Literal["queryable", "session"] | None = word(
        "`session`: answers one question after another; `queryable`: to a program in Python.", None
    )
    store: str | None = word(
        "What remembers the charges of a session between runs: a file, or postgresql:SERVICE/STORE.",
        None,
        min_length=1,
    )

    @property
    def place(self) -> str | None:
        """Return the place of a session's store, beside the spec by default."""
        return f"{self.name}.session" if self.serve == "session" and not self.store else self.store

    @property
    def query(self) -> SourceRef | None:
        """The queries that are answered."""
        return None if self.serve is not None and self.save is None else self.queries

    @property
    def public_queries(self) -> SourceRef | None:
        """What the queries of a session look like."""
        return None if self.serve is None else self.queries

    @property
    def stage(self) -> StageDecl | None:
        """Return the stage that the output states itself."""
        if not self.steps and self.release is None and self.expect is None:
            return None
        return StageDecl(
            name=stage_of(self.name),
            source=self.source,
            steps=self.steps,
            release=self.release,
            expect=self.expect,
        )

    @property
    def after_stage(self) -> OutputDecl:
        """Return the output without what is its stage's."""
        words = {"source": stage_of(self.name), "steps": (), "release": None, "expect": None}
        return self if self.stage is None else self.model_copy(update=words)

    def plain(self) -> dict[str, Any]:
        """Return the hashed form, with the first specs' words."""
        found: dict[str, Any] = dict(super().plain())
        if self.queries is not None:
            found["public_queries" if self.query is None else "query"] = found.pop("queries")
        return found


OWN_STAGE = ("steps", "release", "expect")
"""Words of an output that are a stage's."""


def stage_of(output: str) -> str:
    """Return the name of the stage that an output states itself."""
    return f"{output}_released"
