"""Fields between marks: every kind that is tried, and where there is nothing to try."""

from __future__ import annotations

from opendp_sim.audit.seeds.text import apart, behind, fields, mixed, numbered, tables

KEYS = ["EUR", "KWD"]


def test_keys_stand_before_numbers_beside_each_other_and_behind() -> None:
    assert {"EUR,1", "KWD,1000000", "a,-1", "a,7", ",7", "a,,7"} <= set(fields([","], KEYS, ["7"]))
    assert {"EUR>KWD", "KWD>EUR", "1000000>EUR", "1>KWD"} <= set(
        mixed([">"], KEYS, KEYS, (), numbers=False)
    )
    assert behind([","], ["x", "y"]) == ["a,x", "a,y"]
    assert ("EUR,KWD"[:3], "KWD") in apart([","], KEYS, KEYS)


def test_dates_and_odd_digits_stand_in_a_field_where_the_code_reads_such() -> None:
    found = set(mixed(["\t"], [], (), ("2024-02-29T12:30:00",), numbers=True))
    assert found == {"2024-02-29T12:30:00\ta", "a\t2024-02-29T12:30:00", "a\t²"}
    assert mixed(["\t"], [], (), (), numbers=False) == []


def test_words_beside_words_are_those_of_lists() -> None:
    assert not {"EUR>KWD"} & set(mixed([">"], KEYS, (), (), numbers=False))


def test_many_texts_alike_differ_in_a_number() -> None:
    assert numbered(["ERROR"])[:2] == ["ERROR 0", "ERROR 1"]
    assert len(set(numbered([]))) == len(numbered([])) > 20


def test_tables_have_as_many_fields_as_are_wanted() -> None:
    found = tables([",", ";"], KEYS, (3,))
    assert {"1000000,1000000,1000000", "-1000000;-1000000;-1000000"} <= set(found)
    assert any(text.count(";") == 5 and text.count(",") == 6 for text in found)
    assert tables([], KEYS, (3,)) == []
