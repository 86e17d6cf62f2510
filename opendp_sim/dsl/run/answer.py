"""Ask a saved release, without spec, data or further loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as File
from typing import Any

import numpy as np
from numpy.typing import NDArray

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.accounting.release.query import features_of, read_queries
from opendp_sim.accounting.release.query_blocks import answered_in_blocks, one_block, query_blocks
from opendp_sim.accounting.release.release import Release
from opendp_sim.core import dp
from opendp_sim.core.claims import Post
from opendp_sim.core.errors import DataError, SimError, SpecError
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.core.space import Domain
from opendp_sim.domains.records import Records
from opendp_sim.dsl.grammar.parse_steps import read_steps
from opendp_sim.dsl.grammar.program import SourceRef
from opendp_sim.dsl.plan.expected_error import safe_deviations
from opendp_sim.dsl.run.inputs import source_named
from opendp_sim.dsl.run.outputs import answer, without_classes
from opendp_sim.dsl.text import yaml_document as yaml
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.types.error_terms import WIDE, WITHIN, size
from opendp_sim.io.blocks import Block
from opendp_sim.io.builtin import BUILTINS
from opendp_sim.io.file_spec import ENDINGS, kind_by_name
from opendp_sim.io.origin import NOTHING_PRIVATE


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
        points = read_queries(
            lambda: source_named(public, features, ".", {}), "public", private=NOTHING_PRIVATE
        )
    if queries is None:
        if any(claim.takes == "release" and claim.asks for claim in claims):
            raise DataError(
                "OS607", "query", expected="public queries", got="none",
                hint="add --queries FILE; `modes` and `counts` need none.",
            )  # fmt: skip
        return without_classes(answer(release, claims, None, points), domain), domain, {}
    blocks = _blocks_of(queries, features)
    found, beside = answered_in_blocks(
        lambda block: answer(release, claims, block, points),
        one_block(blocks, *claims, where="query"),
        "query",
    )
    return without_classes(found, domain), domain, beside


def _blocks_of(queries: SourceRef, features: Records) -> Iterator[Block]:
    return query_blocks(
        lambda: source_named(queries, features, ".", {}), "query", private=NOTHING_PRIVATE
    )


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
    """Return a command line's source, a file or a built-in dataset."""
    kind = kind_by_name(text)
    if kind is not None:
        return SourceRef(kind, str(File(text).resolve()))
    if text in BUILTINS:
        return SourceRef("builtin", text)
    raise DataError(
        "OS601", "query", expected=f"a file ({', '.join(ends[0] for ends in ENDINGS.values())}), or a "
        "built-in dataset", got=text, hint=f"built in: {', '.join(BUILTINS)}.",
    )  # fmt: skip


# --------------------------------------------------------------------------------------------------
# The released number of records: what shows, from the release alone, that records were dropped.

_FAR = 5.0
"""Deviations of noise between a released number and an expected one, beyond a tenth of it."""


def released_records(result: Any) -> tuple[float, float] | None:
    """Return the released number of records and a reach of its noise.

    Summed over classes, of a release or of answers by column; the reach is at least five standard
    deviations. None where nothing counts records.
    """
    if isinstance(result, Mapping):
        if not {"records", "least_records"} <= set(result) or not len(result["records"]):
            return None
        sizes = np.asarray(result["records"], dtype=np.float64)
        first, least = np.atleast_1d(sizes[0]), float(np.max(result["least_records"]))
        return float(first.sum()), least * math.sqrt(len(first))
    if not isinstance(result, Release):
        return None
    try:
        readers = list(result.released.capabilities.values())
    except SimError:  # a mechanism's own release, which counts none
        return None
    for reader in readers:
        if hasattr(reader, "totals"):  # of kernel sums
            sizes, factor = reader.totals(result.arrays)
        elif hasattr(reader, "counted"):  # of class means and sums of distances
            counted = reader.counted(result.arrays)
            sizes, factor = counted.sizes, counted.factor
        else:
            continue
        reach = _FAR * factor * result.released.deviation * math.sqrt(sizes.size)
        return float(np.sum(sizes)), float(reach)
    return None


def may_be_empty(result: Any) -> bool:
    """Return whether the released number of records is within its noise."""
    found = released_records(result)
    return found is not None and found[0] <= found[1]


def records_note(result: Any, expected: int | None) -> str:
    """Return a line on the released number of records, if known.

    It is a function of the release and of the spec: nothing private is looked at.
    """
    found = released_records(result)
    if found is None:
        return ""
    count, reach = found
    told = (
        f"records about {max(count, 0.0):,.0f}, as released (noise moves it by up to {reach:,.0f})"
    )
    if expected is None and may_be_empty(result):
        return (
            f"{told}; that may be none: if you expected more, run `opendp-sim doctor` on the spec, as "
            "cells that cannot be read drop records"
        )
    if expected is None or abs(count - expected) <= reach + expected / 10:
        return told
    return (
        f"{told}; {expected:,} were expected. Cells that cannot be read may have dropped records: run "
        "`opendp-sim doctor` on the spec before the next release"
    )


# --------------------------------------------------------------------------------------------------
# What stands below answers: labels that noise may have decided, and queries where no record can be.

_NAMED = 10
"""Answers that are named; a terminal shows as many."""


def answer_notes(
    release: Release,
    queries: SourceRef | None,
    posts: Sequence[str],
    answers: Any,
    public: SourceRef | None = None,
) -> list[str]:
    """Return notes for a reader of answers; nothing private is opened."""
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
            f"have decided them: answers {named}{more}. Noise alone moves {WITHIN} of margins by at "
            f"most {_between(WIDE * noise_of_lead)}; among {classes:,} classes a lead is safe from "
            f"{_between(safe * noise_of_lead)} on"
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
    for block in _blocks_of(queries, features):
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
            "record can be: an answer shows how near the records inside come to that place, or to the "
            "edge where a step cuts queries off"
        )
