"""``dp.serialize`` of partials, mechanisms and chains: the same object comes back, or nothing is written."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import opendp.prelude as dp
import pytest
from hypothesis import given, settings, strategies as st
from opendp.extras.numpy import array2_domain, then_np_clamp

import opendp_sim.prelude as sim
from opendp_sim.core.bridge import noise_parts, to_dp_domain, to_dp_metric
from opendp_sim.core.constructors import constructors
from opendp_sim.core.errors import ParameterError
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.core.serialization import from_plain, to_plain
from opendp_sim.domains.metrics import IdDistance, VectorNorm
from opendp_sim.domains.rows import RealRows
from opendp_sim.transformations.row_maps.quantize import Quantize
from tests._plans import planned
from tests.cases import cases

dp.enable_features("contrib")

CASES = {key: case for key, case in cases().items() if case.mechanism.room != "queries"}
SPACE = array2_domain(num_columns=2, nan=False, T=float), dp.symmetric_distance()
RACE = {
    "repetitions": 4,
    "buckets": 8,
    "family": {"p_stable_l2": {"width": 0.1}},
    "seed": 3,
    "count_weight": 2,
}


def again(made: Any) -> Any:
    """Return the object that comes back, which is written as the first was."""
    text = dp.serialize(made)
    found = dp.deserialize(text)
    assert dp.serialize(found) == text
    return found


def loss(made: Any, d_in: int) -> Any:
    try:
        found = made.map(d_in)
    except dp.OpenDPException as error:
        return str(error).splitlines()[-1]
    return [found(d) for d in (0.0, 0.5, 2.0)] if callable(found) else found


def given_data(case: Any, made: Any) -> Any:
    """Return what is the same in every run: a transformation, or the part before the noise."""
    if isinstance(made, dp.Transformation):
        return made
    parts = noise_parts(made)
    return None if parts is None else parts.core


def equal(one: Any, two: Any) -> bool:
    if hasattr(one, "__dict__"):
        return type(one) is type(two) and equal(vars(one), vars(two))
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[k], two[k]) for k in one)
    return type(one) is type(two) and bool(np.array_equal(one, two))


def test_every_name_of_the_prelude_has_a_case() -> None:
    keys = {case.mechanism.key for case in CASES.values()}
    made = {f"{prefix}_{key}" for key in keys for prefix in ("make", "then")}
    assert made | {"read", "register"} == set(sim.__all__)


@pytest.mark.few(7)
@pytest.mark.parametrize("key", sorted(CASES))
def test_a_mechanism_and_its_partial_come_back(key: str) -> None:
    case = CASES[key]
    norm = {"norm": "l2"} if case.is_sketch else {}
    params = dict(case.mechanism) | norm
    make, then = constructors(type(case.mechanism))
    space = to_dp_domain(case.domain), to_dp_metric(case.metric)
    if case.domain.native() is None:
        assert dp.deserialize(dp.serialize(space[0])).descriptor == case.domain
    first = make(case.domain, case.metric, **params)
    for other in (again(first), again(then(**params))(*space)):
        assert type(other) is type(first)
        for name in ("input_domain", "input_metric", "output_metric", "output_measure"):
            assert getattr(first, name, None) == getattr(other, name, None)
        assert [loss(first, d) for d in (1, 2, 3)] == [loss(other, d) for d in (1, 2, 3)]
    known = again(first)
    assert known.sim_note == first.sim_note
    run, same = given_data(case, first), given_data(case, known)
    assert (run is None) == (same is None)
    if run is None or case.pairs is None:
        return

    @settings(max_examples=2, database=None)
    @given(case.pairs)
    def answers(pair: Any) -> None:
        assert equal(run(pair[0]), same(pair[0]))

    answers()


ROWS = np.random.default_rng(1).normal(size=(40, 2))
QUANTIZE = sim.then_quantize(bits=8, bounds=(-1.0, 1.0))


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "partial",
    [
        QUANTIZE >> sim.then_race_sketch(**RACE),
        QUANTIZE >> sim.then_race_sketch(**RACE) >> dp.m.then_laplace(6.0),
        QUANTIZE >> (sim.then_race_sketch(**RACE) >> sim.then_laplace(6.0)),
        QUANTIZE >> sim.then_race_sketch(**RACE, norm="l2") >> dp.m.then_gaussian(6.0),
    ],
)
def test_chains_of_partials_come_back(partial: Any) -> None:
    one, two = SPACE >> partial, SPACE >> again(partial)
    assert (one.map(1), one.map(3)) == (two.map(1), two.map(3))
    three = again(one)
    assert (one.map(1), one.map(3)) == (three.map(1), three.map(3))
    if isinstance(one, dp.Transformation):
        assert one(ROWS) == two(ROWS) == three(ROWS)
    both = again(dp.c.make_composition([one, one])) if isinstance(one, dp.Measurement) else None
    assert both is None or both.map(2) == pytest.approx(2 * one.map(2))


def test_a_native_partial_before_ours_is_kept() -> None:
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l1_distance(T="i64")
    native = dp.t.then_b_ary_tree(leaf_count=4, branching_factor=2)
    whole = native >> sim.then_laplace(scale=2.0)
    one, two = space >> whole, space >> again(whole)
    assert one.map(1) == two.map(1) == again(one).map(1) == 1.5


def test_a_partial_of_which_nothing_is_known_is_not_written_as_nothing() -> None:
    lost = then_np_clamp(norm=1.0, p=2)
    for partial in (lost, QUANTIZE >> lost, lost >> QUANTIZE):
        with pytest.raises(ParameterError, match="OS101 serialize"):
            dp.serialize(partial)


def test_an_unregistered_mechanism_is_refused_when_it_is_written() -> None:
    class Strange(Quantize):
        key = "strange"

    made, partial = constructors(Strange)
    for each in (partial(bits=8, bounds=(0.0, 1.0)), made(*SPACE, bits=8, bounds=(0.0, 1.0))):
        with pytest.raises(ParameterError, match=r"OS101 serialize.*record of `strange`"):
            dp.serialize(each)


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        (("key",), "quantise", "did you mean 'quantize'"),
        (("params", "bits"), 99, "quantize.bits"),
        (("params", "extra"), 1, "quantize"),
        (("input_domain", "class"), "Popen", "OS101 deserialize"),
        (("input_domain", "class"), "Quantize", "OS101 deserialize"),
        (("input_domain", "extra"), 1, "OS101 deserialize"),
        (("input_metric", "class"), "Descriptor", "OS101 deserialize"),
    ],
)
def test_an_edited_text_is_refused_by_name(path: tuple[str, ...], value: Any, told: str) -> None:
    text = json.loads(dp.serialize(SPACE >> QUANTIZE))
    inside = text["__kwargs__"]
    for name in path[:-1]:
        inside = inside[name]
    inside[path[-1]] = value
    with pytest.raises(ParameterError, match=told):
        dp.deserialize(json.dumps(text))


NUMBERS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.fractions()
)


@given(st.recursive(NUMBERS, lambda inner: st.lists(inner).map(tuple), max_leaves=6))
def test_values_of_descriptors_keep_their_types(value: Any) -> None:
    found = from_plain(json.loads(json.dumps(to_plain(value))))
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    "descriptor",
    [
        RealRows(3, lower=(-0.0, 1e-320, 0.1), upper=(1.0,) * 3, norm=("l2", 2**0.5)),
        VectorNorm("l2", ((3, 2**70), (1, 1))),
        IdDistance("näme"),
    ],
)
def test_spaces_come_back(descriptor: Any) -> None:
    made = (to_dp_metric if isinstance(descriptor, VectorNorm | IdDistance) else to_dp_domain)(
        descriptor
    )
    assert again(made) == made
    assert again(made).descriptor == descriptor


def test_what_no_json_holds_is_refused() -> None:
    with pytest.raises(ParameterError, match="OS101 serialize"):
        to_plain(RealRows(1, lower=(np.float64(1),)))
    assert to_plain(Fraction(1, 3)) == {"fraction": "1/3"}


def test_another_process_reads_it_once_the_prelude_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain = SPACE >> QUANTIZE >> sim.then_race_sketch(**RACE)
    text = tmp_path / "chain.json"
    text.write_text(dp.serialize(chain))
    code = (
        "import sys, opendp_sim.prelude; from opendp.mod import deserialize, enable_features;"
        "enable_features('contrib'); print(deserialize(open(sys.argv[1]).read()).map(1))"
    )
    words = [sys.executable, "-c", code, str(text)]
    assert subprocess.check_output(words, text=True).split() == [str(chain.map(1))]
    monkeypatch.delitem(sys.modules, "opendp.opendp_sim")
    with pytest.raises(ModuleNotFoundError, match=r"opendp\.opendp_sim"):
        dp.deserialize(text.read_text())


def test_the_registry_has_what_the_prelude_offers() -> None:
    assert len(sim.__all__) == 2 + 2 * sum(cls.room != "queries" for cls in REGISTRY.values())


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        -1.5,
        "x",
        [[0]],
        ["x", "y"],
        [float("nan")] * 2,
        {"fraction": "1/0"},
        {"class": "object"},
    ],
    ids=str,
)
def test_a_text_whose_values_are_of_another_type_makes_no_domain(wrong):
    """A domain with the bound "x" was made, and its maps with it; 1/0 was a bare ZeroDivisionError."""
    domain = RealRows(2, lower=(0.0, 0.0), upper=(1.0, 1.0))
    assert from_plain(to_plain(domain)) == domain
    for name in ("lower", "ids"):
        with pytest.raises(ParameterError, match="OS101 deserialize"):
            from_plain(to_plain(domain) | {name: wrong})


@pytest.mark.few(1)
@pytest.mark.parametrize("spec", ["flights-dashboard", "five-systems", "digit-density"])
def test_a_whole_program_comes_back(spec: str) -> None:
    plan = planned(Path(__file__).parents[2] / "specs" / f"{spec}.yaml")
    program, d_in = plan.to_opendp(), plan.privacy.unit.d_in
    found = again(program)
    assert found.map(d_in) == program.map(d_in)
    assert found.map(2 * d_in) == program.map(2 * d_in)
    assert found.input_space == program.input_space
