"""Write the generated files (reference pages, example configuration), or report those out of date."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from scripts.reference import commands, configuration, man, schemas, series, timing_page
from scripts.reference.samples import readme_sample, service_sample

ROOT = Path(__file__).parents[2]
# A new page is one entry here, and one in the nav of mkdocs.yml.
PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/cli.md": commands.render,
    "docs/reference/configuration.md": configuration.render,
    "docs/reference/series.md": series.render,
    "man/costprobe.1": man.render,
    "systemd/costprobe.toml.example": service_sample,
    "agent/costprobe/ui/dashboard/static/timing.html": timing_page.render,
}
# Files with a generated part between two marker lines.
EXCERPTS: Mapping[str, Callable[[], str]] = {"README.md": readme_sample}
BEGIN = "<!-- configuration, made by python -m scripts.reference -->"
END = "<!-- end of configuration -->"


def stale(root: Path = ROOT) -> dict[Path, str]:
    """Return the generated files that are out of date, with their new text."""
    wanted = {root / name: render() for name, render in PAGES.items()}
    wanted |= {root / name: text for name, text in schemas.render().items()}
    for name, render in EXCERPTS.items():
        path = root / name
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        wanted[path] = with_excerpt(text, render())
    return {
        path: text
        for path, text in wanted.items()
        if text and (not path.exists() or path.read_text(encoding="utf-8") != text)
    }


def with_excerpt(text: str, excerpt: str) -> str:
    """Return a text with a TOML block between the marker lines; unchanged without markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        return text
    return f"{before}{BEGIN}\n```toml\n{excerpt}```\n{END}{after}"


def main(root: Path, *, check: bool) -> int:
    """Write the files, or compare them; return the exit code: 1 if a file differs."""
    found = stale(root)
    if check:
        for path in found:
            sys.stderr.write(f"{path}: is out of date; run: python -m scripts.reference\n")
        return 1 if found else 0
    for path, text in found.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(ROOT, check="--check" in sys.argv[1:]))
