"""Information about processes from the kernel."""

from pathlib import Path


def children_of(pid):
    """Processes whose parent is this one."""
    return [child for child, parent in parents().items() if parent == pid]


def parents():
    """The parent of every process that is not a zombie, by id."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if fields[0] != "Z":
            found[int(stat.parent.name)] = int(fields[1])
    return found
