"""Release one sketch period by period, under one charge (``continual.md``)."""

from __future__ import annotations

import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path as File
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from opendp_sim.accounting.ledger._durable import Closing
from opendp_sim.accounting.ledger.ledger import Ledger
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.release.continual import (
    Node,
    PeriodTree,
    advanced,
    best_tree,
    mean_error,
    no_sums,
    saturated,
)
from opendp_sim.accounting.release.release import Release, noise_of_sum
from opendp_sim.accounting.session.identity import UNWRITABLE, claimed_name
from opendp_sim.accounting.session.periods import PeriodStore, stream_refusal
from opendp_sim.core.arithmetic.plain_numbers import python_value
from opendp_sim.core.claims import Noise, Private, Sensitivity, Stable, Stage
from opendp_sim.core.errors import (
    BudgetError,
    DataError,
    InternalError,
    SimError,
    SpaceError,
    refusing,
    repr_text,
)
from opendp_sim.core.guard import guarded
from opendp_sim.core.mechanism import Mechanism
from opendp_sim.domains.metrics import IdDistance
from opendp_sim.dsl.plan.losses import agree
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.release_plan import ReleasePlan
from opendp_sim.dsl.run.certificate import claim_about
from opendp_sim.dsl.run.charge import Transaction, is_paid
from opendp_sim.dsl.run.execute import first_sum
from opendp_sim.dsl.run.inputs import Inputs, check_forms, note_objects, open_private
from opendp_sim.dsl.run.publish import Run
from opendp_sim.dsl.types.records import Bound
from opendp_sim.io.fold import build_sketch

STORE = "stream.private"
"""The file of a stream's exact sums, in its folder."""
_ROUNDINGS = 64
"""Units in the last place by which a scale may grow: OpenDP's map rounds by a few."""
_NO_INPUTS = Inputs({}, {})


@dataclass(frozen=True)
class NodeNoise:
    """Hold the noise of nodes, and the loss of all.

    Attributes:
        record: the plan's noise, with the scale of a node.
        claim: it, bound to the sketch's cells.
        sensitivity: norms of one unit's contribution to all nodes.
    """

    record: Mechanism
    claim: Private
    sensitivity: Sensitivity
    bound: Bound

    @classmethod
    def of(cls, release: ReleasePlan, tree: PeriodTree, d_in: int = 1) -> Self:
        """Return the noise at the loss of one release (Lemma 2).

        By OpenDP's map at ``d_in`` too, which rounds: the scale may be some units in the last place more.
        """
        bound, one = release.bound, release.typed.sensitivity
        assert bound is not None  # noqa: S101 - `streamed` asked
        assert one is not None  # noqa: S101 - as above
        spec = bound.record.spec()
        spec |= {"factor": 1} if "factor" in spec else {}
        scale = tree.scale(spec["scale"], laplace=is_laplace(release))
        for _ in range(_ROUNDINGS):
            record = type(bound.record).from_spec(spec | {"scale": scale})
            claim: Private = record.bind(bound.domain, bound.metric)
            made = cls(record, claim, tree.sensitivity(one), bound)
            loss = made.loss(d_in)
            if not isinstance(loss, int | float) or loss <= made.of_plan(one, d_in):
                break
            scale = math.nextafter(scale, math.inf)
        return made

    @property
    def law(self) -> Noise:
        """The law of one node's noise."""
        assert self.claim.noise is not None  # noqa: S101 - `streamed` asked
        return self.claim.noise

    def of_plan(self, one: Sensitivity, d_in: int) -> Any:
        """Return the loss of one release by the plan, by OpenDP's map."""
        assert self.bound.norm is not None  # noqa: S101 - noise has a norm
        assert isinstance(self.bound.claim, Private)  # noqa: S101 - as above
        return self.bound.claim.privacy_map(one.bound(self.bound.norm, d_in))

    def loss(self, d_in: int) -> Any:
        """Return the loss of all nodes together, by OpenDP's map.

        ``d_in`` is the plan's unit, in one period or in each of ``person_periods``.
        """
        assert self.bound.norm is not None  # noqa: S101 - noise has a norm
        return self.claim.privacy_map(self.sensitivity.bound(self.bound.norm, d_in))

    def drawn(self, cells: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a node's cells with fresh noise."""
        made = guarded(self.claim.function, self.record.key)(cells)
        return np.asarray(made).astype(np.int64, casting="safe")


def is_laplace(release: ReleasePlan) -> bool:
    """Return whether a release's noise is Laplace's."""
    noise: Noise | None = getattr(getattr(release.bound, "claim", None), "noise", None)
    return noise is not None and noise.family == "discrete_laplace"


def streamed(plan: Plan) -> ReleasePlan:
    """Return a plan's only release, of a sketch with noise.

    Raises:
        SpaceError (OS201): further releases, none of a sketch with noise, or a file as its source.
    """
    found = list(plan.releases.values())
    typed = found[0].typed if len(found) == 1 else None
    if typed is None or not typed.is_sketch or typed.release_kind != "noise":
        raise SpaceError(
            "OS201", "stream", expected="a plan of one release, of a sketch with noise",
            got=f"{len(found)} releases" if len(found) != 1 else "another release",
            hint="such as sim.density, sim.distances or sim.means, each in a stream of its own.",
        )  # fmt: skip
    if typed.entry.source.kind != "memory" or typed.entry.public:
        raise SpaceError(
            "OS201", "stream", expected="a private table of each period, handed over",
            got=f"a source of kind {typed.entry.source.kind}",
            hint="write `source: {memory: records}`, and hand each period's own rows to `add`.",
        )  # fmt: skip
    return found[0]


def _check_persons(release: ReleasePlan, periods: int, person_periods: int | None) -> None:
    """Refuse persons in unknown numbers of periods (OS202)."""
    stages = release.typed.stages
    surveys = [s for s in stages if isinstance(s.claim, Stable) and s.claim.survey is not None]
    if not (surveys or isinstance(stages[0].metric, IdDistance)):
        return
    if person_periods not in (None, periods) and release.typed.entry.ledger is not None:
        raise SpaceError(
            "OS202", "stream", expected=f"person_periods={periods}, all of them", got=person_periods,
            hint="a ledger counts what protects whole persons. Take all periods, or a unit of rows "
            "(`{add_remove: m, of: row}`: the most rows of a person in all of them), or no ledger.",
        )  # fmt: skip
    if person_periods is None:
        raise SpaceError(
            "OS202", "stream", expected="`person_periods`: in how many periods a person is, at most",
            got="persons, whose rows are limited in one table alone",
            hint="write the number, or `periods` for all of them. No stream remembers persons from "
            "period to period: of one in more periods the claim hides what any so many of them hold.",
        )  # fmt: skip


class Stream(Closing):
    """Release one sketch that grows, period by period.

    A context manager. The whole stream is charged once, before its first record is read, and costs what
    the plan says of one release. ``add`` releases the nodes that end with a period, ``release`` a sum.

    Args:
        plan: of one sketch with noise, whose records come as tables.
        periods: how many there will be at most. Public.
        into: the folder of ``stream.private`` (exact sums, as secret as the data) and of the nodes
            (``0001-0004.npz``, releases that anybody may have).
        base: periods of a node, to the power of its level; default the one of least mean variance.
        person_periods: in how many periods the plan's unit is, at most, with all its rows in each;
            default one, of plans whose unit is of rows. More of them take more noise (Lemma 1b). It
            is taken on trust.
        tables: makes tables by name of what ``add`` is given; default as ``apply`` takes them.
        charged: takes the words of what was charged, before a signal can stop the process.

    Attributes:
        tree: the nodes. noise: theirs. period: how many periods are over.

    Raises:
        SpaceError (OS201, OS202): a plan that makes no stream. ParameterError (OS101): periods or base.
        BudgetError (OS402, OS403): the ledger refuses. (OS407): open elsewhere, another plan's, an older
            copy. InternalError (OS901): two computations of the loss differ.
    """

    def __init__(
        self,
        plan: Plan,
        periods: int,
        into: str | os.PathLike[str],
        *,
        base: int | None = None,
        person_periods: int | None = None,
        tables: Callable[[Any], Mapping[str, Any]] | None = None,
        charged: Callable[[str], None] = lambda _text: None,
    ) -> None:
        release, periods, base = streamed(plan), python_value(periods), python_value(base)
        person_periods = python_value(person_periods)
        _check_persons(release, periods, person_periods)
        each = 1 if person_periods is None else person_periods
        if base is None:
            self.tree = best_tree(periods, laplace=is_laplace(release), person_periods=each)
        else:
            self.tree = PeriodTree(periods, base, each)
        self.plan, self._release, self._tables = plan, release, tables or self._by_name
        assert plan.privacy is not None  # noqa: S101 - its records are private
        d_in = plan.privacy.unit.d_in
        self.noise = NodeNoise.of(release, self.tree, d_in)
        whole = self.noise.loss(d_in)
        if isinstance(whole, int | float):  # else a curve, of the same scale and distance
            agree("stream", (whole,), release.own_loss)
        self._stages: tuple[Stage, ...] = release.typed.stages
        self._owner, self._lost, self._lock = os.getpid(), False, threading.RLock()
        self._folder, self._charged = File(into), charged
        self._ledger: Ledger | None = None  # as it was open last, with the entries read so far
        self._rehearse()
        with ExitStack() as undo:
            with _writing(ValueError):
                self._folder.mkdir(parents=True, exist_ok=True)
            self._store = undo.enter_context(
                PeriodStore(self._folder / STORE, self._identity(), self.tree, self._size)
            )
            self._refuse_newer()
            self._pay(undo)
            self._publish()
            self._open = undo.pop_all()

    @property
    def _size(self) -> int:
        return int(self._release.typed.sketch.output.size)  # type: ignore[attr-defined]

    def _identity(self) -> str:
        """Return everything that a stream's nodes belong to."""
        empty = Release.of_sketch(self._stages, np.zeros(self._size, np.int64), self.noise.law, {})
        return json.dumps(
            {
                "program": self.plan.program.hash,
                "tree": [self.tree.periods, self.tree.base, *self.each.values()],
                "noise": {self.noise.record.key: self.noise.record.spec()},
                "matrices": empty.header["matrices"],
            },
            sort_keys=True,
        )

    @property
    def each(self) -> dict[str, int]:
        """Return a person's most periods, if more than one."""
        each = self.tree.person_periods
        return {} if each == 1 else {"person_periods": each}

    def _rehearse(self) -> None:
        """Draw one node of no records, before the charge."""
        blocks: Callable[[], Iterator[Any]] = lambda: iter(())  # noqa: E731
        cells = build_sketch(self._stages, blocks, workers=1)
        self.noise.drawn(cells)
        advanced(self.tree, 1, no_sums(self.tree, len(cells)), cells)

    # --- what is paid ---------------------------------------------------------------------------

    def _pay(self, undo: ExitStack) -> None:
        """Charge the whole stream once (``continual.md``, Lemma 5)."""
        with ExitStack() as stack:
            transaction = self._transaction(stack)
            ledger, mark = transaction.ledger, self._store.mark
            if ledger is None:
                return
            if not is_shared(ledger.path):
                with refusing(_of_a_stream, BudgetError):
                    undo.callback(claimed_name(ledger.path, mark.name))
            if not is_paid(ledger, mark):
                if self._store.period:
                    raise _unpaid()
                transaction.reserve(stores={next(iter(self.plan.outputs), "stream"): mark.name})
            if transaction.reserved is None:
                transaction.settle_store(mark.name)
            transaction.settle({})
            self._tell(ledger)

    def _transaction(self, stack: ExitStack) -> Transaction:
        with refusing(_of_a_stream, BudgetError):
            made = Transaction.open(
                self.plan,
                stack,
                store=self._store.mark,
                folder=self._folder,
                charged=self._charged,
                known=self._ledger,
            )
        self._ledger = made.ledger
        return made

    def _tell(self, ledger: Ledger) -> None:
        """Write the store's turn into its ledger, unless a copy's was first."""
        mark = self._store.mark
        if mark.turn and ledger.turn_of(mark.name) != mark.turn:
            ledger.opened(mark.name, mark.turn, after=mark.before)

    # --- one period after another -----------------------------------------------------------------

    @property
    def period(self) -> int:
        """Number of periods that are over."""
        return self._store.period

    def add(self, data: Any, period: int | None = None) -> Release:
        """Release the next period's nodes, and return the whole sketch.

        Args:
            data: the period's own records, a table as ``apply`` takes it; one without rows too. Rows
                of earlier periods are in the sums already: given again they count twice, and their
                persons lose twice.
            period: its number, so that a call which is repeated after a crash adds nothing twice: a
                period that is over is not added, and its table not looked at.

        Returns:
            ``release(1, period)``.

        Raises:
            DataError (OS6xx): the table is refused; the period stays open, and a ledger counts it.
            BudgetError (OS406): no period is left, or another one is next. (OS402): too many tables were
                refused. (OS407): the store cannot be written, or a ledger knows a newer copy; open the
                stream again, and look at its ``period``.
        """
        with self._turn():
            period = self.period + 1 if period is None else python_value(period)
            whole = type(period) is int  # 2.0 and True are other texts in the store's chain
            if whole and 1 <= period <= self.period:
                return self._release_of(self.tree.parts(1, period))
            if not whole or period != self.period + 1 or period > self.tree.periods:
                raise BudgetError(
                    "OS406", "stream", expected=f"one of {self.tree.periods:,} periods, in order",
                    got=f"{repr_text(period, 20)} after {self.period:,}",
                    hint="another stream costs its budget again.",
                )  # fmt: skip
            memory = self._tables(data)
            check_forms(self.plan, memory)
            note_objects(self.plan, memory)
            with ExitStack() as stack:
                transaction = self._transaction(stack)
                if transaction.ledger is not None and not is_paid(
                    transaction.ledger, self._store.mark
                ):
                    raise _unpaid()
                transaction.may_be_refused()
                with transaction.counting():
                    cells = self._summed(memory)
                self._lost = True  # until what was kept is known
                ended, sums = advanced(self.tree, period, self._store.sums, cells)
                drawn = {node: self.noise.drawn(exact) for node, exact in ended.items()}
                ledger = transaction.ledger
                self._store.commit(drawn, sums, "" if ledger is None else ledger.path.name)
                if ledger is not None:
                    self._tell(ledger)
            for node in ended:
                self._save(node)
            self._lost = False
            return self._release_of(self.tree.parts(1, period))

    def _by_name(self, data: Any) -> Mapping[str, Any]:
        """Return one table by its source's name."""
        name = str(self._release.typed.entry.source.argument)
        named = isinstance(data, Mapping) and set(data) == {name}
        return data if named else {name: data}

    def _summed(self, memory: Mapping[str, Any]) -> NDArray[np.int64]:
        """Return one period's exact sketch, of one pass behind the gate."""
        run = Run(self._folder, Transaction(self.plan))
        inputs = open_private(self.plan, memory, run.told, _NO_INPUTS, whole=False)
        sums, failed, refused = first_sum(self.plan, inputs, run)
        if refused is not None:
            raise refused
        if isinstance(failed, SimError):
            raise failed
        if failed is not None:
            raise InternalError(
                "OS902", "stream", expected="a sum", got="a failure inside a private function",
                hint="the period stays open; add the table again.",
            )  # fmt: skip
        return sums[self._release.typed.name]

    # --- asking it ------------------------------------------------------------------------------

    def release(self, first: int = 1, last: int | None = None) -> Release:
        """Return the sketch of an interval of periods, from released nodes alone.

        Args:
            first: its first period, from 1.
            last: its last one; default the last that is over.

        Raises:
            ParameterError (OS101): no interval of the stream's periods. DataError (OS602): one that is
                not over yet. BudgetError (OS407): a fork, or a stream to be opened again.
        """
        with self._turn():
            nodes = self.tree.parts(first, self.period if last is None else last)
            if nodes[-1][1] > self.period:
                raise DataError(
                    "OS602", "stream.release", expected=f"periods up to {self.period:,}, which are over",
                    got=f"{last}", hint="add the periods in between first.",
                )  # fmt: skip
            return self._release_of(nodes)

    def deviation(self, first: int = 1, last: int | None = None) -> float:
        """Return the noise's deviation on a cell of weight 1.

        It is public: known before any record, of periods that are not over too.
        """
        nodes = self.tree.parts(first, self.tree.periods if last is None else last)
        return self._noise_of(len(nodes)).deviation

    def _noise_of(self, nodes: int) -> Noise:
        """Return the law of a sum of so many noises."""
        total = self.noise.law
        for _ in range(nodes - 1):
            total = noise_of_sum(total, self.noise.law) or total
        return total

    def _release_of(self, nodes: tuple[Node, ...]) -> Release:
        cells = reduce(saturated, map(self._store.node, nodes))
        stream = {
            "name": self._store.mark.name,
            "periods": self.tree.periods,
            "base": self.tree.base,
            "nodes": [list(node) for node in nodes],
        } | self.each
        claim = {**claim_about(self.plan, self._release), "stream": stream}
        return Release.of_sketch(self._stages, cells, self._noise_of(len(nodes)), claim)

    # --- files ----------------------------------------------------------------------------------

    def file(self, node: Node) -> File:
        """Return the file of a node's release."""
        width = max(4, len(str(self.tree.periods)))
        return self._folder / f"{node[0]:0{width}d}-{node[1]:0{width}d}.npz"

    def _publish(self) -> None:
        """Write the stored nodes that have no file."""
        for period in range(1, self.period + 1):
            for node in self.tree.ending(period):
                if not self.file(node).exists():
                    self._save(node)

    def _save(self, node: Node) -> None:
        with _writing():
            self._release_of((node,)).save(self.file(node))

    def _refuse_newer(self) -> None:
        """Refuse a store that is older than the nodes beside it (OS407)."""
        for found in self._folder.glob("*.npz"):
            name = re.fullmatch(r"(\d{4,7})-(\d{4,7})\.npz", found.name)
            last = 0 if name is None else int(name[2])
            if self._store.period < last <= self.tree.periods:
                raise stream_refusal(
                    f"the store that released {found.name}", "an older copy, or a new one"
                )

    # --- one user at a time -------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Lock the stream for one call, or refuse it (OS407)."""
        if os.getpid() != self._owner:
            raise stream_refusal("the process that opened the stream", "a fork of it")
        with self._lock:
            if self._lost:
                raise stream_refusal(
                    "a stream whose last period is known", "one that was interrupted: open it again"
                )
            yield

    def close(self) -> None:
        """Close the store, if it is open; in a fork, do nothing."""
        if os.getpid() == self._owner:
            with self._lock:
                self._lost = True
                self._open.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        """Refuse copies and pickles (OS407)."""
        raise stream_refusal("one open stream", "a copy of it")

    def __repr__(self) -> str:
        """Return periods, claim and noise; no value of the data."""
        whole, tree = self._store.period, self.tree
        error = mean_error(tree, laplace=is_laplace(self._release))
        return (
            f"Stream(period {whole} of {tree.periods}; {tree.levels} levels, base {tree.base}; noise of "
            f"periods 1 to t is {error:.3g} times one release's, as a root mean square)"
        )


def _writing(*more: type[Exception]) -> refusing:
    """Refuse a folder that cannot be written."""
    refusal = stream_refusal("a folder that can be written", UNWRITABLE)
    return refusing(lambda _: refusal, OSError, *more)


def _of_a_stream(error: BudgetError) -> BudgetError:
    """Return a refusal of a session's store as one of a stream."""
    if error.where != "session.store":
        return error
    got = str(error.got)
    got = "an older copy, or one of which a copy went on" if "older" in got else got
    return stream_refusal("the folder as its last period left it", got)


def _unpaid() -> BudgetError:
    return stream_refusal("the ledger that this stream was charged to", "another one")
