"""README and documentation avoid words that a reader cannot look up (see CONTRIBUTING.md)."""

import re

from docs_pages import ROOT, page_name, pages

# Pattern -> what to write instead. Each is a word or phrase, matched case-insensitively.
AVOID = {
    r"try-?out": "demo mode",
    r"for ever": "indefinitely",
    r"(is|are|be|was|were) told": "is notified, is reported",
    r"(tell|tells|telling) (you|nobody|of|whom|us|it)": "report, notify",
    r"rouses?": "wake",
    r"goes on": "resumes, continues",
    r"go on": "resume, continue",
    r"lets? go of": "releases",
    r"rubbish": "malformed",
    r"last words": "stderr tail",
    r"set aside": "quarantine",
    r"changed for good": "persistent shift",
    r"nobody's": "remainder, unallocated",
    r"anew": "again",
    r"hears?": "receives, detects",
    r"by itself": "automatically",
    r"whoever": "the person who",
    r"in words": "as text",
    r"beside live (points|data)": "alongside live data",
    r"goes by": "is based on, elapses",
    r"(tells?|told) apart": "distinguish",
    r"look(s|ed|ing)? at": "reads, checks",
    r"says?": "states, reports",
    r"speaks?": "supports, uses",
    r"remembers?|forgets?": "stores, discards",
    r"believes?|thinks?": "assumes, calculates",
    r"gives? up|gave up": "stops retrying",
    r"comes? back": "recovers, restarts",
    r"verdicts?": "result",
    r"culprits?": "cause",
    r"judges?|judged": "evaluates",
    r"as it stands": "currently",
}


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
    found = [
        f"{page_name(path)}: {word!r}: write {instead!r}"
        for path in files
        for _, word, instead in found_words(prose(path.read_text()))
    ]
    assert not found, "\n".join(found)
