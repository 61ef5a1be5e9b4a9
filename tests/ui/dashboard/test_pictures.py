"""The screenshots of the documentation are small, are shown, and are labelled as made-up data."""

import re
import struct
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "pictures"
LIMIT_BYTES = 200_000
SHOWN = re.compile(r"!\[(?P<words>[^\]]+)\]\((?P<file>[^)]*pictures/[^)]+)\)")
PAGES = ("README.md", "docs/index.md", "docs/dashboard.md", "docs/report.md", "docs/fleet.md")


def test_pictures_are_small_and_have_a_palette():
    for path in FOLDER.glob("*.png"):
        head = path.read_bytes()[:26]
        width_px, height_px, _, kind = struct.unpack(">IIBB", head[16:26])
        shape = (head[:8], kind, width_px > 600, height_px > 300)
        assert shape == (b"\x89PNG\r\n\x1a\n", 3, True, True), path
        assert path.stat().st_size < LIMIT_BYTES, path


def test_every_picture_is_shown_with_a_caption():
    shown = set()
    for name in PAGES:
        page = ROOT / name
        found = list(SHOWN.finditer(page.read_text()))
        shown |= {(page.parent / one["file"]).resolve() for one in found}
        assert "made up" in page.read_text() or "made-up" in page.read_text(), name
    assert shown == set(FOLDER.glob("*.png"))
