"""The ``flow`` section: stages, their steps, what they expect, how they are released."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

from opendp_sim.core.mechanism import REGISTRY, Mechanism
from opendp_sim.dsl.diagnostic import Notes, Path
from opendp_sim.dsl.fields import HOLE, Fields, integer, listing, mapping, number, shown, text
from opendp_sim.dsl.ir import Expect, ReleaseDecl, StageDecl
from opendp_sim.dsl.read_steps import hole_in, known_key, read_record, read_steps, split_step

__all__ = ["SOLVABLE", "noise_keys", "read_flow"]

SOLVABLE = ("scale", "rho", "epsilon")
"""A mechanism's parameter that the language may solve from the budget, in order of preference."""
FACES = ("l1", "l2", "linf")


def read_flow(section: Any, notes: Notes) -> dict[str, StageDecl | None]:
    """Return the stages by name; None stands for one that is wrong (reported)."""
    path: Path = ("flow",)
    if not isinstance(section, dict) or not section:
        if section is not HOLE:
            notes.error("OS304", "`flow` must name at least one stage", path,
                        label=f"got {shown(section)}",
                        help="write `flow: {name: {from: ..., steps: [...]}}`.")  # fmt: skip
        return {}
    return {name: _stage(name, value, (*path, name), notes) for name, value in section.items()}


def _stage(name: str, value: Any, path: Path, notes: Notes) -> StageDecl | None:
    before = len(notes.findings)
    fields = Fields(value, path, notes, ("from", "steps", "release", "expect"))
    source = fields.take("from", text)
    steps: tuple[Mechanism, ...] | None = ()
    if "steps" in fields.value:
        raw = fields.take("steps", listing)
        steps = read_steps(raw, (*path, "steps"), notes, ("rows", "sketches"))
    release = None
    if "release" in fields.value:
        release = _release(fields.value["release"], (*path, "release"), notes)
    expect = _expect(fields.take("expect", mapping, None), (*path, "expect"), notes)
    if fields.usable and not {"steps", "release"} & set(fields.value):
        notes.error("OS305", f"stage `{name}` does nothing", path, part="key",
                    label="no `steps` and no `release`", help="add one of them.")  # fmt: skip
    if len(notes.findings) > before or source is HOLE or steps is None:
        return None
    return StageDecl(name, source, steps, release, expect)


def _expect(value: Any, path: Path, notes: Notes) -> Expect | None:
    if value is None or value is HOLE:
        return None
    fields = Fields(value, path, notes, ("stability", "faces"))
    stability = fields.take("stability", integer, None)
    faces = fields.take("faces", mapping, {})
    if HOLE in (stability, faces):
        return None
    inside = Fields(faces, (*path, "faces"), notes, FACES)
    found = {name: inside.take(name, number) for name in FACES if name in inside.value}
    if HOLE in found.values():
        return None
    for name, claimed in found.items():
        if not 0 <= claimed < math.inf:
            notes.error("OS304", f"`{name}` must be a number from 0 up", (*path, "faces", name),
                        label=f"got {shown(claimed)}",
                        help="write the greatest change that one record makes.")  # fmt: skip
            return None
    return Expect(stability, tuple((name, float(v)) for name, v in found.items()))


def _release(value: Any, path: Path, notes: Notes) -> ReleaseDecl | None:
    if value is HOLE:
        return None
    if value == "none":
        return ReleaseDecl("none")
    if isinstance(value, dict) and "noise" in value:
        return _noise(value, path, notes)
    if isinstance(value, dict) and "mechanism" in value:
        return _mechanism(value, path, notes)
    notes.error("OS304", "a release is {noise: ...}, {mechanism: {...}} or none", path,
                label=f"got {shown(value)}",
                help="write release: {noise: gaussian, scale: solve, spend: 100%}.")  # fmt: skip
    return None


def _noise(value: dict[str, Any], path: Path, notes: Notes) -> ReleaseDecl | None:
    key = value["noise"]
    if key is HOLE:
        return None
    noises = noise_keys()
    if key not in noises:
        shape = f"`noise` must be one of {', '.join(sorted(noises))}"
        notes.error("OS303", shape, (*path, "noise"), label=f"got {shown(key)}",
                    help="gaussian for zcdp budgets, laplace for pure ones.")  # fmt: skip
        return None
    rest = {n: v for n, v in value.items() if n not in ("noise", "spend", "scale")}
    scale = value.get("scale", "solve")
    spend = _spend(value, path, notes)
    if scale != "solve" and "spend" in value:
        notes.error("OS102", "a release states its scale or its share, not both", (*path, "spend"),
                    label="`scale` is given", part="key",
                    help="write `scale: solve`, or leave `spend` out.")  # fmt: skip
    given = rest | {"scale": 1.0 if scale == "solve" else scale}
    before = len(notes.findings)
    record = read_record(REGISTRY[key], given, path, notes)
    if record is None or len(notes.findings) > before or spend is HOLE:
        return None
    params = record.spec()
    if scale == "solve":
        params.pop("scale")
    return ReleaseDecl(
        "noise", key, _frozen_items(params), "scale" if scale == "solve" else None,
        spend if scale == "solve" else None,
    )  # fmt: skip


def noise_keys() -> list[str]:
    """Return the mechanisms that are noise and nothing else: a scale, perhaps a sampler."""
    return [
        key
        for key, cls in REGISTRY.items()
        if cls.room == "measurements" and {"scale"} <= set(cls.model_fields) <= {"scale", "sampler"}
    ]


def _mechanism(value: dict[str, Any], path: Path, notes: Notes) -> ReleaseDecl | None:
    Fields(value, path, notes, ("mechanism", "spend"))  # refuses other words
    spend = _spend(value, path, notes)
    named = split_step(value["mechanism"], (*path, "mechanism"), notes)
    if named is None:
        return None
    key, params = named
    where = (
        (*path, "mechanism", key) if isinstance(value["mechanism"], dict) else (*path, "mechanism")
    )
    if not known_key(key, where, notes, ("measurements",)):
        return None
    cls = REGISTRY[key]
    solve = _solved(cls, params)
    given = {name: v for name, v in params.items() if name != solve}
    solved = [] if solve is None else [solve]
    if (
        "delta" in cls.model_fields
        and cls.model_fields["delta"].is_required()
        and "delta" not in params
    ):
        solved.append("delta")
    before = len(notes.findings)
    read_record(cls, given, where, notes, solved=solved)
    if len(notes.findings) > before or spend is HOLE or hole_in(params):
        return None
    return ReleaseDecl("mechanism", key, _frozen_items(given), solve, spend)


def _solved(cls: type[Mechanism], params: dict[str, Any]) -> str | None:
    """Return the parameter to solve: one that says ``solve``, or a required one left out."""
    for name in SOLVABLE:
        if name in cls.model_fields and params.get(name) == "solve":
            return name
        if name in cls.model_fields and name not in params and cls.model_fields[name].is_required():
            return name
    return None


def _spend(value: dict[str, Any], path: Path, notes: Notes) -> Any:
    """Return the share as a fraction, None when it is not stated."""
    spend = value.get("spend")
    if spend is None or spend is HOLE:
        return spend
    share = None
    try:
        if isinstance(spend, str):
            share = Fraction(spend[:-1]) / 100 if spend.endswith("%") else Fraction(spend)
        elif isinstance(spend, int | float) and not isinstance(spend, bool):
            share = Fraction(str(spend))
    except (ValueError, ZeroDivisionError):
        share = None
    if share is None or not 0 < share <= 1:
        notes.error("OS401", "`spend` is a share of the budget", (*path, "spend"),
                    label=f"got {shown(spend)}", help="write 100%, 0.25 or 1/3.")  # fmt: skip
        return HOLE
    return share


def _frozen_items(params: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))
