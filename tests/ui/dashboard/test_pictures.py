"""The screenshots of the documentation are shown, and are labelled as made-up data."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "pictures"
SHOWN = re.compile(r"!\[(?P<words>[^\]]+)\]\((?P<file>[^)]*pictures/[^)]+)\)")
PAGES = ("README.md", "docs/index.md", "docs/dashboard.md", "docs/report.md", "docs/fleet.md")


def test_every_picture_is_shown_with_a_caption():
    shown = set()
    for name in PAGES:
        page = ROOT / name
        found = list(SHOWN.finditer(page.read_text()))
        shown |= {(page.parent / one["file"]).resolve() for one in found}
        assert "made up" in page.read_text() or "made-up" in page.read_text(), name
    assert shown == set(FOLDER.glob("*.png"))
