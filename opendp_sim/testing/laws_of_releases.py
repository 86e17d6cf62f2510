"""Laws of measurements and of post-processing."""

from __future__ import annotations

import builtins
import io
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

import numpy as np
from hypothesis import given, settings

from opendp_sim.core.claims import Interactive, Post, Private
from opendp_sim.core.errors import SimError
from opendp_sim.testing.case import Case

__all__ = [
    "check_loss_is_zero_at_zero_and_monotone",
    "check_noise_is_declared",
    "check_post_processing_is_pure",
    "check_post_processing_reads_the_release_alone",
    "check_shapes_do_not_depend_on_data",
]


def check_loss_is_zero_at_zero_and_monotone(case: Case) -> None:
    """Check that the loss is zero at zero and monotone.

    Nothing is NaN or negative.
    """
    claim = case.claim()
    if not isinstance(claim, Private | Interactive):
        return
    losses = [_number(claim.privacy_map(d)) for d in _distances_proved(claim)]
    assert losses[0] == 0.0, "equal data loses something: the map is not 0 at distance 0"
    assert losses == sorted(losses), f"the loss falls as the distance grows: {losses}"
    assert all(loss >= 0 for loss in losses), f"a loss is negative: {losses}"
    assert not any(math.isnan(loss) for loss in losses), f"a loss is NaN: {losses}"


def check_noise_is_declared(case: Case) -> None:
    """Check a release against its declared noise.

    It is the noiseless part plus fresh noise on every cell.
    """
    claim = case.claim()
    if not isinstance(claim, Private) or claim.noise is None or claim.core is None:
        return
    core, run = claim.core, claim.function

    @given(case.drawn())
    @settings(max_examples=10)
    def law(pair: Any) -> None:
        noiseless = np.asarray(core(pair[0]))
        assert np.array_equal(noiseless, np.asarray(core(pair[0]))), (
            "two runs of the noiseless part differ"
        )
        first, second = np.asarray(run(pair[0])), np.asarray(run(pair[0]))
        assert first.shape == second.shape == noiseless.shape, (
            "a release has another shape than its noiseless part"
        )
        # P(no cell differs) for 16 cells at scale >= 2 is below 0.25 ** 16 = 2.4e-10.
        if noiseless.size >= 16 and claim.noise.scale >= 2:  # type: ignore[union-attr]
            assert not np.array_equal(first, second), "two releases are equal: no noise"

    law()


def check_shapes_do_not_depend_on_data(case: Case) -> None:
    """Neighbours' releases have one shape and dtype."""
    claim = case.claim()
    if not isinstance(claim, Private) or claim.noise is None:
        return

    @given(case.drawn())
    @settings(max_examples=10)
    def law(pair: Any) -> None:
        left, right = (np.asarray(claim.function(x)) for x in pair[:2])
        assert left.shape == right.shape, "the shape of a release depends on the data"
        assert left.dtype == right.dtype, "the dtype of a release depends on the data"

    law()


def check_post_processing_is_pure(case: Case) -> None:
    """Same release, same queries, same answer; nothing is changed in place."""
    claim = case.claim()
    if not isinstance(claim, Post) or case.released is None:
        return
    first, queries = case.released()
    arguments = (first,) if claim.takes == "answer" else (first, queries)
    kept = {name: np.array(value, copy=True) for name, value in first.items()}
    one, two = claim.function(*arguments), claim.function(*arguments)
    assert set(one) == set(two), "two answers to one question have other columns"
    for name, value in one.items():
        assert np.array_equal(np.asarray(value), np.asarray(two[name])), name
    for name, value in kept.items():
        assert np.array_equal(value, first[name]), f"{name} was changed in place"


def check_post_processing_reads_the_release_alone(case: Case) -> None:
    """Check that post-processing reads the release alone.

    A query made anew from its record answers the same, opens nothing, and remembers no release.
    """
    claim = case.claim()
    if not isinstance(claim, Post) or case.released is None:
        return
    first, queries = case.released()
    rest = () if claim.takes == "answer" else (queries,)
    expected = claim.function(first, *rest)
    record = type(case.mechanism).from_spec(json.loads(json.dumps(case.mechanism.spec())))
    anew = record.bind(case.domain, case.metric)
    assert isinstance(anew, Post), (
        "the mechanism is bound to a release and claims no post-processing"
    )
    with _nothing_opened():
        _same(expected, anew.function(_sealed(first), *rest))
        other = {name: np.zeros_like(np.asarray(value)) for name, value in first.items()}
        with suppress(SimError):
            anew.function(_sealed(other), *rest)
        _same(expected, anew.function(_sealed(first), *rest))


def _sealed(released: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies that cannot be written to."""
    out = {name: np.array(value, copy=True) for name, value in released.items()}
    for value in out.values():
        value.setflags(write=False)
    return out


def _same(expected: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    assert set(expected) == set(found), "an answer after another release has other columns"
    for name, value in expected.items():
        assert np.array_equal(np.asarray(value), np.asarray(found[name])), name


@contextmanager
def _nothing_opened() -> Iterator[None]:
    """Fail when a file is opened."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a file was opened")

    with ExitStack() as stack:
        for module, name in ((builtins, "open"), (io, "open"), (os, "open")):
            stack.enter_context(patch.object(module, name, refuse))
        yield


def _distances_proved(claim: Private | Interactive) -> list[int]:
    """Yield distances while the map is proved."""
    out = [0]
    for d_in in (1, 2, 3, 8):
        try:
            claim.privacy_map(d_in)
        except SimError:
            break
        out.append(d_in)
    return out


def _number(loss: Any) -> float:
    """Return one number that grows with the loss."""
    if callable(loss):
        return float(loss(2.0))
    if isinstance(loss, tuple):
        return float(sum(_number(part) for part in loss))
    return float(loss)
