"""Write a plan as a spec, and its errors at other budgets."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from opendp_sim.dsl.grammar.bandwidths import written_program
from opendp_sim.dsl.grammar.reader import draft_of
from opendp_sim.dsl.plan.records import Planned


@dataclass(frozen=True)
class ErrorCurve:
    """Hold ``errors`` by output and error at several budgets ``epsilon``."""

    epsilon: tuple[float, ...]
    errors: dict[str, tuple[float, ...]]

    def table(self) -> dict[str, list[float]]:
        """Return columns of one length."""
        return {"epsilon": list(self.epsilon)} | {k: list(v) for k, v in self.errors.items()}

    def __repr__(self) -> str:
        """Return the table as text."""
        rows = [f"{'epsilon':>10}  " + "  ".join(self.errors)]
        for place, epsilon in enumerate(self.epsilon):
            values = (f"{v[place]:>{len(k)}.4g}" for k, v in self.errors.items())
            rows.append(f"{epsilon:>10g}  " + "  ".join(values))
        return "\n".join(rows)


def as_yaml(plan: Planned, *, brief: bool = False) -> str:
    """Return the program as a spec of equal hash."""
    written = written_program(plan.program.plain())
    if not brief:
        return yaml_text(written)
    _leave_out_defaults(written, lambda: _hash_of(written) == plan.program.hash)
    for release in (stage.get("release", {}) for stage in written["flow"].values()):
        for words in _friendly(release):
            before = dict(release)
            release.update(words)
            if _hash_of(written) != plan.program.hash:
                release.update(before)
    return yaml_text(spec_order(written), inline=True)


def spec_order(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec's sections in the order in which people read them."""
    return {word: written[word] for word in _ORDER if word in written}


def yaml_text(value: Mapping[str, Any], *, inline: bool = False) -> str:
    """Return plain data as YAML, in blocks or with short values inline."""
    from ruamel.yaml import YAML  # noqa: PLC0415 - slow to import, seldom needed

    stream = io.StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.representer.add_multi_representer(float, lambda r, v: r.represent_float(float(v)))
    if inline:
        writer.width = 4 * _INLINE  # no line is folded
    writer.dump(_inlined(value, 0) if inline else value, stream)
    return stream.getvalue()


# --- brief specs ----------------------------------------------------------------------------------

_ORDER = ("spec", "name", "about", "data", "privacy", "flow", "outputs")
_INLINE = 72
"""Characters of a value that is written in one line."""


def _hash_of(written: Any) -> str | None:
    """Return the hash of a spec's program, None if it has findings."""
    draft = draft_of(written)
    return None if draft.notes.findings else draft.program.hash


def _friendly(release: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the words of a release as people write them."""
    found = [{"noise": "gaussian"}] if release.get("noise") == "rounded_gaussian" else []
    if "spend" in release:
        found.append({"spend": f"{float(100 * Fraction(release['spend'])):.12g}%"})
    return found


def _leave_out_defaults(part: Any, is_same: Callable[[], bool]) -> None:
    """Delete the words without which the program is the same.

    Nothing is assumed of defaults: each word is left out for a try, and the program is read again.
    """
    if isinstance(part, list):
        for inner in part:
            _leave_out_defaults(inner, is_same)
    if not isinstance(part, dict):
        return
    _try_without([word for word, value in part.items() if value is None], part, is_same)
    for word in list(part):
        if not _try_without([word], part, is_same):
            _leave_out_defaults(part[word], is_same)


def _try_without(words: list[str], part: dict[str, Any], is_same: Callable[[], bool]) -> bool:
    """Delete words if the program stays the same, and say whether."""
    before = dict(part)
    for word in words:
        del part[word]
    if is_same():
        return True
    part.clear()
    part.update(before)  # in their order: that of columns means something
    return False


def _inlined(value: Any, depth: int) -> Any:
    """Return data whose short, flat values below sections are in one line."""
    from ruamel.yaml.comments import CommentedMap, CommentedSeq  # noqa: PLC0415 - as above

    if not isinstance(value, dict | list):
        return value
    short = depth > 1 and _nesting(value) <= 2 and len(str(value)) <= _INLINE
    found: Any
    if isinstance(value, dict):
        found = CommentedMap({word: _inlined(v, depth + 1) for word, v in value.items()})
    else:
        found = CommentedSeq([_inlined(v, depth + 1) for v in value])
        short = short and not any(isinstance(inner, dict) for inner in value)
        for inner in () if short else found:
            if isinstance(inner, CommentedMap):
                inner.fa.set_block_style()  # `- step: {...}`
    (found.fa.set_flow_style if short else found.fa.set_block_style)()
    return found


def _nesting(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_nesting, inner), default=0)
