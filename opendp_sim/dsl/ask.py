"""Questions to a saved release: no spec, no data, no further loss."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as File
from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.asking import features_of, read_queries
from opendp_sim.accounting.query_blocks import answered_in_blocks, one_block, query_blocks
from opendp_sim.accounting.release import Release
from opendp_sim.core import dp
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import DataError, SpecError
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.space import Domain
from opendp_sim.dsl import document as yaml
from opendp_sim.dsl.diagnostic import Notes
from opendp_sim.dsl.execute import answer
from opendp_sim.dsl.inputs import source_of
from opendp_sim.dsl.ir import SourceRef
from opendp_sim.dsl.read_steps import read_steps
from opendp_sim.sources.builtin import BUILTINS

__all__ = ["ask", "mechanisms_of", "reference"]


def ask(
    release: Release,
    queries: SourceRef | None,
    posts: Sequence[str],
    public: SourceRef | None = None,
) -> tuple[Any, Domain | None, dict[str, Any]]:
    """Answer public queries.

    Args:
        release: a loaded release.
        queries: where the queries are; paths start from the current folder. None for questions that
            need none, such as ``counts`` and ``modes``.
        posts: query mechanisms in order, as a spec writes them: ``density`` or
            ``"density: {confidence: 0.9}"``.
        public: public points, for a question with ``public: points``.

    Returns:
        (the answers, their domain, the queries' columns of single numbers, to show beside answers).

    Raises:
        Refused: an unknown mechanism or parameter. ReleaseError (OS702, OS703): the release cannot
            answer this. DataError (OS607): queries of another width or dtype.
    """
    dp.enable_features("contrib")
    claims, domain = _bind(release, posts)
    features = features_of(release)
    points = None
    if public is not None:
        points = read_queries(lambda: source_of(public, features, ".", {}), "public")
    if queries is None:
        if any(claim.takes == "release" and claim.asks for claim in claims):
            raise DataError(
                "OS607", "query", expected="public queries", got="none",
                hint="add --queries FILE; `modes` and `counts` need none.",
            )  # fmt: skip
        return answer(release, claims, None, points), domain, {}
    blocks = query_blocks(lambda: source_of(queries, features, ".", {}), "query")
    found, beside = answered_in_blocks(
        lambda block: answer(release, claims, block, points),
        one_block(blocks, *claims, where="query"),
        "query",
    )
    return found, domain, beside


def mechanisms_of(posts: Sequence[str]) -> tuple[Mechanism, ...]:
    """Return the query mechanisms that texts name, or refuse what is none."""
    notes = Notes()
    steps = [yaml.parse(text, "--post", notes).data for text in posts]
    notes.raise_if_any()
    mechanisms = read_steps(steps, ("post",), notes, ("queries",))
    notes.raise_if_any()
    return tuple(mechanisms or ())


def _bind(release: Release, posts: Sequence[str]) -> tuple[list[Post], Domain | None]:
    claims: list[Post] = []
    domain: Domain | None = release.released
    for mechanism in mechanisms_of(posts):
        if domain is None:
            raise SpecError(
                "OS306", mechanism.key, expected="a step after one that has answers",
                got="a step after the last", hint="leave it out.",
            )  # fmt: skip
        claim: Any = mechanism.bind(domain, release.stages[0].metric)
        claims.append(claim)
        domain = claim.output
    if not claims:
        raise SpecError(
            "OS305", "post", expected="a query mechanism", got="none",
            hint="write for example --post density; `opendp-sim ops` lists them.",
        )  # fmt: skip
    return claims, domain


def reference(text: str) -> SourceRef:
    """Return the source that a command line names: a file by its ending, or a built-in dataset."""
    ending = File(text).suffix.removeprefix(".")
    if ending in ("npz", "npy", "csv", "parquet"):
        return SourceRef(ending, str(File(text).resolve()))
    if text in BUILTINS:
        return SourceRef("builtin", text)
    raise DataError(
        "OS601", "query", expected="a .npz, .npy, .csv or .parquet file, or a built-in dataset",
        got=text, hint=f"built in: {', '.join(BUILTINS)}.",
    )  # fmt: skip
