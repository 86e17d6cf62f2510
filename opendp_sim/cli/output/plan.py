"""Print a plan's releases, costs and expectations."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.text import Text

from opendp_sim.accounting.composition import loss_text
from opendp_sim.cli._run import plain_table
from opendp_sim.core.arithmetic.rounding import up_text
from opendp_sim.core.memory import process_memory
from opendp_sim.core.system.escape_text import escape
from opendp_sim.dsl.grammar.bandwidths import shown_step
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.types.column_scales import own_units
from opendp_sim.dsl.types.describe import ROW_GROUP, bytes_a_record, dropped, memory_a_core


def show_types(plan: Plan, out: Console, *, advised: bool = True) -> None:
    """Print the type of every stage, step by step, with its advice."""
    for name, stage in plan.plain()["stages"].items():
        out.print(
            Text(escape(f"stage {name}"), style="bold"),
            Text(escape(f" from {stage['from']}")),
            sep="",
        )
        rows = plain_table("step", "type after it", "facts")
        own = stage["own_steps"]
        for step in stage["steps"][-own:] if own else []:
            rows.add_row(step["step"], step["type"], _facts(step["expected"]))
        parts = (
            [rows, Text(escape(_judgement(stage)))] if own else [Text(escape(_judgement(stage)))]
        )
        if advised:
            for step in stage["steps"][-own:] if own else []:
                parts += [
                    Text(escape(f"advice: {step['step']}: {text}"))
                    for text in step.get("advice", ())
                ]
        if told := own_units(plan.types[name]) if own else "":
            parts.append(Text(escape(told)))
        out.print(Padding(Group(*parts), (0, 0, 1, 2)))


def _judgement(stage: dict[str, Any]) -> str:
    sensitivity = ""
    if stage["faces"]:
        norms = stage["faces"]
        sensitivity = (
            f"; sensitivity l1 {up_text(norms['l1'])}, l2 {up_text(norms['l2'])}, "
            f"linf {up_text(norms['linf'])}"
        )
        sensitivity += ", monotone" if norms["monotone"] else ""
    return (
        f"stability {stage['stability']} under {stage['metric']}{sensitivity}; numerics "
        f"{stage['numerics']}; evidence: {stage['evidence']}"
    )


def show_plan(plan: Plan, out: Console, *, before: int | None = None) -> None:
    """Print the whole plan.

    ``before`` is the process's memory before it opened data, in bytes, after a run.
    """
    only = before is None
    body = plan.plain()
    out.print(
        Text(escape(f"plan of {body['name']}"), style="bold"), f"  program {body['program'][:16]}"
    )
    _ingest(plan, out)
    out.print()
    show_types(plan, out, advised=False)
    _releases(plan, body, out)
    _outputs(body, out)
    own, held = body["memory_bytes"], process_memory() if before is None else before
    out.print(
        f"peak memory of the process about {(own + held) / 2**20:,.0f} MiB, of which {own / 2**20:,.0f} "
        f"for blocks and sketches{_each_record(plan)}{'; no data was opened' if only else ''}"
    )


def _ingest(plan: Plan, out: Console) -> None:
    for entry in plan.program.data:
        if entry.ingest == "enforce" and not entry.public:
            out.print(
                f"ingest    {entry.name}: enforce; a record is dropped without a message "
                f"{dropped(entry)}; its curator runs `opendp-sim doctor` first"
            )


def _releases(plan: Plan, body: dict[str, Any], out: Console) -> None:
    rows = plain_table("release", "mechanism", "sampler", "loss", "share", "cell deviation")
    for name, release in body["releases"].items():
        if release["mechanism"] == "none":
            rows.add_row(name, "none (public data)", "", "0", "", "0")
            continue
        ((key, params),) = shown_step(release["mechanism"]).items()
        inside = ", ".join(
            f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}"
            for k, v in params.items()
            if k not in ("sampler", "accounting") and v is not None
        )
        own = ", ".join(up_text(v) for v in release["own"]["loss"])
        loss = loss_text(plan.privacy.measure, tuple(release["loss"])) if plan.privacy else ""
        if plan.privacy and release["own"]["loss"] != release["loss"]:
            loss += f"  (from {release['own']['measure'].replace('_', ' ')} {own})"
        deviation = "" if release["deviation"] is None else f"{release['deviation']:.6g}"
        rows.add_row(
            name,
            f"{key} {inside}",
            release["sampler"] or "",
            loss,
            release["spend"] or "given",
            deviation,
        )
    out.print(rows)
    _total(plan, body, out)
    for name, release in body["releases"].items():
        if release.get("maps") and body["privacy"] is not None:
            steps = "".join(f" -> {step} {up_text(value)}" for step, value in release["maps"])
            loss = ", ".join(up_text(value) for value in release["own"]["loss"])
            out.print(
                f"maps      {name}: d_in {body['privacy']['d_in']}{steps} -> {loss} "
                f"({release['own']['measure'].replace('_', ' ')})"
            )
        if release.get("expected"):
            out.print(f"expected  {name}: {_facts(release['expected'])}")
        if release.get("reason"):
            out.print(f"chosen    {name}: {release['reason']}")
    out.print()


def _total(plan: Plan, body: dict[str, Any], out: Console) -> None:
    if plan.privacy is None or plan.target is None:
        return
    measure = plan.privacy.measure
    out.print(
        f"total     {loss_text(measure, plan.total)}, by OpenDP's composition; the types agree"
    )
    if body["claim"] is not None:
        epsilon, delta = body["claim"]
        how = "by OpenDP"
        if body["gaussian"] is not None:
            how = f"by the exact curve (as zCDP: {up_text(body['gaussian']['epsilon_by_zcdp'])})"
        at = up_text(body["conversion_delta"], 3)
        out.print(
            f"claim     ({up_text(epsilon)}, {up_text(delta, 3)})-DP: "
            f"{loss_text(measure, plan.total)} converted at delta {at} {how}"
        )
    else:
        out.print(f"claim     {loss_text(measure, plan.total)} under {measure}")


def _outputs(body: dict[str, Any], out: Console) -> None:
    rows = plain_table("output", "from", "expected error", "goes to")
    for name, output in body["outputs"].items():
        goes = output["save"] or f"serve: {output['serve']}"
        rows.add_row(name, output["from"], _facts(output["expected"]), goes)
    out.print(rows)


def _facts(facts: dict[str, float]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in facts.items())


def _each_record(plan: Plan) -> str:
    """State the memory of rows needed together, and of further cores."""
    held = sum(
        bytes_a_record(typed)
        for typed in plan.types.values()
        if typed.release is not None and not typed.is_sketch
    )
    more = memory_a_core(plan.types.values())
    told = f", and {held:,} bytes a record" if held else ""
    told += f", and {more / 2**20:,.0f} for each core beyond two" if more >= 2**20 else ""
    if any(typed.entry.source.kind == "parquet" for typed in plan.types.values()):
        told += (
            f"; a row group of over {ROW_GROUP / 2**20:.0f} MiB, its columns unpacked, may take up to "
            "its own size more, on each of two cores"
        )
    return told
