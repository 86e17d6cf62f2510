"""What a user passes beside the object, looked at before anything runs."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opendp_sim.audit.checks.compare_outputs import metric_distance
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.claims.output_distance import exceeds, measure_distance
from opendp_sim.audit.findings import Effort
from opendp_sim.audit.generators.datasets import records_of
from opendp_sim.audit.generators.neighbours import RECORD_METRICS, Pair, PairSpace
from opendp_sim.audit.generators.spaces import metric_name, person_place, space_of
from opendp_sim.audit.outputs.encoding import Encoded
from opendp_sim.audit.seeds.blocks import guided
from opendp_sim.audit.seeds.constants import Mined
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.work import metered
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

# --------------------------------------------------------------------------------------------------
# How far apart two datasets are in an input metric: no claim speaks of pairs beyond its distance.

_NORMS = {"l1": "L1Distance", "l2": "L2Distance", "linf": "LInfDistance"}
_NUMBERS = ("AbsoluteDistance", "L1Distance", "L2Distance", "LInfDistance")
_MOST = 5000
"""Records of a side up to which insertions and deletions are counted: that takes their product."""


def distance_apart(
    left: Any, right: Any, metric: dp.Metric | None, domain: dp.Domain | None
) -> tuple[str, Any]:
    """Return a distance and the name of its metric.

    As ``measure_distance`` counts; None if the distance is unknown. What cannot be taken apart raises
    whatever it raises.
    """
    name = "" if metric is None else metric_name(metric)
    if metric is None:
        return name, None
    if name == "IdDistance" and domain is not None:
        place, split = person_place(domain, metric), records_of(domain).split
        return "SymmetricDistance", _persons(split(left), split(right), place)
    if name in RECORD_METRICS or name == "Symmetric":
        split = _splitter(domain)
        left, right = split(left), split(right)
        long = max(len(left), len(right)) > _MOST and name == "InsertDeleteDistance"
        name = (
            "SymmetricDistance" if long or name == "Symmetric" else name
        )  # of long ones: never more
        return name, measure_distance(name, left, right)
    if name == "VectorNorm":
        return _NORMS[metric.descriptor.norm], metric_distance(metric)(left, right)
    return name, metric_distance(metric)(left, right) if name in _NUMBERS else None


def _splitter(domain: dp.Domain | None) -> Callable[[Any], list[Any]]:
    """Return a function that takes a dataset apart by its domain."""
    try:
        return list if domain is None else records_of(domain).split
    except AuditError:
        return _listed


def _listed(data: Any) -> list[Any]:
    if isinstance(data, (list, tuple)):
        return list(data)
    raise TypeError


def _persons(left: list[Any], right: list[Any], place: int) -> int:
    """Return the number of added and removed persons."""
    sides = _by_person(left, place), _by_person(right, place)
    count = 0
    for who in {**sides[0], **sides[1]}:
        mine, other = (side.get(who, []) for side in sides)
        if measure_distance("SymmetricDistance", mine, other):
            count += bool(mine) + bool(other)
    return count


def _by_person(records: list[Any], place: int) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = defaultdict(list)
    for record in records:
        found[record[place]].append(record)
    return dict(found)


# --------------------------------------------------------------------------------------------------
# What the user gave an audit beside the object: pairs to try first, scores of an output.


def first_tried(given: tuple[Pair, ...], space: PairSpace) -> PairSpace:
    """Let the user's pairs be the first corners of any space."""
    return space if not given else WithPairs(given, space)


class WithPairs:
    """A space whose corners begin with given pairs."""

    def __init__(self, given: tuple[Pair, ...], space: PairSpace) -> None:
        self._given, self.space = given, space

    def draw(self, rng: np.random.Generator, distance: Any = None) -> Pair:
        """Return a random pair of the space."""
        return self.space.draw(rng, distance)

    def corners(self, rng: np.random.Generator) -> Any:
        """Yield the given pairs, then the structured ones."""
        yield from self._given
        yield from self.space.corners(rng)

    def mutate(self, pair: Pair, rng: np.random.Generator) -> Pair:
        """Return a similar pair; a given pair as it is."""
        return pair if pair.genome is None else self.space.mutate(pair, rng)

    def simpler(self, pair: Pair) -> Any:
        """Return smaller pairs; none of a given pair."""
        return () if pair.genome is None else self.space.simpler(pair)


def searched_space(
    subject: Subject,
    d_in: Any,
    given: tuple[Pair, ...],
    generator: Callable[[np.random.Generator], Any] | None,
    found: Mined | None,
) -> PairSpace:
    """Return the space of pairs, extended by constants of the code."""
    space = space_of(
        subject.input_domain,
        subject.input_metric,
        d_in,
        pairs=tuple((p.left, p.right) for p in given),
        generator=generator,
    )
    if found is None or generator is not None:
        return space
    out: PairSpace = guided(space, subject.input_domain, found)
    return out


def scored(events: Mapping[str, Callable[[Any], float]] | None) -> dict[str, Any]:
    """Convert scores of an output to scores of encoded outputs."""
    if not events:
        return {}

    def lift(score: Callable[[Any], float]) -> Callable[[Encoded], Any]:
        return lambda e: np.array([float(score(_own(row))) for row in e.cells])

    return {name: lift(score) for name, score in events.items()}


def _own(row: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an output's own cells, without the padding."""
    there = np.flatnonzero(~np.isnan(row))
    return row[: there[-1] + 1] if there.size else row[:0]


# --------------------------------------------------------------------------------------------------

_ROUNDING = 1e-6
"""By how much probabilities may miss 1."""
_USUAL = {"composed": False, "trace": True, "mine": True}
"""Options that are usually something else than None."""


def checked_options(seed: Any, noise: Any, **functions: Any) -> None:
    """Refuse what is of no kind that an audit can use.

    Raises:
        AuditError: OS501.
    """
    if type(seed) is bool or not isinstance(seed, Integral) or int(seed) < 0:
        raise _refused("seed", "a whole number from 0", seed, "any one: noise has no seed.")
    for name, value in functions.items():
        if value is not None and not callable(value):
            raise _refused(name, "a function", value, f"see the options of audit: {name}=.")
    core = functions.get("core")
    if (core is None) != (noise is None):
        raise _refused(
            "core", "core= and noise= together", "one of them",
            "the noiseless part says nothing without what is added to it.",
        )  # fmt: skip
    if noise is None:
        return
    known = isinstance(noise, (NoiseLaw, dp.Measurement)) or hasattr(noise, "weights")
    if not known:
        raise _refused(
            "noise", "a NoiseLaw or an OpenDP measurement", noise,
            'for example noise=NoiseLaw("discrete_laplace", 2.0), with core=.',
        )  # fmt: skip
    if isinstance(noise, NoiseLaw) and not _positive(noise.scale):
        raise _refused("noise", "a scale above 0", noise.scale, "the scale as it is added.")


def as_given(options: Mapping[str, Any]) -> str:
    """Return a call's arguments, without defaults, as Python writes them."""
    given = {k: v for k, v in options.items() if v is not _USUAL.get(k) and v not in ("", ())}
    return "".join(
        f", {name}={value if isinstance(value, bool) else name}" for name, value in given.items()
    )


def _positive(scale: Any) -> bool:
    try:
        scales = np.asarray(scale, dtype=float)
    except (TypeError, ValueError):
        return False
    return bool(scales.size and (scales > 0).all() and np.isfinite(scales).all())


def checked_budget(budget: str | Effort, beta: float) -> Effort:
    """Return a checked budget by name or unchanged, or refuse it."""
    known = isinstance(budget, Effort) or budget in ("quick", "deep")
    if isinstance(budget, Effort) and not (budget.seconds > 0 and budget.total > 0):
        raise _refused(
            "budget", "seconds above 0", budget.seconds, "without any, nothing would be looked at."
        )
    if not known:
        raise _refused("budget", '"quick" or "deep"', str(budget), "quick is for a test suite.")
    if not 0 < beta < 1:
        raise _refused(
            "beta", "a chance: 0 < beta < 1", beta,
            "0.001 is one false alarm in a thousand audits of true claims, at most.",
        )  # fmt: skip
    return budget if isinstance(budget, Effort) else Effort.of(budget)


def checked_events(events: Any) -> Mapping[str, Callable[[Any], float]] | None:
    """Return scores of an output by name, or refuse one."""
    if not events:
        return None
    if not isinstance(events, Mapping) or not all(callable(score) for score in events.values()):
        got = events if not isinstance(events, Mapping) else [*events.values()]
        raise _refused("events", "functions by name", got, "events={name: output to number}.")

    def asked(name: str, score: Callable[[Any], float]) -> Callable[[Any], float]:
        def number(output: Any) -> float:
            try:
                return float(score(output))
            except Exception as error:  # noqa: BLE001 - the user's function
                raise _refused(
                    f"events.{name}", "a number of every output", type(error).__name__,
                    "it is given the output's numbers as one array; return 0 where nothing is learnt.",
                ) from None  # fmt: skip

        return number

    return {name: asked(name, score) for name, score in events.items()}


def checked_pmf(pmf: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """Return the exact distribution, which refuses by name what is none."""
    if pmf is None:
        return None

    def exact(data: Any) -> Any:
        try:
            found = dict(pmf(data))
            chances = [float(p) for p in found.values()]
        except Exception as error:  # noqa: BLE001 - the user's function
            raise _refused(
                "pmf", "probabilities of outputs, for every dataset", type(error).__name__,
                "pmf={function}: a dataset to a dictionary from output to probability.",
            ) from None  # fmt: skip
        total = math.fsum(chances)
        if not (abs(total - 1) <= _ROUNDING and min(chances) >= -_ROUNDING):
            raise _refused(
                "pmf",
                "probabilities that add up to 1",
                total,
                "name every output, with its chance.",
            )
        return found

    return metered(exact)


def given_pairs(
    pairs: Iterable[Any], d_in: Any, metric: dp.Metric | None, domain: dp.Domain | None
) -> tuple[Pair, ...]:
    """Return the user's pairs within the claim's distance.

    Raises:
        AuditError: OS501, not pairs.
    """
    out, far, count = [], 0, 0
    for given in pairs:
        count += 1
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            kind = type(given).__name__
            raise _refused("pairs", "pairs of datasets", kind, "pairs=[(x, y), (x2, y2)].")
        if separated(given[0], given[1], d_in, metric, domain):
            far += 1
            continue
        out.append(Pair(given[0], given[1], d_in))
    if far:
        warnings.warn(
            f"audit: {far} of {count} given pairs are further apart than d_in = {d_in} in the input "
            "metric, where the claim says nothing, and were not tried.",
            stacklevel=4,
        )
    return tuple(out)


def separated(
    left: Any, right: Any, d_in: Any, metric: dp.Metric | None, domain: dp.Domain | None
) -> bool:
    """Return whether two datasets certainly exceed a distance."""
    if isinstance(d_in, tuple):
        return False
    try:
        name, distance = distance_apart(left, right, metric, domain)
        return distance is not None and exceeds(name, distance, d_in)
    except Exception:  # noqa: BLE001 - datasets of another kind: membership is asked elsewhere
        return False


def _refused(option: str, expected: str, got: Any, hint: str) -> AuditError:
    text = repr(got)
    shown = text if len(text) <= 40 else text[:37] + "..."
    return AuditError("OS501", f"audit.{option}", expected=expected, got=shown, hint=hint)
