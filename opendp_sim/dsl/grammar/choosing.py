"""How to choose: what a person needs beside a word's declaration; ``explain`` ends with it."""

from __future__ import annotations

__all__ = ["CHOOSING"]

CHOOSING = {
    "epsilon": """\
What it means: somebody who gives even odds that a record is in the data can,
after the release, give at most e^epsilon to 1 (and delta more): with epsilon
0.5 that is 62 %, with 1 it is 73 %, with 2 it is 88 %, with 5 it is 99.3 %.
By these guesses a plan calls protection strong up to 60 %, moderate up to
75 %, weak up to 90 % and very weak above: epsilon 0.4, 1.09 and 2.19 under
`measure: pure`. Gaussian noise of the same epsilon, with a delta, protects
more: `opendp-sim plan` shows what an attacker gains, and the error that your
choice costs, before anything is spent. Losses of several runs add up: a
`ledger` counts them.""",
    "delta": """\
What it means: slack that is added to what an attacker can gain; for the
measures here it is no chance that everything leaks. Choose it well below one
over the number of people: 1e-6 for up to 100,000. With `measure: pure` there
is none: leave it out.""",
    "bounds": """\
Where they come from: a documented range (0 to 16 of a scanner), a definition
(0 to 24 of an hour), or another data set that is public. Never the least and
the greatest value of this one, which are two records. With `ingest: enforce`
values outside are clamped. Wide bounds cost accuracy, never privacy.""",
    "dtype": """\
Which to write: `array[f32, 64]` for embeddings and other vectors, `float64`
for measurements, `int64` for whole numbers, `bool` for yes and no, `date` for
days (times lose their hour, in UTC), `category` with `keys` for labels, `str`
for names of persons and items. A cell that holds no such value is missing.
Text files have no dtypes; of other sources, a stored type that cannot mean
the declared one is refused (OS602).""",
    "unit": """\
Which to write: `of: row` if each record is another person, else `of:
person_column` with a column of role `privacy_id` and the step
`bound_contributions: {max_rows: k}`. With the first, somebody with ten
records is protected ten times less.""",
    "ledger": """\
How to use it: every spec over the same people names the same file. `opendp-
sim ledger show FILE` lists what was charged. Without one, nobody adds up what
several runs tell together.""",
}
"""A word of a spec to lines of at most 80 columns."""
