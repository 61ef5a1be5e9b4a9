"""Each exemption from ruff's security rules has its reason beside it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXEMPT = re.compile(r"# noqa: (?P<rules>[A-Z0-9, ]+?)(?P<reason> - .+)?$", re.MULTILINE)


def exemptions():
    for folder in ("agent", "probes"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for found in EXEMPT.finditer(path.read_text()):
                for rule in found["rules"].split(", "):
                    if re.fullmatch(r"S\d+", rule):
                        yield str(path.relative_to(ROOT)), rule, found["reason"]


def test_each_exemption_has_a_reason_in_the_code():
    assert [(file, rule) for file, rule, reason in exemptions() if not reason] == []
