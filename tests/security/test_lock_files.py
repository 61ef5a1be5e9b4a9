"""The lock files contain the dependencies of pyproject.toml, each in one version and with hashes."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
SERVICE = ("dashboard", "kubernetes", "otlp")
LOCKS = {"run": [text for extra in SERVICE for text in EXTRAS[extra]], "dev": EXTRAS["dev"]}
FIX = "run scripts/lock and commit what it wrote"


def locked(name):
    """Versions and numbers of hashes, by package and marker."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    found = {}
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    for entry in "\n".join(lines).replace("\\\n", " ").splitlines():
        words, *hashes = re.split(r"\s+--hash=", entry)
        requirement = Requirement(words.strip())
        (pin,) = requirement.specifier
        assert pin.operator == "==", entry
        key = (canonicalize_name(requirement.name), str(requirement.marker or ""))
        assert key not in found, entry
        assert hashes, entry
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", one.strip()) for one in hashes), entry
        found[key] = pin.version
    return found


@pytest.mark.parametrize(("name", "more"), LOCKS.items(), ids=LOCKS)
def test_every_dependency_is_locked_within_its_range(name, more):
    versions = locked(name)
    wanted = [*PROJECT["project"]["dependencies"], *more, *PROJECT["build-system"]["requires"]]
    for text in wanted:
        requirement = Requirement(text)
        if requirement.name == "torch":
            continue
        found = [v for (package, _), v in versions.items() if package == requirement.name]
        assert found, f"{text} is not in the lock: {FIX}"
        assert all(version in requirement.specifier for version in found), f"{text}: {FIX}"


@pytest.mark.parametrize("name", LOCKS)
def test_torch_and_its_dependencies_are_not_locked(name):
    packages = {package for package, _ in locked(name)}
    assert not [one for one in packages if one in ("torch", "triton") or one.startswith("nvidia-c")]


def test_tests_use_the_locked_versions_of_the_daemon():
    assert locked("run").items() <= locked("dev").items(), FIX
