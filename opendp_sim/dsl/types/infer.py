"""Infer every stage's domain, sensitivity, unit, numerics and evidence, without data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from opendp_sim.accounting.budget import MeasureName
from opendp_sim.core.arithmetic.rounding import U32_MAX
from opendp_sim.core.claims import Interactive, Norm, Private, Stable, Stage
from opendp_sim.core.errors import SimError, SpaceError
from opendp_sim.core.mechanism import REGISTRY, Mechanism
from opendp_sim.core.pipeline import stability
from opendp_sim.core.space import Domain, Metric
from opendp_sim.domains.metrics import IdDistance, Symmetric
from opendp_sim.dsl.grammar.parse_steps import locate
from opendp_sim.dsl.grammar.program import Program, ReleaseDecl, StageDecl, Unit
from opendp_sim.dsl.text.diagnostic import Notes, Path, suggest
from opendp_sim.dsl.types.checks import check_expect
from opendp_sim.dsl.types.records import Bound, Typed

_MOST_USERS = 1000
"""The largest calibrated distance that a selection takes."""


def type_stages(
    program: Program, broken: frozenset[str], notes: Notes, unit: Unit | None
) -> dict[str, Typed | None]:
    """Type every stage that can be typed.

    Left out silently: a stage on a broken one, and a private one where the privacy ``unit`` is not
    known, because every complaint about its metric would be about a unit that nobody meant.
    """
    types: dict[str, Typed | None] = dict.fromkeys(broken)
    declared = {stage.name: stage for stage in program.flow}
    for stage in program.flow:
        _visit(stage, program, declared, types, notes, (), unit)
    return types


def _visit(
    decl: StageDecl,
    program: Program,
    declared: Mapping[str, StageDecl],
    types: dict[str, Typed | None],
    notes: Notes,
    trail: tuple[str, ...],
    unit: Unit | None,
) -> Typed | None:
    if decl.name in types:
        return types[decl.name]
    path: Path = ("flow", decl.name)
    if decl.name in trail:
        notes.error("OS306", "stages feed each other in a circle", (*path, "from"),
                    label=" -> ".join((*trail, decl.name)),
                    help="start the chain from a `data` entry.")  # fmt: skip
        return None
    base: Typed | None
    if (entry := program.entry(decl.source)) is not None:
        rows = entry.public or (unit is not None and unit.of == "row")
        metric = Symmetric() if rows else IdDistance(unit.of) if unit else None
        base = Typed(decl.name, entry, decl, (), (), entry.records, metric) if metric else None
    elif decl.source in declared:
        longer = (*trail, decl.name)
        base = _visit(declared[decl.source], program, declared, types, notes, longer, unit)
        if base is not None and base.release is not None:
            notes.error("OS306", f"`{decl.source}` is released already", (*path, "from"),
                        label="only post-processing may follow",
                        help="put queries under `post:` of an output.")  # fmt: skip
            base = None
    else:
        base = None
        if decl.source not in types:
            known = [*declared, *(entry.name for entry in program.data)]
            notes.error("OS303", f"no stage or dataset is called `{decl.source}`", (*path, "from"),
                        label="not known", help=suggest(decl.source, known)
                        or f"use one of {', '.join(known)}.")  # fmt: skip
    types[decl.name] = None if base is None else _stage(decl, base, notes, unit)
    return types[decl.name]


def _stage(decl: StageDecl, base: Typed, notes: Notes, unit: Unit | None) -> Typed | None:
    stages, places = list(base.stages), list(base.places)
    domain, metric = base.domain, base.metric
    for place, mechanism in enumerate(decl.steps):
        path: Path = ("flow", decl.name, "steps", place, mechanism.key)
        if (
            stages
            and isinstance(stages[-1].claim, Stable)
            and stages[-1].claim.sensitivity is not None
        ):
            notes.error("OS306", f"`{mechanism.key}` stands after a sketch", path, part="key",
                        label="a sketch ends the row maps", help="release the sketch next.")  # fmt: skip
            return None
        try:
            claim = mechanism.bind(domain, metric)
        except SimError as error:
            where = locate(error, mechanism.key, mechanism.spec(), path)
            notes.from_error(error, where, "key" if where == path else "value")
            return None
        if not isinstance(claim, Stable):
            raise TypeError(mechanism.key)
        stages.append(Stage(mechanism, domain, metric, claim))
        places.append(path)
        domain, metric = claim.output, claim.output_metric or metric
        hidden = 0 if base.entry.public or unit is None else unit.d_in * stability(stages)
        if hidden > U32_MAX:
            notes.error("OS205", f"the unit is {hidden:,} records after `{mechanism.key}`", path,
                        label="OpenDP counts records below 2**32", part="key",
                        help="lower the unit, or the rows of a person.")  # fmt: skip
            return None
    own = None if decl.expect is None else decl.expect.records
    typed = Typed(
        decl.name,
        base.entry,
        decl,
        tuple(stages),
        tuple(places),
        domain,
        metric,
        decl.release,
        base.expected_records if own is None else own,
    )
    if decl.expect is not None:
        check_expect(typed, decl.expect, notes)
    return _check_release(typed, notes) if decl.release else typed


def _check_release(typed: Typed, notes: Notes) -> Typed | None:
    release, path = typed.decl.release, ("flow", typed.name, "release")
    assert release is not None  # noqa: S101 - the caller asked
    if release.kind == "none":
        if not typed.entry.public:
            notes.error("OS307", f"`{typed.entry.name}` is private, so `none` releases it bare", path,
                        label="no noise",
                        help="choose a noise, or say `public: true` on data that is public.")  # fmt: skip
            return None
        return typed
    if typed.entry.public:
        notes.error("OS306", f"`{typed.entry.name}` is public and needs no noise", path,
                    label="spends nothing that is private", help="write `release: none`.")  # fmt: skip
        return None
    if release.kind == "noise" and not typed.is_sketch:
        notes.error("OS306", "noise needs a sketch", path,
                    label=f"`{typed.name}` ends in {type(typed.domain).__name__}",
                    help="add a sketch step, for example `race_sketch`, before the noise.")  # fmt: skip
        return None
    try:
        bind_release(typed, release_record(release, probe=True))
    except SimError as error:
        part = (
            (*path, "noise") if release.kind == "noise" else (*path, "mechanism", release.key or "")
        )
        given = dict(release.params)
        where = locate(error, release.key or "", given, part)
        if release.kind == "noise" and len(where) > len(part):
            where = (*path, *where[len(part) :])
        notes.from_error(error, where)
        return None
    return typed


def release_record(
    release: ReleaseDecl,
    value: float | None = None,
    delta: float | None = None,
    *,
    distance: int = 1,
    probe: bool = False,
) -> Mechanism:
    """Return the record of a release, with the solved parameter filled in.

    ``probe`` fills in a harmless value, to learn the types before anything is solved. ``distance`` is
    what a threshold is calibrated for where the author does not say: a smaller one than the unit's
    makes a delta that no noise brings below its share.
    """
    assert release.key is not None  # noqa: S101 - only `none` has no key
    cls = REGISTRY[release.key]
    params = dict(release.params)
    if release.solve is not None:
        params[release.solve] = 1.0 if probe or value is None else value
    if "delta" in cls.model_fields and cls.model_fields["delta"].is_required():
        params.setdefault("delta", delta or 1e-9)
    if "distance" in cls.model_fields and 1 < distance <= _MOST_USERS:
        params.setdefault("distance", distance)
    return cls.from_spec(params)


def by_curve(typed: Typed, measure: MeasureName) -> Typed | None:
    """Return the stage with its exact (epsilon, delta) curve.

    None where the author said how to account, the mechanism has no curve, or the program composes in
    a measure that no curve converts to.
    """
    release = typed.release
    if release is None or release.key is None or measure != "approx":
        return None
    stated, field = dict(release.params), REGISTRY[release.key].model_fields.get("accounting")
    if "accounting" in stated or field is None:
        return None
    curved = replace(release, params=tuple({**stated, "accounting": "curve"}.items()))
    return replace(typed, release=curved)


def users_before(typed: Typed, d_in: int) -> int:
    """Return the distance before a release in whole users."""
    step = typed.stability if typed.sensitivity is None else typed.sensitivity.linf
    return math.ceil(step * d_in)


def bind_release(typed: Typed, record: Mechanism) -> Bound:
    """Bind a release's mechanism under the first norm that it accepts."""
    if not typed.is_sketch:
        return _bound(record, typed.domain, typed.metric, None)
    first: SpaceError | None = None
    metric_of = getattr(typed.domain, "metric", lambda _norm: typed.metric)
    for norm in ("l2", "l1", "linf"):
        try:
            return _bound(record, typed.domain, metric_of(norm), norm)
        except SpaceError as error:
            if error.code != "OS202":
                raise
            first = first or error
    assert first is not None  # noqa: S101 - three norms were tried
    raise first


def _bound(record: Mechanism, domain: Domain, metric: Metric, norm: Norm | None) -> Bound:
    claim = record.bind(domain, metric)
    if not isinstance(claim, Private | Interactive):
        raise SpaceError(
            "OS201", record.key, expected="a mechanism that releases", got=type(claim).__name__,
            hint="name a measurement under `release:`; `opendp-sim ops` lists them.",
        )  # fmt: skip
    return Bound(record, claim, domain, metric, norm)
