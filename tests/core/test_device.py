"""Devices: the CPU's bits or none, on the stand-in; the same tests run on a card with `pytest -m gpu`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opendp_sim as sim
import opendp_sim.prelude
from opendp_sim.core.claims import Stable
from opendp_sim.core.device import (
    Device,
    DeviceError,
    device_in_use,
    device_named,
    proof,
    using_device,
)
from opendp_sim.core.device.stand_in import StandIn
from opendp_sim.core.errors import InternalError, ParameterError
from opendp_sim.core.mechanism import lookup
from opendp_sim.core.pipeline import bind_steps
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import RealRows, Rows
from opendp_sim.io import fold
from opendp_sim.io.fold import DeviceSum, build_sketch, end_of_chain
from opendp_sim.testing.laws_of_maps import check_device_equals_cpu
from tests.cases import cases

CARDS = [pytest.param("cuda", marks=pytest.mark.gpu)]
ON_DEVICE = {
    key: case
    for key, case in cases().items()
    if isinstance(claim := case.claim(), Stable) and claim.on_device is not None
}
GAUSSIAN = {"gaussian": {"bandwidth": 0.4}}
SKETCHES: dict[str, dict[str, Any]] = {
    "raw": {"race_sketch": {"family": {"p_stable_l2": {"width": 0.5}}}},
    "joined": {"race_sketch": {"family": {"p_stable_l2": {"width": 2.0, "joined": 3}}}},
    "signs": {"race_sketch": {"family": {"srp": {"bits": 4}}}},
    "hashed signs": {"race_sketch": {"family": {"srp": {"bits": 9}}}},
    "random": {"fourier_sketch": {"kernel": GAUSSIAN, "features": "random"}},
    "fine phases": {"fourier_sketch": {"kernel": GAUSSIAN, "features": "random", "phases": 4096}},
    "orthogonal": {"fourier_sketch": {"kernel": GAUSSIAN, "features": "orthogonal"}},
    "lattice": {"fourier_sketch": {"kernel": {"gaussian": {"bandwidth": 2.0}}}},
    "random and moments": {
        "fourier_sketch": {"kernel": GAUSSIAN, "features": "random", "moments": True}
    },
    "tail and moments": {
        "fourier_sketch": {"kernel": {"gaussian": {"bandwidth": 0.2}}, "moments": True}
    },
    "products": {"second_moments": {"radius": 0.8}},
    "box": {"second_moments": {"radius": None}},
}


def sketch(name: str, *, per_label: bool = False) -> Any:
    ((key, given),) = SKETCHES[name].items()
    more: dict[str, Any] = {}
    if key != "second_moments":
        more = {"seed": 5, "per_label": per_label}
    if key == "race_sketch":
        more |= {"repetitions": 7, "buckets": 16}
    if key == "fourier_sketch":
        more |= {"frequencies": 1000 if "moments" in name else 400 if name == "lattice" else 9}
    return lookup(key)(**(given | more))


def chain(*mechanisms: Any, bits: int = 12) -> Any:
    real = RealRows(width=3, labels=("a", "b"), lower=(-1.0,), upper=(1.0,))
    quantize = lookup("quantize")(bits=bits)
    return bind_steps(real, Symmetric(), [quantize, *mechanisms])


def records(count: int, seed: int = 1) -> Rows:
    """Values inside, at the bounds and one step beside them, zeros of both signs, and halves of steps."""
    draws = np.random.default_rng(seed)
    values = draws.normal(0, 0.5, (count, 3)).clip(-1, 1)
    hard = [-1.0, 1.0, 0.0, -0.0, np.nextafter(1, 0), 2.0**-12, 3 * 2.0**-12, 5e-324, 0.5]
    some = draws.integers(0, 3, count) == 0
    values[some] = draws.choice(hard, (int(some.sum()), 3))
    return Rows(values, draws.integers(0, 2, count))


def blocks(*sizes: int) -> Any:
    return lambda: (records(size, seed=at) for at, size in enumerate(sizes))


@pytest.fixture(params=["stand-in", *CARDS], scope="module")
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    found = device_named(StandIn() if request.param == "stand-in" else request.param)
    assert found is not None
    assert found.proved
    yield found
    found.clear()


def ready(device: Any) -> Any:
    """Take a stand-in as proved: `device` was, and it errs on purpose or not at all."""
    device.proved = True
    return device


def summed(device: Any, stages: Any, opened: Any, workers: int | None = None) -> np.ndarray:
    """Sum on a device that does not fail."""
    with using_device(device), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = build_sketch(stages, opened, workers=workers)
    assert [str(w.message) for w in seen] == []
    return found


# --- equal bits -----------------------------------------------------------------------------------


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SKETCHES)
@pytest.mark.parametrize("per_label", [False, True])
def test_a_sum_on_a_device_is_the_sum_on_the_cpu(
    device: Device, name: str, per_label: bool
) -> None:
    stages = chain(sketch(name, per_label=per_label))
    opened = blocks(0, 1, 700, 64, 0, 300)
    wanted = build_sketch(stages, opened, workers=1)
    assert end_of_chain(stages) == 0
    for workers in (1, 3):
        assert np.array_equal(summed(device, stages, opened, workers), wanted)
    assert wanted.any()


def test_rows_stay_on_the_device_between_steps(device: Device) -> None:
    jl = lookup("jl_projection")(dimension=2, seed=3)
    stages = chain(jl, sketch("random"))
    assert end_of_chain(stages) == 0
    wanted = build_sketch(stages, blocks(900, 3), workers=1)
    assert np.array_equal(summed(device, stages, blocks(900, 3)), wanted)


@pytest.mark.parametrize("kind", ["f4", ">f8", "i8", "u1", "i2", "f2", "longdouble"])
def test_every_kind_of_number_is_rounded_alike(device: Device, kind: str) -> None:
    wide = RealRows(width=2, lower=(-300.0,), upper=(300.0,))
    stages = bind_steps(wide, Symmetric(), [lookup("quantize")(bits=7), sketch("raw")])
    values = np.array([[0, 255], [3, 2], [1, 77], [254, 128]]).astype(kind)
    found = summed(device, stages, lambda: [Rows(values)])
    assert np.array_equal(found, build_sketch(stages, lambda: [Rows(values)]))


def test_infinities_and_tiny_values_are_rounded_alike(device: Device) -> None:
    plain = RealRows(width=2, plain=True)
    mechanism = lookup("quantize")(bits=24, bounds=((-1.0, -0.3), (1.0, 0.7)))
    claim = mechanism.bind(plain, Symmetric())
    hard = np.array(
        [np.inf, -np.inf, 5e-324, -5e-324, -0.0, 0.0, 1e308, -1e308, 0.5, 2.0**-25, np.nan]
    )
    values = np.stack(np.meshgrid(hard, hard), axis=-1).reshape(-1, 2)
    with device, np.errstate(all="ignore"):
        found = device.get(claim.on_device(device, device.put(values)))
        wanted = claim.function(values).values
    both = np.isnan(found) & np.isnan(wanted)
    assert np.where(both, 0.0, found).tobytes() == np.where(both, 0.0, wanted).tobytes()


@pytest.mark.gpu
@pytest.mark.parametrize("key", sorted(ON_DEVICE))
def test_every_mechanism_has_the_same_bits_on_a_card(key: str) -> None:
    with using_device("cuda"):
        check_device_equals_cpu(ON_DEVICE[key])


# --- a device that errs ---------------------------------------------------------------------------


class Wrong(StandIn):
    """Errs in one bit of one operation, from its ``after``-th call on."""

    def __init__(self, what: str, after: int = 0) -> None:
        super().__init__()
        self.what, self.after = what, after
        self.xp = _Namespace(self)

    def now(self, what: str) -> bool:
        if what != self.what:
            return False
        self.after -= 1
        return self.after < 0

    def products(self, left: Any, right: Any) -> Any:
        found = super().products(left, right)
        if self.now(f"{left.dtype}") and found.size:
            last = found.reshape(-1)[
                -1
            ]  # a product's last bit, or, where sums are integers, a unit
            found.reshape(-1)[-1] = last + 1 if self.proved else np.nextafter(last, np.inf)
        return found

    def add_counts(self, *given: Any) -> int:
        outside = super().add_counts(*given)
        if self.now("moved count"):
            cells = given[-1].reshape(-1)
            full = int(np.flatnonzero(cells)[0])
            cells[full] -= 1
            cells[full + (1 if (full + 1) % given[-1].shape[2] else -1)] += 1
        if self.now("lost count"):
            given[-1].reshape(-1)[0] -= 1
        return outside

    def add_pairs(self, *given: Any) -> None:
        super().add_pairs(*given)
        if self.now("pairs"):
            given[-1][0, 0] += 1


class _Namespace:
    def __init__(self, device: Wrong) -> None:
        self._device = device

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if not self._device.now(name):
            return function
        return lambda *given: np.nextafter(function(*given), np.inf)


FAULTS = ["float64", "float32", "float16", "moved count", "lost count", "pairs", "sqrt", "rint"]


@pytest.mark.few(2)
@pytest.mark.parametrize("what", [*FAULTS, "trunc", "minimum", "maximum"])
def test_one_wrong_bit_is_refused_at_start(what: str) -> None:
    device = Wrong(what)
    with pytest.raises(DeviceError, match="OS904"), using_device(device):
        pass
    assert not device.proved
    assert device_in_use() is None


def test_a_bit_that_is_lost_at_the_limit_alone_is_refused() -> None:
    class Short(StandIn):
        """Sums that keep 52 bits, or 23: as a unit with a shorter accumulator."""

        def products(self, left: Any, right: Any) -> Any:
            found = super().products(left, right)
            step = 2.0 if found.dtype == np.float64 else np.float32(2)
            limit = 2.0**52 if found.dtype == np.float64 else np.float32(2**23)
            return np.where(np.abs(found) >= limit, np.trunc(found / step) * step, found)

    with pytest.raises(DeviceError, match="products"):
        proof.prove(Short())


def begins_to_err(what: str) -> Any:
    """Errs after its proof."""
    return ready(Wrong(what, after=3))


@pytest.mark.parametrize(
    ("what", "name"),
    [("moved count", "raw"), ("lost count", "random"), ("pairs", "lattice"), ("float64", "box")],
)
def test_a_device_that_begins_to_err_counts_nothing(
    what: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold, "_CELLS", 600)
    stages, opened = chain(sketch(name)), blocks(*[200] * 5)
    wanted = build_sketch(stages, opened)
    with using_device(begins_to_err(what)), pytest.warns(RuntimeWarning, match="OS904") as seen:
        found = build_sketch(stages, opened, workers=1)
    assert np.array_equal(found, wanted)
    assert len(seen) == 1


def test_a_device_that_fails_counts_nothing() -> None:
    class Failing(StandIn):
        left = 8

        def put(self, array: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError(f"the card is gone, with {array}")
            return super().put(array)

    device = ready(Failing())
    stages, opened = chain(sketch("raw")), blocks(50, 60, 70)
    with using_device(device), pytest.warns(RuntimeWarning, match="OS904"):
        found = build_sketch(stages, opened, workers=2)
    assert np.array_equal(found, build_sketch(stages, opened))


def test_no_exception_of_a_device_keeps_a_record() -> None:
    class Telling(StandIn):
        def products(self, left: Any, right: Any) -> Any:
            raise RuntimeError(f"cannot multiply {right}")

    rows = Rows(np.full((3, 3), 0.123), np.zeros(3, np.int64))
    made = DeviceSum(Telling(), chain(sketch("raw")))
    part = made.empty()
    made.add(part, rows)
    with pytest.raises(DeviceError) as caught:
        made.total(part)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert "123" not in str(caught.value)
    assert not part.out.any()


@pytest.mark.few(2)
@pytest.mark.parametrize("after", range(0, 30, 3))
def test_a_block_without_room_is_summed_on_the_cpu(after: int) -> None:
    class Full(StandIn):
        left = after

        def put(self, array: Any) -> Any:
            self.left -= 1
            if self.left < 0 and self.left % 7 == 0:
                raise MemoryError
            return super().put(array)

    device = ready(Full())
    stages, opened = chain(sketch("random")), blocks(50, 60, 70, 80)
    found = summed(device, stages, opened, 2)
    assert np.array_equal(found, build_sketch(stages, opened))


def test_labels_outside_fail_as_on_the_cpu() -> None:
    rows = Rows(np.zeros((4, 3)), np.array([0, 1, 2, 0]))
    stages = chain(sketch("raw", per_label=True))
    for device in (None, ready(StandIn())):
        with (
            using_device(device),
            warnings.catch_warnings(action="ignore"),
            pytest.raises(InternalError, match="OS902"),
        ):
            build_sketch(stages, lambda: [rows], workers=1)


# --- the doors ------------------------------------------------------------------------------------


class Counting(StandIn):
    counts = 0

    def count(self, *given: Any) -> Any:
        self.counts += 1
        return super().count(*given)


SPEC = """
spec: opendp_sim/1
name: on a device
data:
  people:
    source: {memory: people}
    columns: {x: {dtype: float64, bounds: [-1, 1]}}
    ledger: {file: "spent.ledger", limit: {rho: 1.0}}
privacy: {unit: {add_remove: 1, of: row}, measure: zcdp, budget: {rho: 0.5}}
flow:
  noisy:
    from: people
    steps:
      - select: {features: x}
      - quantize: {bits: 8}
      - race_sketch: {repetitions: 5, buckets: 8, seed: 1, family: {p_stable_l2: {width: 1.0}}}
    release: {noise: gaussian, spend: 100%}
outputs: {sums: {from: noisy, save: sums.npz}}
"""
PEOPLE = {"x": np.linspace(-1, 1, 300)}


def test_a_run_on_a_device_says_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    device = ready(Counting())
    plan = sim.plan(SPEC)
    done = sim.apply(plan, {"people": PEOPLE}, into=tmp_path, device=device)
    assert device.counts == 2  # the records, and some of them again
    assert device_in_use() is None
    for file in (done.files["sums"], done.certificates["sums"]):
        assert b"stand-in" not in Path(file).read_bytes()
    assert sim.plan(SPEC).plain() == plan.plain()


@pytest.mark.parametrize(
    ("word", "code"), [("tpu", "OS101"), ("cuda:x", "OS101"), ("", "OS101"), (7, "OS101")]
)
def test_another_word_is_refused(word: Any, code: str) -> None:
    with pytest.raises(ParameterError, match=code), using_device(word):
        pass


def test_a_card_that_is_not_there_is_refused_before_any_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises((ParameterError, DeviceError)):
        sim.apply(SPEC, {"people": PEOPLE}, into=tmp_path, device="cuda:99")
    assert not list(tmp_path.glob("*"))
    wrong = Wrong("float64")
    with pytest.raises(DeviceError):
        sim.apply(SPEC, {"people": PEOPLE}, into=tmp_path, device=wrong)
    assert not list(tmp_path.glob("*"))


def test_an_engine_takes_the_name_of_a_card_and_no_object(tmp_path: Path) -> None:
    from opendp_sim.dsl.run.execute import apply
    from opendp_sim.engines.engine import engine_of

    with pytest.raises(ParameterError, match="OS102"):
        apply(sim.plan(SPEC), into=tmp_path, engine=engine_of("local"), device=ready(StandIn()))


def test_a_session_of_contexts_ends_where_it_began() -> None:
    outer, inner = ready(StandIn()), ready(StandIn())
    with using_device(outer):
        with using_device(inner), using_device(None) as same:
            assert same is inner
        with using_device("cpu") as none:
            assert none is None
            assert device_in_use() is None
        assert device_in_use() is outer
    assert device_in_use() is None


# --- of cards alone -------------------------------------------------------------------------------


@pytest.mark.gpu
def test_memory_is_zero_when_it_is_given_back() -> None:
    device: Any = device_named("cuda")
    with device:
        held = device.put(np.full(2**22, 7.25))
        place = held.data.ptr
    del held
    device.clear()
    import cupy

    raw = cupy.cuda.runtime.malloc(2**25)
    try:
        seen = np.empty(2**22)
        cupy.cuda.runtime.memcpy(seen.ctypes.data, raw, 2**25, 2)
    finally:
        cupy.cuda.runtime.free(raw)
    assert place
    assert not (seen == 7.25).any()


@pytest.mark.gpu
def test_a_staged_array_is_equal_and_its_memory_is_given_back() -> None:
    device: Any = device_named("cuda")
    rows = np.random.default_rng(1).normal(size=(2**15, 8))
    staged = device.staged(rows)
    assert staged is not rows
    with device:
        there = device.put(staged)
        assert np.array_equal(device.get(there), rows)
    assert device.staged(rows[:4]) is not staged
    del staged, there
    device.clear()
    assert device._pinned.n_free_blocks() == 0


@pytest.mark.gpu
def test_staged_memory_may_change_once_it_was_put() -> None:
    device: Any = device_named("cuda")
    staged = device.staged(np.full((2**22, 8), 1.0))
    with device:
        there = device.put(staged)
        staged[:] = 2.0
        assert (device.get(there) == 1.0).all()


@pytest.mark.gpu
def test_a_block_beyond_the_cards_memory_is_summed_on_the_cpu() -> None:
    device: Any = device_named("cuda")
    with device:
        free = device._runtime.memGetInfo()[0]
        taken = device._cupy.cuda.alloc(free - 2**26)
    stages, opened = chain(sketch("raw")), lambda: [records(2**22)]
    try:
        found = summed(device, stages, opened, 1)
    finally:
        del taken
        device.clear()
    assert np.array_equal(found, build_sketch(stages, opened))
