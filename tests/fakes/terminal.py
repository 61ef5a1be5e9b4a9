"""Run a command on a pseudo-terminal of a given width."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios


def on_terminal(config, *words, columns=100, env=(), stdin_too=False):
    """The output of a command on a terminal with the given number of columns, unprocessed."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    clean = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS", "LINES"}}
    with subprocess.Popen(
        [sys.executable, "-m", "costprobe", "-c", str(config), *words],
        stdin=theirs if stdin_too else subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.STDOUT,
        env={**clean, "TERM": "xterm-256color", **dict(env)},
    ) as process:
        os.close(theirs)
        seen = b""
        while select.select([ours], [], [], 60)[0]:
            try:
                part = os.read(ours, 65536)
            except OSError:  # EIO on Linux: the other end is closed
                break
            if not part:
                break
            seen += part
        process.wait(60)
    os.close(ours)
    return seen
