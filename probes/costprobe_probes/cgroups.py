"""The cgroups (v1 or v2) around this process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def enclosing_groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """Yield version and folder of each cgroup around this process, innermost first.

    Folders may be missing: a container sees its own groups as the top.

    Args:
        root: Root of the file system.
        controller: Name of the controller in v1, such as "memory".
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            version, top = 2, root / "sys/fs/cgroup"
        elif controller in controllers.split(","):
            version, top = 1, root / "sys/fs/cgroup" / controller
        else:
            continue
        folder = Path(path.lstrip("/"))
        for above in (folder, *folder.parents):
            yield version, top / above
