"""Run one comparison with one line of the package changed, in a process of its own.

    python -m tests.proofs.mutants NUMBER SKETCHES LEDGER

prints the rows that differ. The changed text is given to the import of that one module; no file is written.
"""

from __future__ import annotations

import importlib.machinery
import sys
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[2] / "opendp_sim"
_S = "transformations/sketches/"
_M = "measurements/"
_CHECKER = "accounting/certificate/check_certificate.py"


class Mutant(NamedTuple):
    """A row of the table that must differ, and one line of one file changed."""

    row: str
    comparison: str
    file: str
    old: str
    new: str


MUTANTS = [
    Mutant(
        "distance of counts",
        "votes",
        "audit/claims/output_distance.py",
        "return max(longest, math.ceil(sum(moves) / Fraction(cells)))",
        "return longest",
    ),
    Mutant(
        "distance without a bound on cells",
        "votes",
        "audit/checks/compare_outputs.py",
        "total = sum if norm.steps else _one_signed",
        "total = max if norm.steps else _one_signed",
    ),
    Mutant(
        "distance of open catalogues",
        "votes",
        "audit/claims/output_distance.py",
        "keys = list(dict.fromkeys([*left, *right]))\n        left, right = (",
        "keys = list(left)\n        left, right = (",
    ),
    Mutant(
        "vote_counts within its map",
        "vote_counts",
        _S + "counts/vote_counts.py",
        "touched=1 if by_row else self.max_items",
        "touched=1",
    ),
    Mutant(
        "race: cells",
        "race",
        _S + "kernels/race_sketch.py",
        "total += self.mechanism.weight * np",
        "total += 1 * np",
    ),
    Mutant(
        "race: one record",
        "race",
        _S + "kernels/race_sketch.py",
        "l2_squared=weight**2, linf=weight",
        "l2_squared=weight, linf=weight",
    ),
    Mutant(
        "tree: cells", "tree", _S + "distances/distance_tree.py", "+= times * nodes", "+= nodes"
    ),
    Mutant(
        "tree: cells",
        "tree",
        _S + "distances/_impl/axes.py",
        "return (inside << self.height) // self.span",
        "return (inside << self.height) // (self.span + 1)",
    ),
    Mutant(
        "tree: one record",
        "tree",
        _S + "distances/distance_tree.py",
        "for u in reader.multipliers], self.levels + 1",
        "for u in reader.multipliers], self.levels",
    ),
    Mutant(
        "threshold: cells",
        "threshold",
        _S + "distances/threshold_sketch.py",
        "2 * table[column, :, :count] - sizes",
        "2 * table[column, :, 1 : count + 1] - sizes",
    ),
    Mutant(
        "threshold: one record",
        "threshold",
        _S + "distances/threshold_sketch.py",
        "l2_squared=weight**2, linf=weight",
        "l2_squared=weight, linf=weight",
    ),
    Mutant(
        "moment: cells",
        "moment",
        _S + "distances/moment_tree.py",
        "factor = math.comb(order, lower) *",
        "factor = 1 *",
    ),
    Mutant(
        "products: cells",
        "second_moments",
        _S + "moments/second_moments.py",
        "upper = np.triu_indices(self.standard.width)\n        step",
        "upper = np.tril_indices(self.standard.width)\n        step",
    ),
    Mutant(
        "products: one record within the claim",
        "second_moments",
        _S + "moments/second_moments.py",
        "l1=(longest**2 + square) // 2",
        "l1=longest**2 // 2",
    ),
    Mutant(
        "products: a corner attains L1 and L2",
        "second_moments",
        _S + "moments/second_moments.py",
        "l2_squared=(square**2 + largest * square) // 2",
        "l2_squared=square**2",
    ),
    Mutant(
        "top set and order statistics",
        "ranks",
        "domains/counts.py",
        'order = np.concatenate([above[np.argsort(-counts[above], kind="stable")], ties])',
        "order = np.concatenate([above, ties])",
    ),
    Mutant(
        "gap",
        "ranks",
        _M + "selection/_impl/stability.py",
        "gap = int(ranking.counts[k - 1] - ranking.counts[k])",
        "gap = int(ranking.counts[0] - ranking.counts[k])",
    ),
    Mutant(
        "a set with an item without a vote is not released",
        "ranks",
        _M + "selection/_impl/stability.py",
        "(ranking.places[:k] < 0).any()",
        "(ranking.places[:k] < -1).any()",
    ),
    Mutant(
        "different sets: the gaps add up to at most d",
        "ranks",
        _M + "selection/_impl/stability.py",
        "gap = int(ranking.counts[k - 1] - ranking.counts[k])",
        "gap = int(ranking.counts[k - 1] - ranking.counts[k]) + 2",
    ),
    Mutant(
        "a gap moves by at most d",
        "ranks",
        _M + "selection/_impl/stability.py",
        "gap = int(ranking.counts[k - 1] - ranking.counts[k])",
        "gap = 2 * int(ranking.counts[k - 1] - ranking.counts[k])",
    ),
    Mutant(
        "the release at a given noise",
        "ranks",
        _M + "selection/_impl/stability.py",
        "passes = coins.reaches(scale, threshold - gap)",
        "passes = coins.reaches(scale, threshold - gap + 1)",
    ),
    Mutant(
        "affordable is the largest that takes part",
        "purses",
        _M + "knn/_impl/privacy_filter.py",
        "        roots -= roots * roots > squares\n",
        "",
    ),
    Mutant(
        "admitted exactly where it takes part",
        "purses",
        _M + "knn/_impl/privacy_filter.py",
        "(distances > self.affordable(who, price)).any()",
        "(self._purses[who] <= 0).any()",
    ),
    Mutant(
        "units are the price",
        "purses",
        _M + "knn/_impl/privacy_filter.py",
        "units = distances * distances * min(price, UNITS)",
        "units = distances * min(price, UNITS)",
    ),
    Mutant(
        "purse",
        "purses",
        _M + "knn/_impl/privacy_filter.py",
        "self._purses[who] -= units",
        "self._purses[who[:1]] -= units[:1]",
    ),
    Mutant(
        "kept rows",
        "kept_rows",
        "transformations/row_maps/bound_contributions.py",
        "return (hashes <= last) & ~doubtful",
        "return (hashes < last) & ~doubtful",
    ),
    Mutant(
        "the sum",
        "ledger",
        "accounting/ledger/_entries.py",
        'if e.kind in ("charge", "refusal", "void")',
        'if e.kind in ("charge", "void")',
    ),
    Mutant(
        "the sum",
        "ledger",
        "accounting/ledger/_entries.py",
        'if e.kind in ("charge", "refusal", "void")',
        'if e.kind in ("refusal", "void")',
    ),
    Mutant(
        "a reserve is a step of the machine: within the limit",
        "ledger",
        "accounting/ledger/ledger.py",
        "            self.afford(charge)\n            return self._append",
        "            return self._append",
    ),
    Mutant(
        "the number of entries",
        "ledger",
        "accounting/ledger/ledger.py",
        "            if settled is not None:\n                return settled\n",
        "",
    ),
    Mutant(
        "no refusal after a charge",
        "ledger",
        "accounting/ledger/ledger.py",
        "if settled is not None and settled.kind != kind:",
        "if False:",
    ),
    Mutant(
        "no charge after a refusal",
        "ledger",
        "accounting/ledger/ledger.py",
        "if settled is not None and settled.kind != kind:",
        'if settled is not None and kind == "refusal" != settled.kind:',
    ),
    Mutant(
        "choose_k: utilities",
        "choose_k",
        _M + "selection/_impl/gap_utility.py",
        "return kept - self.penalty",
        "return kept + self.penalty",
    ),
    Mutant(
        "choose_k: the rank is the drawn place",
        "choose_k",
        _M + "selection/choose_k.py",
        "return 1 + coins.best(",
        "return coins.best(",
    ),
    Mutant(
        "choose_k: utilities of neighbours",
        "choose_k",
        _M + "selection/_impl/gap_utility.py",
        "kept = gaps if self.ceiling is None else",
        "kept = 2 * gaps if self.ceiling is None else",
    ),
    Mutant(
        "peel: the fewer are drawn, the others kept",
        "peel",
        _M + "selection/_impl/peeling.py",
        "    if losers < k:\n        kept = np.ones",
        "    if losers > k:\n        kept = np.ones",
    ),
    Mutant(
        "peel: the name of an item without a vote",
        "peel",
        _M + "selection/_impl/peeling.py",
        'rank, side="right"))',
        'rank, side="left"))',
    ),
    Mutant(
        "peel: the group that the bits settle",
        "peel",
        _M + "selection/_impl/selection.py",
        "surely, surely_not = (drawn + 1) * (weights.highest + far)",
        "surely, surely_not = drawn * (weights.highest + far)",
    ),
    Mutant(
        "moments_sketch: the claim",
        "bounded",
        _S + "distances/moments_sketch.py",
        "l2_squared=u1**2 * square,",
        "l2_squared=u1 * square,",
    ),
    Mutant(
        "moments_sketch: neighbours",
        "bounded",
        _S + "distances/moments_sketch.py",
        "parts = [u1 * totals.ravel(), u0 * sizes,",
        "parts = [2 * u1 * totals.ravel(), u0 * sizes,",
    ),
    Mutant(
        "gauss_transform_sketch: the claim",
        "bounded",
        _S + "kernels/gauss_transform_sketch.py",
        "l1, l2_squared = sum(most), sum(m * m for m in most)",
        "l1, l2_squared = sum(most), sum(most)",
    ),
    Mutant(
        "fourier_sketch: the claim",
        "bounded",
        _S + "kernels/fourier_sketch.py",
        "l2_squared=self.frequencies * AMPLITUDE**2,",
        "l2_squared=AMPLITUDE**2,",
    ),
    Mutant(
        "checker: race_sketch",
        "claims",
        _CHECKER,
        "return None, (Block(R, R, 1), *([count_block(w)] if w else []))",
        "return None, (Block(R, R, 1), *([count_block(1)] if w else []))",
    ),
    Mutant(
        "checker: threshold_sketch",
        "claims",
        _CHECKER,
        'M = sum(-(-p["thresholds"] * span // max(spans)) for span in spans)',
        'M = sum(p["thresholds"] * span // max(spans) for span in spans)',
    ),
    Mutant(
        "checker: distance_tree",
        "claims",
        _CHECKER,
        'depth = p["levels"] + 1',
        'depth = p["levels"]',
    ),
    Mutant(
        "checker: second_moments",
        "claims",
        _CHECKER,
        "(N**2 + m * N) // 2, m)",
        "(N**2 + m) // 2, m)",
    ),
    Mutant(
        "checker: fourier_sketch",
        "claims",
        _CHECKER,
        "a, m = max(c + s for c, s in pairs)",
        "a, m = max(c for c, s in pairs)",
    ),
    Mutant(
        "checker: gauss_transform_sketch",
        "claims",
        _CHECKER,
        "most = [2**16 >> sum(each) for each in exponents]",
        "most = [2**16 >> max(each) for each in exponents]",
    ),
    Mutant(
        "checker: moments_sketch",
        "claims",
        _CHECKER,
        "Block(u1 * l1, u1**2 * square,",
        "Block(u1 * l1, u1 * square,",
    ),
    Mutant(
        "checker: distance after a chain",
        "claims",
        _CHECKER,
        'stability * p["max_rows"]',
        "stability",
    ),
    Mutant(
        "store: an entry is kept exactly where COMMIT was",
        "session_store",
        "accounting/ledger/_durable.py",
        'yield\n        connection.execute("COMMIT")',
        'yield\n        connection.execute("ROLLBACK")',
    ),
    Mutant(
        "store: nothing leaves after a failure",
        "session_store",
        "accounting/session/store.py",
        "        with refusing(unusable, *FAILURES):\n            self._commit(entries)",
        "        try:\n            self._commit(entries)\n        except FAILURES:\n            pass",
    ),
    Mutant(
        "store: the purses after an opening",
        "session_store",
        "accounting/session/_tables.py",
        "SELECT who, units FROM entry WHERE place > ?",
        "SELECT who, units FROM entry WHERE place > 1 + ?",
    ),
    Mutant(
        "store: an answer leaves after its entry",
        "session_store",
        "accounting/session/_tables.py",
        'FROM entry WHERE kind <> ? ORDER BY place"',
        'FROM entry WHERE kind <> ? ORDER BY place LIMIT 1"',
    ),
    Mutant(
        "store: a price above the purse is refused",
        "session_store",
        _M + "knn/_impl/privacy_filter.py",
        "(distances > self.affordable(who, price)).any()",
        "(distances >= self.affordable(who, price)).any()",
    ),
]


class _Changed(importlib.machinery.SourceFileLoader):
    """Load one module from its changed text."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> Any:
        return compile(self.text, self.get_filename(fullname), "exec")


class _Finder:
    def __init__(self, mutant: Mutant) -> None:
        self.path = PACKAGE / mutant.file
        self.name = ".".join(("opendp_sim", *self.path.relative_to(PACKAGE).with_suffix("").parts))
        self.text = self.path.read_text("utf-8").replace(mutant.old, mutant.new)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name != self.name:
            return None
        loader = _Changed(name, str(self.path), self.text)
        return importlib.machinery.ModuleSpec(name, loader, origin=str(self.path))


def main(number: str, sketches: str, ledger: str) -> None:
    """Import the mutant, compare, and print every row that differs."""
    mutant = MUTANTS[int(number)]
    sys.meta_path.insert(0, _Finder(mutant))  # type: ignore[arg-type]
    from tests.proofs.comparisons import Driver
    from tests.proofs.table import COMPARISONS

    compare, few, many = COMPARISONS[mutant.comparison]
    drivers = Driver(Path(sketches)), Driver(Path(ledger))
    found = compare(*drivers, min(many, 5 * few))
    for row in found.differences:
        print(row)


if __name__ == "__main__":
    main(*sys.argv[1:])
