"""How ``opendp_sim.core.about`` words what a parameter takes, and what is said of too few entries."""

from __future__ import annotations

import pickle

import pytest

from opendp_sim.core.errors import ParameterError
from opendp_sim.transformations.sketches.kernels.race_sketch import (
    RaceSketch,
    make_race_sketch,
    then_race_sketch,
)
from tests._cli import run
from tests._small import write_small


def test_a_text_is_shown_in_quotes_and_a_description_is_not():
    """It was "expected int >= 1; got 3"."""
    with pytest.raises(ParameterError) as refused:
        RaceSketch(repetitions="3", buckets=8, family={"srp": {"bits": 4}}, seed=1)
    assert "got '3'. Hint" in str(refused.value)
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args  # noqa: S301
    with pytest.raises(ParameterError, match="got nothing"):
        RaceSketch(buckets=8, family={"srp": {"bits": 4}}, seed=1)


def test_a_sketch_names_norm_among_its_words():
    for make in (make_race_sketch, then_race_sketch):
        given = () if make is then_race_sketch else (None, None)
        with pytest.raises(ParameterError) as refused:
            make(*given, repetitions=3, buckets=8, family={"srp": {"bits": 4}}, seed=1, nrom="l2")
        assert "count_weight, norm; got nrom" in str(refused.value)
        assert refused.value.hint == "did you mean 'norm'?"


@pytest.mark.few(1)
@pytest.mark.parametrize("word", ["1", "true", "0.5"])
def test_a_column_that_yaml_reads_as_no_text_is_to_be_quoted(tmp_path, word):
    """It was "name a vector column, or a list of numeric columns"."""
    for name in (word, f"[{word}]"):
        spec = write_small(tmp_path, ("features: x,", f"features: {name},"))
        said = run("check", spec).stderr
        assert f'write it in quotes, "{word}"' in " ".join(said.split())
