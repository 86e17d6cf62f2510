"""Commands that are killed, stopped, or whose disk fails, at every file call: uncharged, charged twice, unfinished?

Each run is a fork of one warm process (``tests/_forks.py``); ``--fresh`` compares forks with fresh processes. Needs
a C compiler: calls are counted, and one of them is struck, by a preloaded library (``_file_calls.c``).
"""

from __future__ import annotations

import random
import re
import resource
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from typer.testing import CliRunner

from benchmarks._results import parser, table, write_figure
from benchmarks._run_cases import FILES, Case, cases, planned
from benchmarks._run_checks import Seen, faults, restored
from benchmarks._strikes import COUNT, FAULTS, FOLDS, Fault, arguments, fresh, preloaded, struck
from opendp_sim.accounting.session import _chain as chain
from opendp_sim.cli import app
from tests._forks import Ended, warm


class Campaign:
    """Every kind of run, what it starts from, and what was found."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.run = folder, folder / "run"
        self.pick = random.Random(seed)  # noqa: S311 - which call
        self.found: dict[str, Counter[str]] = {}
        self.wrong: list[str] = []
        self.cases = cases()
        self.before: dict[str, Seen] = {}
        self.calls: dict[tuple[str, int], int] = {}
        self.total = 0
        chain.KEPT = FOLDS  # a store of 80 answers folds
        for case in self.cases:
            shutil.rmtree(self.run)
            self.run.mkdir()
            case.prepare(self.run)
            shutil.copytree(self.run, folder / case.name)
            CliRunner().invoke(
                app, arguments(case, self.run), input=case.text
            )  # what is made once is made
            self.before[case.name] = Seen.of(folder / case.name)

    def strikes(self) -> list[tuple[Case, Fault, int]]:
        """Return every call of every case with every fault, in a drawn order."""
        out = []
        for case in self.cases:
            for fault in FAULTS:
                if (key := (case.name, fault.kinds)) not in self.calls:
                    restored(self.folder / case.name, self.run)
                    ended = struck(case, self.run, Fault("count", 0, fault.kinds), 0)
                    assert ended.code == 0, (case.name, ended)
                    self.calls[key] = ended.calls
                out += [(case, fault, at) for at in range(1, self.calls[key] + 1)]
        self.pick.shuffle(out)
        self.total = len(out)
        return out

    def one(self, case: Case, fault: Fault, at: int) -> None:
        """Strike a run, perhaps what goes on from it too, then run to the end; look after each."""
        restored(self.folder / case.name, self.run)
        seen = self.before[case.name]
        steps = [(fault, at)]
        if self.pick.random() < 0.25:
            steps.append((FAULTS[0], self.pick.randint(1, self.calls[case.name, FAULTS[0].kinds])))
        for step, (how, call) in enumerate(steps):
            ended = struck(case, self.run, how, call)
            self.found.setdefault(how.name, Counter())[ending(ended)] += 1
            now = Seen.of(self.run)
            self.note(
                case,
                fault,
                at,
                step,
                ended,
                faults(case, ended, seen, now, self.run, first=step == 0),
            )
            seen = now
        goes_on = Case(
            case.name,
            case.arguments[:2] + case.arguments[2:3] * case.serves,
            case.prepare,
            case.lines,
        )
        ended = struck(goes_on, self.run, COUNT, 0)
        resumed = "nothing new was charged" in ended.said
        self.found.setdefault("then", Counter())["resumed" if resumed else "run again"] += 1
        self.note(
            case,
            fault,
            at,
            9,
            ended,
            at_the_end(case, ended, seen, Seen.of(self.run), self.run, resumed=resumed),
        )

    def note(
        self, case: Case, fault: Fault, at: int, step: int, ended: Ended, found: Iterable[str]
    ) -> None:
        """Keep what is wrong, with what it needs to be seen again."""
        for wrong in found:
            self.wrong.append(f"{wrong}: {case.name}, {fault.name} at {at}, step {step}")
            print(
                self.wrong[-1],
                ended.code,
                repr(ended.complained[-600:]),
                repr(ended.said[-600:]),
                flush=True,
            )


def ending(ended: Ended) -> str:
    """Return how a command ended, in a word."""
    if ended.code < 0:
        return signal.Signals(-ended.code).name
    codes = re.findall(r"error\[(OS\d+)\]", ended.complained)
    in_lines = re.findall(r'"code": "(OS\d+)"', ended.said)
    return f"exit {ended.code}" + "".join(f" {code}" for code in sorted({*codes, *in_lines}))


def at_the_end(
    case: Case, ended: Ended, seen: Seen, now: Seen, folder: Path, *, resumed: bool
) -> list[str]:
    """Return what must not be after the run that nothing disturbs."""
    wrong = list(faults(case, ended, seen, now, folder))
    if ended.code != 0:
        wrong.append(f"does not go on ({ending(ended)})")
    elif case.serves:
        if '"error"' in ended.said or len(ended.said.splitlines()) != len(case.lines):
            wrong.append("not every line was answered")
        if now.charges != 1:
            wrong.append("a session charged twice")
    else:
        left = [p.name for p in folder.rglob("*") if p.name.startswith(".")]
        if {p.name for p in (folder / "out").iterdir()} != FILES or left:
            wrong.append("not complete, or untidy, in the end")
        if now.charges != seen.charges + (not resumed):
            wrong.append("charged twice in the end")
    return wrong


def alike(campaign: Campaign, count: int, until: float) -> tuple[int, int]:
    """Strike forks and fresh processes alike; return how many cases, and how many ended differently."""
    done = different = 0
    folds = "session that folds"  # a fresh process keeps more
    for case, fault, at in [each for each in campaign.strikes() if each[0].name != folds][:count]:
        if time.monotonic() > until:
            break
        done += 1
        both = []
        for way in (struck, fresh):
            restored(campaign.folder / case.name, campaign.run)
            ended = way(case, campaign.run, fault, at)
            now = Seen.of(campaign.run)
            said = re.sub(r"[0-9a-f]{16}", "#", ended.complained)
            lines = [
                sorted(line) for line in re.findall(r'"(?:label|error|ok|code)": "?\w*', ended.said)
            ]
            both.append(
                (
                    ended.code,
                    said,
                    len(lines),
                    now.kinds,
                    sorted(now.files),
                    now.answered,
                    now.updates,
                )
            )
        if both[0] != both[1]:
            different += 1
            print("DIFFERENT", case.name, fault.name, at, *both, sep="\n  ", flush=True)
    return done, different


def used() -> float:
    """Return the CPU seconds of this process and its children."""
    return sum(
        sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=10_000, help="how many first strikes")
    options.add_argument("--seconds", type=float, default=float("inf"))
    options.add_argument("--seed", type=int, default=1)
    options.add_argument(
        "--fresh", type=int, default=0, help="only compare so many with fresh processes"
    )
    options.add_argument("--folder", help="where files lie; in memory, no disk is waited for")
    args = options.parse_args()
    preloaded()
    warm()
    begun, name = time.monotonic(), tempfile.mkdtemp(dir=args.folder)
    try:
        with planned(Path(name) / "run"):
            campaign = Campaign(Path(name), args.seed)
            if args.fresh:
                done, different = alike(campaign, args.fresh, begun + args.seconds)
                print(f"{done} strikes, {different} ended differently in fresh processes")
                return
            done = 0
            for case, fault, at in campaign.strikes():
                if done >= args.runs or time.monotonic() - begun > args.seconds:
                    break
                campaign.one(case, fault, at)
                done += 1
                if done % 250 == 0:
                    print(report(campaign, done, used()), flush=True)
    finally:
        shutil.rmtree(name)
    text = report(campaign, done, used())
    print(text)
    if args.write:
        write_figure(
            "survival/runs",
            text,
            f"python -m benchmarks.survive_runs --runs {args.runs} --seed {args.seed} --write",
        )
    raise SystemExit(bool(campaign.wrong))


def report(campaign: Campaign, done: int, seconds: float) -> str:
    """Return what was struck, how it ended, and what was wrong."""
    rows: list[list[object]] = [
        [name, count.total(), ", ".join(f"{end} {n}" for end, n in count.most_common())]
        for name, count in sorted(campaign.found.items())
    ]
    strikes = sum(count.total() for name, count in campaign.found.items() if name != "then")
    calls = ", ".join(
        f"{name} {count}" for (name, kinds), count in campaign.calls.items() if kinds == 15
    )
    return table(["what", "number", "how it ended"], rows) + (
        f"\n\n{done:,} runs, {strikes:,} strikes, {len(campaign.wrong)} wrong, in {seconds:,.0f} CPU s. Drawn without repetition "
        f"among all pairs of a fault and a call ({campaign.total:,}); file calls of an undisturbed run: {calls}. A quarter is killed "
        "again in what goes on from it. After each strike and after the last run, which nothing disturbs (`then`): no file is there that "
        "the ledger does not charge by its digest, no answer left that the store does not hold, no purse was refilled, nothing was "
        "charged twice, each certificate is its file's, every word about charges is true, every refusal has a code, none is OS9xx, "
        "none took over 5 CPU s or 1 GiB; in the end all outputs are there and nothing else, all lines are answered."
    )


if __name__ == "__main__":
    main()
