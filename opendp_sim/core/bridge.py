"""Build OpenDP objects from descriptors and claims.

The only module that touches OpenDP's private names (``opendp._internal``, ``opendp._data``,
``opendp.mod``); its tests are the first to run on a new OpenDP.
"""

from __future__ import annotations

import ctypes
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
import opendp._convert as _conversions
import opendp._lib as _library
import opendp.mod as _modules
from opendp._convert import c_to_py, py_to_c
from opendp._data import fill_bytes as _fill_bytes
from opendp._internal import (
    _extrinsic_distance,
    _extrinsic_domain,
    _make_measurement,
    _make_transformation,
    _new_pure_function,
)
from opendp._lib import AnyObjectPtr, CallbackFnPtr, FfiResult, lib, unwrap
from opendp.core import new_queryable
from opendp.domains import _lazyframe_from_domain
from opendp.mod import OdometerQueryable, _PartialConstructor, assert_features
from opendp.typing import RuntimeType

from opendp_sim.core import dp
from opendp_sim.core.apply_stable import whole_function
from opendp_sim.core.arithmetic.rounding import U32_MAX, bounded_int, profile_everywhere
from opendp_sim.core.claims import Claim, Interactive, Noise, Norm, Post, Private, Stable, norm_of
from opendp_sim.core.errors import SpaceError
from opendp_sim.core.guard import guarded
from opendp_sim.core.interrupts import catch_dropped, holding
from opendp_sim.core.serialization import CastNote, Chained, Note, SpaceNote, as_call, cannot_write
from opendp_sim.core.space import Domain, Metric

fill_bytes = _fill_bytes


# --------------------------------------------------------------------------------------------------
# A vector of OpenDP's, handed to a callback of ours as an array by one copy, not as a list.
#
# OpenDP makes a list of a vector before it calls Python: most of what a bulk release cost behind an
# OpenDP object. Only the form of the argument is ours: whose memory it is, when it is freed, what is
# returned and what becomes of an exception are OpenDP's own code. Where OpenDP's names are not what
# this module knows, the list is taken as before.

_CELLS = "Vec<i64>"
"""The one type that is handed over as an array."""
_ASKED = ["c_arg", "userdata"]
"""The arguments of OpenDP's entry for callbacks, as this module knows it."""


class _Next(threading.local):
    """Mark whether this thread's next read is a callback's argument."""

    ours = False


_next = _Next()


def reads_arrays(read: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return OpenDP's slice reader, which gives our callbacks arrays.

    Others get the same as before. An argument is read once, before the callback runs: what the
    callback reads itself is as ever.
    """

    def either(raw: Any, type_name: Any) -> Any:
        ours, _next.ours = _next.ours, False
        if not ours or str(type_name) != _CELLS:
            return read(raw, type_name)
        cells = np.empty(raw.contents.len, dtype=np.int64)
        if cells.size:  # the pointer of an empty vector points nowhere
            ctypes.memmove(cells.ctypes.data, raw.contents.ptr, cells.nbytes)
        return cells

    return either


def entry_for_arrays(entry: Any, kind: Any) -> Any:
    """Return a replacement of OpenDP's entry, None for other forms.

    ``entry`` reads the argument, calls back and packs the answer; ``kind`` is the C function's type.
    """
    if not inspect.isfunction(entry) or list(inspect.signature(entry).parameters) != _ASKED:
        return None

    def ask(c_arg: Any, userdata: Any) -> Any:
        _next.ours = True
        try:
            return entry(c_arg, userdata)
        finally:
            _next.ours = False

    return None if kind is None else kind(ask)


# --------------------------------------------------------------------------------------------------


def _hold_signals() -> None:
    """Block signal handlers while OpenDP's memory changes hands.

    See ``interrupts.md``. OpenDP's own objects are called by users too, so its functions are wrapped,
    not our calls of them.
    """
    plain: Any = lib._FuncPtr  # noqa: SLF001
    if getattr(lib, "sim_holds", False):
        return
    same = {"_flags_": plain._flags_, "_restype_": plain._restype_}
    lib._FuncPtr = type("Held", (plain,), {**same, "__call__": holding(plain.__call__)})  # noqa: SLF001
    for name, found in list(vars(lib).items()):
        if type(found) is plain:
            delattr(lib, name)  # made again, as one that holds, when it is next asked for
    reader = reads_arrays(_conversions._slice_to_py)  # noqa: SLF001
    for name, work in (("_slice_to_py", reader), ("_py_to_slice", _conversions._py_to_slice)):  # noqa: SLF001
        setattr(_conversions, name, holding(work))
    vars(_conversions)["Exception"] = (
        BaseException  # what its trampolines catch of a user's function
    )
    classes = [*vars(_modules).values(), *vars(_library).values()]
    for kind in {each for each in classes if isinstance(each, type)}:
        if "__del__" in vars(kind):
            kind.__del__ = holding(kind.__del__, deliver=False)  # type: ignore[attr-defined]
    catch_dropped()
    lib.sim_holds = True


_hold_signals()
_ENTRY = entry_for_arrays(
    getattr(_conversions, "_invoke_py_callback", None), getattr(_library, "CallbackFnValue", None)
)


def _called_back(function: Callable[[Any], Any]) -> Any:
    """Return ``function`` as OpenDP calls it."""
    if _ENTRY is None:
        return function
    made = py_to_c(function, c_type=CallbackFnPtr, type_name="ExtrinsicObject").contents
    made.callback = _ENTRY
    return CallbackFnPtr(made)


@dataclass(frozen=True, slots=True)
class ReleaseParts:
    """Hold a release's noiseless part and declared noise for the auditor."""

    core: Callable[[Any], Any]
    noise: Noise


@dataclass(frozen=True, slots=True)
class ServiceParts:
    """Hold the queries that an interactive release accepts, for the auditor."""

    domain: Domain
    priced: bool
    """Whether it promises to stay within its loss on every transcript."""


_MEASURES: dict[str, Callable[[], dp.Measure]] = {
    "max_divergence": dp.max_divergence,
    "zero_concentrated_divergence": dp.zero_concentrated_divergence,
    "approx_max_divergence": lambda: dp.approximate(dp.max_divergence()),
    "approx_zero_concentrated_divergence": lambda: dp.approximate(
        dp.zero_concentrated_divergence()
    ),
    "renyi_divergence": dp.renyi_divergence,
    "smoothed_max_divergence": dp.smoothed_max_divergence,
}


@cache
def measure_to_dp(measure: str) -> dp.Measure:
    """Return OpenDP's measure of that name."""
    return _MEASURES[measure]()


def measure_of(measurement: dp.Measurement) -> str:
    """Return our name of an OpenDP measurement's output measure."""
    for name in _MEASURES:
        if measurement.output_measure == measure_to_dp(name):
            return name
    raise SpaceError(
        "OS202", "output_measure", expected=", ".join(_MEASURES),
        got=str(measurement.output_measure), hint="cast the measurement to one of these first.",
    )  # fmt: skip


def to_dp_domain(domain: Domain) -> dp.Domain:
    """Return OpenDP's equal domain, else an extrinsic one."""
    native = domain.native()
    if native is not None:
        return native
    made: dp.Domain = _extrinsic_domain(domain.identifier, domain.member, domain)
    return noted(made, SpaceNote(domain))


def to_dp_metric(metric: Metric) -> dp.Metric:
    """Return OpenDP's equal metric, else an extrinsic one."""
    native = metric.native()
    if native is not None:
        return native
    made: dp.Metric = _extrinsic_distance(metric.identifier, metric)
    return noted(made, SpaceNote(metric))


def build(claim: Claim, key: str, domain: Domain, metric: Metric, norm: Norm | None = None) -> Any:
    """Build a claim's Transformation, Measurement or Function.

    ``norm`` picks the one output metric of a sketch; OpenDP needs exactly one.
    """
    assert_features("contrib")
    if isinstance(claim, Post):
        return _new_pure_function(claim.function)
    space = to_dp_domain(domain), to_dp_metric(metric)
    if isinstance(claim, Stable):
        which = norm_of("l1" if norm is None else norm, f"{key}.norm")
        return _transformation(claim, key, domain, space, which)
    if isinstance(claim, Private):
        if claim.native is not None:
            return _with_parts(claim.native, claim)
        measure = measure_to_dp(claim.measure)
        run = guarded(lambda data: claim.function(domain.normal(data)), key)
        loss = guarded(_loss(claim), key)
        made = _make_measurement(*space, measure, _called_back(run), loss)
        return _with_parts(made, claim)
    return _interactive(claim, key, domain, space)


def cast_to(
    note: CastNote,
    space: tuple[Domain, Metric],
    function: Callable[[Any], Any],
    distance: Callable[[Any], int],
) -> dp.Transformation:
    """Return the transformation from the space of ``note`` to one of ours."""
    made = _make_transformation(
        to_dp_domain(note.domain) if isinstance(note.domain, Domain) else note.domain,
        note.metric,
        to_dp_domain(space[0]),
        to_dp_metric(space[1]),
        guarded(function, "cast"),
        guarded(lambda d_in: bounded_int(distance(d_in), "cast.map", U32_MAX), "cast"),
    )
    return noted(made, note)


def columns_of_frames(domain: dp.Domain) -> dict[str, Any]:
    """Return the Polars dtypes of a domain of frames by name."""
    return dict(_lazyframe_from_domain(domain).collect_schema())


def query_of_frames(query: Any) -> Any:
    """Return the query of a ``LazyFrameQuery``, after the plan written on it."""
    plan, inner = query.polars_plan, query._query  # noqa: SLF001
    domain, metric = inner._chain  # noqa: SLF001
    unit = metric.inner_metric if isinstance(metric, dp.FrameDistance) else metric
    by_person = {"MO": "FrameDistance<SymmetricDistance>"}  # what its truncation leads to
    options = by_person if isinstance(unit, dp.SymmetricIdDistance) else {}
    planned = dp.t.make_stable_lazyframe(domain, metric, plan, **options)
    return inner.new_with(chain=planned)


def _loss(claim: Private) -> Callable[[Any], Any]:
    """Return the map in OpenDP's form.

    A curve becomes its function or privacy profile. OpenDP's public constructors of the two are for
    users' own curves and so ask for ``honest-but-curious``; a claim's curve has a proof beside it, and
    a plugin switches on no flag.
    """
    if claim.measure == "renyi_divergence":
        return lambda d_in: _new_pure_function(claim.privacy_map(d_in), TO=float)
    if claim.measure == "smoothed_max_divergence":
        return lambda d_in: _privacy_profile(claim.privacy_map(d_in)).curve
    return claim.privacy_map


def _privacy_profile(curve: Callable[[float], float]) -> Any:
    make = lib.opendp_measures__new_privacy_profile
    make.argtypes, make.restype = [CallbackFnPtr], FfiResult
    kept = py_to_c(profile_everywhere(curve), c_type=CallbackFnPtr, type_name="f64")
    profile = c_to_py(unwrap(make(kept), AnyObjectPtr))
    profile.sim_curve = kept  # the callback must live as long as the profile
    return profile


def _with_parts(measurement: dp.Measurement, claim: Private) -> dp.Measurement:
    if claim.noise is not None and claim.core is not None:
        measurement.sim_parts = ReleaseParts(claim.core, claim.noise)
    return measurement


def construction(made: Any) -> tuple[str, dict[str, Any]]:
    """Return OpenDP's noise constructor of an object, and its arguments."""
    told = getattr(made, "__opendp_dict__", {})
    known = told.get("__module__") == "measurements"
    return (told["__function__"], told["__kwargs__"]) if known else ("", {})


RESTATED = (
    *("make_fix_delta", "make_approximate", "make_pureDP_to_zCDP", "make_zCDP_to_approxDP"),
    *("make_pureDP_to_approxDP", "make_fixed_approxDP_to_approxDP"),
)
"""OpenDP's constructors that state another claim of a measurement and leave its releases as they are."""


def links(made: Any) -> Iterator[Any]:
    """Yield a chain's parts in order.

    A part is our note, or else OpenDP's object. What states a measure anew is left out.
    """
    told = getattr(made, "__opendp_dict__", {})
    name, inner = told.get("__function__", ""), told.get("__kwargs__", {})
    if (note := getattr(made, "sim_note", None)) is not None:
        yield note
    elif name == "make_chain_tt":
        yield from links(inner["transformation0"])
        yield from links(inner["transformation1"])
    elif name == "make_chain_mt":
        yield from links(inner["transformation0"])
        yield from links(inner["measurement1"])
    elif name in RESTATED:
        yield from links(inner["measurement"])
    else:
        yield made


def resolved(obj: Any, d_in: Any) -> tuple[Any, Any]:
    """Return a query's measurement and distance; other objects as they are."""
    for home, name in (("extras.polars", "LazyFrameQuery"), ("context", "Query")):
        kind = getattr(sys.modules.get(f"opendp.{home}"), name, None)
        if kind is not None and isinstance(obj, kind):
            asked = object.__getattribute__(obj, "_query") if "polars" in home else obj
            return obj.resolve(), asked._d_in  # noqa: SLF001
    return obj, d_in


def noise_parts(measurement: dp.Measurement) -> ReleaseParts | None:
    """Return a release's noiseless part and declared noise, if known."""
    return getattr(measurement, "sim_parts", None)


def _transformation(
    claim: Stable, key: str, domain: Domain, space: tuple[dp.Domain, dp.Metric], norm: Norm
) -> dp.Transformation:
    if claim.sensitivity is None:
        output_metric = space[1]
        if claim.output_metric is not None:
            output_metric = to_dp_metric(claim.output_metric)
        function = whole_function(claim)

        def stability_map(d_in: int) -> Any:
            return bounded_int(claim.stability * d_in, f"{key}.map", U32_MAX)
    else:
        sensitivity = claim.sensitivity
        metric = claim.output.metric(norm)  # type: ignore[attr-defined]
        output_metric = to_dp_metric(metric)
        function = whole_function(claim)

        def stability_map(d_in: int) -> Any:
            metric.need_bound(d_in, key)
            return sensitivity.bound(norm, d_in)

    def gated(data: Any) -> Any:
        data = domain.normal(data)
        domain.check_native(data)
        return function(data)

    return _make_transformation(
        *space,
        to_dp_domain(claim.output),
        output_metric,
        guarded(gated, key),
        guarded(stability_map, key),
    )


def _interactive(
    claim: Interactive, key: str, domain: Domain, space: tuple[dp.Domain, dp.Metric]
) -> Any:
    def start(data: Any) -> Any:
        return new_queryable(guarded(claim.start(domain.normal(data)), key))

    made = _make_measurement(
        *space, measure_to_dp(claim.measure), guarded(start, key), guarded(claim.privacy_map, key)
    )
    made.sim_service = ServiceParts(domain, claim.priced)
    return made


def answers_questions(release: Any) -> bool:
    """Return whether a release of a measurement or odometer is a queryable."""
    return isinstance(release, dp.Queryable | OdometerQueryable)


# --------------------------------------------------------------------------------------------------
# Many releases of few datasets. Most of a call from Python is the conversion of the dataset, to which
# OpenDP never writes, and fourteen native calls that hold signals one by one.


_NATIVE: Any = next(kind for kind in lib._FuncPtr.__mro__ if kind.__module__ == "ctypes")  # noqa: SLF001
_OBJECT: Any = ctypes.POINTER(_library.AnyObject)
"""A pointer that frees nothing: what it points to is freed here, or by an ``AnyObjectPtr``."""
_SLICE: Any = ctypes.POINTER(_library.FfiSlice)


def _native(name: str, *arguments: Any) -> Any:
    """Return a function of OpenDP's library that holds no signals itself."""
    found = _NATIVE((f"opendp_{name}", lib))
    found.argtypes, found.restype = arguments, FfiResult
    return found


_invoke = _native("core__measurement_invoke", _modules.Measurement, AnyObjectPtr)
_type_of = _native("data__object_type", _OBJECT)
_slice_of = _native("data__object_as_slice", _OBJECT)
_free_object = _native("data__object_free", _OBJECT)
_free_slice = _native("data__slice_free", _SLICE)
_free_text = _native("data__str_free", ctypes.c_char_p)
_VECTORS = {f"Vec<{name}>": RuntimeType.parse(f"Vec<{name}>") for name in _conversions.ATOM_MAP}


def prepared(measurement: dp.Measurement, most: int = 2) -> Callable[[Any], Any]:
    """Return a measurement's releases, with the last datasets kept converted.

    The same native function with the same answers and exceptions as ``measurement(data)``; a dataset
    must not change between calls. Signals are held once around a release.
    """
    carrier = str(measurement.input_carrier_type)
    converted: dict[int, tuple[Any, Any]] = {}
    """By identity, each beside its dataset, which keeps the identity its own."""

    def argument(data: Any) -> Any:
        found = converted.get(id(data))
        if found is None:
            made = py_to_c(data, c_type=AnyObjectPtr, type_name=carrier)
            while len(converted) >= most:
                del converted[next(iter(converted))]
            found = converted[id(data)] = data, made
        return found[1]

    @holding
    def release(data: Any) -> Any:
        result = _invoke(measurement, argument(data))
        return _value(result.payload.Ok) if result.tag == 0 else unwrap(result, AnyObjectPtr)

    return release


def _value(address: int) -> Any:
    """Return a release's value and free the release.

    OpenDP reads what is neither a number nor a vector of numbers.
    """
    made = ctypes.cast(address, _OBJECT)
    text = ctypes.cast(_type_of(made).payload.Ok, ctypes.c_char_p)
    name = (text.value or b"").decode()
    _free_text(text)
    atom, vector = _conversions.ATOM_MAP.get(name), _VECTORS.get(name)
    if atom is None and vector is None:
        return c_to_py(ctypes.cast(made, AnyObjectPtr))
    cells: Any = ctypes.cast(_slice_of(made).payload.Ok, _SLICE)
    try:
        if vector is not None:
            return _conversions._slice_to_py(cells, vector)  # noqa: SLF001
        number: Any = ctypes.cast(cells.contents.ptr, ctypes.POINTER(atom))
        return number.contents.value
    finally:
        _free_slice(cells)
        _free_object(made)


def plain_measurement(
    domain: dp.Domain,
    metric: dp.Metric,
    measure: dp.Measure,
    function: Callable[[Any], Any],
    privacy_map: Callable[[Any], Any],
) -> dp.Measurement:
    """Build a measurement on any OpenDP space, for audits of compositions."""
    return _make_measurement(domain, metric, measure, function, privacy_map)


def curve_measurement(
    measurement: dp.Measurement, curve: Callable[[Any], Callable[[float], float]]
) -> dp.Measurement:
    """Return ``measurement`` with its loss as a profile, ``epsilon -> delta``."""
    return _make_measurement(
        measurement.input_domain,
        measurement.input_metric,
        dp.smoothed_max_divergence(),
        measurement,
        lambda d_in: _privacy_profile(curve(d_in)).curve,
    )


# --------------------------------------------------------------------------------------------------
# ``dp.serialize``: OpenDP writes the call that made an object. Of an object of a Python plugin it has
# functions, which it cannot write, and of a partial constructor nothing at all: it writes an empty text.


_T = TypeVar("_T")


class _Then(_PartialConstructor):
    """Wrap a partial constructor and its chains, and record its arguments."""

    def __init__(self, constructor: Callable[[dp.Domain, dp.Metric], Any], note: Note) -> None:
        super().__init__(constructor)  # type: ignore[no-untyped-call]
        self.sim_note = note

    def __rshift__(self, other: Any) -> Any:
        return _Then(lambda domain, metric: self(domain, metric) >> other, Chained(self, other))

    def __rrshift__(self, other: Any) -> Any:
        if isinstance(other, _PartialConstructor):
            return _Then(lambda domain, metric: other(domain, metric) >> self, Chained(other, self))
        return super().__rrshift__(other)  # type: ignore[no-untyped-call]


_NOTED = (
    *(_modules.Transformation, _modules.Measurement),
    *(_modules.Domain, _modules.Metric),
    _Then,
)


def noted(made: _T, note: Note) -> _T:
    """Return an OpenDP object with the note by which it is written."""
    if isinstance(made, _NOTED):
        made.sim_note = note
    return made


def _writes(encode: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return OpenDP's encoder, extended by notes."""

    def default(self: Any, obj: Any) -> Any:
        if isinstance(obj, _NOTED) and (note := vars(obj).get("sim_note")) is not None:
            return encode(self, as_call(note) | {"__version__": _modules.__version__})
        if isinstance(obj, _PartialConstructor) and not obj.__opendp_dict__:
            raise cannot_write("a partial constructor that OpenDP knows no call of")
        return encode(self, obj)

    return default


_encoder: Any = _modules._Encoder  # noqa: SLF001
if not hasattr(_encoder, "sim_encode"):  # a module that is loaded again wraps nothing twice
    _encoder.sim_encode = _encoder.default
    _encoder.default = _writes(_encoder.default)


def then(constructor: Callable[[dp.Domain, dp.Metric], Any], note: Note) -> Any:
    """Return the partial constructor that ``space >> then_x(...)`` completes."""
    return _Then(constructor, note)
