"""Describe events of an output as Python expressions, ``output >= 3``."""

from __future__ import annotations

import json
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.outputs.encoding import Raised

# --------------------------------------------------------------------------------------------------
# Parts of an output by the expression that reads them: ``output['rows']``, ``output[-1]``.

Read = Callable[[Any], Any]
_PARTS_CELLS, _LAST, _MOST, _DEEPEST, _LOOKED = 8, 6, 28, 4, 200


def parts_of(values: Sequence[Any], name: str = "output") -> list[tuple[str, Read]]:
    """Return the non-container parts of outputs, first ones first."""
    return _parts(values[:_LOOKED], name, _whole, _DEEPEST)[:_MOST]


def _whole(output: Any) -> Any:
    return output


def _part(read: Read, key: Any, output: Any) -> Any:
    return read(output)[key]


def _parsed(read: Read, output: Any) -> Any:
    return json.loads(read(output))


def _parts(values: Sequence[Any], name: str, read: Read, depth: int) -> list[tuple[str, Read]]:
    seen = _read(values, read)
    if any(isinstance(v, str) and v[:1] in ("{", "[") for v in seen):
        parsed = partial(_parsed, read)
        if _read(values, parsed):
            return _parts(values, f"json.loads({name})", parsed, depth - 1)
    shaped = [v for v in seen if isinstance(v, (Mapping, list, tuple, np.ndarray, bytes))]
    shaped = [v for v in shaped if not isinstance(v, np.ndarray) or v.ndim]
    if not shaped or depth == 0:
        return [(name, read)] if name != "output" else []
    out: list[tuple[str, Read]] = []
    for key in _keys(shaped):
        out += _parts(values, f"{name}[{key!r}]", partial(_part, read, key), depth - 1)
    return out


def _read(values: Sequence[Any], read: Read) -> list[Any]:
    out = []
    for value in values:
        try:
            out.append(read(value))
        except Exception:  # noqa: BLE001, S112 - an output without this part
            continue
    return out


def _keys(shaped: Sequence[Any]) -> list[Any]:
    maps = [v for v in shaped if isinstance(v, Mapping)]
    if maps:
        named = Counter(key for v in maps for key in v if isinstance(key, (str, int, bool)))
        return [key for key, _ in named.most_common(_PARTS_CELLS)]
    sizes = {len(v) for v in shaped}
    keys = list(range(min(_PARTS_CELLS, max(sizes))))
    ends = len(sizes) > 1 or max(sizes) > _PARTS_CELLS
    return keys + [-k for k in range(1, _LAST + 1)] if ends else keys


# --------------------------------------------------------------------------------------------------

_CUTS, _CELLS, _SYMBOLS, _LISTED, _TEXTS = 24, 8, 60, 12, 4
_FINEST = 6
_LISTING, _BOTH, _MEMBERS = 0.15, 0.75, 12


@dataclass(frozen=True)
class PlainEvent:
    """A Python expression about ``output``, and the same as a function."""

    text: str
    test: Callable[[Any], bool]
    cost: float = 0.0
    """Standard errors by which a simpler event is preferred."""
    exceptions: bool = False

    def holds(self, output: Any) -> bool:
        """Return whether an output fits and is in the event."""
        if isinstance(output, Raised) and not self.exceptions:
            return False
        try:
            return bool(self.test(output))
        except Exception:  # noqa: BLE001 - another kind of output
            return False


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


def _listed(event: list[Any], output: Any) -> bool:
    return (output.tolist() if isinstance(output, np.ndarray) else output) in event


def _ends(text: str, output: Any) -> bool:
    return isinstance(output, Raised) and output.text.endswith(text)


def _has_part(part: Any, output: Any) -> bool:
    return part in output


def _count_above(cut: float, most: int, output: Any) -> bool:
    return bool(sum(v >= cut for v in output) >= most)


def _both(one: PlainEvent, two: PlainEvent, output: Any) -> bool:
    return one.holds(output) and two.holds(output)


def both_hold(one: PlainEvent, two: PlainEvent) -> PlainEvent:
    """Return the event that two hold."""
    text = f"{one.text} and {two.text}"
    cost = one.cost + two.cost + _BOTH
    return PlainEvent(text, partial(_both, one, two), cost, one.exceptions or two.exceptions)


def _gap(one: Read, two: Read, output: Any) -> Any:
    return one(output) - two(output)


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
        ends = Counter(" " + v.text.split()[-1] for v in both if isinstance(v, Raised))
        for end, _ in ends.most_common(_TEXTS) if len(ends) > 1 else ():
            event = f"getattr(output, 'text', '').endswith({end!r})"
            yield PlainEvent(event, partial(_ends, end), 0.25, exceptions=True)
    if any(v is None for v in both):
        yield PlainEvent("output is None", lambda o: o is None)
    kinds = sorted({type(v).__name__ for v in both})
    for kind in kinds if 1 < len(kinds) <= 4 else ():
        text = f"type(output).__name__ == {kind!r}"
        yield PlainEvent(text, partial(_kind_is, kind), 0.5)
    yield from _numbers(both, "output", lambda o: o)
    yield from _symbols(left, right)
    shaped = [v for v in both if isinstance(v, (list, tuple, np.ndarray, Mapping, str, bytes))]
    if shaped:
        yield from _of_parts(shaped)


def _numbers(
    values: Sequence[Any], name: str, read: Callable[[Any], Any], cost: float = 0.0
) -> Iterator[PlainEvent]:
    """Rays, NaN and frequent values of a number."""
    told: list[float] = []
    guard = "output is not None and " if name == "output" and None in _kinds(values) else ""
    name = guard + name
    for value in values:
        try:
            number = read(value)
            if isinstance(number, (bool, np.bool_)):
                return
            if isinstance(number, (int, float, np.number)):
                told.append(float(number))
        except Exception:  # noqa: BLE001, S112 - an output without this part, or no float has its size
            continue
    if not told:
        return
    if any(math.isnan(v) for v in told):
        plain = name.removeprefix(guard)
        yield PlainEvent(f"{name} != {plain}", lambda o: read(o) != read(o), cost)
    known = np.array([v for v in told if not math.isnan(v)])
    cuts = (
        np.unique(np.quantile(known, np.linspace(0, 1, _CUTS + 1), method="nearest"))
        if known.size
        else ()
    )
    spread = float(np.ptp(known[np.isfinite(known)])) if np.isfinite(known).any() else 0.0
    for cut in cuts:
        at = _short(_rounded(float(cut), spread))
        yield PlainEvent(f"{name} >= {literal(at)}", partial(_above, read, at), cost)
        yield PlainEvent(f"{name} <= {literal(at)}", partial(_below, read, at), cost)
    yield from _fine(known, name, read, cost)
    for value, count in Counter(told).most_common(4):
        if count > 0.02 * len(told) and not math.isnan(value):
            at = _short(value)
            yield PlainEvent(f"{name} == {literal(at)}", partial(_equal, read, at), cost + 0.25)


def _parts_of_one(read: Read, output: Any) -> int:
    return int(read(output).as_integer_ratio()[1])


def _fine(known: NDArray[np.float64], name: str, read: Read, cost: float) -> Iterator[PlainEvent]:
    """Yield events of a float's last bits."""
    some = known[np.isfinite(known) & (known != np.rint(known))][:400]
    bits = [Fraction(float(v)).denominator.bit_length() - 1 for v in some]
    for k in sorted(set(bits))[-_FINEST:]:
        text = f"{name}.as_integer_ratio()[1] >= 2**{k}"
        yield PlainEvent(text, partial(_above, partial(_parts_of_one, read), 2**k), cost + 0.5)


def _kinds(values: Sequence[Any]) -> set[Any]:
    return {None if v is None else type(v) for v in values}


def _rounded(value: float, spread: float) -> float:
    """Return a cut with few digits, where that moves it by little."""
    if not math.isfinite(value) or value == int(value):
        return value
    short = float(f"{value:.4g}")
    return short if abs(short - value) <= 1e-3 * spread else value


def _short(value: float) -> int | float:
    """Return a whole number as one."""
    return (
        int(value) if math.isfinite(value) and value == int(value) and abs(value) < 2**53 else value
    )


def _symbols(left: Sequence[Any], right: Sequence[Any]) -> Iterator[PlainEvent]:
    """Yield the event of outputs more frequent on one side."""
    values = {repr(v): v for v in (*left, *right) if not isinstance(v, Raised)}
    if not 0 < len(values) <= _SYMBOLS:
        return
    a, b = (Counter(repr(v) for v in side if not isinstance(v, Raised)) for side in (left, right))
    for first, second in ((a, b), (b, a)):
        for ratio in (1.0, 2.0, 4.0, 16.0):
            seen = sorted(s for s in first if first[s] > ratio * second[s] + 2)
            if not 0 < len(seen) <= _LISTED:
                continue
            event = [values[s] for s in seen]
            event = [v.tolist() if isinstance(v, np.ndarray) else v for v in event]
            told = f"== {literal(event[0])}" if len(event) == 1 else f"in {literal(event)}"
            cost = 0.5 + _LISTING * len(event)
            name = "output.tolist()" if isinstance(values[seen[0]], np.ndarray) else "output"
            yield PlainEvent(f"{name} {told}", partial(_listed, event), cost)


def _of_parts(shaped: Sequence[Any]) -> Iterator[PlainEvent]:
    """Lengths, parts, members, differences, sums, and how many cells are large."""
    sizes = {len(v) for v in shaped}
    for size in sorted(sizes) if 1 < len(sizes) <= 20 else ():
        yield PlainEvent(f"len(output) >= {size}", partial(_above, len, size), 0.25)
        yield PlainEvent(f"len(output) <= {size}", partial(_below, len, size), 0.25)
    parts = parts_of(shaped)
    for name, read in parts:
        yield from _numbers(shaped, name, read, 0.25)
        yield from _same(shaped, name, read)
    yield from _gaps(shaped, parts[:5])
    yield from _members(shaped)
    if all(isinstance(v, (list, tuple, np.ndarray)) for v in shaped):
        yield from _numbers(shaped, "sum(output)", sum, 0.75)
        yield from _counts(shaped)


def _gaps(shaped: Sequence[Any], parts: list[tuple[str, Read]]) -> Iterator[PlainEvent]:
    """Differences of two parts."""
    for i, (one, first) in enumerate(parts):
        for two, second in parts[i + 1 :]:
            gap = partial(_gap, first, second)
            yield from _numbers(shaped, f"({one} - {two})", gap, 0.75)


def _counts(shaped: Sequence[Any]) -> Iterator[PlainEvent]:
    """Yield events of the number of cells above a cut."""
    try:
        cells = np.array([v for v in shaped if len(v) == len(shaped[0])], dtype=float)
    except (TypeError, ValueError, OverflowError):
        return
    if cells.ndim != 2 or not 3 <= cells.shape[1] <= 64 or not np.isfinite(cells).all():
        return
    for cut in np.unique(np.quantile(cells, (0.25, 0.5, 0.75), method="nearest")):
        at = _short(_rounded(float(cut), float(np.ptp(cells))))
        for most in range(1, cells.shape[1] + 1, max(1, cells.shape[1] // 12)):
            text = f"sum(v >= {literal(at)} for v in output) >= {most}"
            yield PlainEvent(text, partial(_count_above, at, most), 1.0)


def _members(shaped: Sequence[Any]) -> Iterator[PlainEvent]:
    """Names that some mappings have, and symbols that some lists have."""
    held: Counter[Any] = Counter()
    for value in shaped[:400]:
        if isinstance(value, (Mapping, list, tuple)):
            held.update({v for v in value if isinstance(v, (str, int, bool))})
    if len(held) > 4 * _CELLS and not any(isinstance(v, Mapping) for v in shaped):
        return
    for key, count in held.most_common(_MEMBERS):
        if count < min(len(shaped), 400):
            yield PlainEvent(f"{literal(key)} in output", partial(_has_part, key), 0.25)


def _same(shaped: Sequence[Any], name: str, read: Read) -> Iterator[PlainEvent]:
    """Yield events that a name or truth value equals a frequent one."""
    seen: Counter[Any] = Counter()
    for value in shaped[:400]:
        try:
            part = read(value)
        except Exception:  # noqa: BLE001, S112 - an output without this part
            continue
        if isinstance(part, (str, bool)) or part is None:
            seen[part] += 1
    for part, _ in seen.most_common(4):
        yield PlainEvent(f"{name} == {part!r}", partial(_equal, read, part), 0.25)


# --------------------------------------------------------------------------------------------------
# Datasets and outputs as Python text that makes them again.


_NAMES = {
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "pl": "import polars as pl",
    "datetime": "import datetime",
    "decimal": "import decimal",
    "fractions": "import fractions",
    "json": "import json",
    "pickle": "import pickle",
    "encoding": "from opendp_sim.audit.outputs import encoding",
}
_EXACT = (bool, int, str, bytes, type(None))


def literal(value: Any) -> str:
    """Return an expression that evaluates to this value after ``imports_of``."""
    if isinstance(value, _EXACT) and type(value) in _EXACT:
        return repr(value)
    if isinstance(value, float) and type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) in (list, tuple, set, frozenset):
        return _of_items(value)
    if type(value) is dict:
        told = (f"{literal(key)}: {literal(part)}" for key, part in value.items())
        return "{" + ", ".join(told) + "}"
    return _of_package(value) or _as_written(value)


def _of_items(value: Any) -> str:
    inner = ", ".join(map(literal, value))
    if type(value) is list:
        return f"[{inner}]"
    if type(value) is tuple:
        return f"({inner}{',' if len(value) == 1 else ''})"
    return f"{type(value).__name__}([{inner}])"


def _of_package(value: Any) -> str:
    """Return an expression of a number, array, frame or date."""
    kind, home = type(value).__name__, type(value).__module__.split(".")[0]
    if isinstance(value, np.generic) and value.dtype.names is None and value.dtype.kind in "iufb":
        return f"np.{value.dtype.name}({literal(value.item())})"
    if type(value) is np.ndarray and value.dtype.kind in "iufbU":
        flat = literal(value.ravel().tolist())
        shape = "" if value.ndim == 1 else f".reshape({value.shape})"
        return f"np.array({flat}, dtype={value.dtype.str!r}){shape}"
    if home == "pandas" and kind == "DataFrame":
        return f"pd.DataFrame({literal(value.to_dict(orient='list'))})"
    if home == "polars" and kind == "DataFrame":
        return f"pl.DataFrame({literal(value.to_dict(as_series=False))})"
    if home in ("decimal", "fractions"):
        return f"{home}.{value!r}"
    if home == "opendp_sim" and kind == "Raised":
        return f"encoding.{value!r}"
    return repr(value) if home == "datetime" else ""


def _as_written(value: Any) -> str:
    """Return a value's text if it evaluates to it, else bytes."""
    if isinstance(value, Mapping):
        return literal(dict(value))
    try:
        return f"pickle.loads({pickle.dumps(value)!r})"
    except Exception:  # noqa: BLE001 - a value of a local class, for one
        return repr(value)


def imports_of(*texts: str) -> str:
    """Return the imports of expressions on one line, or nothing."""
    needed = [line for name, line in _NAMES.items() if any(f"{name}." in text for text in texts)]
    return "; ".join(needed)
