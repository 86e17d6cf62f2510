"""Plan the labels of questions from many people's answers, ``sim.labels``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from opendp_sim.accounting.release.table import Table
from opendp_sim.api.recipe import DATA, Recipe, check_word, keys_of
from opendp_sim.api.recipe_spec import PersonOptions, privacy_words, recipe_function
from opendp_sim.core.errors import ParameterError
from opendp_sim.io.frames import from_table
from opendp_sim.io.table_files import VoteColumns


@recipe_function(
    PersonOptions,
    'labels("answer", question="task", questions=[1, 2], keys=["cat", "dog"], unit="worker")',
    measure="approx_zcdp",
)
def labels(
    answer: str,
    *,
    question: str,
    questions: Sequence[str | int],
    keys: Sequence[str | int],
    most: int = 1,
    **privacy: Unpack[PersonOptions],
) -> Recipe[Table]:
    """Plan each question's labels from a table of workers' answers.

    The table has a record for each worker, question and answer. ``apply`` returns a table of columns
    ``question`` and ``label``: an answer that many workers gave, or None where the votes are too close
    to tell. With ``most`` above 1 a question may have several rows. All answers of one worker are
    protected together, however many questions they are to (``io/ingest.md``, Lemma 5).

    Args:
        answer: the column of the answers.
        question: the column of the questions.
        questions: every question that is asked, publicly known; records of others are left out.
        keys: every answer that could be given; records of others are left out.
        most: the most labels of one question; below the number of keys.
        **privacy: as for ``density``; ``unit`` is the column of the workers, and has to be named.

    Raises:
        ParameterError (OS102): no column of workers. Refused: what cannot be planned.

    Example:
        >>> fit = labels("answer", question="task", questions=[1, 2], keys=["cat", "dog"],
        ...              unit="worker", epsilon=4.0)
        >>> epsilon, delta = fit.plan.claim
        >>> round(epsilon, 3), delta <= 1e-6
        (4.0, True)
    """
    for name, word in (("answer", answer), ("question", question)):
        check_word(
            name, word, str, "the name of a column", 'sim.labels("answer", question="task").'
        )
    words = privacy_words("labels", privacy, measure="approx_zcdp")
    if words.unit in ("row", answer, question):
        raise ParameterError(
            "OS102", "unit", expected="the column that names the worker", got=words.unit,
            hint='for example unit="worker": an answer alone would protect nobody who gave several.',
        )  # fmt: skip
    if words.source is not None:
        raise ParameterError(
            "OS102", "source", expected="no source", got="one",
            hint="hand the table of answers to `.apply(table)`, or write a spec with `votes`.",
        )  # fmt: skip
    asked, given = keys_of(questions), keys_of(keys)
    votes = VoteColumns(words.unit, question, answer, tuple(asked), tuple(given), words.ids)
    shape = {"dtype": f"array[u8, {votes.width}]", "bounds": [0, 1]}
    rule = {"stable": {"k_max": most}}

    def read(found: Any) -> Table:
        sets = found["labels"] if isinstance(found, Mapping) else found
        named = [[None] if not one else [given[at] for at in one] for one in sets]
        pairs = [(q, label) for q, several in zip(asked, named, strict=True) for label in several]
        return Table({"question": [q for q, _ in pairs], "label": [label for _, label in pairs]})

    return Recipe(
        words.begun("labels", {"votes": shape})
        .stage(
            "rows",
            DATA,
            steps=[{"bound_contributions": {"max_rows": 1}}, {"select": {"features": "votes"}}],
        )
        .stage(
            "labels",
            "rows",
            release={
                "mechanism": {"pate_labels": {"labels": len(given), "rule": rule}},
                "spend": "100%",
            },
        )
        .output("answers", "labels", save="labels.json"),
        read,
        lambda table: dict(
            zip((words.unit, "votes"), votes.rows_of(from_table(votes.records, table)), strict=True)
        ),
    )
