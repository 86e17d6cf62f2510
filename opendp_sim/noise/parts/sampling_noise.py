"""Add exact noise to int64 cells in cache-sized pieces, grouped by scale, saturating like OpenDP.

Lemma L4 in ``bulk_laplace.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from opendp_sim.core.randomness import private_bytes
from opendp_sim.noise.parts.rounded_plan import rounded_plan
from opendp_sim.noise.parts.sampling_bytes import Bytes, ByteSource, fair_bits
from opendp_sim.noise.parts.sampling_gaussian import gaussian_magnitudes, gaussian_plan
from opendp_sim.noise.parts.sampling_laplace import laplace_digits, magnitudes
from opendp_sim.noise.parts.sampling_rounded import rounded_magnitudes

__all__ = ["Run", "add_gaussian", "add_laplace", "add_rounded", "saturating_add"]

Run = tuple[int, Fraction]
"""Consecutive cells and their common scale."""

_CHUNK = 1 << 16
_TOP = np.uint64(1 << 63)
_FULL = np.uint64(2**64 - 1)

Draw = Callable[[Fraction, int, Bytes], NDArray[np.uint64]]


def add_laplace(
    values: NDArray[np.int64], runs: Sequence[Run], source: ByteSource = private_bytes
) -> NDArray[np.int64]:
    """Return ``values`` plus independent discrete Laplace noise, saturated to int64.

    Args:
        values: shape (n,).
        runs: consecutive cells and their scale, adding up to n; equal scales are drawn together.
        source: private bytes.
    """
    return _add(values, runs, _draw_laplace, source)


def add_gaussian(
    values: NDArray[np.int64], runs: Sequence[Run], source: ByteSource = private_bytes
) -> NDArray[np.int64]:
    """Return ``values`` plus independent discrete Gaussian noise, saturated; as ``add_laplace``."""
    return _add(values, runs, _draw_gaussian, source)


def add_rounded(
    values: NDArray[np.int64], runs: Sequence[Run], source: ByteSource = private_bytes
) -> NDArray[np.int64]:
    """Return ``values`` plus independent ``round(scale * Z)``, saturated; as ``add_laplace``."""
    return _add(values, runs, _draw_rounded, source)


def _draw_laplace(scale: Fraction, count: int, source: Bytes) -> NDArray[np.uint64]:
    return magnitudes(laplace_digits(1 / scale), count, source).words


def _draw_gaussian(scale: Fraction, count: int, source: Bytes) -> NDArray[np.uint64]:
    return gaussian_magnitudes(gaussian_plan(scale), count, source).words


def _draw_rounded(scale: Fraction, count: int, source: Bytes) -> NDArray[np.uint64]:
    return rounded_magnitudes(rounded_plan(scale), count, source)


def _add(
    values: NDArray[np.int64], runs: Sequence[Run], draw: Draw, source: ByteSource
) -> NDArray[np.int64]:
    out = np.array(values, np.int64, order="C")
    pool = Bytes(source)
    for scale, spans in _by_scale(runs).items():
        for cells in _pieces(spans):
            piece = out[cells]
            words = draw(scale, piece.size, pool)
            out[cells] = saturating_add(piece, words, fair_bits(piece.size, pool))
    return out


def _by_scale(runs: Iterable[Run]) -> dict[Fraction, list[tuple[int, int]]]:
    """Collect the spans of each distinct scale."""
    spans: dict[Fraction, list[tuple[int, int]]] = {}
    start = 0
    for cells, scale in runs:
        spans.setdefault(scale, []).append((start, start + cells))
        start += cells
    return spans


def _pieces(spans: list[tuple[int, int]]) -> Iterable[slice | NDArray[np.intp]]:
    """Cut one scale's spans into pieces of about one chunk; short spans share a piece."""
    short: list[NDArray[np.intp]] = []
    held = 0
    for start, stop in spans:
        for begin in range(start, stop, _CHUNK):
            end = min(begin + _CHUNK, stop)
            if end - begin == _CHUNK or len(spans) == 1:
                yield slice(begin, end)
                continue
            short.append(np.arange(begin, end))
            held += end - begin
            if held >= _CHUNK:
                yield np.concatenate(short)
                short, held = [], 0
    if short:
        yield np.concatenate(short)


def saturating_add(
    values: NDArray[np.int64], words: NDArray[np.uint64], negative: NDArray[np.uint8]
) -> NDArray[np.int64]:
    """Return ``values +- words`` clipped to int64, exactly (Lemma L4).

    Values become offsets from the least int64; subtracting is adding to the mirrored offset, and a
    carry out of 64 bits is the overflow.
    """
    mirror = np.negative(negative, dtype=np.int64).view(np.uint64)  # all ones where negative
    offset = np.ascontiguousarray(values).view(np.uint64) ^ _TOP
    offset ^= mirror
    offset += words
    over = offset < words
    if over.any():
        offset[over] = _FULL
    offset ^= mirror
    offset ^= _TOP
    return offset.view(np.int64)
