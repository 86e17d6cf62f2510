"""Print a plan's first screen and tree.

Who is protected, how sure, how wrong, at what cost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from opendp_sim.accounting.composition import loss_text
from opendp_sim.accounting.measures.attackers import VERY_WEAK, attacker_of
from opendp_sim.accounting.measures.group_and_repeat import after_runs, of_units
from opendp_sim.cli.output.tree import tree
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.system.escape_text import escape
from opendp_sim.dsl.plan.advice import advised_of, warnings_of
from opendp_sim.dsl.plan.errors import asked_later, how_wrong
from opendp_sim.dsl.plan.loss_text import loss_sentences, spent_of
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.run.ledger_status import ledger_status
from opendp_sim.dsl.types.error_terms import Wrong

_WIDE, _MARGIN = 80, 11
_NAME = 20
"""Letters of a name that the first lines show; `-v` has the rest."""


def show_first(
    plan: Plan,
    spec: str,
    out: Console,
    *,
    whole: bool = False,
    predicted: Mapping[str, Wrong] | None = None,
) -> None:
    """Print five lines, a tree, and any advice.

    Args:
        plan: the plan.
        spec: its file, for the command that comes next.
        out: where to.
        whole: whether each line goes on over several rows, with the error of every output.
        predicted: errors that were worked out from public points, by output: they come first.
    """
    wide = min(out.width, _WIDE)
    for word, text in _answers(plan, whole=whole, predicted=predicted or {}):
        _row(out, word, text, wide, whole=whole)
    warned = warnings_of(plan)
    for text in warned:
        _row(out, "warning", text, wide, whole=True)
    last = _next(plan, escape(spec)) + ("" if whole else "; more: -v")
    # A command is never cut: somebody will copy it.
    out.print(Text(f"{'next':<{_MARGIN}}", style="bold") + Text(last), soft_wrap=True)
    out.print()
    for line in tree(plan):
        row = Text(escape(line))
        row.truncate(wide, overflow="ellipsis")
        out.print(row)
    if set(advised_of(plan)) - set(warned):
        out.print()
    show_advice(plan, out, but=warned)


def show_advice(plan: Plan, out: Console, *, whole: bool = True, but: Container[str] = ()) -> None:
    """Print advice on seldom meant plans.

    ``but`` those already printed; one row each unless ``whole``.
    """
    for text in advised_of(plan):
        if text in but:
            continue
        _row(out, "advice", text, min(out.width, _WIDE), whole=whole)


def show_done(
    plan: Plan, then: str | None, out: Console, *, whole: bool = False, runs: int = 1
) -> None:
    """Print a run's promise, error and cost in five lines.

    Args:
        plan: what ran.
        then: the command that comes next.
        out: where to.
        whole: whether each line goes on over several rows.
        runs: how many runs of this program on this data are known of, with this one.
    """
    wide = min(out.width, _WIDE)
    for word, text in _answers(plan, whole=whole, runs=runs):
        _row(out, word, text, wide, whole=whole)
    if then is not None:
        out.print(Text(f"{'next':<{_MARGIN}}", style="bold") + Text(escape(then)), soft_wrap=True)


def _row(out: Console, word: str, text: str, wide: int, *, whole: bool) -> None:
    room = wide - _MARGIN
    lines = wrap(escape(text), room, break_on_hyphens=False) if whole else [escape(text)]
    for at, line in enumerate(lines):
        row = Text(line)
        row.truncate(room, overflow="ellipsis")
        out.print(Text(f"{'' if at else word:<{_MARGIN}}", style="bold") + row)


def _next(plan: Plan, spec: str) -> str:
    """Return the next command."""
    found = ledger_status(plan)
    if found is not None and not found.get("fits", True):
        return f"opendp-sim ledger show {escape(found['file'])}"
    return f"{_command(plan)} {spec}"


def _command(plan: Plan) -> str:
    """Return the command that runs this plan."""
    asked = all(output.interactive for output in plan.outputs.values())
    return "opendp-sim session" if asked else "opendp-sim apply"


def _answers(
    plan: Plan, *, whole: bool, runs: int = 0, predicted: Mapping[str, Wrong] | None = None
) -> Iterator[tuple[str, str]]:
    if plan.privacy is None:
        yield "protected", "nobody: all data is declared public"
    else:
        yield "protected", f"{_who(plan)}. {_several(plan)}" if whole else _who(plan)
        sure = _sure_after(plan, runs) if runs else _sure(plan)
        yield "how sure", f"{sure}. {_runs(plan)}" if whole else sure
    yield "how wrong", _wrong(plan, predicted or {}, whole=whole)
    if plan.privacy is not None:
        cost = _spent(plan) if runs else _cost(plan)
        yield "cost", f"{cost}. {' '.join(loss_sentences(plan))}" if whole else cost


def _short(name: str, most: int = _NAME) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _who(plan: Plan) -> str:
    """Return who is protected, and which facts."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    unit = plan.privacy.unit
    several = unit.count > 1
    what = "that they are in the data" if several else "that it is in the data"
    if unit.kind == "replace":
        what = "what they say" if several else "what it says"
    if unit.of != "row":
        each = f"any {unit.count} of" if several else "each"
        return f"{each} `{_short(unit.of, 9)}` with all its rows: {what}"
    if several:
        return f"whoever any {unit.count} rows are about: {what} (with more, less)"
    return f"whoever a row is about: {what} (with more rows, less)"


def _several(plan: Plan) -> str:
    """State how much several records weaken the protection."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    unit = plan.privacy.unit
    if unit.of != "row":
        return (
            f"Rows with the same `{unit.of}` count as one; if a person has several `{unit.of}`, "
            "the person is protected less."
        )
    attacker = attacker_of(plan.privacy.measure, plan.total)
    told = [(count, of_units(attacker, count)) for count in (2, 10)]
    rest = ", ".join(f"with {count} rows {one.right}" for count, one in told if one is not None)
    end = f": {rest} of 100 such guesses are right at most." if rest else "."
    return f"One record is one row. A person with more rows is protected less{end}"


def _sure(plan: Plan) -> str:
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    attacker = attacker_of(plan.privacy.measure, plan.total)
    word = attacker.strength
    guess = "is right" if word == VERY_WEAK else "guesses right"  # a line has 69 letters
    return f"{word}: a spy at 50:50 then {guess} at most {attacker.right} times in 100"


def _sure_after(plan: Plan, runs: int) -> str:
    """State the protection after all runs (A4).

    A ledger has their sum; losses of one program add up.

    Without a ledger there may have been others, and the line says so.
    """
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    found = ledger_status(plan)
    if found is not None and found.get("runs"):
        known, runs = runs, found["runs"]
        together = attacker_of(found["measure"], tuple(found["loss"]))
        late = " by this ledger alone" if known > 1 else ""  # an earlier run was not made with it
        told = late if runs == 1 else f" after {runs} runs"
    else:
        together = after_runs(attacker_of(plan.privacy.measure, plan.total), runs)
        if runs > 1:
            return (
                f"two runs or more; if two, a spy at 50:50 is right at most {together.right} in 100"
            )
        told = " if no other run"
    line = f"{together.strength}{told}: a spy at 50:50 is right at most {together.right} in 100"
    return line if len(line) <= _WIDE - _MARGIN else line.replace(" at 50:50", "")


def _runs(plan: Plan) -> str:
    """Say who the spy is, and that several runs add up."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    attacker = attacker_of(plan.privacy.measure, plan.total)
    of = "records" if plan.privacy.unit.of == "row" else "people"
    told = ", ".join(f"after {n} runs {after_runs(attacker, n).right}" for n in (2, 10))
    return (
        f"The spy sees all that is released and knows all other {of}; 50 is a coin toss. "
        f"Runs on the same data add up: {told}."
    )


def _wrong(plan: Plan, predicted: Mapping[str, Wrong], *, whole: bool) -> str:
    """Print errors, equal outputs together."""
    alike = defaultdict(list)
    told = {**predicted, **how_wrong(plan), **predicted}
    noun = " output" if told else " question"
    for name, error in (told or asked_later(plan)).items():
        alike[error.whole if whole else error.brief].append(name if whole else _short(name))
    if not alike:
        return "not stated: it depends on what the release is asked"
    if whole:
        return ". ".join(f"{', '.join(names)}: {text}" for text, names in alike.items())
    text, names = next(iter(alike.items()))
    every = sum(map(len, alike.values()))
    short = text.replace(" answers", "")
    for few, said, of in (
        (names[:2], text, noun),
        (names[:1], text, noun),
        (names[:1], short, noun),
        (names[:1], short, ""),
        (names[:1], short.partition(" (")[0], ""),
    ):
        left = every - len(few)
        more = f"; {left} more{of}{'s' if of and left > 1 else ''}" if left else ""
        line = f"{', '.join(few)}: {said}{more}"
        if len(line) <= _WIDE - _MARGIN:
            break
    return line


def _loss(plan: Plan) -> str:
    """Tell what one run loses."""
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    spent = spent_of(plan)
    if spent is None:
        return loss_text(plan.privacy.measure, plan.total)
    rest = "".join(f", delta {up_text(delta, 2)}" for delta in spent[1:])
    return f"epsilon {up_text(spent[0], 3)}{rest}"


def _spent(plan: Plan) -> str:
    """Print this run's cost and the counting of runs."""
    found = ledger_status(plan)
    if found is None:
        return f"{_loss(plan)} for this run alone; no ledger adds runs up"
    room: int | None = found.get("room")
    few: dict[int | None, str] = {0: "; no other run fits", 1: "; one other run fits"}
    more = few.get(room, f"; {room} other runs fit")
    return f"{_loss(plan)} for this run alone{more if room is not None else ''}"


def _cost(plan: Plan) -> str:
    """Tell what a run would spend, and who counts it."""
    loss, found = _loss(plan), ledger_status(plan)
    if found is None:
        return f"none yet; {loss} a run; no ledger adds them up"
    if "refused" in found:
        return f"none yet; {loss} a run; ledger unreadable"
    if not found["fits"]:
        return f"REFUSED: the ledger has too little left for {loss}"
    runs = "one run fits" if found["room"] == 1 else f"{found['room']} runs fit"
    return f"none yet; {loss} a run; {runs} the ledger"
