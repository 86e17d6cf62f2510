"""Declare the ``flow`` section, stages with steps, expectations and releases."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Literal

from opendp_sim.core.mechanism import REGISTRY, Mechanism, current_key
from opendp_sim.dsl.grammar.parse_steps import known_key, read_record, split_step
from opendp_sim.dsl.grammar.pydantic_schema import Schema
from opendp_sim.dsl.grammar.section import (
    HOLE,
    Refusal,
    Section,
    ValueReader,
    hole_in,
    not_a_word,
    plain_of,
    value_text,
    word,
)
from opendp_sim.dsl.grammar.steps import SOLVABLE, mechanisms_schema, steps_reader
from opendp_sim.dsl.text.diagnostic import Notes, Path, suggest

# --- expectations ---------------------------------------------------------------------------------


def _norm(norm: str) -> Any:
    return word(f"The greatest {norm} distance that one record makes.", None, ge=0, allow_inf_nan=False,
                refusal=Refusal(f"`{norm.lower()}` must be a number from 0 up",
                                "write the greatest change that one record makes."))  # fmt: skip


class Norms(Section):
    """Bound one record's change of a sketch, in each norm."""

    l1: float | None = _norm("L1")
    l2: float | None = _norm("L2")
    linf: float | None = _norm("Linf")


class Expect(Section):
    """State the author's expectations of a stage.

    `check` fails when the types exceed them. Of `records` a run warns after its release, by the released
    number alone, so the warning tells nothing more.
    """

    stability: int | None = word("How many rows a changed record changes at most.", None)
    sensitivity: Norms | None = word(
        "What one record changes at most, such as {l2: 10}.", None, formerly=("faces",)
    )
    records: int | None = word(
        "About how many records the release counts, from public knowledge. `ingest: enforce` drops "
        "records in silence, and a released number far from this one shows it. Stages behind this one "
        "expect the same, unless they say another number.",
        None,
        ge=1,
    )

    @property
    def claimed(self) -> tuple[tuple[str, float], ...]:
        """(norm, claimed) of every norm that is stated."""
        return () if self.sensitivity is None else tuple(self.sensitivity.plain().items())

    def plain(self) -> Any:
        """Return the hashed form, with the first specs' word."""
        said: dict[str, Any] = {"stability": self.stability, "faces": dict(self.claimed) or None}
        said["records"] = self.records
        return {name: value for name, value in said.items() if value is not None}


# --- releases -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReleaseDecl:
    """Declare a stage's release.

    Noise on a sketch, or a mechanism that releases by itself.

        release: {noise: gaussian, scale: solve, spend: 60%}   # the least noise that fits the share
        release: 60%                                           # the same: laplace under `pure`
        release: {noise: laplace, scale: 40.0}                 # or a scale of your own
        release: {mechanism: {top_k: {k: 10}}, spend: 40%}
        release: none                                          # of data that says ``public: true``

    ``spend`` is a share of the budget; all shares together are at most 100 %.
    """

    # ``mechanism`` is the record's key and ``params`` its parameters without the one that is solved;
    # ``spend`` is None when the scale is given.
    kind: Literal["noise", "mechanism", "none"]
    key: str | None = None
    params: tuple[tuple[str, Any], ...] = ()
    solve: str | None = None
    spend: Fraction | None = None
    inside: ClassVar[tuple[str, ...]] = ("noise", "mechanism", "scale", "spend")

    def plain(self) -> Any:
        """The spec's form."""
        if self.kind == "none":
            return "none"
        params = {name: plain_of(value) for name, value in self.params}
        spend = {} if self.spend is None else {"spend": str(self.spend)}
        if self.kind == "noise":
            scale = "solve" if self.solve else params.pop("scale")
            said = {name: value for name, value in params.items() if value is not None}
            return {"noise": self.key, "scale": scale, **said, **spend}
        return {"mechanism": {self.key: params}, **spend}


def _release(value: Any, path: Path, notes: Notes) -> ReleaseDecl | None:
    if value == "none":
        return ReleaseDecl("none")
    if isinstance(value, dict) and "noise" in value:
        return _noise(value, path, notes)
    if isinstance(value, dict) and "mechanism" in value:
        return _mechanism(value, path, notes)
    if _looks_like_share(value):
        spend = _share(value, path, notes)
        return None if spend is HOLE else ReleaseDecl("noise", None, (), "scale", spend)
    words = ("noise", "mechanism")
    if isinstance(value, dict):
        strange = next((name for name in value if suggest(name, words)), None)
        if strange is not None:
            notes.unknown(strange, words, (*path, strange), "entry")
            return None
    near = suggest(value, ["none"]) if isinstance(value, str) else ""
    notes.error("OS304", "a release is {noise: ...}, {mechanism: {...}}, a share or none", path,
                label=f"got {value_text(value)}",
                help=near or "write release: {noise: gaussian, scale: solve, spend: 100%}.")  # fmt: skip
    return None


def with_noise(release: ReleaseDecl | None, measure: str) -> ReleaseDecl | None:
    """Return a release with the noise that a share alone means.

    Laplace noise under `pure`, Gaussian noise under the other measures.
    """
    if release is None or release.kind != "noise" or release.key is not None:
        return release
    key = "laplace" if measure == "pure" else "gaussian"
    params = REGISTRY[key].from_spec({"scale": 1.0}).spec()
    params.pop("scale")
    return replace(release, key=key, params=tuple(sorted(params.items())))


def _noise(value: dict[str, Any], path: Path, notes: Notes) -> ReleaseDecl | None:
    key = value["noise"]
    if key is HOLE:
        return None
    noises = noise_keys()
    if key not in noises:
        shape = f"`noise` must be one of {', '.join(sorted(noises))}"
        near = suggest(key, noises) if isinstance(key, str) else ""
        notes.error("OS303", shape, (*path, "noise"), label=f"got {value_text(key)}",
                    help=near or "gaussian for gdp and zcdp budgets, laplace for pure ones.")  # fmt: skip
        return None
    words = {*REGISTRY[key].model_fields, "spend", "scale"}
    for strange in value:
        if strange not in words and strange != "noise":
            notes.unknown(strange, words, (*path, strange), f"argument of `{key}`")
    rest = {n: v for n, v in value.items() if n not in ("noise", "spend", "scale")}
    scale, solved = value.get("scale", "solve"), value.get("scale", "solve") == "solve"
    spend = _spend(value, path, notes)
    if not solved and "spend" in value:
        notes.error("OS102", "a release states its scale or its share, not both", (*path, "spend"),
                    label="`scale` is given", part="key",
                    help="write `scale: solve`, or leave `spend` out.")  # fmt: skip
    before = notes.objections
    record = read_record(REGISTRY[key], rest | {"scale": 1.0 if solved else scale}, path, notes)
    if record is None or notes.objections > before or spend is HOLE:
        return None
    params = {n: v for n, v in sorted(record.spec().items()) if n != "scale" or not solved}
    return ReleaseDecl("noise", key, tuple(params.items()), *(("scale", spend) if solved else ()))


def noise_keys() -> list[str]:
    """Return the mechanisms of pure noise, a scale and perhaps a sampler."""
    drawn = {"scale", "sampler", "factor", "accounting"}
    return [
        key
        for key, cls in REGISTRY.items()
        if cls.room == "measurements" and {"scale"} <= set(cls.model_fields) <= drawn
    ]


def _mechanism(value: dict[str, Any], path: Path, notes: Notes) -> ReleaseDecl | None:
    for strange in value:
        if strange not in ("mechanism", "spend"):
            notes.unknown(strange, ("mechanism", "spend"), (*path, strange), "entry")
    spend = _spend(value, path, notes)
    where: Path = (*path, "mechanism")
    named = split_step(value["mechanism"], where, notes)
    if named is None:
        return None
    key, params = named
    where = (*where, key) if isinstance(value["mechanism"], dict) else where
    if not known_key(key, where, notes, ("measurements",)):
        return None
    key = current_key(key)
    cls = REGISTRY[key]
    solve = _solved(cls, params)
    given = {name: v for name, v in params.items() if name != solve}
    solved = [] if solve is None else [solve]
    delta = cls.model_fields.get("delta")
    if delta is not None and delta.is_required() and "delta" not in params:
        solved.append("delta")
    before = notes.objections
    read_record(cls, given, where, notes, solved=solved)
    if notes.objections > before or spend is HOLE or hole_in(params):
        return None
    return ReleaseDecl("mechanism", key, tuple(sorted(given.items())), solve, spend)


def _solved(cls: type[Mechanism], params: dict[str, Any]) -> str | None:
    for name in SOLVABLE:
        if name in cls.model_fields and params.get(name) == "solve":
            return name
        if name in cls.model_fields and name not in params and cls.model_fields[name].is_required():
            return name
    return None


_SHARE = r"^[0-9./eE+-]+%?$"
_FAR = re.compile(r"[eE][+-]?[0-9_]{4}")
"""An exponent that a fraction would write out, digit by digit."""


def _looks_like_share(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number or (isinstance(value, str) and re.match(_SHARE, value) is not None)


def _spend(value: dict[str, Any], path: Path, notes: Notes) -> Any:
    """Return the share as a fraction, None when it is not stated."""
    spend = value.get("spend")
    return spend if spend is None or spend is HOLE else _share(spend, (*path, "spend"), notes)


def _share(spend: Any, path: Path, notes: Notes) -> Any:
    """Return a share as a fraction, a hole when it is none."""
    share = None
    try:
        if isinstance(spend, str) and not _FAR.search(spend):
            share = Fraction(spend[:-1]) / 100 if spend.endswith("%") else Fraction(spend)
        elif isinstance(spend, int | float) and not isinstance(spend, bool):
            share = Fraction(str(spend))
    except (ValueError, ZeroDivisionError):
        share = None
    if share is None or not 0 < share <= 1:
        notes.error("OS401", f"`{path[-1]}` is a share of the budget", path,
                    label=f"got {value_text(spend)}", help="write 100%, 0.25 or 1/3.")  # fmt: skip
        return HOLE
    return share


def _release_schema() -> Schema:
    share: list[Schema] = [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": _SHARE},
    ]
    spend = {"anyOf": [*share, {"type": "null"}]}
    forms: list[Schema] = [{"const": "none"}]
    for key in sorted(noise_keys()):
        words = REGISTRY[key].model_json_schema()["properties"]
        scale = {"anyOf": [{"const": "solve"}, words.pop("scale")]}
        forms.append(
            {
                "properties": {"noise": {"const": key}, "scale": scale, "spend": spend, **words},
                "required": ["noise"],
            }
        )
    forms.append(
        {
            "properties": {"mechanism": mechanisms_schema(), "spend": spend},
            "required": ["mechanism"],
        }
    )
    return {
        "anyOf": [
            *share,
            *(
                form
                if "const" in form
                else {"type": "object", "additionalProperties": False} | form
                for form in forms
            ),
        ]
    }


RELEASE = ValueReader(_release, _release_schema, ReleaseDecl)

# --- stages ---------------------------------------------------------------------------------------


class StageDecl(Section):
    """Declare stages by name.

    Each starts `from` a dataset or a stage, and has steps, or a release, or both.
    """

    some_of: ClassVar = ("anyOf", ("steps", "release"), Refusal(
        "stage `{name}` does nothing", "add one of them.", code="OS305",
        label="no `steps` and no `release`", part="key",
    ))  # fmt: skip
    template: ClassVar[str] = """\
flow:
  sketch:
    from: records
    steps:
      # - bound_contributions: {by: person, max_rows: 2, seed: 3}   # a person keeps at most 2 records
      - select: {features: x}
      # - select: {features: [x, age], label: kind}     # instead: several columns, and a label
      # - rescale: {centre: middle, scale: range}       # columns of unlike units: each counts in ranges
      - quantize: {bits: 12}
      - race_sketch:
          repetitions: 400
          buckets: 256
          family: {p_stable_l2: {width: "${width}"}}
          seed: ???
  noisy:
    from: sketch
    release: {noise: gaussian, scale: solve, spend: 100%}
"""
    name: str = not_a_word()
    source: str = word(
        "The dataset or the stage that this one starts from.", spelled="from", min_length=1
    )
    steps: Annotated[tuple[Mechanism, ...], steps_reader("rows", "sketches")] = word(
        "Row maps in order, and a sketch: `opendp-sim ops` lists them.", ()
    )
    release: Annotated[ReleaseDecl | None, RELEASE] = word(
        "How the stage leaves the private side.", None
    )
    expect: Expect | None = word("Your assumptions about the stage, which are checked.", None)
