"""The page of figures, and what the records claim of this code.

python -m benchmarks             # writes RESULTS.md and SPEED.md of results/
python -m benchmarks evidence    # names mechanisms whose evidence is of other code
python -m benchmarks commits     # refuses figures that cite commits which do not exist
"""

from __future__ import annotations

import sys

import opendp_sim.prelude  # noqa: F401 - fills the registry
from benchmarks import speed_lines
from benchmarks._results import PAGE, cited, figures, missing, page
from opendp_sim.accounting.evidence import fallen
from opendp_sim.core.mechanism import REGISTRY


def main(words: list[str]) -> int:
    """Do what the one word asks."""
    match words:
        case []:
            PAGE.write_text(page(), "utf-8")
            speed_lines.PAGE.write_text(speed_lines.page(), "utf-8")
            print(f"{PAGE.name}: {len(figures())} figures")
        case ["evidence"]:
            for key, day in ((key, fallen(key)) for key in sorted(REGISTRY)):
                if day is None:
                    continue
                print(
                    f"{key}: proved only, as its code changed since {day}; audit it again: python benchmarks/"
                    f"audit_scoreboard.py --only laws,mechanisms --family {key} --write"
                )
        case ["commits"]:
            gone = missing(cited())
            for place, commit in gone:
                print(f"{place}: no commit {commit}; cite the one that was measured")
            return bool(gone)
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
