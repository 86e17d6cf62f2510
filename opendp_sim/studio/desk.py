"""Plan, spend and ask for one page about one file.

The file is opened in ``spend`` and ``look`` alone. What is confirmed is what runs: a page confirms a plan
by its key, and the plan that it saw is the one that is applied, to a ledger whose head it saw.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from opendp_sim.accounting.certificate.certificate import digest_of
from opendp_sim.accounting.ledger.postgres_connection import is_shared
from opendp_sim.accounting.release.release import Release
from opendp_sim.api.templates import FirstLine, file_header
from opendp_sim.core.errors import DataError, ParameterError, ReleaseError, SimError
from opendp_sim.domains.released import Released
from opendp_sim.dsl.files.paths import check_places
from opendp_sim.dsl.files.staging import unfinished_runs
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.statements import tell
from opendp_sim.dsl.reading import Finding, read_spec
from opendp_sim.dsl.run.answer import may_be_empty
from opendp_sim.dsl.run.certificate import certificate_path
from opendp_sim.dsl.run.charge import standing
from opendp_sim.dsl.run.doctor import doctor
from opendp_sim.dsl.run.execute import apply
from opendp_sim.dsl.run.records import Applied
from opendp_sim.dsl.run.session import Served, answer_lines, serve
from opendp_sim.dsl.run.stores import sessions_of, store_path
from opendp_sim.dsl.text.diagnostic import Notes
from opendp_sim.dsl.text.yaml_document import Span
from opendp_sim.report.answer import released_parts
from opendp_sim.report.maps import SURE, figure, numeric_columns, predicted_column
from opendp_sim.studio.forecast import panel_of
from opendp_sim.studio.questions import (
    QUESTIONS,
    Form,
    form_from,
    form_of,
    ledger_name,
    missing_part,
    recipe_of,
)

_CLASSES = 12
"""Classes whose numbers are shown beside the first."""
_DECIDES = ("predict", "nearest_class", "classify")
"""Questions that name a class."""


Plain = dict[str, Any]
Answer = tuple[Plain, int]
"""A JSON body and its status."""
_PLANS, _FORMS = 64, 256
"""Plans that stay on the table, and forms whose plans are kept."""
_RELOAD = "reload the page."
_NAMES = 1000
"""Most names of columns that are typed."""
_TICKET = 60.0
"""Seconds in which a link is used."""
_NONCE = (16, 64)
_FILES = ("report", "release", "certificate")
_LINKED = "The file became a link, or lies behind one. Start the studio on the file that is meant."
_BEFORE = "paid for before; nothing was charged now"
_EMPTY: Plain = {"session": None, "each": "Class", "parts": [], "sliders": []}
"""The view of a run without pictures."""


@dataclass(frozen=True)
class Laid:
    """Hold a plan on the table with its text."""

    plan: Plan
    text: str


@dataclass(frozen=True)
class Done:
    """Hold a run that was confirmed here.

    Attributes:
        laid: its plan and text.
        output: the name of its output.
        file, certificate: where they were written; of a session its store, and none.
        body: the answer to the page.
        digests: of both as they were written.
    """

    laid: Laid
    output: str
    file: Path
    certificate: Path | None
    body: Plain = field(repr=False)
    digests: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether another file, or a link, stands in the place of one."""
        return self.digests != _digests(self.file, self.certificate)

    @property
    def takes(self) -> tuple[str, ...]:
        """What can be taken away; a store is private, and stays."""
        return ("spec",) if self.certificate is None else (*_FILES, "spec")


class Desk:
    """Serve the questions of a page about one file.

    Args:
        file: the private file; its first lines, or a schema's names, are all that is read of it here.
        charged: told in words all that was charged so far, at the moment from which it stands.
        spec: the text that a page begins with.
    """

    def __init__(
        self, file: Path, charged: Callable[[str], None] = lambda _text: None, spec: str = ""
    ) -> None:
        self.file = file.resolve()
        self.folder = self.file.parent
        self._charged, self._texts, self._text = charged, list[str](), spec
        self._read_header(None)
        self._spending = threading.Lock()
        self._plans: dict[str, Laid] = {}
        self._forms: dict[str, tuple[Plan, str]] = {}
        self._done: dict[str, Done] = {}
        self._nonces: dict[str, str] = {}
        self._tickets: dict[str, tuple[float, str, str]] = {}
        self._shown: dict[str, Release] = {}
        self._sessions: dict[str, Served] = {}

    def __enter__(self) -> Self:
        """Return the desk."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the sessions that are open."""
        with self._spending:
            for run in list(self._sessions):
                self._sessions.pop(run).__exit__()

    # --- data closed ------------------------------------------------------------------------------

    def start(self) -> Plain:
        """Return names, an empty form, the last text, and runs."""
        questions = {
            key: {"name": q.name, "hint": q.hint, "uses": sorted(q.uses)}
            for key, q in QUESTIONS.items()
        }
        return {
            "file": self.file.name,
            "names": list(self.names),
            "unsure": self._unsure,
            "form": Form(self.source).plain(),
            "questions": questions,
            "yaml": self._text,
            "runs": [{"run": run, "file": done.file.name} for run, done in self._done.items()],
        }

    def header(self, body: Mapping[str, Any]) -> Plain:
        """Read the first line as names or as a record, as stated."""
        first = body.get("first")
        if first in ("names", "record"):
            self._read_header(first)
        return self.start()

    def _read_header(self, first: FirstLine | None) -> None:
        """Read the names of columns, none where they may be a record's."""
        header = file_header(self.file, first)
        place = {"file": self.file.name, **header.options}
        place.pop("header", None)  # which the page asks for
        self.source: dict[str, Any] = {
            header.kind: place if place.keys() - {"file"} else place["file"]
        }
        self.names, self._unsure = header.names, header.unsure

    def show(self, body: Mapping[str, Any]) -> Answer:
        """Return a run of this desk again, as ``spend`` did."""
        run = str(body.get("run"))
        return (self._done[run].body, 200) if run in self._done else _refusal("run", _RELOAD)

    def plan(self, body: Mapping[str, Any]) -> Plain:
        """Return the plan of a form or a text, with pictures."""
        if "yaml" in body:
            return self._of_text(str(body["yaml"]))
        form = form_from(body.get("form"), self._source(body.get("names")))
        missing = missing_part(form)
        if missing:
            return {"state": "draft", "missing": missing}
        try:
            plan, text = self._made(form)
        except SimError as error:
            return {"state": "draft", "missing": "", "findings": [_plain_error(error)]}
        return self._laid(plan, text, form)

    def _source(self, typed: Any) -> dict[str, Any]:
        """Return the source, with typed names where the file shows none."""
        ((kind, place),) = self.source.items()
        if self.names or kind != "csv" or not isinstance(typed, list) or not typed:
            return self.source
        place = dict(place) if isinstance(place, Mapping) else {"file": place}
        return {kind: place | {"header": [str(name) for name in typed[:_NAMES]]}}

    def _made(self, form: Form) -> tuple[Plan, str]:
        """Return a form's plan and text, of which the last are kept.

        What the plan assumes of files is looked at again.
        """
        key = json.dumps([form.plain(), form.source], sort_keys=True)
        if key not in self._forms:
            recipe = recipe_of(form)
            program = replace(recipe.plan.program, written_folder=str(self.folder))
            self._forms[key] = replace(recipe.plan, program=program), recipe.to_yaml()
            _forget(self._forms, _FORMS)
        plan, text = self._forms[key]
        notes = Notes()
        check_places(plan.program, notes)
        notes.raise_if_any()
        return plan, text

    def _of_text(self, text: str) -> Plain:
        if not text.strip():
            return {"state": "draft", "missing": ""}
        seen = read_spec(text, "spec.yaml", str(self.folder))
        findings = [_plain_finding(found) for found in seen.findings]
        if seen.plan is not None and (said := self._outside(seen.plan)):
            findings = [_plain_finding(Finding(Span(1, 1, 1), "studio", said))]
        if findings or seen.plan is None:
            return {"state": "refused", "yaml": text, "form": None, "findings": findings}
        return self._laid(seen.plan, text, form_of(seen.plan))

    def _laid(self, plan: Plan, text: str, form: Form | None) -> Plain:
        """Lay a plan on the table, and return its page."""
        named = f"{plan.program.hash}\n{plan.total}\n{text}"  # the plan itself stays here
        key = hashlib.sha256(named.encode()).hexdigest()
        self._text = text
        self._plans.pop(key, None)
        self._plans[key] = Laid(plan, text)
        _forget(self._plans, _PLANS)
        shown = None if form is None else form.plain()
        view = panel_of(plan, form)
        if view.again and any(self._unfinished(plan)):
            view = replace(view, again="")  # that run is finished for nothing
        found: Plain = {"state": "planned", "plan": key, "yaml": text, "form": shown, "view": view}
        return found | {"bounds": _public_values(plan)}

    def _outside(self, plan: Plan) -> str:
        """Return why a program may not run here, or nothing.

        It reads this one file, writes beside it under plain names, and counts in its ledger.
        """
        entries, ((kind, _),) = plan.program.data, self.source.items()
        for entry in entries:
            place = entry.source.argument
            named = place.get("file") if isinstance(place, Mapping) else place
            if entry.source.kind != kind or named != self.file.name:
                return f"this page opens {self.file.name} alone: run other specs with `opendp-sim apply`"
            if entry.public:
                return "the file is private here: `public: true` needs the command line"
            if entry.ledger is None or entry.ledger.file != ledger_name(self.source):
                name = ledger_name(self.source)
                return f"runs are counted here in one ledger: `ledger: {{file: {name}, ...}}`"
        if len(plan.outputs) != 1:
            return "one output is released here: run other specs with `opendp-sim apply`"
        for output in plan.program.outputs:
            place = output.save if output.serve is None else output.place
            if not place or is_shared(place) or Path(place).name != place:
                return "an output is saved beside the file, under a plain name"
            if output.queries is not None or output.public is not None:
                return "a release is asked after it was made: leave `queries` and `public` out"
        return ""

    def ask(self, body: Mapping[str, Any]) -> Plain:
        """Return a release's answer at one place; the file stays closed."""
        name = str(body.get("run"))
        at = body.get("at")
        if name not in self._done or not isinstance(at, Mapping):
            raise ParameterError(
                "OS101", "run", expected="a release of this page, and a place", got="another",
                hint=_RELOAD,
            )  # fmt: skip
        if self._done[name].certificate is None:
            return self._answered(name, at, str(body.get("nonce", "")))
        if name not in self._shown:
            if self._done[name].changed:
                raise DataError(
                    "OS601", self._done[name].file.name, expected="the release that was made here",
                    got="another file in its place", hint="put it back: it was paid for.",
                )  # fmt: skip
            self._shown[name] = Release.load(self._done[name].file)
        return answer_at(self._shown[name], at)

    def _answered(self, run: str, at: Mapping[str, Any], nonce: str) -> Plain:
        """Return a session's answer at one place, charged once for each nonce."""
        with self._spending:
            served = self._sessions.get(run)
            names = [] if served is None else [c.name for c in served.features.columns]
            fits = set(at) == set(names) and all(isinstance(v, int | float) for v in at.values())
            if served is None or not fits or not _NONCE[0] <= len(nonce) <= _NONCE[1]:
                raise ParameterError(
                    "OS101", "run", expected="an open session, and a number for each column",
                    got="another", hint=_RELOAD,
                )  # fmt: skip
            query = {name: float(at[name]) for name in names}
            found = served.ask([query], key=nonce, caller="studio")
            return _votes(found, served, self._done[run].laid.plan)

    def end(self, body: Mapping[str, Any]) -> Answer:
        """Close a session; its store can be opened again."""
        with self._spending:
            served = self._sessions.pop(str(body.get("run")), None)
            if served is None:
                return _refusal("run", _RELOAD)
            served.__exit__()
        return {"state": "closed"}, 200

    def ticket(self, body: Mapping[str, Any]) -> Plain:
        """Return a link that works once, within a minute, without the token."""
        run, what = str(body.get("run")), str(body.get("what"))
        if run not in self._done or what not in self._done[run].takes:
            return {"href": ""}
        now = time.monotonic()
        self._tickets = {k: v for k, v in self._tickets.items() if v[0] > now}
        name = secrets.token_urlsafe(24)
        self._tickets[name] = (now + _TICKET, run, what)
        return {"href": f"/once/{name}"}

    def redeem(self, name: str) -> tuple[Done, str] | None:
        """Return what a link names, once, or None."""
        until, run, what = self._tickets.pop(name, (0.0, "", ""))
        if until <= time.monotonic() or (what != "spec" and self._done[run].changed):
            return None
        return self._done[run], what

    # --- data open --------------------------------------------------------------------------------

    def spend(self, body: Mapping[str, Any]) -> Answer:
        """Apply a plan that the page confirmed, once for each nonce."""
        nonce, key = str(body.get("nonce", "")), str(body.get("plan", ""))
        if self._nonces.get(nonce) == key and nonce in self._done:
            return self._done[nonce].body, 200
        if key not in self._plans or not _NONCE[0] <= len(nonce) <= _NONCE[1]:
            return _refusal("plan", "This plan is no longer on the table. Look again, then spend.")
        if nonce in self._nonces:
            return _refusal("nonce", "This confirmation was used. Look again, then spend.")
        if not self._spending.acquire(blocking=False):
            return _refusal("busy", "Another run is under way. Nothing was charged by this one.")
        try:
            self._nonces[nonce] = key
            return self._spent(self._plans[key], nonce, str(body.get("head", "")))
        finally:
            self._spending.release()

    def _spent(self, laid: Laid, nonce: str, head: str) -> Answer:
        before = standing(laid.plan)
        if self._linked:
            return _refusal("link", f"{_LINKED} Nothing was charged.")
        if before is None or before.refused:
            return _moved()
        try:
            done = self._run(laid, nonce, head)
        except SimError as error:
            if error.code == "OS409":  # compared in the transaction that charges
                return _moved()
            after = standing(laid.plan)  # the ledger alone knows: a refusal has no code for it
            same = after is not None and not after.refused and after.runs == before.runs
            text = "Nothing was charged." if same else "This run may be charged: see the ledger."
            return _refusal(error.code, f"{text} {error}")
        view: Plain = done.body["view"]
        view |= _EMPTY | {"run": nonce, "takes": done.takes}
        self._done[nonce] = done
        after = standing(laid.plan)
        fresh = after is None or len(after.runs) > len(before.runs)
        view["claim"] = tell(laid.plan).cost.value if fresh else _BEFORE
        if done.certificate is None:
            view |= {"left": ""} | self._opened(nonce)
        else:
            view |= _pictures(laid.plan, done)
        return done.body, 200

    def _run(self, laid: Laid, nonce: str, head: str) -> Done:
        """Apply a plan, or open its session."""
        if not sessions_of(laid.plan):
            done = self._earlier(laid.plan, head)
            if done is None:
                into = self._into(laid.plan)
                done = apply(laid.plan, into=into, charged=self._note, expected_head=head)
            ((output, file),) = done.files.items()
            found = (done.results.get(output), done.released.get(output))
            view = {"left": done.left or "", "empty": any(map(may_be_empty, found))}
            body: Plain = done.plain() | {"file": file.name, "view": view}
            del body["files"], body["certificates"], body["stores"]  # paths of this machine
            beside = done.certificates[output]
            return Done(laid, output, file, beside, body, _digests(file, beside))
        ((output, typed),) = laid.plan.outputs.items()
        self._sessions[nonce] = serve(laid.plan, charged=self._note, expected_head=head)
        store = store_path(laid.plan, typed)
        return Done(laid, output, store, None, {"file": store.name, "view": {"empty": False}})

    def _earlier(self, plan: Plan, head: str) -> Applied | None:
        """Finish an interrupted run of this plan, or return None."""
        for folder, reserve in self._unfinished(plan):
            with suppress(ReleaseError):  # it was finished, but for its own folder
                return apply(
                    plan, into=folder, resume=reserve, charged=self._note, expected_head=head
                )
        return None

    def _unfinished(self, plan: Plan) -> Iterator[tuple[Path, int]]:
        """Yield the folder and entry of each interrupted run of this plan."""
        begun = self._another(plan, "")
        more = sorted(
            p for p in self.folder.iterdir() if p.name.startswith(begun) and _is_folder(p)
        )
        for folder in (self.folder, *more):
            for _, reserve in unfinished_runs(folder, plan.program.hash):
                yield folder, reserve

    def _opened(self, run: str) -> Plain:
        """Return the view of an open session."""
        served, done = self._sessions[run], self._done[run]
        entries = done.laid.plan.program.data
        ends = {c.name: c.bounds for entry in entries for c in entry.records.columns}
        asked = [c for c in served.features.columns if not c.is_vector and len(ends[c.name]) == 2]
        sliders = [_slider(c.name, min(ends[c.name]), max(ends[c.name])) for c in asked]
        told = {"planned": f"{served.planned or 0:,}", "spec": f"{done.file.stem}.yaml"}
        every = len(sliders) == len(served.features.columns)
        return {"session": told, "sliders": sliders if every else []}

    @property
    def _linked(self) -> bool:
        """Whether the private file's path leads elsewhere by now."""
        return self.file.resolve() != self.file

    def _note(self, text: str) -> None:
        self._texts.append(text)
        self._charged("; ".join(self._texts))

    def _into(self, plan: Plan) -> Path:
        """Return the file's folder, or a new one below it.

        No release is replaced, not even by its own program: it was paid for. Nor is the certificate of
        one that is away.
        """
        save = next(str(output.save) for output in plan.program.outputs)
        at, folder = 1, self.folder
        while (folder != self.folder and os.path.lexists(folder) and not _is_folder(folder)) or any(
            os.path.lexists(p) for p in (folder / save, certificate_path(folder / save))
        ):
            folder = self.folder / self._another(plan, str(at))
            at += 1
        return folder

    def _another(self, plan: Plan, number: str) -> str:
        """Return the name of a further folder for a plan's release."""
        save = next(str(output.save) for output in plan.program.outputs)
        return f"{Path(save).stem}-{plan.program.hash[:8]}-{number}"

    def look(self, body: Mapping[str, Any]) -> Answer:
        """Count dropped and clamped rows, for the curator alone."""
        key = str(body.get("plan", ""))
        if key not in self._plans:
            return _refusal("plan", "This plan is no longer on the table. Look again.")
        if self._linked:
            return _refusal("link", _LINKED)
        if not self._spending.acquire(blocking=False):
            return _refusal("busy", "Another run is under way.")
        try:
            return {"view": doctor(self._plans[key].plan)}, 200
        except SimError as error:
            return _refusal(error.code, str(error))
        finally:
            self._spending.release()


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _digests(file: Path, certificate: Path | None) -> tuple[str, ...]:
    """Return what stands in both places; of a store, which changes, nothing."""
    both = () if certificate is None else (file, certificate)
    return tuple("" if p.is_symlink() or not p.is_file() else digest_of(p) for p in both)


def _moved() -> Answer:
    return _refusal(
        "moved", "The ledger changed meanwhile. Nothing was charged: look again, then spend."
    )


def _pictures(plan: Plan, done: Done) -> Plain:
    """Return a release's parts and sliders, none where they fail.

    The release is charged and written: no fault of a picture may hide that.
    """
    try:
        parts, sliders = released_parts(plan, done.output, done.file), []
        each = "Class"
        if done.file.suffix == ".npz" and isinstance(plan.outputs[done.output].domain, Released):
            release = Release.load(done.file)
            sliders = sliders_of(release)
            each = "Column" if [one["name"] for one in sliders] == [_SHARE] else each
    except (SimError, ArithmeticError, LookupError, TypeError, ValueError):
        return {"parts": [], "sliders": []}
    return {"parts": parts, "sliders": sliders, "each": each}


def _public_values(plan: Plan) -> list[tuple[str, str, str]]:
    """Return each column's stated bounds or classes, and who states them."""
    about = plan.program.about
    whom = "" if about is None else about.bounds or ""
    found = []
    for entry in plan.program.data:
        for column in entry.records.columns:
            if column.keys:
                found.append((column.name, ", ".join(map(str, column.keys[:_CLASSES])), whom))
            elif column.bounds:
                low, high = min(column.bounds), max(column.bounds)
                found.append((column.name, f"{low:,g} to {high:,g}", whom))
    return found


def _forget(kept: dict[str, Any], most: int) -> None:
    """Drop the oldest beyond ``most``."""
    while len(kept) > most:
        kept.pop(next(iter(kept)))


def _refusal(code: str, text: str) -> Answer:
    return {"error": {"code": code, "text": text}}, 409


def _plain_finding(found: Finding) -> Plain:
    at = found.span
    return {
        "line": at.line,
        "column": at.column,
        "length": at.length,
        "code": found.code,
        "text": found.text,
    }


def _plain_error(error: SimError) -> Plain:
    return {"line": 0, "column": 0, "length": 0, "code": error.code, "text": str(error)}


# --- answers of a release -------------------------------------------------------------------------


_SHARE = "share"
"""The slider of a release of quantiles."""
_ENDS = (0.01, 0.99)


def sliders_of(release: Release) -> list[dict[str, Any]]:
    """Return each numeric column's public bounds and middle."""
    if "quantiles" in release.ops:
        return [_slider(_SHARE, *_ENDS)]
    target = predicted_column(release)
    numeric = numeric_columns(release).items()
    ends = {name: (min(c.bounds), max(c.bounds)) for name, c in numeric if name != target}
    return [_slider(name, low, high) for name, (low, high) in ends.items()]


def _slider(name: str, low: float, high: float) -> dict[str, Any]:
    middle = float(f"{(low + high) / 2:.6g}")
    return {"name": name, "low": low, "high": high, "step": (high - low) / 200, "middle": middle}


def answer_at(release: Release, at: Mapping[str, Any]) -> dict[str, Any]:
    """Return a release's answer at one place, in words and rows.

    Args:
        release: what is asked; this costs no privacy.
        at: a number for each slider.
    """
    names = [slider["name"] for slider in sliders_of(release)]
    if set(at) != set(names) or not all(isinstance(v, int | float) for v in at.values()):
        raise ParameterError(
            "OS102", "at", expected=f"a number for each of {', '.join(names)}", got="others",
            hint=_RELOAD,
        )  # fmt: skip
    if names == [_SHARE] and "quantiles" in release.ops:
        return _quantiles_at(release, min(max(float(at[_SHARE]), _ENDS[0]), _ENDS[1]))
    queries = {name: [float(at[name])] for name in names}
    if (target := predicted_column(release)) is not None:
        queries[target] = [0.0]  # which is ignored
        value = float(release.ask("regress", queries)["prediction"][0])
        return {"big": figure(value), "small": f"{target} on the line", "rows": []}
    rows = _sums(release, queries)
    if rows and not rows[0][0]:
        _, big, small = rows[0]
        return {"big": big, "small": small, "rows": []}
    asked = next(word for word in _DECIDES if word in release.ops)
    found = release.ask(asked, queries)
    labels = found.labels or ()
    if not rows:
        scores = np.asarray(found["score"]).reshape(-1)
        rows = [(str(n), f"score {v:.4g}", "") for n, v in zip(labels, scores, strict=True)]
    big = str(labels[int(np.asarray(found["label"])[0])])
    each = [(name, ", ".join(filter(None, words))) for name, *words in rows[:_CLASSES]]
    return {"big": big, "small": "is the answer here", "rows": each}


def _quantiles_at(release: Release, share: float) -> dict[str, Any]:
    """Return the value of every column below which a share is."""
    found = release.ask("quantiles", shares=(share,)).table()
    each = []
    for at, name in enumerate(found["column"][:_CLASSES]):
        value, low, high = (figure(found[end][at]) for end in ("quantile", "lower", "upper"))
        whose = f"{name}, {found['class'][at]}" if "class" in found else str(name)
        each.append((whose, f"{value}, 95% within {low} to {high}"))
    return {"big": f"{100 * share:.3g}%", "small": "of the records are below", "rows": each}


def _votes(found: Any, served: Served, plan: Plan) -> Plain:
    """Return a session's answer, its label and noisy votes."""
    (line,) = answer_lines(found)
    stages = next(iter(plan.releases.values())).typed.stages
    named = next(one.mechanism.label for one in stages if getattr(one.mechanism, "label", None))
    label = next(column for column in served.records.columns if column.name == named)
    each = [
        (str(name), "not asked" if vote is None else f"{vote:,.3g} votes")
        for name, vote in zip(label.keys[:_CLASSES], line["votes"], strict=False)
    ]
    noise = f"; noise ±{line['deviation']:.2g}" if line["deviation"] is not None else ""
    answered = f"{served.session.answered:,} answered so far{noise}"
    return {"big": str(line["label"]), "small": answered, "rows": each}


def _sums(release: Release, queries: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (class, number, interval) of each sum of a release."""
    words = {"density": "rows near", "distance": "sum of distances"}
    word = next((word for word in words if word in release.ops), None)
    if word is None:
        return []
    found = release.ask(word, queries, confidence=0.95)
    parts = (np.asarray(found[k]).reshape(-1) for k in (word, "noise_error", "lower", "upper"))
    rows = []
    for name, value, noise, low, high in zip(found.labels or ("",), *parts, strict=True):
        sure = value >= SURE * noise
        within = (
            f"95% within {figure(max(low, 0.0))} to {figure(high)}" if sure else "within the noise"
        )
        number = figure(value) if sure else "about 0"
        rows.append((str(name), number, within if found.labels else f"{words[word]}; {within}"))
    return rows
