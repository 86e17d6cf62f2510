"""How wrong answers will be, in plain words, from what questions and releases state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opendp_sim.dsl.output_types import OutputType
from opendp_sim.dsl.plan import Plan
from opendp_sim.dsl.release_plan import ReleasePlan

__all__ = ["how_wrong", "size"]

_NOISY = "noise_error"
_DIRECT = {"density", "distance"}
"""Questions whose answers are the sums themselves; others decide or fit something by them."""
_STATED = (
    ("gap_for_95_percent", "given in 95 of 100 runs if it leads by {} votes"),
    ("deviation", "decided by votes, 2 of 3 counts within {}"),
    ("scale", "decided by leads in votes, blurred by about {}"),
    ("relative_vote_noise", "decided by votes, 2 of 3 counts within {:.0%}"),
    ("vote_noise", "decided by votes, 2 of 3 counts within {}"),
    ("threshold", "no answer where the lead is below about {} votes"),
    ("noise_of_a_gradient_in_records", "fitted by steps, 2 of 3 within {} records"),
)
"""What a release states of its own accuracy, the most telling first."""
_UNKNOWN = "not stated: it depends on the data"


def how_wrong(plan: Plan) -> dict[str, str]:
    """Return what is expected of each output's error, by name; a release that is asked later is left out.

    Noise is told in records wherever it is known what one record can add: that is the one scale which
    every reader has.
    """
    told = {}
    for name, output in plan.outputs.items():
        found = _told(output, plan.releases[output.stage.name])
        if found is not None:
            told[name] = found
    return told


def size(value: float) -> str:
    """Return a number to three digits, without an exponent where a reader would stumble over one."""
    near = float(f"{value:.3g}")
    return f"{near:,.0f}" if 1000 <= abs(near) < 1e12 else f"{near:.3g}"


def _told(output: OutputType, release: ReleasePlan) -> str | None:
    if release.bound is None:
        return "no noise: the data is public"
    if output.posts:
        return next(_of_posts(output), None) or _of_release(release.bound.claim.expected)
    if output.decl.serve is None and release.asked_stages is not None:
        return None  # asked later: what it answers is told where it is asked
    return _of_release(release.bound.claim.expected) or _UNKNOWN


def _of_posts(output: OutputType) -> Iterator[str]:
    noise = next((v for k, v in output.expected.items() if k.startswith(_NOISY)), None)
    record = max((post.of_a_record for post in output.posts), default=0.0)
    direct = output.decl.post[-1].key in _DIRECT
    if noise is not None and record == 1:
        told = f"within {size(noise)} records"
        yield f"2 of 3 answers {told} by noise" if direct else f"decided by sums, 2 of 3 {told}"
    elif noise is not None and record:
        told = f"within {size(noise)} ({size(noise / record)} records)"
        yield f"2 of 3 answers {told} by noise"
    for name, value in output.expected.items():
        if name.startswith((_NOISY, "noise")):
            yield f"decided by sums, 2 of 3 within {size(value)}"


def _of_release(expected: Mapping[str, Any]) -> str | None:
    for name, text in _STATED:
        if name in expected:
            value = float(expected[name])
            return text.format(value if "%" in text else size(value))
    return None
