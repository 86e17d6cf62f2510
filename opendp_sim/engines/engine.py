"""Define engines, which run pure functions over tasks."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, cast

import numpy as np

from opendp_sim.core.errors import CATALOGUE, DataError, InternalError, SimError
from opendp_sim.dsl.builder import program
from opendp_sim.dsl.plan.plan import Plan, plan_of
from opendp_sim.engines import work
from opendp_sim.engines.job import Job, cannot, gathered_by, job_of
from opendp_sim.engines.messages import read_message, unpack
from opendp_sim.io.fold import cores

ENGINES = {
    "local": "engine:Local",
    "dask": "on_dask:Dask",
    "spark": "on_spark:Spark",
    "sc": "on_connect:Connect",
}
"""An engine's name: its module and class."""


class Engine(ABC):
    """Run tasks anywhere, in any order, any number of times.

    Args:
        parts: tasks to aim at, and buckets of persons: about four a core.
    """

    name: ClassVar[str]

    def __init__(self, parts: int = 8) -> None:
        self.parts = parts

    @abstractmethod
    def run(self, job: Job) -> Sequence[bytes]:
        """Return each task's message once (``whole``, ``bucket`` behind ``route``, or ``merge``)."""

    def ready(self) -> None:  # noqa: B027 - most engines have nothing to refuse
        """Refuse an engine whose package is not installed (OS611)."""

    def check(self, plan: Plan, device: str | None = None) -> None:
        """Refuse a plan or engine that cannot run, before anything else (OS611)."""
        self.ready()
        for name in _summed(plan):
            gathered_by(plan.releases[name].typed)
        self.try_public_task(device)

    def try_public_task(self, device: str | None = None) -> None:
        """Sum rows of a built-in dataset, to find failures before a charge.

        The task needs no file that workers share: it shows that workers start, have this package in the
        driver's version, and that their results come back; with a device, that the worker has it.

        Raises:
            DataError (OS611): the task failed, for the reason given, or its sum is not this machine's.
        """
        plan, here = _public_task()
        told = "another sum"
        try:
            if np.array_equal(self.sums(plan, device, public=True)["n"], here):
                return
        except SimError as error:
            told = str(error.got).removesuffix(".")
        raise cannot(
            self.name, "the sum of a task over public rows", told,
            "nothing is charged; mend the engine, and look with `opendp-sim engine check`.",
        )  # fmt: skip

    def sums(
        self, plan: Plan, device: str | None = None, *, public: bool = False
    ) -> dict[str, Any]:
        """Return every private release's exact sum before noise, as one machine's.

        Args:
            plan: whose releases they are.
            device: the card of each worker (``using_device``); a worker without it uses its CPU, but
                for a public task, which is refused.
            public: whether the data is public, so that failures may be told in words.

        Raises:
            DataError: what the data gate of a task refused, the first in the order of files.
            InternalError (OS902): anything else. (OS903): a result is lost, doubled or foreign.
        """
        return {
            name: self._sum(job_of(plan, name, self.parts, device=device, public=public))
            for name in _summed(plan)
        }

    def _sum(self, job: Job) -> Any:
        messages: Sequence[bytes] | None
        told = ""
        try:
            messages = self.run(job)
        except Exception as error:  # noqa: BLE001 - an engine's text may quote a record
            messages = None
            if json.loads(job.text)["public"]:
                told = _cause(error)
        if messages is None:
            raise _failed(902, told)  # outside the handler: no context whose frames hold data
        return total_of_messages(job, messages)


def _summed(plan: Plan) -> list[str]:
    """Return the releases that sum private records."""
    return [
        name
        for name, release in plan.releases.items()
        if not (release.typed.entry.public or release.interactive)
    ]


def total_of_messages(job: Job, messages: Sequence[bytes]) -> Any:
    """Return the messages' sum, if each task's result is there once."""
    found = read_message(work.merge(job.text, messages))
    if found.code and found.gate:
        raise DataError(
            f"OS{found.code}", "engine", expected="records as they were declared",
            got=CATALOGUE[f"OS{found.code}"], hint="`apply` without an engine names the column; "
            "clean the data, mend the declaration, or use `ingest: enforce`.",
        )  # fmt: skip
    if found.code:
        raise _failed(found.code, found.told)
    if found.parts != tuple(range(len(job.tasks) if job.buckets is None else job.buckets)):
        raise _failed(903)
    return unpack(found.payload)


def _failed(code: int, told: str = "") -> InternalError:
    if code == 903:
        return InternalError(
            "OS903", "engine", expected="every task's result once", got="another set of results",
            hint="the charge stands; report this, with the engine's version.",
        )  # fmt: skip
    return InternalError(
        "OS902", "engine", expected="a result of every task", got=told or "a failure in one of them",
        hint="the charge stands; `opendp-sim engine check` runs the same machinery on public data.",
    )  # fmt: skip


_CAUSE = re.compile(r"^[\w.]*(?:Error|Exception|Exit)\w*\b.*", re.MULTILINE)
"""A line of an engine's text that names an exception, as the last line of a traceback does."""


def _cause(error: Exception) -> str:
    """Return the cause's line in the text of a public job's exception."""
    text = str(error).strip()
    named = _CAUSE.findall(text) or text.splitlines()[:1]
    return ": ".join([type(error).__name__, *(line.strip() for line in named[-1:])])[:400]


@cache
def _public_task() -> tuple[Plan, Any]:
    """Return the plan of a public sum, and its local result."""
    race = {"repetitions": 2, "buckets": 4, "seed": 1, "family": {"p_stable_l2": {"width": 9.0}}}
    steps: list[Any] = [{"select": {"features": "pixels"}}, {"quantize": {"bits": 8}}]
    columns = {"pixels": {"dtype": "array[f32, 64]", "bounds": [0, 16]}}
    made = program("public-task")
    made = made.data("digits", source={"builtin": "digits_test"}, columns=columns)
    made = made.privacy(unit={"add_remove": 1, "of": "row"}, measure="zcdp", budget={"rho": 1.0})
    made = made.stage("s", "digits", steps=[*steps, {"race_sketch": race}])
    made = made.stage("n", "s", release={"noise": "gaussian", "scale": 1000.0})
    plan = plan_of(made.output("o", "n", save="o.npz").draft())
    return plan, Local(1, 1).sums(plan)["n"]


class Local(Engine):
    """Run tasks on threads, each with its own reader and state."""

    name = "local"

    def __init__(self, parts: int | None = None, workers: int | None = None) -> None:
        self.workers = workers or cores()
        super().__init__(parts or 4 * self.workers)

    def run(self, job: Job) -> Sequence[bytes]:
        """Run every task on some thread."""
        with ThreadPoolExecutor(self.workers, thread_name_prefix="task") as pool:

            def all_of(function: Callable[..., Any], *each: Sequence[Any]) -> list[Any]:
                return list(pool.map(lambda *one: function(job.text, *one), *each))

            if job.buckets is None:
                return all_of(work.whole, job.tasks)
            routed = all_of(work.route, job.tasks)
            numbers = range(job.buckets)
            return all_of(work.bucket, numbers, [[r[i] for r in routed] for i in numbers])


def need(package: str, extra: str) -> None:
    """Refuse an engine whose package is not installed (OS611)."""
    if find_spec(package) is None:
        raise cannot(extra, f"the package {package}", "none", f"pip install 'opendp_sim[{extra}]'.")


def engine_of(name: str, **settings: Any) -> Engine:
    """Return the engine called ``name``, or the one at an address.

    Args:
        name: ``local``, ``dask``, ``spark`` or ``sc``; or the address of a cluster that exists:
            ``dask://host:8786``, ``spark://host:7077``, ``sc://host:15002``.
        settings: of its class.

    Raises:
        DataError (OS611): there is none of that name.
    """
    kind, of, place = name.partition("://")
    if kind not in ENGINES or (of and (not place or kind == "local")):
        raise cannot(
            "engine",
            f"one of {', '.join(ENGINES)}, or an address such as dask://host:8786",
            kind if kind not in ENGINES else "an address without a host",
            "`local` needs no package.",
        )
    module, _, made = ENGINES[kind].partition(":")
    there = {"address": name} if place else {}
    found = getattr(import_module(f"opendp_sim.engines.{module}"), made)(**there, **settings)
    return cast("Engine", found)
