"""Rank mechanisms by predicted error, the command ``recommend``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from opendp_sim.api.recommend import QUESTIONS, recommend
from opendp_sim.cli._run import AsJson, handled, say, say_json


def recommend_command(
    question: Annotated[str, typer.Argument(help=f"One of {', '.join(QUESTIONS)}.")],
    columns: Annotated[int, typer.Option(help="How many columns, each within 0 and 1.")] = 1,
    size: Annotated[
        int, typer.Option(help="About how many records, from public knowledge.")
    ] = 1000,
    epsilon: Annotated[float, typer.Option(help="Of this release.")] = 1.0,
    bandwidth: Annotated[
        float | None, typer.Option(help="Of densities; default a tenth of the range.")
    ] = None,
    norm: Annotated[str, typer.Option(help="Of distances: l1, l2 or l2_squared.")] = "l1",
    pure: Annotated[bool, typer.Option("--pure", help="Pure DP, in place of delta 1e-6.")] = False,
    spec: Annotated[bool, typer.Option("--spec", help="Print the spec of the first one.")] = False,
    json_: AsJson = False,
) -> None:
    """Rank mechanisms by predicted error.

    No data is opened. What cannot be predicted has no rank.
    """
    with handled(as_json_text=json_):
        words: dict[str, Any] = {"norm": norm, "bandwidth": bandwidth, "epsilon": epsilon}
        words |= {"measure": "pure"} if pure else {}
        found = recommend(question, columns, size=size, source="records.csv", **words)
        if json_:
            say_json(found.plain())
        elif spec:
            say(found.best.spec().rstrip(), lines=True, fold=False)
        else:
            say(repr(found), lines=True)
