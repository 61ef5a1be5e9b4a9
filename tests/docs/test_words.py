"""README and documentation avoid words that a reader cannot look up (see CONTRIBUTING.md)."""

import re
import tomllib
from pathlib import Path

from docs_pages import ROOT, page_name, pages

# Patterns of words and phrases, and what to write instead.
AVOID = tomllib.loads(Path(__file__).with_name("words.toml").read_text())


def prose(text):
    """The text of a page without its generated tables, code blocks, inline code and link targets."""
    text = re.sub(r"<!-- (\w+): begin -->.*?<!-- \1: end -->", "", text, flags=re.DOTALL)
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", "", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def found_words(text):
    for number, line in enumerate(text.splitlines(), 1):
        for pattern, instead in AVOID.items():
            for match in re.finditer(rf"\b(?:{pattern})\b", line, re.IGNORECASE):
                yield number, match[0], instead


def test_pages_avoid_words_that_need_explaining():
    files = [*pages(), ROOT / "CONTRIBUTING.md", ROOT / "bench" / "README.md"]
    assert [path.name for path in files if not path.read_text().strip()] == []
    found = [
        f"{page_name(path)}: {word!r}: write {instead!r}"
        for path in files
        for _, word, instead in found_words(prose(path.read_text()))
    ]
    assert not found, "\n".join(found)
