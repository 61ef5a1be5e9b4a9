"""Which files the service has on a host, where they lie, and how they are put there and taken away."""

from __future__ import annotations

import os
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import agent

SERVICE: Final = "infercost.service"
DASHBOARD: Final = "infercost-dashboard.service"
USER: Final = "infercost"
EXAMPLE: Final = "infercost.toml.example"
SYSUSERS: Final = "usr/local/lib/sysusers.d/infercost.conf"
TMPFILES: Final = "usr/local/lib/tmpfiles.d/infercost.conf"
# Below /usr/local/lib and not /etc: what an operator writes in /etc takes precedence there, and an
# upgrade does not touch it.
FILES: Final[Mapping[str, str]] = {
    SERVICE: f"usr/local/lib/systemd/system/{SERVICE}",
    DASHBOARD: f"usr/local/lib/systemd/system/{DASHBOARD}",
    "infercost.sysusers": SYSUSERS,
    "infercost.tmpfiles": TMPFILES,
    "60-infercost-rapl.rules": "usr/local/lib/udev/rules.d/60-infercost-rapl.rules",
}
VENV: Final = "opt/infercost"
LINK: Final = "usr/local/bin/infercost"
CONFIG: Final = "etc/infercost/infercost.toml"
CACHE: Final = "var/cache/infercost"
# What is the operator's, and goes by --purge alone.
KEPT: Final[Mapping[str, str]] = {
    "etc/infercost": "the configuration",
    f"etc/systemd/system/{SERVICE}.d": "your drop-ins",
    f"etc/systemd/system/{DASHBOARD}.d": "your drop-ins",
    "var/lib/infercost": "the store",
    "var/lib/private/infercost": "the store",
}
RAPL_COUNTERS: Final = (
    "sys/devices/virtual/powercap/intel-rapl/intel-rapl:*/energy_uj",
    "sys/devices/virtual/powercap/intel-rapl/intel-rapl:*/intel-rapl:*/energy_uj",
)
_SHARED: Final = "share/infercost/systemd"
_FILE_MODE: Final = 0o644
_ROOT_ALONE: Final = 0o400


def checkout() -> Path | None:
    """The source tree that this program runs from; None where it was installed from a wheel."""
    folder = Path(agent.__file__).resolve().parents[1]
    return folder if (folder / "pyproject.toml").is_file() else None


def unit_sources(venv: Path | None) -> Path | None:
    """The folder with the units: of a virtual environment, else of this program.

    Args:
        venv: Where the version lies that the units are to fit; None for this one.
    """
    if venv is not None:
        folders = [venv / _SHARED]
    else:
        source = checkout()
        folders = [source / "systemd"] if source else []
        folders.append(Path(sysconfig.get_path("data")) / _SHARED)
    return next((folder for folder in folders if (folder / SERVICE).is_file()), None)


def put(source: Path, target: Path) -> bool:
    """Puts a copy in place in one step; False where it is there as it should be.

    Raises:
        OSError: It cannot be written.
    """
    content = source.read_bytes()
    if target.is_file() and target.read_bytes() == content:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.new")
    fresh.write_bytes(content)
    fresh.chmod(_FILE_MODE)
    fresh.replace(target)
    return True


def link(root: Path) -> bool:
    """Puts the program on everybody's path; False where that was so, or another one is there.

    Raises:
        OSError: It cannot be written.
    """
    path = root / LINK
    if path.is_symlink() or path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(f"/{VENV}/bin/infercost")
    return True


def is_our_link(root: Path) -> bool:
    """Whether the program on the path is the service's."""
    path = root / LINK
    return path.is_symlink() and path.readlink() == Path(f"/{VENV}/bin/infercost")


def is_venv(folder: Path) -> bool:
    """Whether a folder is a virtual environment, and so one that may be deleted as a whole."""
    return (folder / "pyvenv.cfg").is_file()


def shadows(root: Path) -> list[Path]:
    """Files of the same name in /etc, which systemd takes instead of those that are installed."""
    units = [root / "etc/systemd/system" / name for name in (SERVICE, DASHBOARD)]
    others = [root / "etc" / folder / "infercost.conf" for folder in ("sysusers.d", "tmpfiles.d")]
    return [path for path in (*units, *others) if path.exists()]


def remove(path: Path) -> bool:
    """Deletes a file, a link, or a folder with all that is in it; False where there is none.

    Raises:
        OSError: It cannot be deleted.
    """
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
        return True
    existed = path.is_symlink() or path.exists()
    path.unlink(missing_ok=True)
    return existed


def remove_empty(root: Path) -> None:
    """Deletes the folders that held our files alone."""
    for target in FILES.values():
        for folder in (root / target).parents:
            if folder == root / "usr/local/lib" or not folder.is_dir() or any(folder.iterdir()):
                break
            folder.rmdir()


def granted_counters(root: Path) -> Iterator[Path]:
    """RAPL's counters that others than root may read."""
    for pattern in RAPL_COUNTERS:
        for path in sorted(root.glob(pattern)):
            if path.stat().st_gid != 0:
                yield path


def take_back(counter: Path) -> None:
    """Gives a counter back to root alone, as the kernel has it.

    Raises:
        OSError: It cannot be changed.
    """
    os.chown(counter, 0, 0)
    counter.chmod(_ROOT_ALONE)
