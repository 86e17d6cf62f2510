"""Every name that a plan, a report or an answer prints beside a number: its unit and what it says.

``explain`` serves them; a test compares them with what all mechanisms state.
"""

from __future__ import annotations

_SUM, _OWN, _ROWS = "the answer's own unit", "the unit of the distances", "distance between rows"
_QUERIES, _USERS, _VOTES, _ITEMS, _NONE = "queries", "users", "votes", "items", "no unit"

_SCORE = (
    "What classes or points are compared by, larger being nearer; `nearest_class` gives minus the "
    "squared distance to a class's released mean, or minus the mean distance to its records."
)

_ANSWERS = {
    "candidate": ("a number from 0", "Which of the public candidates was drawn."),
    "coefficient": (
        "the target's unit per unit of the column",
        "The constant first, then what each other column adds to the predicted value.",
    ),
    "count": ("records, or votes", "How many there are, noise included; it may be below 0."),
    "density": (
        "records, or a share of all records",
        "The sum of all records' similarities to the query, each from 0 to 1; a mean with `normalise`.",
    ),
    "distance": (_OWN, "The sum of the distances of all records to the query; a mean with `mean`."),
    "height": (
        "records; votes for a selection",
        "The similar records at a summit; of a selection, how far its threshold is above the last rank.",
    ),
    "item": (_NONE, "An item of the catalogue."),
    "label": (_NONE, "The class, as a number from 0 in the order of the label's keys, or its key."),
    "least_records": (
        "records",
        "The released number below which it is not told from noise; means divide by this at least.",
    ),
    "lower": (_SUM, "The lower end of the interval that holds the true answer at `confidence`."),
    "upper": (_SUM, "The upper end of the interval that holds the true answer at `confidence`."),
    "margin": ("the unit of `score`", "How far the best class is ahead of the second."),
    "margin_deviation": (
        "the unit of `score`",
        "The standard deviation that noise gives `margin`.",
    ),
    "mode": ("data units", "Where a summit is: one number for each column."),
    "noise_error": (
        _SUM,
        "The standard deviation of the noise for privacy in an answer; 2 of 3 answers are moved by less.",
    ),
    "outlier": ("0 or 1", "1 where the query was flagged as having hardly any records around it."),
    "prediction": ("the unit of the target column", "The value that the fit gives to the query."),
    "probability": (
        "probability",
        "How often noise and sketch alone show so low a score where the truth is the threshold.",
    ),
    "rank": ("a number from 1", "The place of an item by its noisy count."),
    "records": ("records", "The released number of records, of a class where there are classes."),
    "score": ("it depends on the question: records, a share, or minus a distance", _SCORE),
    "sketch_error": (
        _SUM,
        "The standard deviation that the sketch's draws give an answer; more repetitions lessen it.",
    ),
    "starts": ("a count", "From how many of the starting points the climb ended at this summit."),
    "votes": (_VOTES, "The votes that a class or an item got, noise included."),
}

_SAMPLED = "The most that the sketch's draws move a mean by: times the records, it moves a sum."
_BIAS = "The most that the method itself shifts a sum by, times the number of records."
_BIASED = "What the method itself may shift a sum of distances by, times the number of records."
_CELL = "What is multiplied with the noise of one released number to give the noise of {}."

_SIMILAR = {
    "bias": (
        _SUM,
        "A shift that no noise causes and no repetition averages out; it adds up by records.",
    ),
    "bias per record": (_OWN, _BIASED),
    "bias, per record at most": ("a share of a record", _BIAS),
    "sampling": ("a share of a record", "What a sketch's random draws move an answer by."),
    "sampling, per record at most": ("a share of a record", _SAMPLED),
    "rounding": (_ROWS, "The most that storing a row in whole steps moves it."),
    "rounding, per record at most": (
        "a share of a record, or " + _OWN,
        "The most that storing rows in whole steps shifts a sum by, times the number of records.",
    ),
    "clipping and rounding, per record": (
        _ROWS,
        "What a record's distance loses, about, where long rows are cut and steps are whole.",
    ),
    "deviation of a kernel value": (
        "a share of a record",
        "The standard deviation of one similarity that random features give.",
    ),
    "deviation of the projection, per record": (
        _OWN,
        "What a record's distance moves by, about, where rows were projected before.",
    ),
    "distance bias per record, at most": (_OWN, _BIASED),
    "distance deviation per cell deviation": (_OWN, _CELL.format("a sum of distances")),
    "distance deviation per cell deviation, at most": (
        _OWN,
        _CELL.format("a sum of distances, at most"),
    ),
    "distance deviation per cell deviation, at the norm bound": (
        _OWN,
        _CELL.format("a sum of distances, for a query as long as the norm bound"),
    ),
    "error per record": ("a share of a record", _BIAS),
    "kernel steepness": (
        "similarity per bandwidth",
        "How fast similarity falls with distance, where it falls fastest.",
    ),
    "least records": (
        "records",
        "As `least_records`: below it a released number is not told from noise.",
    ),
    "noise of a product per unit of cell noise": (
        "the unit of the products",
        _CELL.format("a sum of products of two columns"),
    ),
    "noise of a sum of products": (
        "sums of products, to which a record adds at most 1",
        "The standard deviation of the noise in each sum that a fit is made from.",
    ),
    "noise of the loss per unit of cell noise": (
        "the unit of the summed loss",
        _CELL.format("the loss that is minimised"),
    ),
    "noise of the number of records": (
        "records",
        "The standard deviation of the noise in the released number of records.",
    ),
    "noise of the summed loss": (
        "the unit of the summed loss",
        "The standard deviation of the noise in the loss to minimise.",
    ),
    "noise per unit of cell noise": ("records", _CELL.format("a sum of similarities")),
    "noise_error of the sum": (
        f"{_OWN}, summed",
        "The standard deviation of the noise in the sum that a mean divides.",
    ),
    "noise_error times records": (
        "records",
        "The standard deviation of the noise in a sum; a mean's is this over the records.",
    ),
    "own additions per row": ("additions", "What projecting one row costs by itself."),
    "share left of a later sketch's products": (
        "a share of 1",
        "How much of a later sketch's work is left after the projection.",
    ),
    "relative deviation": (
        "a share of the distance",
        "The standard deviation that random directions give a distance.",
    ),
    "relative deviation of squared distances": (
        "a share of the square",
        "The standard deviation that random directions give a squared distance.",
    ),
    "relative deviation of the directions": (
        "a share of the distance",
        "The standard deviation that the drawn directions give a distance.",
    ),
    "relative deviation of the projection": (
        "a share of the answer",
        "The standard deviation that a projection before the sketch gives.",
    ),
    "sampling deviation per far record": (
        "a share of a record",
        "The standard deviation of what a far record adds by chance.",
    ),
    "terms": ("a count", "How many structures of different widths together make the similarity."),
}

_SERVED = {
    "count_noise": ("records", "The standard deviation of the noise in a count of neighbours."),
    "delta_per_query": ("probability", "The share of the release's delta that one query costs."),
    "deviation": (
        _VOTES,
        "The standard deviation of the noise in a count or in the votes that are compared.",
    ),
    "deviation_of_counts": (_VOTES, "The standard deviation of the noise in a released count."),
    "deviation_if_peeled": (
        _VOTES,
        "The standard deviation of the noise in a count, if no clear gap was found first.",
    ),
    "drop_for_95_percent": (
        _VOTES,
        "How far apart two counts must be for the larger to be chosen in 95 of 100 runs.",
    ),
    "gap_for_95_percent": (
        _VOTES,
        "The gap between kept and left items that passes the test in 95 of 100 runs.",
    ),
    "lead_for_95_percent": (
        _VOTES,
        "How far an item must be ahead of the first that has no place to be released in 95 of 100 runs.",
    ),
    "order_for_95_percent": (
        _VOTES,
        "How far apart two items must be for the one with more votes to come first in 95 of 100 runs.",
    ),
    "places": (_ITEMS, "How many items are released."),
    "items_per_user": (_ITEMS, "The most items that one user can vote for."),
    "minimum_count": ("neighbours", "The least number of neighbours that votes are scaled to."),
    "neighbours": ("records", "How many near records a query's threshold aims at."),
    "noise_of_a_gradient_in_records": (
        "records",
        "The noise of one step: as much as so many records could move it.",
    ),
    "queries": (_QUERIES, "How many queries the loss pays for."),
    "queries_a_record_near_to_all_serves": (
        _QUERIES,
        "After how many a record is left out that is near to every query when few others are.",
    ),
    "queries_a_typical_record_serves": (
        _QUERIES,
        "After how many a record is left out if queries find all records alike.",
    ),
    "ranks": ("ranks", "How many of the most voted items are looked at."),
    "records_of_a_rare_class": (
        "records",
        "A class of fewer records than about so many may hardly ever be predicted.",
    ),
    "relative_noise_of_class_means": (
        "a share of the mean's length",
        "The noise in class means, were they released instead.",
    ),
    "relative_noise_of_its_means": (
        "a share of the mean's length",
        "The noise in the class means that easy queries are answered by.",
    ),
    "relative_vote_noise": (
        "a share of all votes",
        "The noise in a class's votes over the votes of the neighbours aimed at.",
    ),
    "noise_of_votes": (
        _VOTES,
        "The noise in a class's votes where the spec states its scale; a neighbour has at most one vote.",
    ),
    "rho_per_query": ("rho of zCDP", "The loss that one query costs."),
    "rounds": ("rounds", "How many draws are made, one item after another."),
    "scale": (_VOTES, "The scale of the noise that is added before ranks are compared."),
    "steps": ("steps", "How many noisy gradients a model is fitted in."),
    "threshold": (_VOTES, "What a noisy count or gap must reach for anything to be released."),
    "vote_noise": (_VOTES, "The scale of the noise in the votes of a query's neighbours."),
    "voters": ("records", "How many neighbours vote on a query."),
    "votes_for_95_percent": (
        _VOTES,
        "How many votes list an item in 95 of 100 runs, if there is room.",
    ),
    "votes_to_be_listed": (_VOTES, "How many votes list an item in 95 of 100 runs."),
    "weights": ("a count", "How many numbers the model has: columns times classes."),
}

_PROJECTED = (
    "How much a projection before the sketch moves a similarity of this kind, as a deviation."
)
_KERNELS = ("cauchy", "exponential", "gaussian", "p_stable_l2", "rational")
PRINTED: dict[str, tuple[str, str]] = {
    **_ANSWERS,
    **_SIMILAR,
    **_SERVED,
    **{f"jl_error_{kernel}": ("a share of a record", _PROJECTED) for kernel in _KERNELS},
}
"""A printed name: its unit, and one plain sentence."""


def known_as(word: str) -> str | None:
    """Return the printed name that is meant: also with a class behind it, as ``density:a``."""
    plain = {name.replace("_", " "): name for name in PRINTED}
    for said in (word, word.partition(":")[0].strip()):
        if said in PRINTED:
            return said
        if said.replace("_", " ") in plain:
            return plain[said.replace("_", " ")]
    return None


def page_of_a_name(name: str) -> str:
    """Return the page of a printed name."""
    unit, said = PRINTED[name]
    return f"{name} (printed beside a number)\n\n    in {unit}\n    {said}"
