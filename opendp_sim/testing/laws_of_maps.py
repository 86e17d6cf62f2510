"""Check laws of row-local maps and of sketches' sensitivity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from hypothesis import given
from numpy.typing import NDArray

from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.claims import Norm, Stable
from opendp_sim.core.constructors import bind_to_opendp
from opendp_sim.core.device import device_in_use
from opendp_sim.core.device.stand_in import StandIn
from opendp_sim.domains.rows import Rows, as_rows, length, take
from opendp_sim.testing.case import Case

__all__ = [
    "check_device_equals_cpu",
    "check_function_is_pure",
    "check_map_is_linear_and_zero_at_zero",
    "check_opendp_object_agrees",
    "check_output_is_member",
    "check_rows_are_local",
    "check_rows_stay_stable",
    "check_sensitivity_bounds_the_distance",
    "check_sensitivity_is_attained",
    "check_sketch_is_a_sum",
]

NORMS: tuple[Norm, ...] = ("l1", "l2", "linf")


def _stable(case: Case) -> Stable | None:
    claim = case.claim()
    return claim if isinstance(claim, Stable) else None


def check_map_is_linear_and_zero_at_zero(case: Case) -> None:
    """Check that the map is monotone, and zero at zero."""
    claim = _stable(case)
    if claim is None:
        return
    if claim.sensitivity is None:
        assert claim.stability >= 1, f"a row map with stability {claim.stability}"
        return
    for norm in NORMS:
        values = [claim.sensitivity.bound(norm, d) for d in range(12)]
        assert values[0] == 0, f"equal data is at {norm} distance {values[0]}"
        assert values == sorted(values), f"the {norm} bound falls as the distance grows: {values}"
        assert values[1] > 0, f"one record costs nothing in {norm}"


def check_output_is_member(case: Case) -> None:
    """The function lands in the domain it promised."""
    claim = _stable(case)
    if claim is None:
        return
    function = whole_function(claim)

    @given(case.drawn())
    def law(pair: Any) -> None:
        assert claim.output.member(function(pair[0])), "the output is outside of its domain"

    law()


def check_function_is_pure(case: Case) -> None:
    """Same data, same bits, and the data is left alone."""
    claim = _stable(case)
    if claim is None:
        return
    function = whole_function(claim)

    @given(case.drawn())
    def law(pair: Any) -> None:
        before = _bytes(pair[0])
        assert _bytes(function(pair[0])) == _bytes(function(pair[0])), (
            "two runs on the same data differ"
        )
        assert _bytes(pair[0]) == before, "the function changed its input"

    law()


def check_rows_stay_stable(case: Case) -> None:
    """Neighbours' outputs are at symmetric distance at most ``stability * d_in``."""
    claim = _stable(case)
    if claim is None or not case.is_row_map:
        return
    function = whole_function(claim)

    @given(case.drawn())
    def law(pair: Any) -> None:
        left, right, d_in = pair
        a, b = (Counter(_records(function(x))) for x in (left, right))
        assert sum(((a - b) + (b - a)).values()) <= claim.stability * d_in, (
            f"outputs are farther apart than {claim.stability} * {d_in}"
        )

    law()


def check_rows_are_local(case: Case) -> None:
    """Check that rows are local, bit for bit.

    Alone, permuted, in blocks, in any layout, in threads.
    """
    claim = _stable(case)
    if claim is None or not case.is_row_map or claim.function is None:
        return
    function = claim.function

    @given(case.drawn())
    def law(pair: Any) -> None:
        data = pair[0]
        whole = Counter(_records(function(data)))
        for other in _rearranged(data):
            assert Counter(_records(function(other))) == whole, (
                "records moved in memory have other images"
            )
        parts = [take(data, slice(i, i + 1)) for i in range(length(data))]
        with ThreadPoolExecutor(2) as pool:
            images = [record for part in pool.map(function, parts) for record in _records(part)]
        assert Counter(images) == whole, "records alone have other images than together"

    law()


def check_sketch_is_a_sum(case: Case) -> None:
    """Check that builds in any arrangement are equal bits.

    Chunked, permuted, re-laid and threaded.
    """
    claim = _stable(case)
    if claim is None or claim.sensitivity is None:
        return
    function = whole_function(claim)

    @given(case.drawn())
    def law(pair: Any) -> None:
        data = pair[0]
        whole = function(data)
        assert whole.dtype == np.int64, f"a sketch of {whole.dtype}, not int64"
        for other in _rearranged(data):
            assert np.array_equal(function(other), whole), (
                "records moved in memory give another sketch"
            )
        parts = [take(data, slice(i, i + 1)) for i in range(length(data))]
        with ThreadPoolExecutor(2) as pool:
            total = sum(pool.map(function, parts), function(take(data, slice(0, 0))))
        assert np.array_equal(total, whole), "the sum of the records' sketches is not the sketch"

    law()


def check_device_equals_cpu(case: Case) -> None:
    """Check that a device has the CPU's bits.

    The device in use (``using_device``), else numpy's stand-in for one; for a claim that has a function
    for devices. Whole, empty and in any layout.
    """
    claim = _stable(case)
    if claim is None or claim.on_device is None:
        return
    function, on_device = whole_function(claim), claim.on_device
    device = device_in_use() or StandIn()

    @given(case.drawn())
    def law(pair: Any) -> None:
        data = pair[0]
        for other in (data, take(data, slice(0, 0)), *_rearranged(data)):
            rows, wanted = as_rows(other), function(other)
            with device:
                values = device.put(rows.values)
                if claim.sensitivity is None:
                    found = device.get(on_device(device, values))
                    wanted = as_rows(wanted).values
                else:
                    found = np.zeros_like(wanted)
                    on_device(device, values, rows.labels, found)
            assert found.dtype == wanted.dtype, f"{device.name} has another type"
            assert found.tobytes() == wanted.tobytes(), f"{device.name} has other bits"

    law()


def check_sensitivity_bounds_the_distance(case: Case) -> None:
    """Check sensitivity against neighbours' sketches, exactly."""
    claim = _stable(case)
    if claim is None or claim.sensitivity is None:
        return
    function, sensitivity = whole_function(claim), claim.sensitivity

    @given(case.drawn())
    def law(pair: Any) -> None:
        left, right, d_in = pair
        difference = function(left) - function(right)
        for norm, distance in _distances(claim, difference).items():
            assert distance <= Fraction(sensitivity.bound(norm, d_in)) ** (
                2 if norm == "l2" else 1
            ), f"{norm} distance {distance} (l2 squared) at d_in {d_in}"
        if sensitivity.monotone and d_in == abs(length(left) - length(right)):
            assert (difference >= 0).all() or (difference <= 0).all(), (
                "a monotone sketch rose and fell by added records"
            )

    law()


def check_sensitivity_is_attained(case: Case) -> None:
    """Check that a tight map is attained.

    With equality somewhere, in every norm.
    """
    claim = _stable(case)
    if claim is None or claim.sensitivity is None or case.attains is None:
        return
    left, right, d_in = case.attains
    function = whole_function(claim)
    found = _distances(claim, function(left) - function(right))
    assert found["l1"] == claim.sensitivity.l1 * d_in, f"L1 distance {found['l1']}, claimed tight"
    assert found["l2"] == claim.sensitivity.l2_squared * d_in * d_in, (
        f"squared L2 distance {found['l2']}, claimed tight"
    )
    assert found["linf"] == claim.sensitivity.linf * d_in, (
        f"L∞ distance {found['linf']}, claimed tight"
    )


def check_opendp_object_agrees(case: Case) -> None:
    """The OpenDP object computes the claim's function and the claim's map."""
    claim = _stable(case)
    if claim is None:
        return
    for norm in NORMS if claim.sensitivity is not None else (None,):
        built = bind_to_opendp(case.mechanism, case.domain, case.metric, norm)
        metric = None if norm is None else claim.output.metric(norm)  # type: ignore[attr-defined]
        for d_in in (0, 1, 2, 7):
            if metric is not None and metric.monotone and d_in > 1:
                _refused(partial(built.map, d_in), "OS206")
                continue
            expected = (
                claim.stability * d_in if norm is None else claim.sensitivity.bound(norm, d_in)  # type: ignore[union-attr]
            )
            assert built.map(d_in) == expected, f"{case.mechanism.key}: map({d_in}), {norm}"
    if case.attains is not None:
        assert _bytes(built(case.attains[1])) == _bytes(whole_function(claim)(case.attains[1])), (
            "OpenDP's object computes another function than the claim"
        )


# --- pieces -------------------------------------------------------------------------------------


def _refused(call: Callable[[], Any], code: str) -> None:
    try:
        found = call()
    except Exception as error:  # noqa: BLE001 - OpenDP wraps ours in its own
        assert code in str(error), f"refused with another error than {code}: {error}"
    else:
        raise AssertionError(f"expected {code}, got {found!r}")


def _distances(claim: Stable, difference: NDArray[np.int64]) -> dict[Norm, Fraction]:
    """Return a difference's weighted L1, squared L2 and L∞."""
    runs = getattr(claim.output, "weights", ()) or ((difference.size, 1),)
    weights = [weight for cells, weight in runs for _ in range(cells)]
    parts = [
        Fraction(int(v), w) for v, w in zip(difference.tolist(), weights, strict=True) if v
    ] or [Fraction(0)]
    return {
        "l1": sum(map(abs, parts), Fraction(0)),
        "l2": sum((p * p for p in parts), Fraction(0)),
        "linf": max(map(abs, parts)),
    }


def _rearranged(data: Any) -> list[Any]:
    """Return the same records in other arrangements."""
    out = [take(data, slice(None, None, -1))]
    if isinstance(data, dict):
        return out
    rows = as_rows(data)
    relaid: list[Callable[[NDArray[Any]], NDArray[Any]]] = [np.asfortranarray, _strided]
    out += [Rows(f(rows.values), rows.labels, rows.ids) for f in relaid]
    return out


def _strided(values: NDArray[Any]) -> NDArray[Any]:
    wide = np.zeros((2 * len(values), 3 * values.shape[1]), dtype=values.dtype)
    wide[::2, ::3] = values
    return wide[::2, ::3]


def _records(data: Any) -> list[bytes]:
    """Return each record of a block as bytes."""
    if isinstance(data, dict):
        columns = [data[name] for name in sorted(data)]
        return [repr([column[i] for column in columns]).encode() for i in range(length(data))]
    rows = as_rows(data)
    return [
        b"|".join(
            np.asarray(part[i]).tobytes()
            for part in (rows.values, rows.labels, rows.ids)
            if part is not None
        )
        for i in range(len(rows))
    ]


def _bytes(data: Any) -> bytes:
    if isinstance(data, np.ndarray):
        return data.tobytes()
    return b"".join(_records(data))
