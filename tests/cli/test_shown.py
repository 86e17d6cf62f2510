"""No text that somebody else wrote steers a terminal: a screen shows what the file holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from opendp_sim.cli import app
from opendp_sim.core.system.escape_text import escape

EVIL = (
    "\x1b[2J",
    "\x1b[3A\rclaim     (0.001, 1e-09)-DP",
    "\nclaim     (0.001, 1e-09)-DP",
    "[/x]",
    "[red]",
    "\x9b2J",
    "\x08\x08\x08",
    "\u202eevil\u202c",
    "\u2028claim",
    "\x1b]0;title\x07",
    "\x00",
    ":smile:",
)
SPEC = """
spec: opendp_sim/1
name: {name}
data:
  digits:
    source: {{builtin: digits}}
    columns: {{pixels: {{dtype: "array[f32, 64]", bounds: [0, 16]}}}}
privacy: {{unit: {{add_remove: 1, of: row}}, measure: zcdp, budget: {{epsilon: 1.0, delta: 1.0e-6}}}}
flow:
  {stage}:
    from: digits
    steps:
      - select: {{features: pixels}}
      - quantize: {{bits: 8}}
      - race_sketch: {{repetitions: 8, buckets: 8, family: {{p_stable_l2: {{width: 6.0}}}}, seed: 7}}
  noisy: {{from: {stage}, release: {{noise: gaussian, scale: solve, spend: 100%}}}}
outputs:
  density: {{from: noisy, save: {save}}}
"""


def screen(text: str) -> list[str]:
    """Return what a terminal of 200 columns shows of a text."""
    pyte = pytest.importorskip("pyte")
    found = pyte.Screen(200, 200)
    stream = pyte.Stream(found)
    stream.feed(text.replace("\n", "\r\n"))
    return [line.rstrip() for line in found.display]


@pytest.mark.few(2)
@pytest.mark.parametrize("command", ["plan", "types", "check"])
def test_hostile_names_are_shown(tmp_path: Path, command: str) -> None:
    draw = np.random.default_rng(3)
    for _ in range(4):
        parts = [EVIL[k] for k in draw.permutation(len(EVIL))]
        quoted = {
            "name": json.dumps("n" + "".join(parts[:4])),
            "stage": json.dumps("s" + parts[4]),
            "save": json.dumps("out/" + "".join(parts[5:8]) + ".npz"),
        }
        (tmp_path / "a[").mkdir(exist_ok=True)
        file = tmp_path / "a[" / "x]\x1b[1A.yaml"
        file.write_text(SPEC.format(**quoted), encoding="utf-8")
        done = CliRunner().invoke(app, [command, str(file), *(["-v"] if command == "plan" else [])])
        said = done.stdout + done.stderr
        assert "OS903" not in said
        assert said == escape(said, "\n\t")  # nothing in it steers a terminal
        claims = [line for line in screen(said) if line.startswith("claim ")]
        if command == "plan" and done.exit_code == 0:
            assert len(claims) == 1
            assert claims[0].startswith("claim     (1, 1e-06)-DP")
        assert not any("0.001" in line for line in claims)


def test_json_is_ascii_and_means_the_same(tmp_path: Path) -> None:
    file = tmp_path / "spec.yaml"
    save = "out/" + EVIL[1] + EVIL[7] + ".npz"
    file.write_text(SPEC.format(name="n", stage="s", save=json.dumps(save)), encoding="utf-8")
    done = CliRunner().invoke(app, ["plan", "--json", str(file)])
    assert done.stdout.isascii()
    assert "\x1b" not in done.stdout
    assert json.loads(done.stdout)["outputs"]["density"]["save"] == save


IGNORABLE = (  # Default_Ignorable_Code_Point, DerivedCoreProperties.txt of Unicode 14.0; 4,174 of them
    "AD 34F 61C 115F-1160 17B4-17B5 180B-180F 200B-200F 202A-202E 2060-206F 3164 FE00-FE0F FEFF FFA0 FFF0-FFF8 "
    "1BCA0-1BCA3 1D173-1D17A E0000-E0FFF"
)


def test_every_character_that_steers_or_looks_like_nothing_is_shown() -> None:
    import unicodedata

    parts = [[int(end, 16) for end in part.split("-")] for part in IGNORABLE.split()]
    empty = {code for ends in parts for code in range(ends[0], ends[-1] + 1)} | {0x2800}
    assert len(empty) == 4174 + 1
    for code in {
        *empty,
        *range(0x3400),
        *range(0xD700, 0x20000, 3),
        *range(0xDFF00, 0x110000, 997),
    }:
        kind = unicodedata.category(chr(code))
        spelled = kind in ("Cc", "Cf", "Zl", "Zp", "Cs", "Co", "Cn") or (
            kind == "Zs" and code != 32
        )
        if spelled or code in empty:
            assert escape("a" + chr(code)).isascii(), hex(code)
        elif kind[0] in "LNPS" and code not in (0x16FE4, 0x1D159):
            assert escape(chr(code)) == chr(code), hex(code)


def test_letters_accents_and_emoji_stay_and_no_mark_sits_on_what_we_wrote() -> None:
    for text in ("Zürich 東京 ε ≤ 1", "Zu\u0308rich", "हिन्दी", "العربية", "한국어", "🙂🏽 🇩🇪", ""):
        assert escape(text) == text
    assert escape("❤\ufe0f") == "❤\\ufe0f"
    assert escape("\u03381") == "\\u03381"  # `0` before it would be struck through
    assert escape("a\nb\xa0c", "\n") == "a\nb\\xa0c"
