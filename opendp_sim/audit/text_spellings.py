"""The words of the code in other cases, with ends, and written with other letters."""

from __future__ import annotations

from itertools import zip_longest

from opendp_sim.audit.mining import Mined

__all__ = ["spelled"]

_ENDS = 4
_LIGATURES = (("ffi", "ﬃ"), ("fl", "ﬂ"), ("fi", "ﬁ"), ("ss", "ß"), ("k", "\u212a"), ("s", "ſ"))
"""What letters become when case is folded or compatibility forms are normalised."""
_FULL_WIDTH = 0xFEE0


def spelled(found: Mined, marks: list[str], keys: list[str], *, together: bool) -> list[str]:
    """Return the words of the code in other cases, padded, and written with other letters.

    Args:
        found: what the code names.
        marks: what stands between words.
        keys: the words.
        together: whether a record may hold several of them.
    """
    ends = [c for w in sorted(found.words) if w and not any(map(str.isalnum, w)) for c in w.strip()]
    joined: list[str] = []
    alone: list[list[str]] = []
    for key in keys or ["ss"]:
        texts = _spellings(key, ends[:_ENDS])
        joined += [mark.join(texts) for mark in marks[:2]] if together else []
        alone.append([f" {key.title()} ", *texts[1:]])
    return [*joined, *(t for row in zip_longest(*alone) for t in row if t is not None)]


def _spellings(word: str, ends: list[str]) -> list[str]:
    """Return texts that may count as one word once case, forms or ends are gone."""
    wide = "".join(chr(ord(c) + _FULL_WIDTH) if "!" <= c <= "~" else c for c in word)
    other = [word.replace(plain, joined) for plain, joined in _LIGATURES if plain in word]
    cases = [word, word.upper(), word.title(), word.swapcase(), word[:-1] + word[-1:].upper()]
    return list(dict.fromkeys([*cases, wide, *other[:2], *(word + end for end in ends)]))
