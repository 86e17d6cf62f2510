"""The kit has teeth: each broken twin must fail the law that guards against it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import pytest

import opendp_sim.prelude  # noqa: F401 - fills the registry
from opendp_sim.core.about import parameters_of
from opendp_sim.core.claims import Post, Private, Sensitivity, SketchBlock, Stable
from opendp_sim.core.errors import InternalError
from opendp_sim.core.mechanism import REGISTRY, param, register
from opendp_sim.domains.metrics import Symmetric
from opendp_sim.domains.rows import Rows, as_rows
from opendp_sim.measurements.noise.gaussian import Gaussian
from opendp_sim.postprocessing.classify import Classify
from opendp_sim.testing import (
    Law,
    all_laws,
    laws,
    laws_of_domains as domains,
    laws_of_maps as maps,
    laws_of_releases as rel,
)
from opendp_sim.transformations.row_maps.quantize import Quantize
from opendp_sim.transformations.sketches.kernels.race_sketch import RaceSketch
from tests.cases.race import CASES, GRID, RACE

Change = Callable[[Any], Any]


def twin(base: type, change: Change, **attributes: Any) -> Any:
    """A subclass of ``base`` whose claim is changed in one way; not in the registry."""

    def bind(self: Any, domain: Any, metric: Any) -> Any:
        return change(base.bind(self, domain, metric))  # type: ignore[attr-defined]

    return type(base.__name__, (base,), {"bind": bind, "__doc__": base.__doc__, **attributes})


def of(key: str, change: Change) -> Any:
    case = CASES[key]
    cls = twin(type(case.mechanism), change)
    return replace(case, mechanism=cls.from_spec(case.mechanism.spec()))


def sensitivity(**changed: Any) -> Change:
    return lambda claim: replace(claim, sensitivity=replace(claim.sensitivity, **changed))


def accumulating(change: Callable[[Any, Any, Any], None]) -> Change:
    return lambda claim: replace(
        claim, accumulate=lambda rows, out: change(claim.accumulate, rows, out)
    )


def mapping(change: Callable[[Any, Rows], Rows]) -> Change:
    return lambda claim: replace(claim, function=lambda data: change(claim.function, as_rows(data)))


def without_the_last(claim: Any) -> Any:
    """Loses one record on the device."""

    def add(device: Any, values: Any, labels: Any, out: Any) -> None:
        claim.on_device(device, values[:-1], None if labels is None else labels[:-1], out)

    return replace(claim, on_device=add)


def centred(inner: Any, rows: Rows) -> Rows:
    """Depends on the other rows: subtracts the mean."""
    out = inner(rows)
    return replace(
        out, values=out.values - np.rint(out.values.mean(axis=0)) if len(rows) else out.values
    )


def blas(_: Any, rows: Rows) -> Rows:
    """A float product: last bits depend on the batch."""
    wide = np.tile(rows.values, (1, 40))
    return replace(rows, values=wide @ np.sin(np.arange(wide.shape[1] * 3)).reshape(-1, 3))


def counts_duplicates_once(inner: Any, data: Any, out: Any) -> None:
    inner(Rows(np.unique(as_rows(data).values, axis=0), None, None), out)


def in_place(inner: Any, rows: Rows) -> Rows:
    rows.values[...] = 0.0
    return inner(rows)


class Unfenced(Quantize):
    bits: Annotated[Any, param("Bits.", symbol="b", unit="bits", hint="h")]


def doubled(inner: Any, rows: Rows) -> Rows:
    out = inner(rows)
    return Rows(
        *(None if p is None else np.concatenate([p, p]) for p in (out.values, out.labels, out.ids))
    )


def remembering(claim: Any) -> Any:
    """Keeps what it was last asked about: an answer tells of two releases."""
    kept: list[Any] = []

    def answer(released: Any, queries: Any) -> Any:
        kept.append(released["counts"].sum())
        return {"label": np.asarray(kept[-2:][0] + claim.function(released, queries)["label"])}

    return replace(claim, function=answer)


def opening(claim: Any) -> Any:
    def answer(released: Any, queries: Any) -> Any:
        with Path(__file__).open(encoding="utf-8"):
            return claim.function(released, queries)

    return replace(claim, function=answer)


TWINS: list[tuple[str, Any, Law]] = [
    (
        "one bit of a row on a device",
        of("quantize", lambda c: replace(c, on_device=lambda d, v: c.on_device(d, v) + (v > 0.9))),
        maps.check_device_equals_cpu,
    ),
    (
        "one record of a sketch on a device",
        of("race_sketch", without_the_last),
        maps.check_device_equals_cpu,
    ),
    (
        "forgets the repetitions",
        of("race_sketch", sensitivity(l1=RACE.count_weight + 1)),
        maps.check_sensitivity_bounds_the_distance,
    ),
    (
        "forgets the count in L2",
        of("race_sketch", sensitivity(l2_squared=RACE.repetitions)),
        maps.check_sensitivity_bounds_the_distance,
    ),
    (
        "forgets the weight in L∞",
        of("race_sketch", sensitivity(linf=1)),
        maps.check_sensitivity_bounds_the_distance,
    ),
    (
        "wasteful",
        of("race_sketch", sensitivity(l1=RACE.repetitions + 3)),
        maps.check_sensitivity_is_attained,
    ),
    (
        "charges nothing",
        of("race_sketch", sensitivity(l1=0)),
        maps.check_map_is_linear_and_zero_at_zero,
    ),
    (
        "counts duplicates once",
        of("race_sketch", accumulating(counts_duplicates_once)),
        maps.check_sketch_is_a_sum,
    ),
    (
        "adds one a block",
        of("race_sketch", accumulating(lambda f, d, o: (f(d, o), o.__iadd__(1))[0])),
        maps.check_sketch_is_a_sum,
    ),
    (
        "removes instead",
        of(
            "race_sketch",
            accumulating(lambda f, d, o: (f(d, o), o.__setitem__(0, -len(as_rows(d))))[0]),
        ),
        maps.check_sensitivity_bounds_the_distance,
    ),
    ("centres on the mean", of("quantize", mapping(centred)), maps.check_rows_are_local),
    ("float product", of("quantize", mapping(blas)), maps.check_rows_are_local),
    ("emits every row twice", of("quantize", mapping(doubled)), maps.check_rows_stay_stable),
    ("works in place", of("quantize", mapping(in_place)), maps.check_function_is_pure),
    (
        "leaves its grid",
        of("quantize", mapping(lambda f, r: replace(f(r), values=f(r).values + 0.5))),
        maps.check_output_is_member,
    ),
    (
        "refuses some members",
        of("quantize", mapping(lambda f, r: f(r) if len(r) < 2 else 1 / 0)),
        domains.check_members_never_raise,
    ),
    (
        "another map in OpenDP",
        of("race_sketch", lambda c: replace(c, sensitivity=_Lopsided(c.sensitivity))),
        maps.check_opendp_object_agrees,
    ),
    (
        "loses at distance zero",
        of("gaussian", lambda c: replace(c, privacy_map=lambda d: 1.0)),
        rel.check_loss_is_zero_at_zero_and_monotone,
    ),
    (
        "decreasing loss",
        of("gaussian", lambda c: replace(c, privacy_map=lambda d: 1 / d if d else 0.0)),
        rel.check_loss_is_zero_at_zero_and_monotone,
    ),
    (
        "no noise",
        of("gaussian", lambda c: replace(c, function=c.core)),
        rel.check_noise_is_declared,
    ),
    (
        "noisy noiseless part",
        of("gaussian", lambda c: replace(c, core=c.function)),
        rel.check_noise_is_declared,
    ),
    (
        "shape follows the data",
        of(
            "gaussian",
            lambda c: replace(
                c, function=lambda x: c.function(x)[: max(1, abs(int(x.sum())) % 16)]
            ),
        ),
        rel.check_shapes_do_not_depend_on_data,
    ),
    (
        "random post-processing",
        of("classify", lambda c: replace(c, function=lambda *a: {"label": np.random.rand(3)})),
        rel.check_post_processing_is_pure,
    ),
    (
        "post in place",
        of(
            "classify",
            lambda c: replace(c, function=lambda a, q: {"label": a["counts"].__iadd__(1).copy()}),
        ),
        rel.check_post_processing_is_pure,
    ),
    (
        "remembers the last release",
        of("classify", remembering),
        rel.check_post_processing_reads_the_release_alone,
    ),
    ("opens a file", of("classify", opening), rel.check_post_processing_reads_the_release_alone),
    (
        "no bound on bits",
        replace(CASES["quantize"], mechanism=Unfenced(bits=6)),
        laws.check_every_bound_is_enforced,
    ),
]


class _Lopsided(Sensitivity):
    """Says one thing to whoever asks first, and another later."""

    def __init__(self, sensitivity: Sensitivity) -> None:
        super().__init__(
            sensitivity.l1, sensitivity.l2_squared, sensitivity.linf, sensitivity.monotone
        )
        object.__setattr__(self, "_asked", [])

    def bound(self, norm: Any, d_in: int) -> Any:
        self._asked.append(norm)  # type: ignore[attr-defined]
        return super().bound(norm, d_in) + len(self._asked)  # type: ignore[attr-defined]


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize(("case", "law"), [t[1:] for t in TWINS], ids=[t[0] for t in TWINS])
def test_broken_twin_is_caught(case: Any, law: Law) -> None:
    with pytest.raises(AssertionError):
        law(case)


def test_words_are_checked() -> None:
    """Record, docstring, proof and key: each law refuses a record that breaks it."""

    class Elsewhere(RaceSketch):
        """No sections."""

        key: ClassVar[str] = "elsewhere"

        def __init__(self, **data: Any) -> None:
            super().__init__(**{**data, "seed": np.random.default_rng().integers(2**40).item()})

        def bind(self, domain: Any, metric: Any) -> Stable:
            return RACE.bind(GRID, Symmetric())

    case = replace(
        CASES["race_sketch"],
        mechanism=Elsewhere(**{n: getattr(RACE, n) for n in parameters_of(RaceSketch)}),
    )
    for law in (
        laws.check_docstring_has_every_section,
        laws.check_key_is_the_file,
        laws.check_proof_names_lemma_and_symbols,
        laws.check_record_round_trips,
        laws.check_foreign_space_is_refused,
    ):
        with pytest.raises(AssertionError):
            law(case)


def test_every_law_has_a_twin() -> None:
    guarded = {law.__name__ for _, _, law in TWINS} | {
        "check_docstring_has_every_section",
        "check_key_is_the_file",
        "check_proof_names_lemma_and_symbols",
        "check_record_round_trips",
        "check_foreign_space_is_refused",
        "check_unknown_parameter_suggests",
    }
    assert {law.__name__ for law in all_laws()} == guarded


def test_a_parameter_that_swallows_everything_is_caught() -> None:
    class Loose(Quantize):
        model_config = Quantize.model_config | {"extra": "ignore"}

    with pytest.raises(AssertionError):
        laws.check_unknown_parameter_suggests(replace(CASES["quantize"], mechanism=Loose(bits=6)))


def test_a_key_is_taken_once() -> None:
    with pytest.raises(InternalError, match="OS903"):
        register(type("Other", (RaceSketch,), {}))
    assert REGISTRY["race_sketch"] is RaceSketch


def test_blocks_and_claims_are_frozen() -> None:
    for cls in (SketchBlock, Sensitivity, Stable, Private, Post):
        assert cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert Gaussian.model_config["frozen"]
    assert Classify.model_config["frozen"]
