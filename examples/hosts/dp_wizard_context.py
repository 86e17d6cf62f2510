"""Add a release of opendp_sim to a script of DP Wizard, inside its one `dp.Context`.

Imported in DP Wizard's environment; opendp_sim runs in a worker process of its own (`charged.py`).
"""

from __future__ import annotations

import ast
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import opendp.prelude as dp
from charged import RefusedError, charged_release, price


def extended(script: str, program: Mapping[str, Any], command: Sequence[str], weight: int) -> str:
    """Return a script of DP Wizard with one more query, of opendp_sim.

    The budget of its Context stays; it is split by one more weight, and the others get less.

    Args:
        script: what DP Wizard generates for statistics.
        program: columns, measure, steps, release and what to ask; budget and unit are the Context's.
        command: how a worker is started.
        weight: the query's weight, beside those of the script.
    """
    places = [
        keyword.value
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "split_by_weights" and isinstance(keyword.value, ast.List)
    ]
    if len(places) != 1 or not places[0].elts:
        raise ValueError("expected a script with one Context and its weights")
    last = places[0].elts[-1]
    lines = script.encode().splitlines(keepends=True)
    line, at = lines[(last.end_lineno or 0) - 1], last.end_col_offset or 0
    lines[(last.end_lineno or 0) - 1] = line[:at] + f", {weight}".encode() + line[at:]
    more = f"""
    # ### A release of opendp_sim, from the rest of the same budget:
    import json
    from dp_wizard_context import release_in

    print(json.dumps(release_in(
        stats_context, {dict(program)!r}, {list(command)!r}
    )))
"""
    return b"".join(lines).decode() + more


def release_in(
    context: dp.Context, program: Mapping[str, Any], command: Sequence[str]
) -> dict[str, Any]:
    """Release a program with the next share of a Context's budget.

    The Context is charged by its own compositor: the release is a measurement on its data frame, whose
    map is the price of the program at the Context's distance.

    Returns:
        The answers by question, with the cost.

    Raises:
        RefusedError: the program is refused, or the worker failed; then the share is spent.
    """
    accountant, share = context.accountant, context.d_mids[0]
    approximate = isinstance(share, tuple)
    epsilon, delta = share if approximate else (share, 0.0)
    if "Concentrated" in str(accountant.output_measure):
        raise RefusedError("a Context in epsilon is needed")
    budget = {"epsilon": epsilon} | ({"delta": delta} if delta else {})
    whole = {
        **program,
        "contributions": context.d_in,
        "measure": "approx" if delta else "pure",
        "budget": budget,
    }
    priced = price(command, whole)

    def loss(d_in: int) -> Any:
        found = priced if d_in <= context.d_in else (math.inf, 1.0)
        return found if approximate else found[0]

    def check(epsilon: float, delta: float) -> None:
        if epsilon > priced[0] or delta > priced[1]:
            raise RefusedError("the price changed")

    def release(frame: Any) -> str:
        # a Context charges after its measurement has answered: an exception would be free of charge
        try:
            return json.dumps(charged_release(command, whole, check, lambda: _rows(frame, program)))
        except Exception as error:  # noqa: BLE001
            return json.dumps({"refused": type(error).__name__})

    dp.enable_features("honest-but-curious")
    measurement = dp.m.make_user_measurement(
        accountant.input_domain, accountant.input_metric, accountant.output_measure, release, loss
    )
    answers: dict[str, Any] = json.loads(context(measurement))
    if "refused" in answers:
        raise RefusedError(f"{answers['refused']}; the share of the budget is spent")
    return {"answers": answers, "epsilon": priced[0], "delta": priced[1]}


def _rows(frame: Any, program: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return the program's columns; a missing number is NaN, which a worker drops."""
    found = frame.select(list(program["columns"])).collect().to_dict(as_series=False)
    return {
        name: [math.nan if value is None else value for value in column]
        for name, column in found.items()
    }
