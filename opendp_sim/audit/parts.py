"""Parts of an output by the expression that reads them: ``output['rows']``, ``output[-1]``."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

__all__ = ["Read", "parts_of"]

Read = Callable[[Any], Any]
_CELLS, _LAST, _MOST, _DEEPEST, _LOOKED = 8, 6, 28, 4, 200


def parts_of(values: Sequence[Any], name: str = "output") -> list[tuple[str, Read]]:
    """Return the parts of outputs that are no containers themselves, the first ones first."""
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
        return [key for key, _ in named.most_common(_CELLS)]
    sizes = {len(v) for v in shaped}
    keys = list(range(min(_CELLS, max(sizes))))
    ends = len(sizes) > 1 or max(sizes) > _CELLS
    return keys + [-k for k in range(1, _LAST + 1)] if ends else keys
