"""The guide's configuration is valid, and its figures equal those of the tests."""

import re
from pathlib import Path

from costprobe.app.configuration import parse
from costprobe.domain.advice.registry import ADVISORS

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "advice.md").read_text()
TESTS = "".join(
    (ROOT / "tests" / "advice" / name).read_text()
    for name in ("test_hints.py", "test_idle_hours.py")
)


def test_example_configuration_is_valid():
    example = GUIDE.split("```toml\n", 1)[1].split("```", 1)[0]
    config = parse(example, Path("advice.md"))
    assert config.probe[0].quality == 0.91
    assert config.service[0].quality == {"base": 0.88, "org/tuned": 0.91}


def test_every_saving_of_the_guide_is_computed_in_a_test():
    savings = re.findall(r"\*\*([\d,]+\.\d\d)\*\*", GUIDE)
    assert len(savings) == len(ADVISORS)
    for saving in savings:
        assert f'Decimal("{saving.replace(",", "")}")' in TESTS


def test_table_of_the_guide_has_every_kind_of_hint():
    table = GUIDE.split("| --- | --- | --- |\n", 1)[1].split("\n\n", 1)[0]
    assert len(table.splitlines()) == len(ADVISORS)
