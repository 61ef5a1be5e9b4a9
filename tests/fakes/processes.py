"""Information about processes from the kernel."""

from pathlib import Path


def children_of(pid):
    """Processes whose parent is this one, without zombies."""
    return [child for child in _listed(pid) if is_alive(child)]


def descendants_of(pid, ignored=()):
    """The parent of every descendant of a process, by id, without ignored children."""
    found, waiting = {}, [pid]
    while waiting:
        parent = waiting.pop()
        children = [child for child in children_of(parent) if child not in ignored]
        found.update(dict.fromkeys(children, parent))
        waiting += children
    return found


def _listed(pid):
    # A scan of all processes would take milliseconds.
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            yield from map(int, children.read_text().split())
        except (FileNotFoundError, ProcessLookupError):
            continue


def is_alive(pid):
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"
