"""Hold a traced audit's function, tape, seconds and risk."""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opendp_sim.audit.findings import Effort, Evidence
from opendp_sim.audit.generators.neighbours import Pair, PairSpace
from opendp_sim.audit.instrument.compare_tapes import claim_of, decode, look, same_again
from opendp_sim.audit.instrument.patch_rng import tapped
from opendp_sim.audit.instrument.tape import OutOfTimeError, Tape, TapeEndError
from opendp_sim.audit.seeds.blocks import block_space, explore
from opendp_sim.audit.seeds.constants import Mined
from opendp_sim.audit.state.reachable import arguments_of
from opendp_sim.audit.subject import Subject
from opendp_sim.audit.trace.scan import Found, Scan, chained_function, direct_function, scan
from opendp_sim.audit.work import work_seconds

BARE = "an output without noise depends on the data"
UNSEEN = "outputs of neighbours differ more than noise that is on no tape hides"
"""What a pair without a draw on its tape shows: where all that is random is on it, and where not."""
_CALLS, _CLEAR, _EXPLORED, _RECORDS = 6, 1.02, 0.3, 600


@dataclass
class Tracer:
    """Describe one traced audit of a function."""

    subject: Subject
    space: PairSpace
    d_in: Any
    budget: Effort
    rng: np.random.Generator
    beta: float
    given: tuple[Pair, ...]
    functions: list[types.FunctionType]
    mined: Mined
    begin: float = field(default_factory=work_seconds)
    extra: float = 0.0
    """Seconds beyond the layer's own."""
    spent: float = 0.0
    """Parts of beta that tests have taken."""
    direct: bool = False
    stateful: bool = False
    hidden: bool = False
    """Whether something random is not on the tape."""
    unlike: bool = False
    """Whether runs with stand-ins for its generators are no runs of the object."""
    unfinished: str = ""
    """Steps that an error ended."""
    priced: Evidence | None = None
    """The first calculated excess that no draws confirmed."""
    seen: Scan = field(default_factory=Scan)
    words: str = ""

    def __post_init__(self) -> None:
        self.tape = Tape(self.subject.outer, self.rng)
        self.obj = self.tape.timed(self.subject.run)
        self.function: Callable[[Any], Any] = self.obj
        self.curve = self.subject.curve(self.d_in)
        assert self.subject.privacy_map is not None  # noqa: S101 - a measurement
        self.claimed = self.subject.privacy_map(self.d_in)
        self.claim = claim_of(self.subject.measure, self.claimed) or ("epsilon", 1.0, 0.0)

    def left(self, share: float = 1.0) -> float:
        """Return the nominal seconds left in a share of the budget."""
        most = min(self.budget.trace_seconds, self.budget.seconds)
        return self.begin + share * most + self.extra - work_seconds()

    def extend(self, seconds: float) -> None:
        """Take seconds from L3's budget.

        For a pair that looks broken. However many steps ask for more, half of the layer's seconds is
        all that they get together.
        """
        room = max(0.0, min(seconds, 0.5 * self.budget.trace_seconds - self.extra))
        self.extra += room
        self.tape.end += room

    @contextmanager
    def within(self, share: float) -> Iterator[None]:
        """Stop the block's runs at a part of the seconds left."""
        before, extra = self.tape.end, self.extra
        self.tape.end = min(before, work_seconds() + max(0.4, share * self.left()))
        try:
            yield
        except OutOfTimeError:
            if work_seconds() > before + self.extra - extra:
                raise
        finally:
            self.tape.end = before + self.extra - extra

    def risk(self, share: float) -> float:
        """Take a share of beta, fixed before the audit, for one test."""
        share = min(share, max(0.0, 1 - self.spent))
        self.spent += share
        return max(share * self.beta, 1e-300)

    def price(self, evidence: Evidence) -> None:
        """Keep the first calculated excess without confirming draws."""
        self.priced = self.priced or evidence

    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Put the functions' noise on the tape."""
        with tapped(self.tape, self.functions):
            yield

    # --- what kind of function is it -------------------------------------------------

    def prepare(self) -> None:
        """Find the function, its state and its untraced draws."""
        probe = self.space.draw(self.rng)
        counts: set[int] = set()
        for _ in range(_CALLS):
            with contextlib.suppress(TapeEndError):
                counts.add(len(self.tape.run(self.obj, probe.left, "record")[1]))
        self.stateful = len(counts) > 1 and 0 in counts
        if self.stateful:
            return
        given = arguments_of(self.subject.outer)
        found = direct_function(self.tape, self.obj, self.functions, self.space, self.rng, given)
        if found is None:
            found = chained_function(self.tape, self.subject, self.space, self.rng)
        if found is not None:
            self.function, self.direct = found, True
        for pair in (probe, probe.flipped(), *(self.space.draw(self.rng) for _ in range(4))):
            with contextlib.suppress(TapeEndError):  # too many draws to say
                self.hidden = self.hidden or not same_again(self.tape, self.function, pair.left)
        self.hidden = self.hidden or self.tape.unseen

    def look_around(self) -> None:
        """Explore records, and scan pairs along their tapes."""
        self._explore()
        seconds = min(self.budget.scan_seconds, self.left(0.4))
        self.seen = scan(
            self.tape,
            self.function,
            self.space,
            self.given,
            self.claim,
            self.rng,
            (seconds, self.budget.scan_pairs),
            self.subject.input_domain,
            self._decides,
        )
        if self.hidden and BARE in self.seen.odd:  # their noise may be elsewhere
            self.seen.odd[UNSEEN] = self.seen.odd.pop(BARE)

    def _explore(self) -> None:
        """Fill the space with the costliest records of each path."""
        space = block_space(self.space)
        if space is None:
            return
        end = work_seconds() + min(_EXPLORED * self.budget.scan_seconds, self.left(0.2))

        def price(pair: Pair) -> tuple[float, str]:
            view = look(self.tape, self.function, pair, self.claim)
            return view.loss, view.finding

        explore(
            space,
            price,
            self.functions,
            self.rng,
            lambda runs: runs < min(_RECORDS, self.budget.scan_pairs) and work_seconds() < end,
        )

    def _decides(self, found: Found) -> bool:
        """Return whether a pair needs no better one."""
        if found.view.finding == BARE:
            return True
        if self.hidden or isinstance(self.claimed, tuple) or not _CLEAR < found.loss < math.inf:
            return False
        try:
            return decode(self.tape, self.function, found.pair) is not None
        except (TapeEndError, ValueError, TypeError):
            return False

    @property
    def top(self) -> Pair:
        """The pair that costs most along its tape."""
        return self.seen.best[0].pair if self.seen.best else self.space.draw(self.rng)
