"""The reference pages are those that the code makes, and nothing in them is without words."""

from typing import Annotated, Literal

import pytest
from pydantic import BeforeValidator, Field

from agent.config_fields import Duration, Name
from scripts.reference import (
    commands,
    configuration,
    docstrings,
    kinds,
    markdown,
    series,
    webhook,
)
from scripts.reference.__main__ import PAGES, main, stale

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
        ("configuration.md", "| `memory-errors` | `threshold` | critical |"),
        ("series.md", "| `cost_reference` | float |"),
        ("webhook.md", "| `symptoms` | list of: [symptom](#symptom), 200 at most | always |"),
    ],
)
def test_what_a_page_shows(page, words):
    assert words in PAGES[page]()


class Parent:
    """What is said of it.

    And more,
    on two lines.

    Attributes:
        one: The first.
        two: The second, which is
            told on two lines.

    Raises:
        three: Is none.
    """


class Child(Parent):
    """A child.

    Attributes:
        two: Another.
    """


class Silent(Parent):
    pass


def test_words_are_a_classs_own_before_its_parents():
    assert docstrings.attributes(Parent) == {
        "one": "The first.",
        "two": "The second, which is told on two lines.",
    }
    assert docstrings.attributes(Child) == {"one": "The first.", "two": "Another."}
    assert docstrings.attributes(Silent) == docstrings.attributes(Parent)
    assert docstrings.about(Parent) == ["What is said of it.", "And more, on two lines."]
    assert docstrings.about(Silent) == []


@pytest.mark.parametrize(
    ("hint", "words", "limits"),
    [
        (Duration | None, "duration", ""),
        (tuple[Name, ...], "list of: name", ""),
        (
            Annotated[int, Field(ge=1, le=4096)] | Literal["auto"],
            'whole number or `"auto"`',
            "from 1 to 4,096",
        ),
        (dict[str, float], "table of: number", ""),
        (bool | None, "true or false", ""),
    ],
    # A type's own text has addresses in it, which are others in each process.
    ids=["duration", "names", "limited or auto", "table", "bool"],
)
def test_types_in_words(hint, words, limits):
    assert kinds.kind_words(hint) == words
    assert kinds.limit_words(hint) == limits


def _odd(value):
    return value


@pytest.mark.parametrize(
    "hint", [complex, Annotated[str, BeforeValidator(_odd)]], ids=["complex", "odd"]
)
def test_a_type_without_words_says_where_they_go(hint):
    with pytest.raises(kinds.UnknownKindError, match=r"scripts\.reference\.kinds: VALIDATED"):
        kinds.kind_words(hint)


def test_pages_are_written_once_and_then_as_they_should_be(tmp_path, capsys):
    folder = tmp_path / "reference"
    assert main(folder, check=True) == 1
    assert "run: python -m scripts.reference" in capsys.readouterr().err
    assert main(folder, check=False) == 0
    assert {path.name for path in folder.iterdir()} == set(PAGES)
    (folder / "cli.md").write_text("old")
    assert [path.name for path in stale(folder)] == ["cli.md"]
    assert main(folder, check=False) == main(folder, check=True) == 0


def test_pipes_stay_in_their_cells():
    text = markdown.table(["a"], [[markdown.code("x [b|c]")], ["d | e"]])
    assert text.splitlines()[2:] == ["| <code>x [b&#124;<wbr>c]</code> |", "| d &#124; e |"]
