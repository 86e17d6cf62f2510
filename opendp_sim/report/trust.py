"""List a page's assumptions and excluded promises, in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opendp_sim.accounting.certificate.certificate import as_worded_now
from opendp_sim.accounting.measures.attackers import attacker_of
from opendp_sim.accounting.measures.group_and_repeat import of_units
from opendp_sim.dsl.plan.plan import Plan
from opendp_sim.dsl.plan.statements import unit_of

UNIT_SENTENCE = (
    "The privacy unit is the one that the program states: rows, or all rows of one name."
)
"""The sentence of a certificate for which a page says who has how many rows."""
_TEACHERS = (
    "One row is all that one teacher answers, so teachers are protected. Somebody whose records taught "
    "a teacher is protected as that teacher is, if no other teacher learnt from records of the same "
    "person: who learnt from whose records cannot be seen here."
)
_SESSIONS = (
    "Whoever asks may see all answers and choose each question by those before it: the claim covers "
    "that. It does not cover an older copy of the session's store that somebody puts back, or a second "
    "session on the same data that no ledger counts: the store stays with the curator."
)
_OF_VOTES = (({"pate_labels"}, _TEACHERS), ({"ind_knn", "hybrid_knn", "private_knn"}, _SESSIONS))
"""What votes ask to believe besides, by mechanism."""


def assumptions_of(plan: Plan, assumed: Sequence[str]) -> list[str]:
    """Return the assumptions of a reader, by a certificate's words."""
    unit = _of_the_unit(plan)
    stated = [unit if text == UNIT_SENTENCE else text for text in as_worded_now([*assumed])]
    return stated + [text for keys, text in _OF_VOTES if keys & _records(plan)]


def _records(plan: Plan) -> set[str]:
    return {release.record.key for release in plan.releases.values() if release.record is not None}


def _of_the_unit(plan: Plan) -> str:
    """Say of this program's data what a unit of privacy stands for."""
    if plan.privacy is None:
        return UNIT_SENTENCE
    unit = plan.privacy.unit
    data = " or ".join(f"`{entry.name}`" for entry in plan.program.data if not entry.public)
    one = "row" if unit.of == "row" else f"value{'s' * (unit.count > 1)} of `{unit.of}`"
    most = f"one {one}" if unit.count == 1 else f"{unit.count} {'rows' if one == 'row' else one}"
    return f"Nobody has more than {most} in {data}; whoever has is protected less."


def not_promised(plan: Plan) -> Iterator[tuple[str, str]]:
    """Yield what the claim does not cover, and more about it."""
    yield "Secrecy of facts about the whole group: to publish them is the purpose.", ""
    if plan.privacy is not None:
        unit = unit_of(plan)
        if unit.replaced:
            yield (
                f"That nobody learns that a {unit.noun} is in the data: its values are protected.",
                "",
            )
        yield (
            (
                "Protection of a person with several rows: rows are counted, not people."
                if unit.by_row
                else f"Protection of a person with several values of `{unit.of}`."
            ),
            "",
        )
        if not unit.replaced:
            yield (
                f"Equal protection of the values of a {unit.noun}: it is weaker.",
                _contents(plan),
            )
        yield (
            "Doubt in somebody who was nearly sure before.",
            (
                "The number of right guesses is for somebody who was at 50:50. Whoever was nearly sure "
                "is right more often, as without the release. The formal claim holds whatever anybody "
                "knew."
            ),
        )
    yield (
        "Safety against other releases that no ledger counts, timing, or a compromised machine.",
        "",
    )


def _contents(plan: Plan) -> str:
    """State the protection of a unit's content.

    Where the claim is about its presence. To exchange what one unit says is to remove it and to add
    another: two units (Lemma A5), and a guess between two such data sets is a test between them (Lemma
    A3). Of one record of a unit of several the claim itself may hold, so there a number would say too
    little.
    """
    assert plan.privacy is not None  # noqa: S101 - the caller asked
    unit = unit_of(plan)
    text = (
        f"What is protected is whether a {unit.noun} is in the data. A change of its values counts as "
        f"two steps, one {unit.noun} out and one in."
    )
    two = None
    if unit.count == 1:
        two = of_units(attacker_of(plan.privacy.measure, plan.total), 2)
    if two is not None:
        text += (
            f" Somebody who knows all else, also that the {unit.noun} is in the data, and starts at "
            f"50:50 between two things that it may say, guesses right at most {two.right} times in 100."
        )
    return text
