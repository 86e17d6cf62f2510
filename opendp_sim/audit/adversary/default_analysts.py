"""Build default analysts of interactive releases from the domain."""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from opendp_sim.audit.adversary.analyst import REFUSED, SILENT, Driver, unknown_questions
from opendp_sim.audit.adversary.query_search import of_bare, of_shapes
from opendp_sim.audit.adversary.session_analyst import of_service
from opendp_sim.audit.claims.noise_laws import NoiseLaw
from opendp_sim.audit.generators.copies import on_its_own
from opendp_sim.audit.generators.datasets import records_of
from opendp_sim.audit.generators.domain_filter import quiet_member
from opendp_sim.audit.generators.neighbours import Pair
from opendp_sim.audit.generators.spaces import metric_name, some_dataset
from opendp_sim.audit.generators.vectors import VECTOR_METRICS
from opendp_sim.audit.instrument.compare_tapes import Claim, claim_of, look
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.python_queryable import asked_directly
from opendp_sim.audit.instrument.tape import OutOfTimeError, Tape, TapeEndError
from opendp_sim.audit.outputs.reading import as_chosen
from opendp_sim.audit.seeds.constants import Mined, mined
from opendp_sim.audit.state.reachable import functions_of
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.trace.explanations import share_of
from opendp_sim.audit.work import work_seconds
from opendp_sim.core import dp
from opendp_sim.core.bridge import answers_questions, measure_of, plain_measurement
from opendp_sim.core.errors import AuditError, SpaceError

# --------------------------------------------------------------------------------------------------
# Default questions for queryables that take a key: OpenDP's ALP projection, and others like it.

_MOST = 8
_KEYS: dict[str, tuple[Any, ...]] = {"String": ("", "a", "b", "c", "0", "1"), "bool": (False, True)}
_OWN: tuple[Any, ...] = (1, "a", 0.5, True)
_AGAIN = 24
_TWICE, _TIMES = 2, 6
"""Keys that are asked again, and how often: what is remembered may be answered without noise, and what
was paid once may be answered with new noise for nothing."""
_NUMBERS = (0, 1, 2, 3, 7, 10)
_AMOUNTS = (0, 0.5, 3, 1, 2, 7, 10)
"""Of a queryable that takes anything: a number may be a key, or what a question may cost. A small cost
and then a large one is what a filter lets through that looks whether something is left."""
_ANYTHING = "ExtrinsicObject"


def of_keys(
    queryable: Any,
    member: Callable[[Any], bool] = lambda _: False,
    distance: Any = 1,
    *,
    anything: bool = False,
) -> Driver | None:
    """Return a driver that asks a few public keys, or None."""
    kind = str(getattr(queryable, "query_type", ""))
    keys = _KEYS.get(kind)
    if keys is None and kind[:1] in ("i", "u") and kind[1:2].isdigit():
        keys = _NUMBERS
    if kind in ("f32", "f64"):
        keys = tuple(map(float, _AMOUNTS))
    if anything and kind == _ANYTHING:  # the answer tells what it takes
        keys = next((some for some in (_AMOUNTS, _KEYS["String"]) if _takes(queryable, some)), None)
    if keys is None or not math.isfinite(_answer(queryable, keys[0])):
        return None
    asked, again = keys[:_MOST], keys[:_TWICE]

    def drive(asking: Any) -> Any:
        return tuple(_answer(asking, key) for key in (*asked, *again * _TIMES))

    once, twice = (", ".join(map(repr, some)) for some in (asked, again))
    some = distance if isinstance(distance, int) and distance <= _MOST else 0
    near = [Pair([], [key] * some, distance) for key in again]
    pairs = tuple(p for p in near if some and member(p.left) and member(p.right))
    told = f"the keys {once}, each once, and then {twice} again, {_TIMES} times"
    others = of_bare(asked[1], pairs) if kind == _ANYTHING else ()
    return Driver(drive, told, pairs, others=others)


def of_own(queryable: Any, pairs: tuple[Pair, ...]) -> Driver | None:
    """Return a driver that repeats one query of any kind, or None."""
    key = next((k for k in _OWN if _answer(queryable, k) > REFUSED), None)
    if key is None:
        return None

    def drive(asking: Any) -> Any:
        heard = [_answer(asking, key) for _ in range(_AGAIN)]
        return (sum(heard), *heard)

    return Driver(drive, f"the key {key!r}, {_AGAIN} times", pairs, others=of_bare(key, pairs))


def _takes(queryable: Any, keys: tuple[Any, ...]) -> bool:
    """Return whether a queryable answers some key with a number."""
    answers = [_answer(queryable, key) for key in keys[1:3]]
    return any(math.isfinite(answer) and answer > REFUSED for answer in answers)


def _answer(queryable: Any, key: Any) -> float:
    """Return an answer as a number."""
    try:
        answer = queryable(key)
        return SILENT if answer is None else float(answer)
    except dp.OpenDPException:
        return REFUSED
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - no number, one beyond the floats, or an object of the user's
        return math.nan


# --------------------------------------------------------------------------------------------------
# Default drivers for OpenDP's interactive compositions and odometers: they are asked measurements.
#
# The questions are noisy numbers of records at losses that the object itself accepts, so that a
# composition that adds up wrongly shows in the answers. Which number is asked next depends on the last
# answer; how much may be lost does not.

_MOST_ANSWERS = 6
_PARTS = (1, 3 / 4, 2 / 3, 1 / 2, 2 / 5, 1 / 3, 1 / 4, 1 / 5, 1 / 6, 1 / 8, 1 / 10, 1 / 20, 1 / 100)
"""Of the whole loss, in the order in which they are asked for."""
_LOSSES = (0.5, 0.25, 0.25)
"""What an odometer is asked to lose, in its own measure, at the distance that was asked about."""
_ADDING = ("SymmetricDistance", "InsertDeleteDistance", "Symmetric")
_FAR = 2**20
Number = Callable[[Any], float]


def of_composition(obj: dp.Measurement, d_in: Any) -> Driver:
    """Return a driver that spends the remaining budget again and again.

    Raises:
        AuditError: OS501, it takes no measurement on its own space.
    """
    probes = _Probes(obj, d_in)
    whole = obj.map(d_in)
    most = float(whole[0] if isinstance(whole, tuple) else whole)
    losses = _accepted(obj(probes.some), probes, most)
    if not losses:
        raise unknown_questions("a queryable that takes no measurement on its own space")

    if not probes.trace(obj, losses)(probes.some).size:  # it answers, and evaluated none of them
        own = of_own(obj(probes.some), probes.pairs)
        if own is None:
            raise unknown_questions("a queryable that evaluates no measurement")
        return own

    def drive(queryable: Any) -> Any:
        heard: list[float] = []
        for loss in losses:
            like = bool(heard) and heard[-1] > 1
            try:
                heard.append(float(queryable(probes.make(loss, like=like))))
            except dp.OpenDPException:
                heard.append(REFUSED)
        return tuple(heard)

    shown = ", ".join(f"{loss:.3g}" for loss in losses)
    words = f"noisy numbers ({probes.words}) at losses {shown}, all that it accepts"
    return Driver(drive, words, probes.pairs, probes.trace(obj, losses), probes.law)


def _accepted(queryable: Any, probes: _Probes, most: float) -> list[float]:
    """Return the losses that are accepted, on every dataset alike."""
    losses: list[float] = []
    for _ in range(_MOST_ANSWERS):
        for part in _PARTS:
            try:
                queryable(probes.make(most * part, like=False))
            except dp.OpenDPException:
                continue  # refused: less
            losses.append(most * part)
            break
        else:
            break
    return losses


def of_odometer(obj: dp.Odometer, d_in: Any) -> Driver:
    """Return a driver that asks an odometer three measurements, or None."""
    probes = _Probes(obj, d_in)

    def drive(queryable: Any) -> Any:
        heard: list[float] = []
        for loss in _LOSSES:
            heard.append(float(queryable(probes.make(loss, like=bool(heard) and heard[-1] > 1))))
        return tuple(heard)

    words = " and ".join(f"{loss:g}" for loss in _LOSSES)
    return Driver(
        drive,
        f"noisy numbers ({probes.words}) at losses {words}",
        probes.pairs,
        probes.trace(obj, _LOSSES),
        probes.law,
    )


class _Probes:
    """Make measurements of sensitivity one on the space of a composition."""

    def __init__(self, obj: Any, d_in: Any) -> None:
        self.domain, self.metric, self.measure = (
            obj.input_domain,
            obj.input_metric,
            obj.output_measure,
        )
        self.d_in = d_in
        try:
            self.kind = measure_of(obj)
            self.some = some_dataset(self.domain, self.metric, d_in)
        except (SpaceError, AuditError):
            raise unknown_questions("a space or a measure that no question is known for") from None
        self.pairs: tuple[Pair, ...] = ()
        self.numbers, self.words = self._numbers()
        self._made: dict[Any, dp.Measurement] = {}
        self._hidden: list[float] | None = None

    def _numbers(self) -> tuple[tuple[Number, Number], str]:
        if metric_name(self.metric) in (*VECTOR_METRICS, "VectorNorm"):
            return (_first, lambda data: -_first(data)), "the first cell, or its negative"
        records = records_of(self.domain)
        extreme = (records.source.corners or (records.source.simplest,))[-1]
        chosen = repr(extreme)
        if records.size is None and metric_name(self.metric) in _ADDING:
            less, more = records.build([]), records.build([extreme] * int(self.d_in))
            self.pairs = Pair(more, less, self.d_in), Pair(less, more, self.d_in)

        def alike(data: Any) -> float:
            return float(sum(repr(record) == chosen for record in records.split(data)))

        return (lambda data: float(len(records.split(data))), alike), (
            "of records, or of those like an extreme one"
        )

    def make(self, loss: float, *, like: bool) -> dp.Measurement:
        """Return a cached measurement of a given loss."""
        if (loss, like) not in self._made:
            self._made[loss, like] = self._measurement(loss, self.numbers[like])
        return self._made[loss, like]

    @property
    def law(self) -> NoiseLaw:
        """What is added to a number, over its scale."""
        return NoiseLaw("laplace" if "max" in self.kind else "gaussian", 1.0)

    def trace(self, obj: Any, losses: Sequence[float]) -> Callable[[Any], NDArray[np.float64]]:
        """Return the scaled numbers behind the answers, asked for one alone."""

        def hidden(data: Any) -> NDArray[np.float64]:
            self._hidden = []
            try:
                queryable = obj(data)
                for loss in losses:
                    queryable(self.make(loss, like=False))
                return np.array(self._hidden)
            finally:
                self._hidden = None

        return hidden

    def _measurement(self, loss: float, number: Number) -> dp.Measurement:
        space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        far = float(self.d_in)
        if loss <= 0:
            raise unknown_questions(
                "a release that claims no loss, so that no noise is small enough"
            )
        if self.kind in ("max_divergence", "approx_max_divergence"):
            scale = far / loss * (1 + 1e-12)
            noise = dp.m.make_laplace(*space, scale)
        elif self.kind in ("zero_concentrated_divergence", "approx_zero_concentrated_divergence"):
            scale = far / (2 * loss) ** 0.5 * (1 + 1e-12)
            noise = dp.m.make_gaussian(*space, scale)
        else:
            raise unknown_questions(f"a release under {self.kind.replace('_', ' ')}")
        approximate = self.kind.startswith("approx")

        def answer(data: Any) -> float:
            if self._hidden is None:
                return float(noise(number(data)))
            self._hidden.append(number(data) / scale)
            return 0.0

        def loss_at(distance: Any) -> Any:
            value = noise.map(float(distance))
            return (value, 0.0) if approximate else value

        return plain_measurement(self.domain, self.metric, self.measure, answer, loss_at)


def _first(data: Any) -> float:
    """Return the first cell of a vector, or a scalar, clamped."""
    cell = data if isinstance(data, int | float) else (data[0] if len(data) else 0)
    return float(min(max(cell, -_FAR), _FAR))


# --------------------------------------------------------------------------------------------------

_KINDS, _OF_A_KIND, _LEAST = 6, 40, 1e-3
"""Records of a dataset about which a queryable answers that says nothing of a few."""


def default_driver(obj: Any, d_in: Any, *, mine: bool = True) -> Driver | None:
    """Return the default driver of an object, or None.

    Raises:
        AuditError: OS501, it answers questions of a kind that no default driver can ask.
    """
    if isinstance(obj, dp.Odometer):
        return of_odometer(obj, d_in)
    if not isinstance(obj, dp.Measurement):
        return None
    service = getattr(obj, "sim_service", None)
    if service is not None:
        return of_service(obj, service.domain, d_in, priced=service.priced)
    release = _some_release(obj, d_in)
    if not answers_questions(release):
        return None
    records = metric_name(obj.input_metric) in ("SymmetricDistance", "InsertDeleteDistance")
    member = quiet_member(obj.input_domain) if records else lambda _: False
    by_key = of_keys(release, member, d_in)
    if by_key is not None:
        return by_key
    try:
        return of_composition(obj, d_in)
    except AuditError as error:  # no measurement: numbers or texts, then
        found, refused = of_keys(release, member, d_in, anything=True), error
    except (AttributeError, TypeError, ValueError, dp.OpenDPException):  # asked what it cannot take
        kind = getattr(release, "query_type", "something unknown")
        found, refused = None, unknown_questions(f"a queryable that takes {kind}")
    if found is None:
        found = of_keys(_release_of_many(obj), member, d_in, anything=True)
    found = found or _of_parts(obj, release, member, d_in, mine=mine)
    if found is None:
        raise refused from None
    return found


def _of_parts(
    obj: dp.Measurement, release: Any, member: Callable[[Any], bool], d_in: Any, *, mine: bool
) -> Driver | None:
    """Return a driver that asks tuples or mappings, or None."""
    if str(getattr(release, "query_type", "")) != "ExtrinsicObject":
        return None
    said = mined(functions_of(obj), ()) if mine else Mined()
    texts = sorted(said.words, key=lambda word: (len(word), word))
    releases = partial(_some_release, obj, d_in), partial(_release_of_many, obj)
    found = of_shapes(releases, member, d_in, texts, said.numbers, _claimed(obj, d_in))
    return found if mine or found is None else replace(found, options=", mine=False")


def _claimed(obj: dp.Measurement, d_in: Any) -> float:
    """Return the claimed number, or 1."""
    try:
        loss = obj.map(d_in)
        loss = float(loss[0] if isinstance(loss, tuple) else loss)
    except (dp.OpenDPException, TypeError, ValueError, LookupError):
        return 1.0
    return loss if _LEAST < loss < 1 / _LEAST else 1.0


def _some_release(measurement: dp.Measurement, d_in: Any) -> Any:
    """Return a release of a synthetic dataset, or None."""
    try:
        data = some_dataset(measurement.input_domain, measurement.input_metric, d_in)
        return as_chosen(measurement)(data)
    except Exception:  # noqa: BLE001 - a domain nobody knows, or a release that refuses: L0 looks
        return None


def _release_of_many(measurement: dp.Measurement) -> Any:
    """Return a release of a dataset with repeated records, or None."""
    try:
        records = records_of(measurement.input_domain)
        some = [record for record in records.source.corners[:_KINDS] for _ in range(_OF_A_KIND)]
        return as_chosen(measurement)(records.build(some))
    except Exception:  # noqa: BLE001 - as above; or records that do not stand together
        return None


# --------------------------------------------------------------------------------------------------
# The conversation with the largest expected excess over the claim. What one costs along its tape
# proves nothing; it only chooses the analyst, before any dataset is drawn from.
# Many small losses show less than one of their sum: their noise adds up to nearly a normal law.


_SECONDS, _OVER, _LIKELY = 1.5, 1.05, 0.1
"""Nominal seconds of all pricing; what of the claim an event exceeds; and how likely it has to be."""


def costliest_analyst(
    subject: Subject,
    driver: Driver,
    d_in: Any,
    functions: list[types.FunctionType],
    pairs: Iterable[Pair],
    rng: np.random.Generator,
) -> Driver:
    """Return the driver with the largest excess for its length."""
    claimed = None if subject.privacy_map is None else subject.privacy_map(d_in)
    claim = None if claimed is None else claim_of(subject.measure, claimed)
    if not driver.others or claim is None or subject.outer is None:
        return driver
    tape, pairs = Tape(subject.outer, rng), list(pairs)
    tape.end = work_seconds() + _SECONDS
    best = 0.0, driver
    with tapped(tape, functions), contextlib.suppress(OutOfTimeError):
        for number, one in enumerate((driver, *driver.others)):
            run = _run(tape, subject.outer, one)
            worth = max((_worth(tape, run, pair, claim) for pair in pairs), default=0.0)
            if number:
                place = f".others[{number - 1}]"
                one = replace(one, options=driver.options, place=place)  # noqa: PLW2901
            best = max(best, (worth, one), key=lambda found: found[0])
    return best[1]


def _run(tape: Tape, outer: Any, driver: Driver) -> Callable[[Any], Any]:
    """Return the conversation as a function of the dataset."""

    def end() -> None:
        tape.ended = True

    direct = asked_directly(outer, driver, end)
    return on_its_own(direct or (lambda data: driver(outer(data))))


def _worth(tape: Tape, run: Callable[[Any], Any], pair: Pair, claim: Claim) -> float:
    """Return an event's excess over the claim per square root of draws."""
    try:
        view = look(tape, run, pair, claim)
    except TapeEndError:
        return 0.0
    shares = [share_of(a, b, claim) for a, b in zip(view.draws, view.other, strict=False)]
    shown = _shown([claim[1] * share for share in shares]) / claim[1]
    over = min(view.loss, shown if claim[0] == "epsilon" else view.loss) - _OVER
    return over / math.sqrt(len(shares)) if shares and math.isfinite(over) else 0.0


def _shown(losses: list[float]) -> float:
    """Return the log-ratio of an event of probability one tenth."""
    apart = math.sqrt(sum(loss * loss for loss in losses) / 2)
    return math.log(_LIKELY) - float(special.log_ndtr(special.ndtri(_LIKELY) - apart))
