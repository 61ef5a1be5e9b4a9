"""The service's virtual environment: made of a Python that the sandbox can reach, kept on upgrades."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final, NamedTuple

from agent.cli.service_files import is_venv
from agent.cli.service_steps import StepError, Steps

PIP_TIMEOUT_S: Final = 3600.0
PAGE: Final = "dashboard"
TORCH_INDEX: Final = "https://download.pytorch.org/whl"
# The service sees nothing of these (ProtectHome=yes).
HIDDEN: Final = (Path("/home"), Path("/root"), Path("/run/user"))
USUAL: Final = ("/usr/bin/python3", "/usr/local/bin/python3")
OLDEST: Final = (3, 11)
_PIP_FIX: Final = (
    "see pip's words above; without a way to an index, name a folder of wheels:"
    " PIP_NO_INDEX=1 PIP_FIND_LINKS=/folder"
)
_PATIENCE: Final = ("--retries", "1", "--timeout", "10")
_PROGRAM: Final = """
import importlib.util, json, os, sys
print(json.dumps({
    "version": list(sys.version_info[:2]),
    "places": [os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)],
    "has_venv": importlib.util.find_spec("ensurepip") is not None,
}))
"""


class Python(NamedTuple):
    """An interpreter.

    Attributes:
        path: Its program.
        version: Major and minor version.
        home: Where its library is.
    """

    path: str
    version: tuple[int, int]
    home: str


def chosen_python(wanted: str | None, steps: Steps) -> Python:
    """The first interpreter that the service can use: the one that is wanted, else one of the usual.

    Args:
        wanted: What the operator named.
        steps: Asks them.

    Raises:
        StepError: There is none; the text says what is wrong with each.
    """
    ours = str(getattr(sys, "_base_executable", sys.executable))
    reasons = []
    for path in dict.fromkeys([wanted] if wanted else [ours, *USUAL]):
        found = _looked_at(path, steps)
        if isinstance(found, Python):
            return found
        reasons.append(f"  {path}: {found}")
    told = "\n".join(reasons)
    raise StepError(f"no Python that the service can use:\n{told}\nname one with --python")


def _looked_at(path: str, steps: Steps) -> Python | str:
    """An interpreter, or why the service cannot use it."""
    try:
        found = json.loads(steps.ask([path, "-I", "-c", _PROGRAM], "is it a Python?"))
    except (StepError, ValueError):
        return "is not there, or no Python"
    if tuple(found["version"]) < OLDEST:
        return f"is older than {OLDEST[0]}.{OLDEST[1]}"
    if any(Path(place).is_relative_to(hidden) for place in found["places"] for hidden in HIDDEN):
        return "lies in a home directory, of which the service must see nothing"
    if not found["has_venv"]:
        return "has no ensurepip; on Debian: apt-get install python3-venv"
    major, minor = found["version"]
    return Python(path, (major, minor), found["places"][1])


def make_venv(folder: Path, wanted: str | None, steps: Steps) -> None:
    """Makes the virtual environment; one that is there and works is kept.

    Args:
        folder: Where.
        wanted: The interpreter that the operator named; None for any.
        steps: Runs and tells.

    Raises:
        StepError: It cannot be made, or something else is there.
    """
    if folder.exists() and not is_venv(folder) and any(folder.iterdir()):
        raise StepError(f"{folder}: holds something else; move it away, then install again")
    python = chosen_python(wanted, steps)
    if is_venv(folder):
        there = _looked_at(str(folder / "bin/python"), steps)
        if isinstance(there, Python) and (
            wanted is None or (there.version, there.home) == (python.version, python.home)
        ):
            return
        steps.say(f"{folder}: is not of this Python any more; it is made anew")
    # It must be readable for the service whatever the file says that root's shell has set.
    steps.run([python.path, "-m", "venv", "--clear", str(folder)], "is there room on the disk?")


def install_packages(folder: Path, source: str, steps: Steps) -> None:
    """Installs infercost and what it needs, torch in the build that this program has.

    Args:
        folder: The virtual environment.
        source: A source tree, a wheel, or a requirement, as pip takes it.
        steps: Runs and tells.

    Raises:
        StepError: pip failed.
    """
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    install = [*pip, "install", "--no-input"]
    if os.environ.get("INFERCOST_TORCH") or not _has_torch(folder, steps):
        *tries, last = torch_requirements()
        if not any(
            steps.attempt([*install, *_PATIENCE, *wanted], timeout_s=PIP_TIMEOUT_S)
            for wanted in tries
        ):
            steps.run([*install, *last], _PIP_FIX, timeout_s=PIP_TIMEOUT_S)
    steps.run([*install, "--upgrade", source], _PIP_FIX, timeout_s=PIP_TIMEOUT_S)


def with_page(source: str) -> str:
    """What to ask pip for, with what the dashboard's unit needs.

    Args:
        source: A source tree, a wheel, or a requirement without extras.
    """
    if Path(source).exists():
        return f"{source}[{PAGE}]"
    return re.sub(r"^([A-Za-z0-9._-]+)(?!\[)(?=[^A-Za-z0-9._-]|$)", rf"\1[{PAGE}]", source)


def torch_requirements() -> list[list[str]]:
    """What to ask pip for, in this order until one is there: the build that this program has.

    A local version such as 2.9.1+cu128 names PyTorch's own index; the plain version is what any
    index may have. INFERCOST_TORCH overrides it, as it does for `make`.
    """
    if named := os.environ.get("INFERCOST_TORCH"):
        return [shlex.split(named)]
    try:
        ours = version("torch")
    except PackageNotFoundError:
        return [["torch"]]
    public, _, build = ours.partition("+")
    plain = [f"torch=={public}"]
    return (
        [[f"torch=={ours}", "--index-url", f"{TORCH_INDEX}/{build}"], plain] if build else [plain]
    )


def _has_torch(folder: Path, steps: Steps) -> bool:
    program = "import importlib.util as u; print(u.find_spec('torch') is not None)"
    answer = steps.ask([str(folder / "bin/python"), "-I", "-c", program], "is it whole?")
    return answer.strip() == "True"
