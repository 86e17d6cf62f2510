"""A stranger's package: a step that runs OpenDP's own constructors by their names.

Its lemma is in ``native_chain.md``, beside this file.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from opendp_sim.core import dp
from opendp_sim.core.bridge import measure_of
from opendp_sim.core.claims import Accuracy, Private
from opendp_sim.core.errors import ParameterError, SpaceError
from opendp_sim.core.mechanism import Mechanism, Proof, param, register
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.checks import symmetric
from opendp_sim.domains.rows import RealRows, as_rows

ROOMS = {"t": dp.t, "m": dp.m}
ALLOWED = (
    *("t.clamp", "t.count", "t.quantile_score_candidates"),
    *("m.laplace", "m.noisy_max", "m.private_quantile"),
)
"""None takes code. ``t.sum`` is left out: of floats it adds 2**20 records at most, silently."""


@register
class NativeChain(Mechanism):
    r"""Run a chain of OpenDP's own constructors on one column.

    Privacy
        .. math:: \varepsilon(d_{in})

        as OpenDP's map of the chain states it.
    """

    key: ClassVar[str] = "native_chain"
    source: ClassVar[Proof] = Proof(key="own", where="Lemma")
    room = "measurements"
    stated_errors: ClassVar[Mapping[str, Accuracy]] = {
        "rank_for_95_percent": Accuracy(
            "the rank is off by {up} rows or less in 95% of runs",
            "{up} rows",
            ", beyond that of the nearest of {candidates:.0f} candidates",
            "rows",
        ),
        "deviation_of_a_count": Accuracy(
            "95% of counts within ±{wide} rows", "±{wide} rows", "", "rows"
        ),
    }

    chain: Annotated[
        tuple[dict[str, Any], ...],
        param(
            "Constructors in order, each with its arguments.", symbol="c", unit="none", min_length=1,
            hint="such as [{t.count: {}}, {m.laplace: {}}].",
        ),
    ]  # fmt: skip
    scale: Annotated[
        float,
        param(
            "Scale of the last constructor.", symbol="s", unit="units of the answer", gt=0,
            hint="left out, it is solved from the budget.",
        ),
    ]  # fmt: skip

    def bind(self, domain: Domain, metric: Metric) -> Private:
        symmetric(self.key, metric)
        if not isinstance(domain, RealRows) or domain.width != 1 or domain.labels or domain.ids:
            raise SpaceError(
                "OS201", f"{self.key}.input_domain", expected="rows of one column", got=type(domain).__name__,
                hint="put `select: {features: <one numeric column>}` before it.",
            )  # fmt: skip
        bounds = (domain.lower[0], domain.upper[0]) if domain.lower else None
        made: Any = (
            dp.vector_domain(dp.atom_domain(T=float, nan=False, bounds=bounds)),
            dp.symmetric_distance(),
        )
        for place in range(len(self.chain)):
            made = self._longer(made, place)
        if not isinstance(made, dp.Measurement):
            raise SpaceError(
                "OS201", f"{self.key}.chain", expected="a chain that ends in a measurement",
                got="a transformation", hint="end it with m.laplace, m.noisy_max or m.private_quantile.",
            )  # fmt: skip
        native = made
        names = " >> ".join(name for step in self.chain for name in step)
        return Private(
            measure=measure_of(native),
            privacy_map=native.map,
            function=lambda data: native(as_rows(data).values[:, 0].astype(float).tolist()),
            expected=self._expected(),
            reason=f"OpenDP's own {names}",
            again=self._again(),
        )

    def _again(self) -> Callable[[int], Sequence[Fraction]] | None:
        """Return the loss by hand (Lemma 2), or None for a chain that the lemma does not cover."""
        *before, (last, given) = [pair for step in self.chain for pair in step.items()]
        scale = Fraction(self.scale)
        if last == "m.private_quantile":
            share = Fraction(round(given["alpha"] * 10_000), 10_000)
            return lambda d_in: (2 * d_in * max(share, 1 - share) / scale,)
        if last == "m.laplace" and [name for name, _ in before][-1:] == ["t.count"]:
            return lambda d_in: (d_in / scale,)
        return None

    def _expected(self) -> dict[str, float]:
        ((last, given),) = self.chain[-1].items()
        if last == "m.private_quantile":
            number = len(given["candidates"])
            rank = self.scale * math.log(number / 0.05)
            return {"rank_for_95_percent": rank, "candidates": float(number)}
        counted = any("t.count" in step for step in self.chain)
        return {"deviation_of_a_count": math.sqrt(2.0) * self.scale} if counted else {}

    def _longer(self, made: Any, place: int) -> Any:
        """Return the chain with its next constructor, by OpenDP's own check of the types."""
        ((name, given),) = self.chain[place].items()
        if name not in ALLOWED:
            near = get_close_matches(name, ALLOWED, n=1)
            raise self._at(
                place, ParameterError("OS101", f"{self.key}.chain", expected=f"one of {', '.join(ALLOWED)}",
                got=name, hint=f"did you mean {near[0]}?" if near else "see the plugin's page."),
            )  # fmt: skip
        room, _, key = name.partition(".")
        then = getattr(ROOMS[room], f"then_{key}")
        words, given = inspect.signature(then).parameters, dict(given or {})
        strange = next((word for word in given if word not in words), None)
        if strange is not None:
            raise self._at(
                place, ParameterError("OS101", f"{self.key}.chain", expected=f"arguments of {name}: "
                f"{', '.join(words)}", got=strange, hint="see OpenDP's documentation."),
            )  # fmt: skip
        if "scale" in words:
            given["scale"] = self.scale
        if "output_measure" in words:
            given["output_measure"] = dp.max_divergence()
        if "candidates" in given:
            given["candidates"] = [float(candidate) for candidate in given["candidates"]]
            if (
                sorted(set(given["candidates"])) != given["candidates"]
            ):  # OpenDP ranks them all the same
                raise self._at(
                    place, ParameterError("OS101", f"{self.key}.chain", expected="rising candidates",
                    got="another order", hint="sort them, each once."),
                )  # fmt: skip
        if "bounds" in given:
            given["bounds"] = tuple(float(bound) for bound in given["bounds"])
        try:
            return made >> then(**given)
        except (dp.OpenDPException, TypeError, ValueError):
            raise self._at(
                place, SpaceError("OS201", f"{self.key}.chain", expected=f"{name} to fit what is before it",
                got="a constructor that OpenDP refuses to build", hint="no data was opened; see OpenDP's page."),
            ) from None  # fmt: skip

    def _at(self, place: int, error: Any) -> Any:
        error.inside = (place,)
        return error
