"""Writes the reference pages into docs/reference, or says that those there are stale."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import commands, configuration, series, webhook

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
# A new page is one entry here, and one in the nav of mkdocs.yml.
PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": commands.render,
    "configuration.md": configuration.render,
    "series.md": series.render,
    "webhook.md": webhook.render,
}


def stale(folder: Path = FOLDER) -> dict[Path, str]:
    """The pages that are not as the code has them, with what they should hold."""
    wanted = {folder / name: render() for name, render in PAGES.items()}
    return {
        path: text
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }


def main(folder: Path, *, check: bool) -> int:
    """Writes the pages, or compares them; the exit code is 1 if any differs."""
    found = stale(folder)
    if check:
        for path in found:
            sys.stderr.write(f"{path}: is stale; run: python -m scripts.reference\n")
        return 1 if found else 0
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in found.items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(FOLDER, check="--check" in sys.argv[1:]))
