"""Every coalition of THREATS has its part of the theorem, and the model checks that part."""

import re
from pathlib import Path

import pytest

from attacks.test_views import SCENES, Learns

ROOT = Path(__file__).parents[2]
PLACE = "docs/explanation/simulation.md#"
WORDS = {Learns.NOTHING: "any", Learns.CROWD: "swap", Learns.OWNERS: "seen"}
"""The word for a result, as simulation.md says it after *Model:*."""


def rows() -> dict[str, str]:
    """Return the first two tables of THREATS: each adversary's cell, and the rest of its row."""
    text = (ROOT / "THREATS.md").read_text(encoding="utf-8")
    tables = text.partition("## What each adversary learns")[2].partition("## Tokens")[0]
    found = re.findall(r"^\| (.+?) \|(.*)\|$", tables, re.MULTILINE)
    return {
        cell: rest for cell, rest in found if cell not in {"adversary", "---"} and "---" not in cell
    }


def parts() -> dict[str, str]:
    """Return the text under each heading of the theorem's last part, by its anchor."""
    text = (ROOT / "docs/explanation/simulation.md").read_text(encoding="utf-8")
    text = text.partition("## Coalition by coalition")[2].partition("\n## ")[0]
    sections = re.split(r"^### (.+)$", text, flags=re.MULTILINE)[1:]
    anchors = [title.lower().replace(" ", "-").replace(",", "") for title in sections[::2]]
    return dict(zip(anchors, sections[1::2], strict=True))


def test_every_row_leads_to_its_part_of_the_theorem() -> None:
    """No row without a proof, no part without a row."""
    links = [re.fullmatch(r"\[.+\]\((.+)\)", cell) for cell in rows()]
    assert all(links), [cell for cell, link in zip(rows(), links, strict=True) if not link]
    anchors = [link[1].removeprefix(PLACE) for link in links if link]
    assert sorted(anchors) == sorted(parts())
    assert len(anchors) == 19


@pytest.mark.parametrize("anchor", parts())
def test_every_part_says_what_the_model_checks(anchor: str) -> None:
    """The words after *Model:* are those of the model's cases, all of them and no others."""
    said = parts()[anchor].partition("*Model:*")[2]
    cases = [case for scene in SCENES.values() for case in scene.cases if case.place == anchor]
    learned = {WORDS[case.learns] for case in cases}
    assert {word for word in WORDS.values() if word in re.findall(r"\w+", said)} == learned
