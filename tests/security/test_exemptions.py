"""Each exemption from ruff's security rules is listed, with its reason, on docs/security.md."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXEMPT = re.compile(r"# noqa: (?P<rules>[A-Z0-9, ]+?)(?P<reason> - .+)?$", re.MULTILINE)
LISTED = re.compile(
    r"^\| `(?P<file>(?:agent|probes)/\S+)` \| (?P<rule>S\d+) \| .{20,} \|$", re.MULTILINE
)


def exemptions():
    for folder in ("agent", "probes"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for found in EXEMPT.finditer(path.read_text()):
                for rule in found["rules"].split(", "):
                    if re.fullmatch(r"S\d+", rule):
                        yield str(path.relative_to(ROOT)), rule, found["reason"]


def test_each_exemption_has_a_reason_in_the_code():
    assert [(file, rule) for file, rule, reason in exemptions() if not reason] == []


def test_exemptions_on_the_page_match_the_code():
    page = (ROOT / "docs" / "security.md").read_text()
    listed = {(found["file"], found["rule"]) for found in LISTED.finditer(page)}
    assert listed == {(file, rule) for file, rule, _ in exemptions()}


def test_page_names_existing_tests():
    page = (ROOT / "docs" / "security.md").read_text()
    named = re.findall(r"`((?:tests/\w+/)?test_\w+\.py)`", page)
    assert len(named) >= 8
    for name in named:
        folder = ROOT if "/" in name else ROOT / "tests" / "security"
        assert (folder / name).exists(), name
