"""The virtual environment of the service: created from a Python that its sandbox can read.

An upgrade installs into a copy, which replaces the environment when it is complete, while the service
is stopped: a failed upgrade changes nothing, and no program loads parts of two versions. The service must
run the version that installs it: its wheel is written from the installed files, because an index may return
another version, or another project.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shlex
import shutil
import sys
import sysconfig
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from costprobe.adapters.host.files import replace_file
from costprobe.core.outside import bounded_json
from costprobe.ui.cli.support.service_files import StepError, Steps, is_venv, remove

PIP_TIMEOUT_S: Final = 3600.0
LOCK: Final = "share/costprobe/requirements.txt"
# Hidden from the service by ProtectHome=yes.
HIDDEN: Final = (Path("/home"), Path("/root"), Path("/run/user"))
USUAL: Final = ("/usr/bin/python3", "/usr/local/bin/python3")
OLDEST: Final = (3, 11)
_PIP_FIX: Final = (
    "see the output of pip above; without network access, use a folder with the wheels"
    " that requirements/run.txt names: PIP_NO_INDEX=1 PIP_FIND_LINKS=/folder"
)
_TORCH_FIX: Final = "; or set another index: COSTPROBE_TORCH='{} --index-url URL'"
_MODE: Final = 0o777
_FEW_RETRIES: Final = ("--retries", "1", "--timeout", "15")
_PROGRAM: Final = """
import importlib.util, json, os, sys
print(json.dumps({
    "version": list(sys.version_info[:2]),
    "places": [os.path.realpath(sys.executable), os.path.realpath(sys.base_prefix)],
    "has_venv": importlib.util.find_spec("ensurepip") is not None,
}))
"""
_CONTENTS: Final = """
import json
from importlib.metadata import distributions
found = {dist.metadata["Name"]: dist.version for dist in distributions()}
print(json.dumps(["torch" in found, found.get("costprobe")]))
"""


class Python(NamedTuple):
    """An interpreter.

    Attributes:
        path: Its program.
        version: Major and minor version.
        home: The directory of its standard library.
    """

    path: str
    version: tuple[int, int]
    home: str


def chosen_python(python: str | None, steps: Steps) -> Python:
    """Return the first interpreter that the service can use.

    Args:
        python: The requested interpreter; None to try our own and the usual paths.
        steps: Runs them.

    Raises:
        StepError: There is none; the message has the reason for each.
    """
    ours = str(getattr(sys, "_base_executable", sys.executable))
    reasons = []
    for path in dict.fromkeys([python] if python else [ours, *USUAL]):
        inspected = _inspected(path, steps)
        if isinstance(inspected, Python):
            return inspected
        reasons.append(f"  {path}: {inspected}")
    listed = "\n".join(reasons)
    raise StepError(f"no Python that the service can use:\n{listed}\nspecify one with --python")


def _inspected(path: str, steps: Steps) -> Python | str:
    """Return an interpreter, or the reason why the service cannot use it."""
    try:
        facts = bounded_json(
            steps.run(
                [path, "-I", "-c", _PROGRAM],
                "check that it is a Python interpreter",
                is_shown=False,
            )
        )
    except (StepError, ValueError):
        return "does not exist, or is not Python"
    if tuple(facts["version"]) < OLDEST:
        return f"is older than {OLDEST[0]}.{OLDEST[1]}"
    if any(Path(place).is_relative_to(hidden) for place in facts["places"] for hidden in HIDDEN):
        return "is in a home directory, which is hidden from the service"
    if not facts["has_venv"]:
        return "has no ensurepip; on Debian: apt-get install python3-venv"
    major, minor = facts["version"]
    return Python(path, (major, minor), facts["places"][1])


def make_venv(folder: Path, new: Path, wanted: str | None, steps: Steps) -> None:
    """Create a virtual environment, as a copy of an existing one that works.

    Args:
        folder: The existing one, which is not changed.
        new: The folder to create; what an interrupted installation left in it is deleted.
        wanted: The requested interpreter; None for any.
        steps: Runs the commands.

    Raises:
        StepError: It cannot be created, or the folder contains something else.
    """
    if folder.exists() and not is_venv(folder) and any(folder.iterdir()):
        raise StepError(f"{folder}: is not a virtual environment; move it, then install again")
    python = chosen_python(wanted, steps)
    remove(new)
    fix = "check that the disk is not full"
    if is_venv(folder):
        existing = _inspected(str(folder / "bin/python"), steps)
        if isinstance(existing, Python) and (
            wanted is None or (existing.version, existing.home) == (python.version, python.home)
        ):
            # Links: pip replaces files and never writes into one.
            steps.run(["cp", "-al", str(folder), str(new)], fix)
            return
        steps.log(f"{folder}: belongs to another Python; creating it again")
    steps.run([python.path, "-m", "venv", str(new)], fix)


def replace_venv(folder: Path, new: Path) -> None:
    """Let a complete environment replace another, or none; no program of it may be running.

    Raises:
        OSError: It cannot be written.
    """
    old = folder.with_name(f"{folder.name}.old")
    # Programs contain the path of their environment.
    here, there = str(new).encode(), str(folder).encode()
    for path in (new / "pyvenv.cfg", *(new / "bin").iterdir()):
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if here in content:
            replace_file(path, content.replace(here, there), path.stat().st_mode & _MODE)
    remove(old)
    if folder.exists():
        folder.rename(old)
    new.rename(folder)
    remove(old)


def install_packages(folder: Path, source: str, steps: Steps) -> None:
    """Install costprobe, its locked dependencies, and the PyTorch build of the running program.

    Args:
        folder: The virtual environment.
        source: A source tree or a wheel, "FILE.whl[EXTRA]" with an extra.
        steps: Runs the commands.

    Raises:
        StepError: pip failed, or a file of a package differs from its hash in the lock.
    """
    # On a terminal pip shows the size and the progress of its downloads.
    shows = sys.stderr.isatty()
    # Large downloads: /tmp may be a file system in memory.
    downloads = folder / "tmp"
    downloads.mkdir(exist_ok=True)
    env = {**os.environ, "TMPDIR": str(downloads)}
    pip = [str(folder / "bin/python"), "-m", "pip", "--disable-pip-version-check"]
    install = [*pip, *([] if shows else ["--quiet"]), "install", "--no-input"]
    has_torch, installed = _contents(folder, steps)
    wanted = [(arguments, _PIP_FIX) for arguments in pip_arguments(folder, source, installed)]
    if os.environ.get("COSTPROBE_TORCH") or not has_torch:
        build = torch_requirement()
        size = "0.8 GB" if build[-1].endswith("+cpu") else "5.5 GB with CUDA"
        steps.log(f"{folder}: installing {build[-1]} (takes {size})")
        wanted.insert(0, (build, _PIP_FIX + _TORCH_FIX.format(build[-1])))
    for arguments, fix in wanted:
        steps.run([*install, *arguments], fix, timeout_s=PIP_TIMEOUT_S, shows_output=shows, env=env)
    shutil.rmtree(downloads)


def pip_arguments(folder: Path, source: str, installed: str | None) -> list[list[str]]:
    """Return the arguments of each `pip install`, in order.

    The lock is that of the version to be installed. It has the hashes of every package except torch,
    whose build depends on the machine.

    Args:
        folder: The virtual environment.
        source: A source tree or a wheel, "FILE.whl[EXTRA]" with an extra.
        installed: The version of costprobe in the environment; None if there is none.
    """
    if Path(source).is_dir():
        lock = Path(source) / "requirements/run.txt"
        # The lock contains the build backend, so that the build downloads nothing.
        build = ["--no-deps", "--no-build-isolation", source]
        return [["--require-hashes", "--requirement", str(lock)], build]
    # By default pip skips a wheel of the installed version, even if its content differs.
    wheel, has_extras, _ = source.partition(".whl[")
    is_same = wheel.removesuffix(".whl").endswith(f"-{installed}-py3-none-any")
    own = ["--force-reinstall" if is_same else "--upgrade", "--no-deps", source]
    # Conflicts would be those of what an upgrade replaces: all versions are locked.
    locked = ["--no-warn-conflicts", "--require-hashes", "--requirement", str(folder / LOCK)]
    # The packages of further extras are not in the lock.
    extras = [[source]] if has_extras else []
    return [own, locked, *extras]


def torch_requirement() -> list[str]:
    """Return pip's arguments for the PyTorch build of the running program, or of the host.

    A local version such as 2.13.0+cpu is also searched on PyTorch's index of that build. PyPI does not
    accept such versions, so a CPU build is never replaced by PyPI's CUDA build.
    COSTPROBE_TORCH overrides it, as it does for `make`.
    """
    if requirement := os.environ.get("COSTPROBE_TORCH"):
        return shlex.split(requirement)
    try:
        ours = version("torch")
    except PackageNotFoundError:
        return torch_arguments()
    build = ours.partition("+")[2]
    index = [*_FEW_RETRIES, "--extra-index-url", f"{TORCH_INDEX}/{build}"] if build else []
    return [*index, f"torch=={ours}"]


def _contents(folder: Path, steps: Steps) -> tuple[bool, str | None]:
    """Return whether an environment has torch, and its version of costprobe if there is one."""
    output = steps.run(
        [str(folder / "bin/python"), "-I", "-c", _CONTENTS],
        "check that the environment is complete",
        is_shown=False,
    )
    has_torch, installed = bounded_json(output)
    return bool(has_torch), installed


NAME: Final = "costprobe"
PACKAGES: Final = ("costprobe", "costprobe_probes")
# Files that pip writes for each installation.
_OF_INSTALLATION: Final = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}


def running_wheel(folder: Path) -> Path:
    """Write a wheel of the running distribution into a folder and return its path.

    Raises:
        StepError: The program was not installed from a wheel, or files of it are missing.
    """
    try:
        dist = distribution(NAME)
    except PackageNotFoundError as error:
        raise StepError(
            f"{NAME} is not an installed distribution; specify one with --from"
        ) from error
    path = folder / f"{NAME}-{dist.version}-py3-none-any.whl"
    try:
        contents = {name: file.read_bytes() for name, file in _files(dist).items()}
    except OSError as error:
        raise StepError(f"{error.filename}: {error.strerror}; install {NAME} again") from error
    _write(path, contents, f"{NAME}-{dist.version}.dist-info/RECORD")
    return path


def _files(dist: Distribution) -> dict[str, Path]:
    """Return the installed files by their names in the wheel.

    Raises:
        StepError: The installation has no record of its files.
    """
    site, data = Path(str(dist.locate_file(""))).resolve(), Path(sysconfig.get_path("data"))
    files = {}
    for entry in dist.files or ():
        path = Path(str(entry.locate())).resolve()
        if path.is_relative_to(site):
            name = path.relative_to(site)
            if _is_shipped(PurePosixPath(name)):
                files[name.as_posix()] = path
        elif path.is_relative_to(data.resolve() / "share"):
            name = path.relative_to(data.resolve())
            files[f"{NAME}-{dist.version}.data/data/{name.as_posix()}"] = path
    if not any(name.startswith(f"{NAME}/") for name in files):
        raise StepError(f"{site}: {NAME} has no record of its files; specify a wheel with --from")
    return files


def _is_shipped(name: PurePosixPath) -> bool:
    """Return whether a file of the site directory was part of the wheel."""
    top = name.parts[0]
    if top.endswith(".dist-info"):
        return name.name not in _OF_INSTALLATION
    return top in PACKAGES and name.suffix != ".pyc"


def _write(path: Path, contents: dict[str, bytes], record: str) -> None:
    """Write an archive with its RECORD, in which every file has its SHA-256 digest."""
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, content in contents.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
            lines.append(f"{name},sha256={digest.decode()},{len(content)}\n")
            wheel.writestr(name, content)
        wheel.writestr(record, "".join([*lines, f"{record},,\n"]))


TORCH_INDEX: Final = "https://download.pytorch.org/whl"
# As in scripts/setup. PyPI refuses versions with a local label, so this cannot select its CUDA build.
CPU_BUILD: Final = "torch==2.13.0+cpu"
_DRIVER: Final = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))


def torch_arguments() -> list[str]:
    """Return the arguments of `pip install` for the build that suits this host."""
    if any(path.exists() for path in _DRIVER):
        return ["torch"]
    return ["--extra-index-url", f"{TORCH_INDEX}/cpu", CPU_BUILD]
