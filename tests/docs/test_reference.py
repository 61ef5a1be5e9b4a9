"""The reference pages are those that the code makes, and nothing in them is without words."""

import pytest

from scripts.reference import commands, configuration, series, webhook
from scripts.reference.__main__ import PAGES, stale

WRITE = {
    configuration: 'write each under "Attributes:" in the docstring of its class in agent/config*.py',
    series: "write each in scripts/reference/series_words.py",
    commands: "give each a help=, or a docstring",
    webhook: 'give each a "description" in docs/webhook.schema.json',
}


def test_the_pages_are_what_the_code_has():
    found = [path.name for path in stale()]
    assert not found, f"stale in docs/reference: {found}; run: python -m scripts.reference"


@pytest.mark.parametrize("part", WRITE, ids=lambda part: part.__name__.rpartition(".")[2])
def test_nothing_is_without_words(part):
    missing = part.without_words()
    assert not missing, f"no words for {missing}: {WRITE[part]}; then: python -m scripts.reference"


def test_no_words_are_for_what_is_gone():
    gone = series.without_meaning()
    assert not gone, f"not in agent/series.py: {gone}; remove them from series_words.py"


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("cli.md", "### `infercost alerts test`"),
        ("cli.md", "`--sweep`"),
        ("configuration.md", "| `latency_bound` | duration |  | Slowest pass"),
        ("configuration.md", '| `every` | duration | `"5m"` |'),
        ("configuration.md", '| `batch` | whole number or `"auto"`, from 1 to 65,536 |'),
        ("configuration.md", '### `[[notifier]]` with `kind = "apprise"`'),
        ("configuration.md", "### `[[electricity.earlier]]`"),
        ("series.md", "| `cost_reference` | float |"),
        ("webhook.md", "| `symptoms` | list of: [symptom](#symptom), 200 at most | always |"),
    ],
)
def test_what_a_page_shows(page, words):
    assert words in PAGES[page]()
