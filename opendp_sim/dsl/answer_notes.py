"""What stands below answers: labels that noise may have decided, and queries where no record can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.asking import features_of
from opendp_sim.accounting.query_blocks import query_blocks
from opendp_sim.accounting.release import Release
from opendp_sim.dsl.ask import ask, mechanisms_of
from opendp_sim.dsl.how_wrong import safe_deviations
from opendp_sim.dsl.inputs import source_of
from opendp_sim.dsl.ir import SourceRef
from opendp_sim.dsl.wrong import size
from opendp_sim.spaces.records import Records

__all__ = ["notes_of"]

_NAMED = 10
"""Answers that are named; a terminal shows as many."""


def notes_of(
    release: Release,
    queries: SourceRef | None,
    posts: Sequence[str],
    answers: Any,
    public: SourceRef | None = None,
) -> list[str]:
    """Return what a reader of answers should know of them; nothing private is opened.

    Args:
        release: what was asked.
        queries: where the queries are.
        posts: the questions, as ``ask`` has them.
        answers: what ``ask`` returned.
        public: public points, as ``ask`` has them.
    """
    if queries is None:
        return []
    return [*_small_leads(release, queries, posts, answers, public), *_outside(release, queries)]


def _small_leads(
    release: Release,
    queries: SourceRef,
    posts: Sequence[str],
    answers: Any,
    public: SourceRef | None,
) -> Iterator[str]:
    last = mechanisms_of(posts)[-1]
    scores = answers.get("score") if isinstance(answers, Mapping) else None
    if last.key != "classify" or scores is None or scores.shape[1] < 2:
        return
    maps = getattr(last, "rule", "") == "map"
    mean = str(not maps).lower()
    said = f"density: {{normalise: {mean}, public: {getattr(last, 'public', 'none')}}}"
    found, domain, _ = ask(release, queries, posts[:-1] or [said], public)
    noise = found["noise_error"]
    if maps == getattr(domain, "normalised", False):  # the score is of the other kind
        divisor = np.maximum(found["records"], found["least_records"])
        noise = noise * divisor if maps else noise / divisor
    order = np.argsort(scores, axis=1)[:, -2:]
    two = np.take_along_axis(noise, order, axis=1)
    noise_of_lead = np.hypot(two[:, 0], two[:, 1])
    classes = scores.shape[1]
    safe = safe_deviations(classes)
    small = np.flatnonzero(answers["margin"] < safe * noise_of_lead)
    if len(small):
        named = ", ".join(f"{at + 1:,}" for at in small[:_NAMED])
        more = f" and {len(small) - _NAMED:,} more" if len(small) > _NAMED else ""
        yield (
            f"{len(small):,} of {len(scores):,} labels have a `margin` below the safe lead, so noise may "
            f"have decided them: answers {named}{more}. By noise alone 2 of 3 margins are off by at most "
            f"{_between(noise_of_lead)}; {safe:.3g} times that is a safe lead among {classes:,} classes"
        )


def _between(values: NDArray[np.float64]) -> str:
    least, most = size(float(values.min())), size(float(values.max()))
    return least if least == most else f"{least} to {most}"


def _outside(release: Release, queries: SourceRef) -> Iterator[str]:
    domain, features = release.stages[0].domain, features_of(release)
    if not isinstance(domain, Records):
        return
    declared = {c.name: c.bounds for c in domain.columns if c.bounds}
    asked = [c.name for c in features.columns if c.name in declared]
    strange, every, names = 0, 0, dict.fromkeys(asked, False)
    for block in query_blocks(lambda: source_of(queries, features, ".", {}), "query"):
        beyond = np.zeros(len(next(iter(block.values()))), dtype=bool)
        for name in asked:
            lower, upper = declared[name]
            values = np.asarray(block[name], dtype=np.float64).reshape(len(beyond), -1)
            here = ((values < lower) | (values > upper)).any(axis=1)
            names[name] |= bool(here.any())
            beyond |= here
        strange, every = strange + int(beyond.sum()), every + len(beyond)
    if strange:
        named = ", ".join(f"`{name}`" for name, there in names.items() if there)
        yield (
            f"{strange:,} of {every:,} queries lie outside of the declared bounds of {named}, where no "
            "record can be: an answer tells how near the records inside come to that place, or to the "
            "edge where a step cuts queries off"
        )
