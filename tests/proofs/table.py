"""The table of comparisons: each with how many cases run a push, and in the long tier."""

from __future__ import annotations

from tests.proofs.comparisons import (
    Compare,
    kept_rows,
    purses,
    ranks,
    second_moments,
    sketch_cells,
    vote_counts,
    votes,
)
from tests.proofs.draws_and_claims import bounded, choose_k, claims, peel
from tests.proofs.machines import ledger, session_store

COMPARISONS: dict[str, tuple[Compare, int, int]] = {
    "votes": (votes, 200, 8000),
    "vote_counts": (vote_counts, 60, 1500),
    "race": (sketch_cells("race"), 40, 400),
    "tree": (sketch_cells("tree"), 40, 1000),
    "threshold": (sketch_cells("threshold"), 40, 1000),
    "moment": (sketch_cells("moment"), 40, 1000),
    "second_moments": (second_moments, 40, 1000),
    "ranks": (ranks, 400, 8000),
    "purses": (purses, 150, 2000),
    "kept_rows": (kept_rows, 30, 300),
    "choose_k": (choose_k, 150, 8000),
    "peel": (peel, 100, 4000),
    "bounded": (bounded, 60, 1500),
    "claims": (claims, 20, 1500),
    "ledger": (ledger, 12, 120),
    "session_store": (session_store, 12, 200),
}
