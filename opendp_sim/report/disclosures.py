"""State a program's inputs and disclosures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.randomness import public_generator
from opendp_sim.core.system.lazy_import import special
from opendp_sim.domains.records import Column
from opendp_sim.domains.released import Released, asking
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.types.error_terms import rank_word, size
from opendp_sim.dsl.types.outputs import OutputType
from opendp_sim.report.flows import step_sentence

_BROKEN = {
    "refuse": "a run stops where a value or a label breaks these bounds",
    "enforce": "values outside these bounds are moved to the nearest bound, and records with "
    "other labels or "
    "no number are left out; how many is private, and stands on no page",
    "assume": "nobody looks whether values and labels keep these bounds",
}
_OTHER_TYPE = "a run stops where a column is not there or holds values of another type"
"""The same where no bounds and no labels are declared."""
"""What is done with data that breaks its declaration, by the rule that a program states."""
_MOST = 12
"""Columns that are named; a reviewer of more reads the program."""
_SIZES = frozenset({"choose_k", "noisy_max_gaussian"})
"""Selections that give a number of items, and no item."""
_COUNTING = frozenset({"gaussian_top_k", "noise_threshold"})
"""Selections whose ranks come with noisy counts."""
_LIMITED = frozenset({"private_knn"})
"""Mechanisms whose ``queries`` are a limit; for others they are a plan, and more are answered."""


@dataclass(frozen=True)
class Disclosure:
    """Describe one dataset, its questions, or one output.

    Attributes:
        word, name: ``in``, ``asked`` or ``out``, and of what.
        text: the whole description.
        big, small: the same as a headline, of outputs.
    """

    kind: str
    name: str
    text: str
    big: str = ""
    small: str = ""

    @property
    def word(self) -> str:
        """What it is of, before its text."""
        return f"{self.kind}: {self.name}"

    @property
    def out(self) -> bool:
        """Whether it leaves."""
        return self.kind == "out"


def disclosures(plan: Plan) -> Iterator[Disclosure]:
    """Yield each dataset's or output's description for a page."""
    for entry in plan.program.data:
        columns = [_column(column) for column in entry.records.columns[:_MOST]]
        more = len(entry.records.columns) - len(columns)
        columns += [f"{more} more"] if more else []
        where = _source(entry.source)
        limited = any(column.bounds or column.keys for column in entry.records.columns)
        kept = _rows_used(plan, entry.name)
        if not entry.public:
            bare = entry.ingest == "refuse" and not limited
            kept.append(_OTHER_TYPE if bare else _BROKEN[entry.ingest])
        yield Disclosure("in", entry.name, "; ".join([f"{where}: {', '.join(columns)}", *kept]))
    for name, output in plan.outputs.items():
        if output.decl.query is not None:
            text = f"questions from {_source(output.decl.query)}, taken to be public"
            yield Disclosure("asked", name, text)
        release = plan.releases[output.stage.name]
        yield Disclosure("out", name, _output(output, release), *_headline(output, release))


def _headline(output: OutputType, release: ReleasePlan) -> tuple[str, str]:
    """Return what leaves in a few words, and in a sentence."""
    if output.decl.serve is not None:
        most = most_questions(release.record)
        limit = "" if most is None else f", {most:,} at most"
        return "One label a question", f"While a session is open{limit}."
    if output.posts:
        told = f"{step_sentence(output.decl.post[-1]).removesuffix('.')}: `{output.decl.post[-1].key}`."
        return "Answers", told
    if isinstance(output.domain, Released):
        cells = getattr(output.domain.sketch, "size", 0)
        asked = ", ".join(asking(output.domain.capabilities)[:4])
        told = f"They answer {asked} as often as anybody asks."
        return f"{cells:,} noisy numbers" if cells else "A noisy release", told
    text = _selected(release).partition(",")
    big = text[0].removeprefix("the ")
    return f"{big[:1].upper()}{big[1:]}", f"{text[2].strip().partition(';')[0].capitalize()}."


def _source(ref: Any) -> str:
    """Say where records or questions come from."""
    named = _file(ref.argument)
    if ref.kind == "builtin":
        return f"`{named}`, which comes with this package"
    if ref.kind == "memory":
        return f"the table `{named}`, handed over by the program that calls"
    return f"{ref.kind} {named}".strip()


def _file(argument: Any) -> str:
    if isinstance(argument, dict):
        argument = argument.get("file", "")
    return str(argument)


def most_questions(record: Any) -> int | None:
    """Return a session's most questions, or None without end."""
    return int(record.queries) if record is not None and record.key in _LIMITED else None


def _column(column: Column) -> str:
    if column.role == "privacy_id":
        return f"{column.name} (names who is protected)"
    if column.keys:
        return f"{column.name} (one of {len(column.keys)} labels)"
    bounds = " in [{:g}, {:g}]".format(*column.bounds) if column.bounds else ""
    return (
        f"{column.name} ({column.width} numbers{bounds})"
        if column.is_vector
        else f"{column.name}{bounds}"
    )


def _rows_used(plan: Plan, data: str) -> list[str]:
    """State how many rows of a person are used."""
    found: dict[str, None] = {}
    of = "row" if plan.privacy is None else plan.privacy.unit.of
    whom = "person" if of == "row" else f"`{of}`"
    for release in plan.releases.values():
        if release.typed.entry.name == data:
            for stage in release.typed.stages:
                most = getattr(stage.mechanism, "max_rows", None)
                if most is not None:
                    found[f"of one {whom} at most {most} rows are used"] = None
    return list(found)


def _output(output: OutputType, release: ReleasePlan) -> str:
    saved = "" if output.decl.save is None else f", in {output.decl.save}"
    if output.decl.serve is not None:
        most = most_questions(release.record)
        limit = "" if most is None else f", {most:,} at most"
        return (
            "a label for one question after another, with noisy votes where records vote, while "
            "a session is "
            f"open{limit}"
        )
    if output.posts:
        each = "for each question: " if output.decl.query is not None else ""
        steps = " and ".join(post.key for post in output.decl.post)
        return f"{each}{_lower(step_sentence(output.decl.post[-1]))} ({steps}){saved}"
    if isinstance(output.domain, Released):
        cells = getattr(output.domain.sketch, "size", 0)
        asked = ", ".join(asking(output.domain.capabilities))
        size = f"{cells:,} noisy numbers" if cells else "a noisy release"
        return f"{size}, which answer {asked} as often as anybody likes{saved}"
    return f"{_selected(release)}{saved}"


def _selected(release: ReleasePlan) -> str:
    """State a selection's disclosures."""
    record: Any = release.record
    if record is None:
        return "what the selection found"
    key = record.key
    if key == "top_k" and release.bound is not None:  # the rule says which mechanism it takes
        key = getattr(release.bound.claim, "reason", "").partition(":")[0]
    if key in _SIZES:
        return f"one number from 1 to {record.k_max:,}: how many items stand out; no item is named"
    if key == "pate_labels":
        return _labels(release, record)
    most = getattr(record, "k", None) or getattr(record, "k_max", None)
    names = (
        "the names of all items that pass"
        if most is None
        else f"the names of {most:,} items at most"
    )
    if not getattr(record, "ranked", False):
        names += ", in an order that tells nothing, with no ranks and no counts"
    elif key in _COUNTING:
        names += ", with their ranks and noisy counts"
    else:
        names += ", with their ranks and no counts"
    return f"{names}{_whose_names(release)}"


def _labels(release: ReleasePlan, record: Any) -> str:
    """State the disclosures of teachers' votes."""
    asked = 0 if release.bound is None else int(release.bound.claim.expected["queries"])
    stable = getattr(record.rule, "k_max", None)
    each = (
        f"those of {record.labels} labels whose noisy votes reach {getattr(record.rule, 'quorum', 0):,}"
        if stable is None
        else f"at most {stable} of {record.labels} labels, or no answer"
    )
    return f"for each of {asked:,} questions {each}; the votes are not handed out"


def _whose_names(release: ReleasePlan) -> str:
    """State the origin of items' names."""
    counted: Any = next(
        (s.mechanism for s in release.typed.stages if hasattr(s.mechanism, "item")), None
    )
    columns = {column.name: column for column in release.typed.entry.records.columns}
    column = columns.get(getattr(counted, "item", None) or "")
    public = getattr(counted, "items", None) or getattr(counted, "universe", None)
    if column is None or column.keys or public:
        return ""
    return "; the names themselves are taken from the private data"


def _lower(sentence: str) -> str:
    return f"{sentence[:1].lower()}{sentence[1:]}".removesuffix(".")


# --------------------------------------------------------------------------------------------------
# How many names of a selection are right. The counts are private, so a plan knows none; from the noise
# follows, for a lead of so many votes, how many of k names are right at least, whatever the others are.

_LEADS = (1.0, 3.0, 6.0)
"""Leads that are told, in deviations of the noise."""
_RUNS, _NAMES = 400, 1000
"""Draws that an expected number is the mean of, and the names for which they take no time."""


def selected(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield how many names are right of every output that selects items."""
    for name, output in plan.outputs.items():
        release = plan.releases[output.stage.name]
        if output.posts or output.decl.serve is not None or release.bound is None:
            continue
        facts = {k: float(v) for k, v in getattr(release.bound.claim, "expected", {}).items()}
        if text := _right(facts, getattr(release.record, "k", None), release):
            yield f"{name}: how many names are right", text


def _right(facts: Mapping[str, float], k: int | None, release: ReleasePlan) -> str:
    """State how many names are right at given leads."""
    deviation = facts.get("deviation", facts.get("deviation_if_peeled"))
    others = _others(facts, k, release)
    if deviation is None or k is None or k > _NAMES or others < 1:
        return ""
    by_draws = "rounds" in facts or "ranks" in facts
    told = ", ".join(
        f"{right_names(k, others, lead, by_draws=by_draws):.3g} if by {size(lead * deviation)} votes"
        for lead in _LEADS
    )
    return (
        "It depends on the counts, which are private, so no number is promised. "
        f"Of {k:,} names at least so many are expected to be right if the {rank_word(k)} item is ahead "
        f"of the {rank_word(k + 1)}: {told}. "
        f"This is computed from the noise alone, as a mean of {_RUNS} simulated runs, for the worst "
        f"case: the first {k:,} counts are equal, and so are the {others:,} others. "
        "No data and no guess about it is used; with counts that are spread out more names are right."
    )


def _others(facts: Mapping[str, float], k: int | None, release: ReleasePlan) -> int:
    """Return how many items may replace a leading one."""
    assert release.bound is not None  # noqa: S101 - the caller asked
    every = facts.get("ranks", getattr(release.bound.domain, "size", 0) or 0)
    return int(every) - (k or 0)


@lru_cache(maxsize=256)
def right_names(k: int, others: int, lead: float, *, by_draws: bool) -> float:
    """Return the right names among k noisy largest.

    On average, in the worst case for a lead.

    Raising one of the first counts or lowering one of the others never adds a wrong name, so equal
    counts on both sides are the worst. Noise of deviation 1 is of Gumbel's law for draws by the
    exponential mechanism, else normal. The seed is fixed and public: the number is the same each time.

    Args:
        k: how many names are given.
        others: how many items stand behind them.
        lead: by how many deviations of the noise the k-th is ahead of the next.
        by_draws: whether names are drawn one after another.
    """
    generator = public_generator(2026, "right names")
    first = lead + _noise(generator.random((_RUNS, k)), by_draws=by_draws)
    # Only the largest k of the others count: order statistics of uniform numbers by their gaps.
    few = min(k, others)
    steps = generator.exponential(size=(_RUNS, few)).cumsum(axis=1)
    whole = steps[:, -1:] + generator.gamma(others + 1 - few, size=(_RUNS, 1))
    second = _noise(steps / whole, by_draws=by_draws)
    both = np.concatenate([first, second], axis=1)
    chosen = np.argpartition(-both, k - 1, axis=1)[:, :k] if few else np.zeros((_RUNS, k))
    return float((chosen < k).sum(axis=1).mean())


def _noise(above: NDArray[np.float64], *, by_draws: bool) -> NDArray[np.float64]:
    """Return the noise of deviation 1 that is exceeded with this chance."""
    if not by_draws:
        return np.asarray(-special.ndtri(above), dtype=np.float64)
    return np.asarray(-np.log(-np.log1p(-above)) * math.sqrt(6) / math.pi, dtype=np.float64)
