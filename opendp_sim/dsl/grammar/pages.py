"""Pages of ``explain`` about the words of a spec, made from where they are declared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from opendp_sim.core.docs import doc_of
from opendp_sim.dsl.grammar.choosing import CHOOSING
from opendp_sim.dsl.grammar.section import Section, Word
from opendp_sim.dsl.plain_text import plain_text

__all__ = ["page_of", "words_of_a_spec"]

Place = tuple[str, Word | None, type | None]
"""The section that a word stands in, its declaration, and what explains what stands under it."""


def words_of_a_spec(spec: type[Section]) -> dict[str, list[Place]]:
    """Return every word that a spec can hold, with the places where it can stand."""
    found: dict[str, list[Place]] = {}
    for said, place in _walk(spec, "a spec"):
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


def page_of(word: str, places: list[Place]) -> str:
    """Return the page of a word: what it means wherever it stands, and what stands under it."""
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
