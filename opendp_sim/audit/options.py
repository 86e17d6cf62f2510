"""What a user passes beside the object, looked at before anything runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any

import numpy as np

from opendp_sim.audit.apart import distance_apart
from opendp_sim.audit.distances import exceeds
from opendp_sim.audit.findings import Budget
from opendp_sim.audit.neighbours import Pair
from opendp_sim.audit.noise import NoiseLaw
from opendp_sim.core import dp
from opendp_sim.core.errors import AuditError

__all__ = [
    "apart",
    "as_given",
    "checked_budget",
    "checked_events",
    "checked_options",
    "checked_pmf",
    "given_pairs",
]

_ROUNDING = 1e-6
"""By how much probabilities may miss 1."""
_USUAL = {"composed": False, "trace": True, "mine": True}
"""Options that are usually something else than None."""


def checked_options(seed: Any, noise: Any, **functions: Any) -> None:
    """Refuse what is of no kind that an audit can use.

    Args:
        seed: a whole number, not negative.
        noise: a law, an OpenDP measurement, a declaration of our own, or nothing.
        functions: what has to be callable where it is given, by the name of its option.

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
    """Return a call's further arguments as Python writes them, without those that are as usual."""
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


def checked_budget(budget: str | Budget, beta: float) -> Budget:
    """Return a budget by its name or as it is, or refuse it or the risk."""
    known = isinstance(budget, Budget) or budget in ("quick", "deep")
    if isinstance(budget, Budget) and not (budget.seconds > 0 and budget.total > 0):
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
    return budget if isinstance(budget, Budget) else Budget.of(budget)


def checked_events(events: Any) -> Mapping[str, Callable[[Any], float]] | None:
    """Return scores of an output by name, which refuse by name what is no number of an output."""
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
                    "it is given the output's numbers as one array; return 0 for what says nothing.",
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

    return exact


def given_pairs(
    pairs: Iterable[Any], d_in: Any, metric: dp.Metric | None, domain: dp.Domain | None
) -> tuple[Pair, ...]:
    """Return the user's pairs; those that are further apart than the claim speaks of are left out.

    Raises:
        AuditError: OS501, not pairs.
    """
    out, far, count = [], 0, 0
    for given in pairs:
        count += 1
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            kind = type(given).__name__
            raise _refused("pairs", "pairs of datasets", kind, "pairs=[(x, y), (x2, y2)].")
        if apart(given[0], given[1], d_in, metric, domain):
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


def apart(
    left: Any, right: Any, d_in: Any, metric: dp.Metric | None, domain: dp.Domain | None
) -> bool:
    """Say whether two datasets are surely further apart than a distance; what is not known is not."""
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
