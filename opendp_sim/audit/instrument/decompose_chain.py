"""Call the parts of an OpenDP chain from Python.

So that its noise is on the tape. OpenDP's objects name the constructor that made them and its
arguments. A chain calls its transformation, then its measurement; a conversion of the measure calls
what it converts; a composition calls each of its parts. What is not known to be made of parts is
called as it is (``layer.md``, A3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial, reduce
from typing import Any

from opendp_sim.audit.generators.copies import failed, own
from opendp_sim.core import dp
from opendp_sim.core.bridge import RESTATED

Run = Callable[[Any], Any]
_WHOLE = {f"{sign}{bits}": (sign, bits) for sign in "iu" for bits in (8, 16, 32, 64)}
_PLAIN = {"f64": float, "bool": bool, "String": str}
_NAMES: dict[Any, str] = {int: "i32", float: "f64", str: "String", bool: "bool"}
_KEPT, _LONGEST = 64, 2000
"""Answers of native transformations that are kept, and up to which length of a dataset."""


class TakenApart:
    """The function, and its transformations beside what is called instead of them."""

    def __init__(self, *, called: bool = False) -> None:
        self.called = called
        """Whether a program calls it in its run, with whatever it likes, and meets what it raises."""
        self.stages: list[tuple[Any, Run]] = []
        self.functions: list[Any] = []
        """The user's functions in it, and what shows their releases."""
        self.parted = self.users = False
        """Whether some chain was taken apart at all, and whether a user's measurement is in it."""

    def measurement(self, made: Any) -> Run:
        """Return a function with the releases of a measurement."""
        name, parts = made_by(made)
        if name == "make_chain_mt":
            self.parted = True
            return _then(self._before(parts), self.measurement(parts["measurement1"]))
        if name == "make_chain_pm":
            self.functions.append(_shown(parts["postprocess1"]))
            shown = self._quoted(self.functions[-1])
            return _then(self.measurement(parts["measurement0"]), shown)
        if name in RESTATED and "measurement" in parts:
            return self.measurement(parts["measurement"])
        if name == "make_composition" and isinstance(parts.get("measurements"), (list, tuple)):
            return partial(_all_of, [self.measurement(part) for part in parts["measurements"]])
        if name == "make_user_measurement":
            if has_maps(made) and kind_of(parts.get("TO")) is None:
                raise LookupError  # called directly it would see the order of the mapping it is given
            self.users = True
            self.functions.append(parts["function"])
            typed = kind_of(parts.get("TO")) is not None  # OpenDP turns a release into that type
            own_call = partial(_own, self._quoted(parts["function"]))
            if self.called and not typed:
                return partial(_fitting, own_call, str(made.input_domain.carrier_type), made)
            return partial(_called, made) if typed else own_call
        return partial(_called, made)

    def _quoted(self, function: Run) -> Run:
        """Return a user's function with OpenDP's exceptions, inside runs."""
        return partial(_raising, function) if self.called and callable(function) else function

    def _before(self, parts: dict[str, Any]) -> Run:
        whole = parts["transformation0"]
        steps = list(_flat(whole))
        if not all(map(draws_nothing, steps)):
            raise LookupError  # what it draws is on no tape, and may not be kept
        self.functions += [made_by(step)[1]["function"] for step in steps if _is_users(step)]
        run = reduce(_then, (_stage(step, self._quoted) for step in _joined(steps)))
        self.stages.append((whole, run))
        return run


def taken_apart(made: Any, *, called: bool = False) -> tuple[Run, TakenApart] | None:
    """Return a chain as a Python function with its stages, or None."""
    parts = TakenApart(called=called)
    try:
        run = parts.measurement(made)
    except (LookupError, TypeError, AttributeError):
        return None
    return (run, parts) if parts.parted else None


def _called(made: Any, value: Any) -> Any:
    return made(value)


def _fitting(run: Run, kind: str, made: Any, value: Any) -> Any:
    """Call a user's measurement, or OpenDP's object for converted arguments."""
    return run(value) if kind == "ExtrinsicObject" or handed_on(value, kind) else made(value)


def _raising(function: Run, value: Any) -> Any:
    """Call a user's function, with its exceptions as OpenDP's."""
    try:
        return function(value)
    except BaseException as error:  # noqa: BLE001 - whatever the user's function raises
        raise failed(error) from None


def _shown(function: Run) -> Run:
    """Return the user's postprocessing function of a chain."""
    name, parts = made_by(function)
    if name != "new_function":
        return function  # of OpenDP's own
    if kind_of(parts["TO"]) is not None:
        raise LookupError  # called by itself, the release goes through OpenDP once more
    shown: Run = parts["function"]
    return shown


def _then(first: Run, second: Run) -> Run:
    return partial(_both, first, second)


def _both(first: Run, second: Run, value: Any) -> Any:
    return second(first(value))


def _all_of(runs: list[Run], value: Any) -> list[Any]:
    return [run(value) for run in runs]


def _own(function: Run, value: Any) -> Any:
    """Call a user's function with its own copy of a dataset."""
    return function(own(value))


def _flat(whole: Any) -> Iterator[Any]:
    """Yield the transformations of a chain, the first one first."""
    name, parts = made_by(whole)
    if name == "make_chain_tt":
        yield from _flat(parts["transformation0"])
        yield from _flat(parts["transformation1"])
    else:
        yield whole


def _is_users(made: Any) -> bool:
    return made_by(made)[0] == OF_A_USER


def _joined(parts: list[Any]) -> list[Any]:
    """Join adjacent native steps into one call."""
    out: list[Any] = []
    for part in parts:
        if out and not _is_users(part) and not _is_users(out[-1]):
            try:
                out[-1] = out[-1] >> part
                continue
            except (dp.OpenDPException, TypeError, ValueError):
                pass
        out.append(part)
    return out


def _stage(made: Any, quoted: Callable[[Run], Run]) -> Run:
    if _is_users(made):
        kinds = str(made.input_domain.carrier_type), str(made.output_domain.carrier_type)
        return partial(_users, quoted(made_by(made)[1]["function"]), kinds, [True], made)
    return partial(_native, {}, made)


def _users(function: Run, kinds: tuple[str, str], fits: list[bool], made: Any, value: Any) -> Any:
    """Call the user's function until OpenDP would convert its values.

    From the first result on that OpenDP would change it is OpenDP's object: a random function that is run
    again whenever its result does not fit has another law.
    """
    if fits and handed_on(value, kinds[0]):
        out = _own(function, value)
        if handed_on(out, kinds[1]):
            return out
        fits.clear()
    return made(value)


def _native(known: dict[Any, Any], made: Any, value: Any) -> Any:
    """Call a native transformation, cached for short plain lists."""
    plain = type(value) is list and 0 < len(value) < _LONGEST and type(value[0]) in (int, str, bool)
    if not plain:
        return made(value)
    key = tuple(value)
    if key not in known:
        if len(known) >= _KEPT:
            known.clear()
        known[key] = made(value)
    out = known[key]
    return list(out) if type(out) is list else out


def handed_on(value: Any, kind: str) -> bool:
    """Return whether OpenDP would return a value unchanged."""
    values, kind = (value, kind[4:-1]) if kind.startswith("Vec<") else ([value], kind)
    if type(values) is not list:
        return False
    types = set(map(type, values))
    if kind in _WHOLE:
        sign, bits = _WHOLE[kind]
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if sign == "i" else (0, 2**bits)
        return types <= {int} and (not values or (low <= min(values) and max(values) < high))
    if kind == "String" and types <= {str}:
        return all(text.isascii() and "\0" not in text for text in values)
    return kind in _PLAIN and types <= {_PLAIN[kind]}


def kind_of(declared: Any) -> str | None:
    """Return the name of a declared type, None for passed objects."""
    name = _NAMES.get(declared, str(declared)) if declared is not None else "ExtrinsicObject"
    return None if name == "ExtrinsicObject" else name


# --------------------------------------------------------------------------------------------------
# OpenDP's transformations that draw nothing. Any other one may: ``make_resize`` chooses records by chance
# where there are too many, ``make_ordered_random`` and ``make_bounded_float_checked_sum`` shuffle,
# ``make_impute_uniform_float`` draws what it fills in. A map of OpenDP's has a new random order at every
# call: ``make_count_by`` makes one, and a mapping that is handed to OpenDP's object becomes one.


OF_A_USER = "make_user_transformation"
_CHAIN = "make_chain_tt"
_MAP = "HashMap"
"""How OpenDP names the type of a map, alone or in another type."""
_NOTHING = frozenset(
    f"make_{name}"
    for name in (
        *("b_ary_tree", "consistent_b_ary_tree", "quantile_score_candidates", "cdf"),
        *("quantiles_from_counts", "cast", "cast_default", "cast_inherent", "clamp", "identity"),
        *("count", "count_by_categories", "count_distinct", "drop_null", "find"),
        *("find_bin", "index", "is_equal", "is_null", "impute_constant", "lipschitz_float_mul"),
        *("sum", "mean", "variance", "sum_of_squared_deviations", "metric_bounded"),
        *("metric_unbounded", "unordered", "select_column", "subset_by", "df_cast_default"),
        *("df_is_equal", "split_dataframe", "split_lines", "split_records", "create_dataframe"),
        *("bounded_int_monotonic_sum", "bounded_int_ordered_sum", "bounded_int_split_sum"),
        *("sized_bounded_int_monotonic_sum", "sized_bounded_int_ordered_sum"),
        *("sized_bounded_int_split_sum", "sized_bounded_int_checked_sum"),
        *("sized_bounded_float_checked_sum", "sized_bounded_float_ordered_sum"),
    )
)


def made_by(made: Any) -> tuple[str, dict[str, Any]]:
    """Return the constructor and arguments in OpenDP's record of an object."""
    told = getattr(made, "__opendp_dict__", None)
    told = told if isinstance(told, dict) else {}
    return str(told.get("__function__")), told.get("__kwargs__", {})


def has_maps(made: Any) -> bool:
    """Return whether an object takes or returns OpenDP's unordered maps."""
    sides = (getattr(made, f"{side}_domain", None) for side in ("input", "output"))
    types = [getattr(side, "carrier_type", "") for side in sides]
    return any(_MAP in str(kind) for kind in (*types, made_by(made)[1].get("TO")))


def draws_nothing(made: Any) -> bool:
    """Return whether a transformation draws nothing, not even an order."""
    name, parts = made_by(made)
    if name == _CHAIN:
        return all(draws_nothing(parts[f"transformation{i}"]) for i in (0, 1))
    return (name in _NOTHING or name == OF_A_USER) and not has_maps(made)
