"""Print how close a run on public data came to the exact answers."""

from __future__ import annotations

from opendp_sim.cli._run import say
from opendp_sim.dsl.compare import Comparison

__all__ = ["show_comparison"]


def show_comparison(found: Comparison) -> None:
    """Print one output's comparison."""
    say("")
    say(
        f"compared  {found.output}: {found.queries} held-out queries, answered from the release alone"
    )
    if found.error is not None:
        share = found.error / found.exact if found.exact else float("nan")
        say(f"          exact kernel sum {found.exact:.2f} on average; private answers are off by "
            f"{found.error:.2f} ({share:.1%})")  # fmt: skip
        say(f"          noise and sketch {found.mapped:.2f} (predicted {found.predicted:.2f}, of which "
            f"noise {found.noise:.2f}); grid and projection {found.maps:.2f}")  # fmt: skip
    if found.accuracy is not None:
        private, exact = found.accuracy
        say(f"          right labels: {private:.1%} private, {exact:.1%} with exact kernel sums")
