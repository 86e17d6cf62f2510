"""Make the pages of a spec's words from their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from opendp_sim.core.system.docstrings import doc_of
from opendp_sim.dsl.grammar.error_goal import ErrorGoal
from opendp_sim.dsl.grammar.section import Section, Word
from opendp_sim.dsl.text.plain_text import plain_text

# --------------------------------------------------------------------------------------------------
# How to choose: what a person needs beside a word's declaration; ``explain`` ends with it.

CHOOSING = {
    "epsilon": """\
What it means: somebody who gives even odds that a record is in the data can,
after the release, give at most e^epsilon to 1 (and delta more): with epsilon
0.5 that is 62 %, with 1 it is 73 %, with 2 it is 88 %, with 5 it is 99.3 %.
By these guesses a plan calls protection strong up to 60 %, moderate up to
75 %, weak up to 90 % and very weak above: epsilon 0.4, 1.09 and 2.19 under
`measure: pure`. Gaussian noise of the same epsilon, with a delta, protects
more: `opendp-sim plan` shows what an attacker gains, and the error that your
choice costs, before anything is spent. Losses of several runs add up: a
`ledger` counts them.""",
    "delta": """\
What it means: slack that is added to what an attacker can gain; for the
measures here it is no chance that everything leaks. Choose it well below one
over the number of people: 1e-6 for up to 100,000. With `measure: pure` there
is none: leave it out.""",
    "bounds": """\
Where they come from: a documented range (0 to 16 of a scanner), a definition
(0 to 24 of an hour), or another data set that is public. Never the least and
the greatest value of this one, which are two records. With `ingest: enforce`
values outside are clamped. Wide bounds cost accuracy, never privacy.""",
    "dtype": """\
Which to write: `array[f32, 64]` for embeddings and other vectors, `float64`
for measurements, `int64` for whole numbers, `bool` for yes and no, `date` for
days (times lose their hour, in UTC), `category` with `keys` for labels, `str`
for names of persons and items. A cell that holds no such value is missing.
Text files have no dtypes; of other sources, a stored type that cannot mean
the declared one is refused (OS602).""",
    "unit": """\
Which to write: `of: row` if each record is another person, else `of:
person_column` with a column of role `privacy_id` and the step
`bound_contributions: {max_rows: k}`. With the first, somebody with ten
records is protected ten times less.""",
    "ledger": """\
How to use it: every spec over the same people names the same file. `opendp-
sim ledger show FILE` lists what was charged. Without one, nobody adds up what
several runs tell together.""",
}
"""A word of a spec to lines of at most 80 columns."""


# --------------------------------------------------------------------------------------------------

Place = tuple[str, Word | None, type | None]
"""The section that a word stands in, its declaration, and what explains what stands under it."""


def words_of_a_spec(spec: type[Section]) -> dict[str, list[Place]]:
    """Return every word of a spec, with its places."""
    found: dict[str, list[Place]] = {}
    solved: tuple[str, Place] = ("error", ("a number that is solved", None, ErrorGoal))
    for said, place in [*_walk(spec, "a spec"), solved]:
        others = found.setdefault(said, [])
        if place not in others and not (place[1] is None and others):
            others.append(place)
    return found


def _walk(section: type[Section], inside: str) -> Iterator[tuple[str, Place]]:
    for spelled, w in section.words().items():
        about = w.section or (w.reader.about if w.reader else None)
        place = (inside, w, about)
        yield from ((said, place) for said in (spelled, *w.formerly))
        for value in _values(w.info.annotation):
            yield value, place
        for said in getattr(about, "inside", ()):
            yield said, (f"`{spelled}`", None, about)
        if about is not None and issubclass(about, Section):
            yield from _walk(about, f"`{spelled}`")


def _values(annotation: Any) -> Iterator[str]:
    """Yield the words that a value is chosen from."""
    for inner in get_args(annotation):
        if isinstance(inner, str):
            yield inner
        else:
            yield from _values(inner)


def word_page(word: str, places: list[Place]) -> str:
    """Return the page of a word in every place."""
    parts = []
    for inside, w, about in places:
        lines = [f"{word} (a word of a spec, under {inside})", ""]
        if w is not None:
            lines += [*_line(w, word), ""]
        if about is not None:
            lines += _section(about)
        parts.append("\n".join(lines).rstrip())
    if word in CHOOSING:
        parts.append(CHOOSING[word])
    return "\n\n".join(dict.fromkeys(parts))


def _section(about: type) -> list[str]:
    lines = [plain_text(doc_of(about)), ""]
    if issubclass(about, Section):
        lines += ["Words", *(line for w in about.words().values() for line in _line(w, ""))]
        lines += ["", "Example", *(f"    {line}" for line in about.template.splitlines())] * bool(
            about.template
        )
    return lines


def _line(w: Word, word: str) -> list[str]:
    default = w.info.default
    left_out = f"default {default}" if default else "may be left out"
    left_out = "required" if w.info.is_required() else left_out
    head = "" if word == w.spelled else f"{w.spelled}: "
    about = [f"        {line}" for line in str(w.info.description).splitlines()]
    return [f"    {head}{w.kind[0]}; {left_out}", *about]
