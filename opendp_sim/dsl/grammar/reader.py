"""Read plain data into the typed form, with all findings at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path as File
from typing import Any

import opendp_sim.prelude  # noqa: F401 - fills the catalogue
from opendp_sim.core import dp
from opendp_sim.core.mechanism import REGISTRY
from opendp_sim.dsl.grammar.bandwidths import CANONICAL, canonical_program
from opendp_sim.dsl.grammar.error_goal import Solvable, put, read_goals
from opendp_sim.dsl.grammar.flow import with_noise
from opendp_sim.dsl.grammar.outputs import OWN_STAGE, stage_of
from opendp_sim.dsl.grammar.parameters import resolve_parameters
from opendp_sim.dsl.grammar.parse import missing, read_words
from opendp_sim.dsl.grammar.privacy import read_privacy
from opendp_sim.dsl.grammar.program import Program, ReleaseDecl, Spec, StageDecl, Unit
from opendp_sim.dsl.grammar.section import HOLE
from opendp_sim.dsl.text import yaml_document as yaml
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.text.yaml_document import Document, Span

# --------------------------------------------------------------------------------------------------
# Under ``measure: gdp`` Gaussian noise is the rounded law: the discrete one is never drawn there.
#
# The discrete Gaussian of scale s is not (L2 / s)-Gaussian DP (``accounting/measures/gaussian.md``), so
# ``noise: gaussian`` names another mechanism under ``gdp``, and OpenDP's own sampler, which has no other
# Gaussian, is refused.

_DISCRETE, _ROUNDED = "gaussian", "rounded_gaussian"


def _stage(decl: StageDecl | None, measure: str, notes: Notes) -> StageDecl | None:
    """Return a stage with the noise that its share means."""
    if decl is None:
        return None
    decl = decl.model_copy(update={"release": with_noise(decl.release, measure)})
    release = decl.release
    if measure != "gdp" or release is None or release.key != _DISCRETE:
        return decl
    params = dict(release.params)
    if params.pop("sampler", "auto") == "opendp":
        notes.error("OS405", "OpenDP has no sampler of a Gaussian DP noise",
                    ("flow", decl.name, "release", "sampler"),
                    label="a discrete Gaussian is not Gaussian DP",
                    help="leave `sampler` out, or choose `measure: zcdp`.")  # fmt: skip
        return None
    record = REGISTRY[_ROUNDED].from_spec({"scale": 1.0, **params})
    full = record.spec() if release.kind == "noise" else {**record.spec(), **params}
    if "scale" not in params:
        full.pop("scale")
    return decl.model_copy(update={"release": _renamed(release, full)})


def _renamed(release: ReleaseDecl, params: Mapping[str, object]) -> ReleaseDecl:
    return replace(release, key=_ROUNDED, params=tuple(sorted(params.items())))


# --------------------------------------------------------------------------------------------------


@dataclass
class Draft:
    """Hold a partly read program with its findings and broken names."""

    program: Program
    broken: frozenset[str]
    notes: Notes
    document: Document | None
    unit: Unit | None = None
    """The privacy unit, known even where the rest of ``privacy`` could not be read."""
    solve: Solvable | None = None
    """The number that is solved from an error: a hole in ``program``, which ``plan_of`` fills."""


def draft_of_file(path: str | File, given: Mapping[str, Any] | None = None) -> Draft:
    """Read a spec file."""
    notes = Notes()
    file = File(path)
    document = yaml.read_yaml(file, notes)
    return _draft(document.data, given or {}, notes, document, str(file.parent), former=True)


def draft_of(
    data: Any,
    given: Mapping[str, Any] | None = None,
    folder: str = ".",
    document: Document | None = None,
    notes: Notes | None = None,
    *,
    written: bool = False,
) -> Draft:
    """Read a program given as plain data (what YAML would hold).

    ``written`` where a person wrote it, as with a document: bandwidths of the former language are
    advised of.
    """
    former = written or document is not None
    return _draft(data, given or {}, notes or Notes(), document, folder, former=former)


def _draft(
    data: Any,
    given: Mapping[str, Any],
    notes: Notes,
    document: Document | None,
    folder: str,
    *,
    former: bool,
) -> Draft:
    # Whoever runs a spec uses this package's mechanisms, which OpenDP counts as `contrib`.
    dp.enable_features("contrib")
    nothing = Program("", (), None, (), (), written_folder=folder)
    if not isinstance(data, dict):
        if not notes.findings:
            if document is not None and data is not None:
                document.lines = []  # it may be private, so that no message quotes a line of it
                document.spans.setdefault(((), "value"), Span(1, 1, 1))
            notes.error("OS304", "a spec is a mapping", (), label=_got(data),
                        help="`opendp-sim init FILE` writes a template.")  # fmt: skip
        return Draft(nothing, frozenset(), notes, document)
    body, values = resolve_parameters(data, given, notes)
    body, goals = read_goals(canonical_program(body), notes)
    found, _ = read_words(Spec, body | {"privacy": HOLE}, (), notes)  # it is read with the data
    named = {word: found.get(word, {}) for word in ("data", "flow", "outputs")}
    entries = named["data"].values()
    privacy, unit = None, None
    if "privacy" in body:
        privacy, unit = read_privacy(body["privacy"], named["data"], notes)
    elif not entries or not all(e is not None and e.public for e in entries):
        missing(Spec.words()["privacy"], body, Spec.words(), (), notes)
    own = _own_stages(body, named, notes)
    if "flow" not in body and not own:
        missing(Spec.words()["flow"], body, Spec.words(), (), notes)
    _one_name_each(named, notes)
    measure = "" if privacy is None else privacy.measure
    named["flow"] = {n: _stage(decl, measure, notes) for n, decl in named["flow"].items()}
    good = {word: tuple(v for v in those.values() if v) for word, those in named.items()}
    program = Program(
        name=found.get("name", ""),
        privacy=privacy,
        data=good["data"],
        flow=good["flow"],
        outputs=good["outputs"],
        about=found.get("about"),
        written_folder=folder,
        values=tuple(sorted(values.items())),
        former=former and body.get("spec") == CANONICAL,
    )
    broken = frozenset(n for those in named.values() for n, value in those.items() if value is None)
    draft = Draft(program, broken, notes, document, unit)
    if goals:
        path, goal = goals[0]

        def at(number: float) -> Draft:
            filled = put(data, path, number)
            return _draft(filled, given, Notes(), document, folder, former=former)

        draft.solve = Solvable(path, goal, at)
    return draft


def _own_stages(
    body: Mapping[str, Any], named: dict[str, dict[str, Any]], notes: Notes
) -> set[str]:
    """Move the stages that outputs state to the others; return their names.

    What is found of them later stands where the output does.
    """
    written = body.get("outputs")
    outputs = written.items() if isinstance(written, Mapping) else ()
    own = {
        str(name)
        for name, words in outputs
        if isinstance(words, Mapping) and any(word in words for word in OWN_STAGE)
    }
    for name, decl in list(named["outputs"].items()):
        if name in own:
            notes.moved["flow", stage_of(name)] = ("outputs", name)
            stage = None if decl is None else decl.stage
            if stage_of(name) in named["flow"]:
                notes.error("OS303", f"`{stage_of(name)}` names two things", ("outputs", name),
                            part="key", label="it is the stage of this output, and stands under `flow`",
                            help="choose another name.")  # fmt: skip
            named["flow"] = {**named["flow"], stage_of(name): stage}
            named["outputs"][name] = None if decl is None else decl.after_stage
    return own


def _got(data: Any) -> str:
    """Describe the value found in place of a mapping."""
    if data is None:
        return "got nothing"
    what = "a list" if isinstance(data, list) else "a text or a number"
    return f"got {what}, of which nothing is shown"


def _one_name_each(named: Mapping[str, Mapping[str, Any]], notes: Notes) -> None:
    taken: dict[str, str] = {}
    for section, names in named.items():
        for name in names:
            if name in taken:
                notes.error("OS303", f"`{name}` names two things", (section, name), part="key",
                            label=f"also under `{taken[name]}`", help="choose another name.")  # fmt: skip
            taken[name] = section
