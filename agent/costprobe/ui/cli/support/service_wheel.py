"""A wheel of the running program, written from its own installed files.

The service must run the version that installs it. No index is searched for costprobe, because it
may return another version, or another project.
"""

from __future__ import annotations

import base64
import hashlib
import sysconfig
import zipfile
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from costprobe.ui.cli.support.service_steps import StepError

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
