"""The start of a model in a new process, from its request to the first answer."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costprobe_probes.wire import MAX_LINE_CHARS, Wire

if TYPE_CHECKING:  # torch is part of what is measured
    from costprobe_probes.session import Session

# Part of a line of the pipe.
MAX_PATHS_CHARS = MAX_LINE_CHARS // 2
# These are not in the page cache.
_NO_FILES = ("/proc/", "/sys/", "/dev/")


def report_start(
    wire: Wire, request: dict[str, Any], open_session: Callable[[Wire, dict[str, Any]], Session]
) -> None:
    """Start the model of a request and report when it was ready; a process can do so once.

    Args:
        wire: Pipe to the daemon.
        request: The request, with `list_files` if the files that the start reads are asked for.
        open_session: Imports torch and opens the device.
    """
    received_ns = time.monotonic_ns()
    opened = _opened_files() if request.get("list_files") else None
    start, own_files = open_session(wire, request).start(request)
    wire.report(
        "cold_start",
        received_ns=received_ns,
        **start,
        read_bytes=read_bytes(),
        files=None if opened is None else by_folder({*opened, *own_files, *_mapped_files()}),
    )


def read_bytes(file: str = "/proc/self/io") -> int | None:
    """Return the bytes that this process made the kernel read from storage; None if unknown."""
    try:
        found = re.search(r"^read_bytes: (\d+)$", Path(file).read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """Return absolute paths as names by folder, the largest files that fit into one message."""
    folders: dict[str, list[str]] = {}
    chars = 0
    for path in sorted(paths, key=_size, reverse=True):
        folder, _, name = path.rpartition("/")
        if not folder or not path.isprintable() or path.startswith(_NO_FILES):
            continue
        chars += len(json.dumps(name)) + (0 if folder in folders else len(json.dumps(folder)))
        if chars > MAX_PATHS_CHARS:
            break
        folders.setdefault(folder, []).append(name)
    return folders


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - called often
    except (OSError, ValueError):
        return 0


def _opened_files() -> set[str]:
    """Return a set that grows by each file that Python opens from now on, modules included."""
    opened = {path for path in map(_file_of, list(sys.modules.values())) if path}

    def on_event(event: str, arguments: tuple[Any, ...]) -> None:
        # The hook must not raise; opening by a descriptor has a number as its path.
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            opened.add(os.path.abspath(os.fsdecode(arguments[0])))  # noqa: PTH100 - called often

    sys.addaudithook(on_event)
    return opened


def _file_of(module: Any) -> str | None:  # noqa: ANN401 - an entry of sys.modules
    # Modules may answer any attribute.
    found = (getattr(module, name, None) for name in ("__cached__", "__file__"))
    return next((path for path in found if isinstance(path, str)), None)


def _mapped_files(file: str = "/proc/self/maps") -> set[str]:
    """Return the files that this process has mapped: libraries, and weights."""
    lines = Path(file).read_text(errors="replace").splitlines()
    return {line[line.index("/") :] for line in lines if "/" in line}
