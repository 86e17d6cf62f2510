"""Record, zero, force or pool the noise of an opaque function.

A run is a function of the dataset and of its tape, the sequence of its draws. Every draw is on the tape
with the primitive and its data-free parameters (``what``), the argument before noise, and the value.
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from opendp_sim.audit.generators.copies import copied
from opendp_sim.audit.generators.frames import is_frame
from opendp_sim.audit.instrument.decompose_chain import taken_apart
from opendp_sim.audit.instrument.memoize import Constructors
from opendp_sim.audit.instrument.native_laws import Law, Laws, as_taken, clear
from opendp_sim.audit.instrument.noise_pool import Pools, Ready
from opendp_sim.audit.outputs.encoding import Raised
from opendp_sim.audit.work import in_mode, work_seconds

MOST_DRAWS = 5000
Mode = Literal["real", "record", "zero", "force", "bulk"]
_LIVE = ("real", "bulk")
_MOST_READY, _MOST_CHAINS = 100, 256
_RUNS_A_LOOK = 16
"""Runs between two looks at the clock."""


class OutOfTimeError(BaseException):
    """Signal that a layer's nominal seconds are used, as no ``Exception``."""


class TapeEndError(Exception):
    """Signal a run with more draws than its limit, even if caught."""


@dataclass(frozen=True)
class Draw:
    """One draw of noise."""

    what: str
    """The primitive and its parameters, without the number that it hides."""
    value: Any
    law: Law | None = None
    argument: Any = None
    options: tuple[Any, ...] | None = None
    """Of a categorical draw: its items; ``argument`` then holds their log-probabilities."""
    seeded: str = ""
    """The seed of the generator, if it had one."""
    free: Law | None = None
    """The law of noise that the function adds itself: its argument is the rest of the output."""
    site: str = ""
    hint: Law | None = None
    """What moving the output costs through this draw: it orders pairs, and proves nothing."""

    @property
    def told(self) -> tuple[str, str, str]:
        """Return kind, argument and seed, equal for equal draws."""
        hides = self.law is not None or self.options is not None or self.free is not None
        return self.what, repr(self.argument) if hides else "", self.seeded


@dataclass
class Tape:
    """Hold the recorded draws, and the mode of the next run."""

    outer: Any
    rng: np.random.Generator
    mode: Mode = "real"
    draws: list[Draw] = field(default_factory=list)
    forced: list[Any] = field(default_factory=list)
    inside: bool = False
    """A real draw is being made: what it calls is its own business."""
    runs: int = 0
    ended: bool = False
    end: float = math.inf
    """The process's CPU second after which no run begins."""
    seeds: dict[int, tuple[Any, str]] = field(default_factory=dict)
    """Sources of bits that the run has made, with their seeds; kept, for an id is not given out twice."""
    unseen: bool = False
    """Whether something was met that draws beside the tape: another thread, a generator out of reach."""

    def __post_init__(self) -> None:
        self.laws, self.pools = Laws(), Pools()
        self._thread = threading.get_ident()
        self._ready: dict[int, Ready] = {}
        self.constructors = Constructors()
        self._chains: dict[int, tuple[Any, Callable[[Any], Any] | None]] = {}
        """By identity of the object, which is kept, so that no other can get it."""

    def serving(self) -> bool:
        """Return whether the audited function's own draws are being served."""
        return self.mode != "real" and not self.inside and not self.foreign_thread

    @property
    def foreign_thread(self) -> bool:
        """Return whether another thread draws, in an order on no tape."""
        other = threading.get_ident() != self._thread
        self.unseen = self.unseen or other
        return other

    def run(
        self, function: Callable[[Any], Any], data: Any, mode: Mode, forced: list[Any] | None = None
    ) -> tuple[Any, list[Draw]]:
        """Return output (or ``Raised``) and tape of one run.

        Raises:
            TapeEndError: more draws than forced values, or more than ``MOST_DRAWS``.
            OutOfTimeError: the seconds are over.
        """
        if work_seconds() > self.end:
            raise OutOfTimeError
        self.mode, self.draws, self.forced, self.ended = mode, [], forced or [], False
        in_mode(mode)
        self.runs += 1
        self.seeds.clear()
        self.constructors.begin()
        try:
            out = copied(function(data))
        except Exception as error:  # noqa: BLE001 - exceptions are outputs
            out = Raised.of(error)
        finally:
            self.mode = "real"
            in_mode("")
        if self.ended:
            raise TapeEndError
        return out, self.draws

    def live(self, function: Callable[[Any], Any], mode: Mode) -> Callable[[Any], Any]:
        """Return the function with its native noise drawn ahead; nothing is recorded."""
        function = self.timed(function)

        def run(data: Any) -> Any:
            self.mode = mode
            in_mode(mode)
            self.constructors.begin()
            try:
                return function(data)
            finally:
                self.mode = "real"
                in_mode("")

        return run

    def timed(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return the function with copied outputs and a time limit."""
        runs = 0

        def run(data: Any) -> Any:
            nonlocal runs
            runs += 1
            if runs % _RUNS_A_LOOK == 1 and work_seconds() > self.end:
                raise OutOfTimeError
            return copied(function(data))

        return run

    # --- one draw ------------------------------------------------------------------

    def native(self, real: Any, made: Any, argument: Any) -> Any:
        """Serve a call of a native measurement."""
        if self.mode == "real" or self.inside or made is self.outer or self.foreign_thread:
            return real(made, argument)
        ready = self._ready.get(id(made)) if self.mode == "bulk" else None
        if ready is not None and ready.takes(argument):
            return ready.at(argument)
        if self.laws.named and (parts := self._parts(made)) is not None:
            return parts(argument)
        law, again = self.laws.of(made)
        law = law if law is not None and clear(law, argument) else None
        if self.mode in _LIVE:
            if law is None or not again:
                return self._really(lambda: real(made, argument))
            if Ready.serves(law) and len(self._ready) < _MOST_READY:
                self._ready[id(made)] = Ready(made, law, self.pools)
            return self._ahead(real, made, argument, law)
        if law is None and is_frame(
            made.input_domain
        ):  # its cells are drawn when they are collected
            return real(made, argument)
        what = f"{law.family} {law.scale:.6g}" if law is not None else _kind(made)
        if law is not None and not law.whole:
            argument = as_taken(argument)
        return self.other(what, lambda: real(made, argument), zero=argument, law=law)

    def _parts(self, made: Any) -> Callable[[Any], Any] | None:
        """Return a chain of known parts as a Python function, or None.

        A chain is one object, and nothing outside tells its noise from what is around it. Its parts are
        called one by one, so that its noise has the argument that it hides.
        """
        found = self._chains.get(id(made))
        if found is None:
            parts = taken_apart(made, called=True)
            found = made, None if parts is None else parts[0]
            if len(self._chains) < _MOST_CHAINS:
                self._chains[id(made)] = found
        return found[1]

    def collected(self, real: Callable[[Any], Any], frame: Any) -> Any:
        """Serve the cells of a released frame."""
        if self.mode == "real" or self.mode in _LIVE or self.inside or self.foreign_thread:
            return real(frame)
        return self.other("the cells of a released frame", lambda: real(frame))

    def _ahead(self, real: Any, made: Any, argument: Any, law: Law) -> Any:
        """Return argument plus pooled noise, where that is exact."""
        cells = list(argument) if law.vector else [argument]
        if (
            law.whole
            and law.carrier in ("i32", "i64")
            and all(type(c) is int and abs(c) < 2**30 for c in cells)
        ):
            self.inside = True
            try:
                noise = self.pools.whole(law, len(cells))
            finally:
                self.inside = False
            out = [c + z for c, z in zip(cells, noise, strict=True)]
            return out if law.vector else out[0]
        if not law.whole and not law.vector and argument == argument:  # noqa: PLR0124 - NaN
            at = float(argument)
            return self._really(lambda: self.pools.at(law, at))
        return self._really(lambda: real(made, argument))

    def _really(self, real: Callable[[], Any]) -> Any:
        self.inside = True
        try:
            return real()
        finally:
            self.inside = False

    def other(
        self,
        what: str,
        real: Callable[[], Any],
        *,
        zero: Any = None,
        law: Law | None = None,
        argument: Any = None,
        options: tuple[Any, ...] | None = None,
        seeded: str = "",
        free: Law | None = None,
        hint: Law | None = None,
    ) -> Any:
        """Serve a draw and record a copy of its value."""
        spot = len(self.draws)
        kept = copied(zero if law is not None else argument)
        if spot >= MOST_DRAWS or (self.mode == "force" and spot >= len(self.forced)):
            if (
                self.mode == "force" and not self.ended
            ):  # an enumeration asks what it would have been
                self.draws.append(Draw(what, None, law, kept, options))
            self.ended = True
            raise TapeEndError
        if self.mode == "force":
            out = copied(self.forced[spot])
        elif self.mode == "zero" and zero is not None and (law is not None or not seeded):
            out = copied(zero)
        else:
            out = self._really(real)
        self.draws.append(Draw(what, copied(out), law, kept, options, seeded, free, _site(), hint))
        return out


def _kind(made: Any) -> str:
    """Return the public part of an unknown measurement."""
    return f"{made.input_domain} {made.input_metric} {made.output_measure}"


def _site() -> str:
    """Return file and line of the user's call."""
    frame: Any = sys._getframe(2)  # noqa: SLF001 - as the standard library's warnings do
    while frame is not None:
        name = frame.f_code.co_filename
        if "/opendp_sim/audit/" not in name.replace("\\", "/") and "/opendp/" not in name:
            return f"{name.rsplit('/', 1)[-1]}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
