"""Print a public run's distance from the exact answers."""

from __future__ import annotations

from opendp_sim.cli._run import say
from opendp_sim.dsl.run.compare_exact import Comparison
from opendp_sim.dsl.types.error_terms import WITHIN


def show_comparison(found: Comparison) -> None:
    """Print one output's comparison."""
    say("")
    say(
        f"compared  {found.output}: {found.queries} held-out queries, answered from the release alone"
    )
    if found.error is not None:
        share = found.error / found.exact if found.exact else float("nan")
        where = f" behind {', '.join(found.geometry)}" if found.geometry else ""
        what, form = ("mean kernel value", ".4g") if found.normalised else ("kernel sum", ".2f")
        say(
            f"          {WITHIN} of answers within ±{found.error:{form}} of the exact {what}s, "
            f"{found.exact:{form}} on average{where} ({share:.1%})"
        )
        say(
            f"          noise and sketch ±{found.mapped:{form}} (predicted ±{found.predicted:{form}}, of "
            f"which noise ±{found.noise:{form}}); grid and projection ±{found.maps:{form}}"
        )
    if found.accuracy is not None:
        private, exact = found.accuracy
        say(f"          right labels: {private:.1%} private, {exact:.1%} {found.beside}")
