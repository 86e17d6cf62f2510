"""Events of an output in plain Python: ``output >= 3``, ``output is None``, ``len(output) >= 5``."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from opendp_sim.audit.encoding import Raised

__all__ = ["PlainEvent", "plain_events"]

_CUTS, _CELLS, _SYMBOLS, _LISTED, _TEXTS = 24, 8, 60, 12, 4


@dataclass(frozen=True)
class PlainEvent:
    """A Python expression about ``output``, and the same as a function."""

    text: str
    test: Callable[[Any], bool]
    cost: float = 0.0
    """Standard errors by which a simpler event is preferred."""
    exceptions: bool = False

    def holds(self, output: Any) -> bool:
        """Say whether an output is in the event; what the expression does not fit is not."""
        if isinstance(output, Raised) and not self.exceptions:
            return False
        try:
            return bool(self.test(output))
        except Exception:  # noqa: BLE001 - another kind of output
            return False


Read = Callable[[Any], Any]


def _kind_is(kind: str, output: Any) -> bool:
    return type(output).__name__ == kind


def _says(text: str, output: Any) -> bool:
    return isinstance(output, Raised) and output.text == text


def _above(read: Read, at: Any, output: Any) -> bool:
    return bool(read(output) >= at)


def _below(read: Read, at: Any, output: Any) -> bool:
    return bool(read(output) <= at)


def _equal(read: Read, at: Any, output: Any) -> bool:
    return bool(read(output) == at)


def _listed(event: list[str], output: Any) -> bool:
    return repr(output) in event


def _part(key: Any, output: Any) -> Any:
    return output[key]


def _gap(one: Any, two: Any, output: Any) -> Any:
    return output[one] - output[two]


def _has_name(key: Any, output: Any) -> bool:
    return key in output


def _first_is(key: Any, part: Any, output: Any) -> bool:
    return bool(output[key][0] == part)


def plain_events(left: Sequence[Any], right: Sequence[Any]) -> Iterator[PlainEvent]:
    """Yield events that outputs of the two sides suggest, simplest first."""
    both = [*left, *right]
    if any(isinstance(v, Raised) for v in both):
        yield PlainEvent(
            "type(output).__name__ == 'Raised'", lambda o: isinstance(o, Raised), exceptions=True
        )
        texts = Counter(v.text for v in both if isinstance(v, Raised))
        for text, _ in texts.most_common(_TEXTS) if len(texts) > 1 else ():
            event = f"getattr(output, 'text', '') == {text!r}"
            yield PlainEvent(event, partial(_says, text), 0.25, exceptions=True)
    if any(v is None for v in both):
        yield PlainEvent("output is None", lambda o: o is None)
    kinds = sorted({type(v).__name__ for v in both})
    for kind in kinds if 1 < len(kinds) <= 4 else ():
        text = f"type(output).__name__ == {kind!r}"
        yield PlainEvent(text, partial(_kind_is, kind), 0.5)
    yield from _numbers(both, "output", lambda o: o)
    yield from _symbols(left, right)
    shaped = [v for v in both if isinstance(v, (list, tuple, np.ndarray, Mapping, str))]
    if shaped:
        yield from _of_parts(shaped)


def _numbers(
    values: Sequence[Any], name: str, read: Callable[[Any], Any], cost: float = 0.0
) -> Iterator[PlainEvent]:
    """Rays, NaN and frequent values of a number."""
    told = []
    for value in values:
        try:
            number = read(value)
        except Exception:  # noqa: BLE001, S112 - an output without this part
            continue
        if isinstance(number, (bool, np.bool_)):
            return
        if isinstance(number, (int, float, np.number)):
            told.append(float(number))
    if not told:
        return
    if any(math.isnan(v) for v in told):
        yield PlainEvent(f"{name} != {name}", lambda o: read(o) != read(o), cost)
    known = np.array([v for v in told if not math.isnan(v)])
    cuts = (
        np.unique(np.quantile(known, np.linspace(0, 1, _CUTS + 1), method="nearest"))
        if known.size
        else ()
    )
    for cut in cuts:
        at = _short(float(cut))
        yield PlainEvent(f"{name} >= {at!r}", partial(_above, read, at), cost)
        yield PlainEvent(f"{name} <= {at!r}", partial(_below, read, at), cost)
    for value, count in Counter(told).most_common(4):
        if count > 0.02 * len(told) and not math.isnan(value):
            at = _short(value)
            yield PlainEvent(f"{name} == {at!r}", partial(_equal, read, at), cost + 0.25)


def _short(value: float) -> int | float:
    """Return a whole number as one."""
    return (
        int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else value
    )


def _symbols(left: Sequence[Any], right: Sequence[Any]) -> Iterator[PlainEvent]:
    """The outputs that are more frequent on one side, as a list, when there are few of them."""
    a, b = (Counter(repr(v) for v in side if not isinstance(v, Raised)) for side in (left, right))
    if not 0 < len(a.keys() | b.keys()) <= _SYMBOLS:
        return
    for first, second in ((a, b), (b, a)):
        for ratio in (1.0, 2.0, 4.0, 16.0):
            event = sorted(s for s in first if first[s] > ratio * second[s] + 2)
            if 0 < len(event) <= _LISTED:
                if len(event) == 1:
                    text = f"repr(output) == {event[0]!r}"
                else:
                    text = f"repr(output) in {event!r}"
                yield PlainEvent(text, partial(_listed, event), 0.5)


def _of_parts(shaped: Sequence[Any]) -> Iterator[PlainEvent]:
    """Lengths, cells, differences and sums of two cells."""
    sizes = {len(v) for v in shaped}
    for size in sorted(sizes) if 1 < len(sizes) <= 20 else ():
        yield PlainEvent(f"len(output) >= {size}", partial(_above, len, size), 0.25)
        yield PlainEvent(f"len(output) <= {size}", partial(_below, len, size), 0.25)
    keys = _keys(shaped)
    for key in keys:
        yield from _numbers(shaped, f"output[{key!r}]", partial(_part, key), 0.25)
        yield from _same(shaped, key)
    for i, one in enumerate(keys[:5]):
        for two in keys[i + 1 : 5]:
            yield from _numbers(
                shaped, f"(output[{one!r}] - output[{two!r}])", partial(_gap, one, two), 0.75
            )
    for key in _names(shaped):
        yield PlainEvent(f"{key!r} in output", partial(_has_name, key), 0.25)
    if all(isinstance(v, (list, tuple)) for v in shaped):
        yield from _numbers(shaped, "sum(output)", sum, 0.75)


def _same(shaped: Sequence[Any], key: Any) -> Iterator[PlainEvent]:
    """A part that is a name or a truth value equals one of the frequent ones."""
    seen: Counter[Any] = Counter()
    for value in shaped[:400]:
        try:
            part = value[key]
        except Exception:  # noqa: BLE001, S112
            continue
        if isinstance(part, (str, bool)) or part is None:
            seen[part] += 1
        elif isinstance(part, (tuple, list)) and part and isinstance(part[0], str):
            seen[part[0]] += 1
    for part, _ in seen.most_common(4):
        nested = not any(value[key] == part for value in shaped[:50] if _has(value, key))
        if nested:
            text = f"output[{key!r}][0] == {part!r}"
            yield PlainEvent(text, partial(_first_is, key, part), 0.25)
        else:
            yield PlainEvent(
                f"output[{key!r}] == {part!r}", partial(_equal, partial(_part, key), part), 0.25
            )


def _has(value: Any, key: Any) -> bool:
    try:
        value[key]
    except Exception:  # noqa: BLE001
        return False
    return True


def _keys(shaped: Sequence[Any]) -> list[Any]:
    first = shaped[0]
    if isinstance(first, Mapping):
        return list(dict.fromkeys(k for v in shaped[:200] if isinstance(v, Mapping) for k in v))[
            :_CELLS
        ]
    if isinstance(first, np.ndarray) and first.ndim != 1:
        return []
    return list(range(min(_CELLS, max(len(v) for v in shaped[:200]))))


def _names(shaped: Sequence[Any]) -> list[Any]:
    maps = [v for v in shaped if isinstance(v, Mapping)]
    return [
        key for key, n in Counter(k for v in maps for k in v).most_common(_CELLS) if n < len(maps)
    ]
